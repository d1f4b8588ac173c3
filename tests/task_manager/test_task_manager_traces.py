"""The spans that a TaskManager makes of an attempt's Spark jobs: the attempt's file may be written by user code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.core.messages.effects import LaunchAttempt
from millrace.core.trace_context import of_attempt
from millrace.runtime.spans import Span
from millrace.runtime.traces import Traces
from services.task_manager.slot import client, wire
from services.task_manager.slot.common import left
from services.task_manager.traces import AttemptTraces, spans

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{TRACE}-00f067aa0ba902b7-01"
OWN = of_attempt("j", {"traceparent": GIVEN}, "acc", "j/0-q/0/1.1")


def launch(traceparent: str | None = GIVEN) -> LaunchAttempt:
    spec = {
        "job": "j", "task": "q", "subtask": 0, "parallelism": 1, "attempt": 1, "kind": "run", "vertices": [], "outputs": [],
        "pinned": {}, "conf": {}, "modules": [], "parameters": {}, "traceparent": traceparent,
    }  # fmt: skip
    return LaunchAttempt(slot=0, attempt="j/0-q/0/1.1", acceptance="acc", folder="f", spec=spec)


def line(stage: int | None = None, **changes: Any) -> bytes:
    span = {
        "job": 4, "stage": stage, "attempt": 0, "name": "collect", "begin_ms": 1000, "end_ms": 1500, "failed": False, "tasks": 2,
        "tasks_failed": 1, "rows_read": 3, "rows_written": 4, "bytes_read": 5, "bytes_written": 6, "bytes_shuffled": 7,
    }  # fmt: skip
    return wire.line_of({**span, **changes})


def test_stages_are_below_their_jobs_and_these_below_the_attempt() -> None:
    job, stage, again = spans(launch(), line() + line(9) + line(9, attempt=1, failed=True))
    assert (job.name, job.parent, job.start_ms, job.end_ms) == ("spark job", OWN.span, 1000, 1500)
    assert (stage.name, stage.parent, stage.failed) == ("spark stage", job.context.span, None)
    assert again.failed is not None and len({each.context.span for each in (job, stage, again)}) == 3
    assert {each.context.trace for each in (job, stage, again)} == {TRACE}
    assert stage.attributes["spark.stage.rows_read"] == 3 and stage.attributes["spark.stage.tasks_failed"] == 1


@pytest.mark.parametrize(
    "noted",
    [
        b"", b"\xff\xfe\n", b"[" * 100_000, b"null\n7\n{}\n", line(begin_ms=-1), line(begin_ms=1 << 42), line(name="x" * 161),
        line(name=None), line(failed=1), line(stage="9"), line(tasks=True), line(tasks=1.5), line(more=1), line(job=None), line()[:40],
    ],
)  # fmt: skip
def test_what_no_attempt_of_ours_notes_is_left_out(noted: bytes) -> None:
    assert [span.name for span in spans(launch(), noted)] == []
    assert [span.name for span in spans(launch(), noted.rstrip() + b"\n" + line())] == ["spark job"]


def test_no_attempt_has_more_spans_than_ours_note() -> None:
    assert len(list(spans(launch(), line() * (wire.SPANS_MAX + 9)))) == wire.SPANS_MAX
    longest = line(1 << 40, name="x" * wire.TEXT_MAX, begin_ms=1 << 41, end_ms=1 << 41, bytes_read=1 << 50, rows_read=1 << 50)
    assert len(longest) * wire.SPANS_MAX < left.SPARK_FILE_BYTES_MAX


def test_a_file_that_is_none_is_not_waited_for_and_a_long_one_is_cut(tmp_path: Path) -> None:
    import os

    assert left.spark(str(tmp_path)) == b""
    os.mkfifo(tmp_path / left.SPARK)
    assert left.spark(str(tmp_path)) == b""
    (tmp_path / left.SPARK).unlink()
    (tmp_path / left.SPARK).write_bytes(line() * 10_000)
    assert len(left.spark(str(tmp_path))) == left.SPARK_FILE_BYTES_MAX


def test_an_attempt_is_given_its_own_span_and_what_to_note() -> None:
    came: list[Span] = []
    sending = Traces(lambda spans: bool(came.extend(spans)) or True, lambda: None)
    making = AttemptTraces(sending)
    spec = making.given(launch()).json_value()
    assert (spec["traceparent"], spec["traced"]) == (str(OWN), True)
    assert making.given(launch(None)).json_value()["traceparent"] == str(of_attempt("j", {}, "acc", "j/0-q/0/1.1"))
    unwanted = making.given(launch(GIVEN[:-1] + "0")).json_value()
    assert (unwanted["traceparent"][-2:], unwanted["traced"]) == ("00", False), "its publisher wants none of its spans kept"
    stated = launch().model_copy(update={"spec": launch().spec.model_copy(update={"tracestate": "a=1"})})
    assert making.given(stated).json_value()["tracestate"] == "a=1" and "tracestate" not in spec
    making.ended(launch(), line())
    sending.stop()
    assert [span.name for span in came] == ["spark job"]


def test_user_code_sees_where_spans_go_and_no_secret_of_it_nor_the_trace_of_who_started_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "TRACEPARENT", "TRACESTATE", "MILLRACE_X"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    seen = client._environment("m")
    assert seen["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://collector:4318"
    assert "hush" not in json.dumps(seen)
