"""What sends spans: off without a collector, never waiting, and what it drops is counted."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest

from millrace.core.trace_context import TraceContext, parse
from millrace.runtime import logs, traces
from millrace.runtime.metrics import DROPPED, SENT, SPANS
from millrace.runtime.settings import ServiceSettings
from millrace.runtime.spans import ATTEMPT, ID, JOB, TABLE, Span
from millrace.runtime.traces import Traces
from tests.contract.conftest import eventually
from tests.io.of_metrics import value_of
from tests.io.of_traces import Collector, tree

TRACE, PUBLISHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
ROOT, CHILD = "1" * 16, "2" * 16
VARIABLES = (*traces.ENDPOINTS, *traces.PROTOCOLS, *traces.HEADERS, "OTEL_SDK_DISABLED", "OTEL_RESOURCE_ATTRIBUTES")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def some(flags: int = 1) -> list[Span]:
    context = TraceContext(TRACE, ROOT, flags)
    return [
        JOB.span(context, PUBLISHER, 1000, 3000, {ID: "j", "millrace.job.name": "n"}, "n"),
        ATTEMPT.span(context.below(CHILD), ROOT, 1500, 1400, {ID: "j", "millrace.subtask": 0, "error.type": None}, "q", "boom"),
    ]


def counted() -> tuple[float, float]:
    return value_of(SPANS, SENT), value_of(SPANS, DROPPED)


def test_a_collector_gets_them_as_opentelemetry_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, dropped = counted()
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        sending = traces.begin(ServiceSettings(instance="me", cluster="c"))
        assert sending is not None
        sending.put([*some()[:1], some()[1]._replace(name="attempt q\ud800")])
        first, second = collector.until("both", lambda spans: spans if len(spans) == 2 else None)
        sending.stop()
    assert collector.headers[0]["authorization"] == "Bearer abc"
    assert (first.trace, first.span, first.parent, first.name, first.service) == (TRACE, ROOT, PUBLISHER, "job n", "millrace-service")
    assert (first.start, first.end, first.failed) == (1_000_000_000, 3_000_000_000, None)
    assert first.attributes == {"millrace.job.id": "j", "millrace.job.name": "n"}
    assert (second.start, second.end, second.failed) == (1_500_000_000, 1_500_000_000, "boom"), "no span ends before it begins"
    assert second.attributes == {"millrace.job.id": "j", "millrace.subtask": 0}
    assert tree([first, second]) == ["job n", "  attempt q?"]
    assert counted() == (sent + 2, dropped)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_without_a_collector_there_is_nothing(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert traces.begin(ServiceSettings()) is None


def test_services_that_do_not_trace_import_nothing_of_opentelemetry() -> None:
    services = ["dispatcher", "resource_manager", "job_master", "task_manager"]
    script = f"""
import sys, importlib
for each in {services}:
    importlib.import_module(f"services.{{each}}.__main__")
from millrace.runtime import traces
from millrace.runtime.settings import ServiceSettings
assert traces.begin(ServiceSettings()) is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_the_extra_it_is_said_and_all_else_goes_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.delitem(sys.modules, "millrace.runtime.collector", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    logs.configure("test", "json")
    assert traces.begin(ServiceSettings()) is None
    assert "install millrace with its extra `traces`" in capsys.readouterr().err


def test_what_opentelemetry_cannot_use_ends_no_service(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER", "nobody")
    logs.configure("test", "json")
    assert traces.begin(ServiceSettings()) is None
    assert "OpenTelemetry refuses its variables" in capsys.readouterr().err


def test_a_collector_that_hangs_holds_up_nobody_and_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "WAITING_MOST", 10)
    monkeypatch.setattr(traces, "STOP_S", 0.05)
    sent, dropped = counted()
    hangs, at_it = threading.Event(), threading.Event()

    def send(spans: Sequence[Span]) -> bool:
        at_it.set()
        return hangs.wait(60)

    sending = Traces(send, hangs.set)
    sending.put(some()[:1])
    assert at_it.wait(60)
    for _ in range(100):
        sending.put(some())
    assert counted() == (sent, dropped + 190)
    sending.stop()
    eventually(lambda: counted() == (sent + 11, dropped + 190), "what was with the collector, and what had waited")


def test_what_a_collector_refuses_or_cannot_be_sent_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, dropped = counted()
    with Collector() as collector:
        collector.status = 400
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        sending = traces.begin(ServiceSettings())
        assert sending is not None
        sending.put(some())
        eventually(lambda: counted() == (sent, dropped + 2), "all of them counted")
        sending.stop()

    def broken(spans: Sequence[Span]) -> bool:
        raise ValueError("no")

    sending = Traces(broken, lambda: None)
    sending.put(some())
    eventually(lambda: counted() == (sent, dropped + 4), "all of them counted")
    sending.put(1 // 0 for _ in range(1))  # type: ignore[misc]  # whatever fails in making one
    sending.put(some())
    eventually(lambda: counted() == (sent, dropped + 6), "all of them counted")
    sending.stop()


def test_a_collector_that_is_away_gives_one_line_in_words_of_our_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent, dropped = counted()
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    logs.configure("test", "json")
    sending = traces.begin(ServiceSettings())
    assert sending is not None
    for batch in (1, 2, 3):
        sending.put(some())
        eventually(lambda batch=batch: counted() == (sent, dropped + 2 * batch), "all of them counted")
    sending.stop()
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(each["level"], each["event"]) for each in told] == [("info", "traces are on"), ("warning", traces.NOT_TAKEN)]


def test_a_trace_that_its_publisher_does_not_want_to_be_kept_is_not_sent() -> None:
    came: list[Span] = []
    sending = Traces(lambda spans: bool(came.extend(spans)) or True, lambda: None)
    sending.put(some(flags=0))
    sending.put(some())
    sending.stop()
    assert [span.context.flags for span in came] == [1, 1]


def test_what_waits_when_a_process_ends_is_sent() -> None:
    came: list[Span] = []
    sending = Traces(lambda spans: bool(came.extend(spans)) or True, lambda: None)
    for _ in range(700):
        sending.put(some())
    sending.stop()
    assert len(came) == 1400


def test_the_headers_of_a_collector_are_not_logged(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hush%20hush, other = quiet-please")
    logs.configure("test", "json", secrets=traces.secret_values())
    traces.log.warning("a test", words="hush hush, hush%20hush and quiet-please")
    told = json.loads(capsys.readouterr().err)
    assert "hush" not in told["words"] and "quiet" not in told["words"]


def test_the_table_has_each_span_once_and_says_all_of_it() -> None:
    assert len({kind.name for kind in TABLE}) == len(TABLE) == 10
    for kind in TABLE:
        assert kind.parent and kind.begins and kind.ends and all(kind.attributes.values())
    with pytest.raises(AssertionError, match="not in the table"):
        JOB.span(TraceContext(TRACE, ROOT), "", 0, 1, {"millrace.more": 1})


def test_what_opentelemetry_reads_of_a_context_is_what_we_write() -> None:
    """Its own propagator takes our text for the same span."""
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    context = TraceContext(TRACE, ROOT)
    found = get_current_span(TraceContextTextMapPropagator().extract({"traceparent": str(context)})).get_span_context()
    assert (f"{found.trace_id:032x}", f"{found.span_id:016x}", found.trace_flags) == (TRACE, ROOT, 1)
    assert parse(str(context)) == context
