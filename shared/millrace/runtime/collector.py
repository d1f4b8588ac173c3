"""OpenTelemetry's side of `traces.py`: spans as it has them, to the collector that its variables name. Imported where traces are on."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags, TraceState

from millrace import __version__
from millrace.core.trace_context import TraceContext

from .spans import Span


class Collector:
    """Sends spans of one process. What OTEL_RESOURCE_ATTRIBUTES says of it stays where this says nothing."""

    def __init__(self, service: str, instance: str, cluster: str) -> None:
        # What it logs of a collector that is away comes several times for each batch, in other words each time: `Traces` says it once.
        logging.getLogger("opentelemetry.exporter").setLevel(logging.CRITICAL)
        self._exporter = OTLPSpanExporter()
        self._scope = InstrumentationScope("millrace", __version__)
        self._resource = Resource.create({
            "service.name": f"millrace-{service}", "service.namespace": cluster, "service.instance.id": instance,
            "service.version": __version__,
        })  # fmt: skip

    def send(self, spans: Sequence[Span]) -> bool:
        """Whether the collector took them. Tries for OTEL_EXPORTER_OTLP_TIMEOUT, ten seconds."""
        return self._exporter.export([self._readable(span) for span in spans]) is SpanExportResult.SUCCESS

    def close(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # its library's one method without types

    def _readable(self, span: Span) -> ReadableSpan:
        """The class is for reading, as its library says; its tracers would draw identifiers of their own."""
        return ReadableSpan(
            _sound(span.name),
            context=_context(span.context, span.context.span, remote=False),
            parent=_context(span.context, span.parent, remote=True) if span.parent else None,
            resource=self._resource,
            attributes={name: _sound(value) if isinstance(value, str) else value for name, value in span.attributes.items()},
            status=Status(StatusCode.UNSET) if span.failed is None else Status(StatusCode.ERROR, _sound(span.failed)),
            start_time=span.start_ms * 1_000_000,
            end_time=span.end_ms * 1_000_000,
            instrumentation_scope=self._scope,
        )


def _context(context: TraceContext, span: str, *, remote: bool) -> SpanContext:
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(int(context.trace, 16), int(span, 16), remote, TraceFlags(TraceFlags.SAMPLED), state)


def _sound(text: str) -> str:
    """Half of a surrogate pair, which a user's text may hold, becomes a question mark: with it, no span of the batch could be sent."""
    return text.encode(errors="replace").decode()
