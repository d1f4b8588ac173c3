"""Subtasks of one task make the same columns."""

from __future__ import annotations

import json
from typing import Any

from millrace.core.messages.attempts import AttemptReport, OutputReport
from services.job_master.core import publication
from tests.core.of_job_master import TWO, Shard, kinds


def report(schema: str) -> AttemptReport:
    return AttemptReport(outputs={"b": OutputReport(schema=schema)})


def test_subtasks_that_make_different_columns_fail_the_job() -> None:
    """A consumer reads all of them by one schema, and a result has one list of columns: the others' would be lost."""

    def told(*columns: tuple[str, Any]) -> list[str]:
        shard = Shard()
        shard.start({**TWO, "result": "b"})
        shard.offer("a1")
        shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{a}"}}})
        shard.offer("a2")
        shard.told("a1", "FINISHED", report={"outputs": {"b": {"schema": schema(("k", "long"), ("v", "long"))}}})
        said = kinds(shard.told("a2", "FINISHED", report={"outputs": {"b": {"schema": schema(*columns)}}}))
        return [said[-1], str(shard.job.cause and shard.job.cause.message)]

    def schema(*columns: tuple[str, Any]) -> str:
        return json.dumps({"type": "struct", "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns]})  # fmt: skip

    start = "Subtasks 0 and 1 of 'b' made different columns: they "
    end = "; make them the same whatever the rows, or use parallelism 1"
    assert told(("k", "long"), ("v", "long")) == ["dispatcher JobEnded FINISHED", "None"]
    assert told(("k", "long"), ("w", "long")) == ["dispatcher JobEnded FAILED", f"{start}differ in v, w{end}"]
    assert told(("k", "long"), ("v", "double")) == ["dispatcher JobEnded FAILED", f"{start}differ in v{end}"]
    assert told(("v", "long"), ("k", "long")) == ["dispatcher JobEnded FAILED", f"{start}have them in another order{end}"]


def test_whether_a_column_may_be_null_is_no_difference_of_columns() -> None:
    shard = Shard()
    shard.start(TWO)
    array = {"type": "array", "elementType": "long", "containsNull": False}
    one = {"fields": [{"name": "k", "type": array, "nullable": False, "metadata": {"a": 1}}]}
    other = {"fields": [{"name": "k", "type": {**array, "containsNull": True}, "nullable": True, "metadata": {}}]}
    shard.job.tasks["b"].schemas = {"b": json.dumps(one)}
    assert publication.columns_differ(shard.job, "b", 1, report(json.dumps(other))) is None
    assert publication.columns_differ(shard.job, "b", 1, report("a word of a redacted log")) is None
