"""The spans of an attempt that its TaskManager makes: of its Spark jobs, by what the attempt has noted of them."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.messages.attempts import AttemptSpec
from millrace.core.messages.effects import LaunchAttempt
from millrace.core.trace_context import HEADER, STATE, TraceContext, of_attempt, span_of
from millrace.runtime.spans import ID, SPARK_JOB, SPARK_STAGE, Span, Value
from millrace.runtime.traces import Traces

from .slot.wire import SparkSpan, spark_spans


class AttemptTraces:
    """Where traces are on."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces

    def given(self, effect: LaunchAttempt) -> AttemptSpec:
        """Its spec, with its own span for those of its code, and what it is to note."""
        context = _context(effect)
        return effect.spec.model_copy(update={"traceparent": str(context), "traced": context.sampled})

    def ended(self, effect: LaunchAttempt, noted: bytes) -> None:
        self._traces.put(spans(effect, noted))


def spans(effect: LaunchAttempt, noted: bytes) -> Iterator[Span]:
    """noted: the attempt's file."""
    context = _context(effect)
    for each in spark_spans(noted):
        job = span_of(context.span, SPARK_JOB.name, each["job"])
        yield (_job if each["stage"] is None else _stage)(effect, context, job, each)


def _job(effect: LaunchAttempt, context: TraceContext, job: str, each: SparkSpan) -> Span:
    attributes: dict[str, Value | None] = {ID: effect.spec.job, "spark.job.id": each["job"], "spark.job.name": each["name"]}
    return SPARK_JOB.span(context.below(job), context.span, each["begin_ms"], each["end_ms"], attributes, failed=_failed(each))


def _stage(effect: LaunchAttempt, context: TraceContext, job: str, each: SparkSpan) -> Span:
    own = context.below(span_of(job, SPARK_STAGE.name, each["stage"], each["attempt"]))
    counts: dict[str, int] = {
        f"spark.stage.{name}": each[name]
        for name in ("tasks", "tasks_failed", "rows_read", "rows_written", "bytes_read", "bytes_written", "bytes_shuffled")
    }
    attributes: dict[str, Value | None] = {
        ID: effect.spec.job, "spark.stage.id": each["stage"], "spark.stage.attempt": each["attempt"], "spark.stage.name": each["name"],
        **counts,
    }  # fmt: skip
    return SPARK_STAGE.span(own, job, each["begin_ms"], each["end_ms"], attributes, failed=_failed(each))


def _failed(each: SparkSpan) -> str | None:
    return "it failed" if each["failed"] else None


def _context(effect: LaunchAttempt) -> TraceContext:
    spec = effect.spec
    return of_attempt(spec.job, {HEADER: spec.traceparent, STATE: spec.tracestate}, effect.acceptance, effect.attempt)
