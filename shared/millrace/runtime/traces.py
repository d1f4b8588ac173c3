"""What services trace: one table of spans, and what sends them to a collector of OpenTelemetry.

Without a collector in OpenTelemetry's own variables traces are off: nothing of OpenTelemetry is imported, and nobody makes a span.
A span is made where something is over, of facts that are there anyway, and never in a core. Its identifiers follow from names
(`core/trace_context.py`). docs/traces.md shows the table.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import unquote

import structlog

from millrace.core.messages.attempts import Fault
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER
from millrace.core.trace_context import TraceContext

from .metrics import DROPPED, SENT, SPANS
from .settings import ServiceSettings

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
SPOKEN = "http/protobuf"
WAITING_MOST = 4096  # spans that wait for the collector: what comes then is dropped
BATCH_MOST = 512
TOGETHER_S = 0.2  # a span waits so long for others
STOP_S = 1.0  # for the last spans of a process that ends in order
MESSAGE_MOST = 500
NOT_TAKEN = "the collector takes no spans: they are dropped, and counted in millrace_spans_total"
ERROR = "error.type"
Value = str | int

log = structlog.get_logger("traces")

TABLE: list[SpanKind] = []
"""All of them, in the order in which they are shown."""


class Span(NamedTuple):
    """Something that is over. context: its own identifiers; parent: a span's id, empty where it has none. Times: Unix time, ms."""

    name: str
    context: TraceContext
    parent: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    failed: str | None = None
    """Why, if it failed."""


class SpanKind:
    """One row of the table. about: what stands behind its name, one of few words; parent: whose part it is; begins, ends: at what."""

    def __init__(
        self, name: str, service: str, parent: str, begins: str, ends: str, attributes: Mapping[str, str], about: str = ""
    ) -> None:
        """attributes: name -> meaning."""
        self.name, self.service, self.parent, self.begins, self.ends, self.about = name, service, parent, begins, ends, about
        self.attributes = {**OF_ALL, **attributes}
        TABLE.append(self)

    def span(
        self, context: TraceContext, parent: str, start_ms: int, end_ms: int, attributes: Mapping[str, Value | None],
        about: str = "", failed: str | None = None,
    ) -> Span:  # fmt: skip
        """An attribute that is None is left out. Clocks of two machines may differ: what ends before it begins takes no time."""
        assert attributes.keys() <= self.attributes.keys(), f"{self.name} has attributes that are not in the table: {list(attributes)}"
        name = f"{self.name} {about}" if about else self.name
        known = {name: value for name, value in attributes.items() if value is not None}
        return Span(name, context, parent, start_ms, max(start_ms, end_ms), known, failed)


ID = "millrace.job.id"
OF_ALL = {ID: "the job"}
SPENT = ("queue", "start", "plan", "compute", "exchange", "publish")

JOB = SpanKind(
    "job", DISPATCHER, "the publisher's span, if it has one", "its submission is taken in", "its ending is stored",
    {
        "millrace.job.name": "its name", "millrace.job.status": "FINISHED, FAILED or CANCELED",
        "millrace.job.acceptance": "names this acceptance in storage and logs", ERROR: "kind of its cause",
        **{f"millrace.job.spent.{phase}_ms": "as `spent` of `millrace show`" for phase in SPENT},
    },
    about="NAME",
)  # fmt: skip
STORE = SpanKind("store", DISPATCHER, "job", "its submission is taken in", "etcd has its graph: it is accepted", {})
QUEUE = SpanKind(
    "queue", JOB_MASTER, "job", "it is accepted",
    "it has its first slot, granted by the ResourceManager and offered by a TaskManager; or it ends without any", {},
)  # fmt: skip
SLOT = SpanKind(
    "slot", RESOURCE_MANAGER, "job", "the ResourceManager has that the job wants more slots than it holds; or that it has lost one",
    "it grants it one", {"millrace.task_manager": "whose slot it is", "millrace.slot": "its number there"},
)  # fmt: skip
ATTEMPT = SpanKind(
    "attempt", JOB_MASTER, "job", "it is sent to its TaskManager", "the JobMaster has its end",
    {
        "millrace.task": "the task; @plan: what is fixed before all others", "millrace.subtask": "from 0",
        "millrace.attempt": "its number, from 1", "millrace.task_manager": "where it ran",
        "millrace.outcome": "FINISHED, FAILED or CANCELED", ERROR: "kind of its fault",
    },
    about="TASK",
)  # fmt: skip
START = SpanKind("start", JOB_MASTER, "attempt", "it is sent to its TaskManager", "the JobMaster has that its process runs", {})
SPARK_JOB = SpanKind(
    "spark job", TASK_MANAGER, "attempt", "it is submitted to Spark", "it is complete",
    {"spark.job.id": "its number in its JVM", "spark.job.name": "its description, or what asked for it and where"},
)  # fmt: skip
SPARK_STAGE = SpanKind(
    "spark stage", TASK_MANAGER, "the first spark job that needed it", "it is submitted", "it is complete",
    {
        "spark.stage.id": "its number in its JVM", "spark.stage.attempt": "from 0", "spark.stage.name": "as a job's",
        "spark.stage.tasks": "its tasks", "spark.stage.tasks_failed": "attempts of these that failed",
        "spark.stage.rows_read": "from sources and exchanges", "spark.stage.rows_written": "to files",
        "spark.stage.bytes_read": "as rows_read", "spark.stage.bytes_written": "as rows_written",
        "spark.stage.bytes_shuffled": "written for other stages",
    },
)  # fmt: skip
PUBLISH = SpanKind(
    "publish", JOB_MASTER, "job", "its last attempt finishes", "all sinks are at their paths",
    {"millrace.sinks": "how many"},
)  # fmt: skip
FINISH = SpanKind("finish", DISPATCHER, "job", "its JobMaster ends it", "storage has its archive, and etcd its ending", {})


def failed(fault: Fault | None) -> str:
    """What a span that failed says of why."""
    return fault.message[:MESSAGE_MOST] if fault is not None else ""


class Traces:
    """Sends spans, a few at a time, on a thread of its own. send: whether the collector took them; it may take long, and raise."""

    def __init__(self, send: Callable[[Sequence[Span]], bool], close: Callable[[], None]) -> None:
        """close: ends a `send` that takes long."""
        self._send, self._close = send, close
        self._waiting: queue.Queue[Span | None] = queue.Queue(WAITING_MOST)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    def put(self, spans: Iterable[Span]) -> None:
        """Takes spans. Any thread; never waits, and whatever fails in making them, nothing else does. Those of a trace that its publisher
        does not want to be kept are left out."""
        try:
            for span in spans:
                if span.context.sampled:
                    try:
                        self._waiting.put_nowait(span)
                    except queue.Full:
                        SPANS.add(DROPPED)
        except Exception:
            log.exception("a span could not be made")

    def stop(self) -> None:
        """Sends what waits, within STOP_S; the rest is dropped."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)  # wakes the thread
        self._thread.join(STOP_S)
        self._close()

    def _run(self) -> None:
        while not (self._stopping.is_set() and self._waiting.empty()):
            batch = self._take()
            try:
                outcome = SENT if not batch or self._send(batch) else DROPPED
                if outcome == DROPPED:
                    log.warning(NOT_TAKEN)  # always the same words, so that a collector that is away for hours fills no log
            except Exception:
                log.exception("spans are lost", spans=len(batch))
                outcome = DROPPED
            for _ in batch:
                SPANS.add(outcome)

    def _take(self) -> list[Span]:
        """The next spans, at most a batch; waits for a first one. They may be none when it is to stop."""
        batch = [self._waiting.get()]
        due_s = time.monotonic() + TOGETHER_S
        while len(batch) < BATCH_MOST and batch[-1] is not None:
            try:
                batch.append(self._waiting.get(timeout=max(0.0, due_s - time.monotonic())))
            except queue.Empty:
                break
        return [span for span in batch if span is not None]


def begin(settings: ServiceSettings) -> Traces | None:
    """What sends the spans of this process; None: traces are off."""
    names = ", ".join(name for name in ENDPOINTS if os.environ.get(name))
    if not names or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    protocol = next((os.environ[name] for name in PROTOCOLS if os.environ.get(name)), SPOKEN)
    if protocol != SPOKEN:
        log.warning("traces are off: this protocol is not spoken", protocol=protocol, spoken=SPOKEN)
        return None
    try:
        from .collector import Collector

        collector = Collector(settings.service.replace("_", "-"), settings.instance, settings.cluster)
    except ImportError as missing:
        log.warning("traces are off: install millrace with its extra `traces`", variables=names, missing=missing.name)
        return None
    except Exception as failure:  # a variable that is none of its kind must not end a service
        log.warning("traces are off: OpenTelemetry refuses its variables", reason=f"{type(failure).__name__}: {failure}")
        return None
    log.info("traces are on", variables=names)
    return Traces(collector.send, collector.close)


def secret_values() -> list[str]:
    """What must not be logged: the values of the headers that the collector is sent. One that is written wrongly, as with a colon, is
    printed whole by OpenTelemetry."""
    pairs = [pair.strip() for name in HEADERS for pair in os.environ.get(name, "").split(",")]
    values = [pair.partition("=")[2].strip() for pair in pairs]
    return list(dict.fromkeys(value for each in [*pairs, *values] for value in (each, unquote(each)) if value))
