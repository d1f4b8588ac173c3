"""Sends spans (`spans.py`) to a collector of OpenTelemetry.

Without a collector in OpenTelemetry's own variables traces are off: nothing of OpenTelemetry is imported, and nobody makes a span.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import unquote

import structlog

from .metrics import DROPPED, SENT, SPANS
from .settings import ServiceSettings
from .spans import Span

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HEADERS = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
SPOKEN = "http/protobuf"
WAITING_MOST = 4096  # spans that wait for the collector: what comes then is dropped
BATCH_MOST = 512
TOGETHER_S = 0.2  # a span waits so long for others
STOP_S = 1.0  # for the last spans of a process that ends in order
NOT_TAKEN = "the collector takes no spans: they are dropped, and counted in millrace_spans_total"

log = structlog.get_logger("traces")


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
