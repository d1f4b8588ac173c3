"""Where attempts leave what they give to each other: below storage, by the name that Spark has for its place."""

from __future__ import annotations

import pytest

from services.job_master.settings import JobMasterSettings


@pytest.mark.parametrize(
    ("storage", "exchange"),
    [
        ("/data/storage/", "/data/storage/exchange"),
        ("file:///data/storage", "file:///data/storage/exchange"),
        ("s3://bucket/millrace", "s3a://bucket/millrace/exchange"),
        ("s3a://bucket/millrace/", "s3a://bucket/millrace/exchange"),
        ("gcs://bucket", "gs://bucket/exchange"),
        ("abfs://container@account/millrace", "abfs://container@account/millrace/exchange"),
    ],
)
def test_an_object_store_has_the_scheme_that_spark_knows(storage: str, exchange: str) -> None:
    assert JobMasterSettings(storage_url=storage).deciding()["exchange_url"] == exchange
