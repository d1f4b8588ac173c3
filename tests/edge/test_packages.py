"""Sources and sinks whose format or place needs a package."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.edge.requests import check_graph
from millrace.edge.spark_conf import PACKAGES, lacking

NEEDS = "needs a package that Spark does not bring along"


def said(conf: dict[str, str] | None = None, **source: Any) -> list[str]:
    found = check_graph({"name": "x", "conf": conf or {}, "vertices": {"a": {"source": source}}}, {}, DEFAULT_LIMITS)
    assert found.problems == ()
    return [each.message for each in found.warnings]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"format": "parquet", "path": "s3a://b/x"}, f"s3a:// {NEEDS}"),
        ({"format": "iceberg", "path": "/w/x"}, f"iceberg {NEEDS}"),
        ({"format": "Delta", "path": "/w/x"}, f"Delta {NEEDS}"),
        ({"format": "avro", "path": "/w/x"}, f"avro {NEEDS}"),
        ({"format": "kafka"}, f"kafka {NEEDS}"),
        ({"format": "cvs", "path": "/w/x"}, "Spark has no format cvs of its own"),
    ],
)
def test_a_source_that_needs_a_package_is_told_before_it_runs(source: dict[str, str], message: str) -> None:
    assert said(**source) == [message]
    assert said({"spark.jars.packages": "g:a:1"}, **source) == []


@pytest.mark.parametrize(("packages", "wrong"), [
    ("evil", ["evil"]), ("g:a:1,g:a", ["g:a"]), ("g:a:1, h/b/2,", []), ("", []), ("g::1", ["g::1"]), ("g:a:1:x", ["g:a:1:x"]),
])  # fmt: skip
def test_a_package_that_has_no_coordinates_is_refused_before_it_runs(packages: str, wrong: list[str]) -> None:
    graph = {"name": "x", "conf": {"spark.jars.packages": packages}, "vertices": {"a": {"sql": "SELECT 1 AS a"}}}
    found = check_graph(graph, {}, DEFAULT_LIMITS)
    assert [each.message for each in found.problems] == [f"{each!r} is no package" for each in wrong]
    assert {each.place for each in found.problems} <= {("conf", "spark.jars.packages")}


NEEDS_NONE: list[dict[str, str]] = [{"format": "jdbc"}, {"format": "XML", "path": "/x"}, {"format": "a.Source"}, {"format": "rate"}]


@pytest.mark.parametrize("source", NEEDS_NONE)
def test_a_source_that_needs_none_is_not_warned_of(source: dict[str, str]) -> None:
    assert said(**source) == []


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("java.lang.RuntimeException: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "s3a"),
        ('No FileSystem for scheme "gs"', "gs"),
        ("Failed to find the data source: iceberg. Make sure the provider name is correct", "iceberg"),
        ("Class org.example.Mine not found", None),
        ("Failed to find the data source: mine. Make sure", None),
    ],
)
def test_the_package_that_an_error_of_spark_is_about(message: str, name: str | None) -> None:
    found = lacking(message)
    assert (found and found[1]) == (PACKAGES[name] if name else None)
