"""The trace that a submission carries: given, or OpenTelemetry's current one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from millrace.client.tracing import headers

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("text", ["", "nonsense", GIVEN.upper()])
def test_what_is_malformed_is_left_out(text: str) -> None:
    assert headers(text) == []


def test_what_is_given_goes_along() -> None:
    assert headers(GIVEN) == headers(GIVEN, "not one") == [("traceparent", GIVEN.encode())]
    assert headers(GIVEN, "a=1,b=2") == [("traceparent", GIVEN.encode()), ("tracestate", b"a=1,b=2")]
    assert headers("not one", "a=1,b=2") == []


@pytest.mark.parametrize(("flags", "told"), [(TraceFlags.SAMPLED, "01"), (TraceFlags.DEFAULT, "00")])
def test_the_current_span_goes_along_where_nothing_is_given(flags: int, told: str) -> None:
    assert headers(None) == [], "there is none"
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(flags)))
    with trace.use_span(span):
        assert headers(None) == [("traceparent", f"00-{0xABC:032x}-{0xDEF:016x}-{told}".encode())]
        assert headers(GIVEN) == [("traceparent", GIVEN.encode())], "what is given comes before it"
    noted = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=True, trace_state=TraceState([("a", "1"), ("b", "2")])))
    with trace.use_span(noted):
        assert headers(None)[1:] == [("tracestate", b"a=1,b=2")]


def test_a_program_without_opentelemetry_does_not_import_it() -> None:
    script = "import sys; from millrace.client.tracing import headers; print(headers(None), 'opentelemetry' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]
