"""The place in a trace of whoever submits: given by name, or that of OpenTelemetry where the program uses it."""

from __future__ import annotations

import sys

from millrace.core.trace_context import TraceContext, fields_of, parse

Headers = list[tuple[str, bytes]]


def headers(traceparent: str | None, tracestate: str | None = None) -> Headers:
    """What a submission carries. traceparent, tracestate: W3C's; without the first, the current span's. None of it where neither is one."""
    context = _current() if traceparent is None else parse(traceparent, tracestate)
    return [(name, text.encode()) for name, text in fields_of(context).items()]


def _current() -> TraceContext | None:
    """A program that has not imported OpenTelemetry has no current span: it is not imported for this."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    text = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
    return parse(text, span.trace_state.to_header()) if span.is_valid else None
