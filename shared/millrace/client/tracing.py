"""The place in a trace of whoever submits: given by name, or that of OpenTelemetry where the program uses it."""

from __future__ import annotations

import sys

from millrace.core.trace_context import HEADER, parse

Headers = list[tuple[str, bytes]]


def headers(traceparent: str | None) -> Headers:
    """What a submission carries. traceparent: W3C's; None: the current span's. None of it where neither is one."""
    context = parse(_current() if traceparent is None else traceparent)
    return [] if context is None else [(HEADER, str(context).encode())]


def _current() -> str | None:
    """A program that has not imported OpenTelemetry has no current span: it is not imported for this."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    span = api.get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else None
