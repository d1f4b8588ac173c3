"""Settings of a history."""

from __future__ import annotations

from typing import ClassVar

from pydantic import DirectoryPath, Field

from ..settings import WebSettings


class HistorySettings(WebSettings):
    """Shows jobs that ended, from the archives in storage (--storage-url), as a page and as JSON. It needs no cluster, and writes nothing.

    It is reached as the web service is. What that is told about Kafka, etcd and blobs means nothing here."""

    service: ClassVar[str] = "history"
    spark_events: DirectoryPath | None = Field(
        None, description="Folder that a Spark history server reads: event logs of the jobs that are shown are put there."
    )
    retained_jobs: int = Field(10_000, ge=1, le=1_000_000, description="Archives that are shown, the newest.")
