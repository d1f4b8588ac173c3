"""GET /metrics of a service, beside /health and /ready: what its process has counted, and what its state shows at this moment.

Whoever asks costs the service's own threads next to nothing: the answer is made on the server's thread, one at a time, and in small steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import structlog
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millrace import __version__

from .health import HealthServer, Probe
from .metrics import BUILD_INFO, TABLE, Sample, Shown
from .metrics_log import MetricsLog
from .settings import ServiceSettings

STEP = 256
REST_S = 0.0001  # a wait of no time at all would not let another thread of Python go first

log = structlog.get_logger(__name__)
T = TypeVar("T")
Readings = Callable[[], Iterable[Sample]]
"""Reads gauges: of what other threads change meanwhile, and without waiting for them."""


def rest() -> None:
    """Lets a thread go first that has something to do."""
    time.sleep(REST_S)


def gently(rows: Iterable[T], rest: Callable[[], None] = rest) -> Iterator[T]:
    """The rows as they are now, in steps. Python's copy of a collection is one step, however long it is."""
    for number, row in enumerate(list(rows), 1):
        yield row
        if number % STEP == 0:
            rest()


class Exposed(Collector):
    """All metrics of one service."""

    def __init__(self, service: str, readings: Sequence[Readings]) -> None:
        self._table = [metric for metric in TABLE if service in metric.services]
        self._readings = [self._about, *readings]

    def collect(self) -> Iterator[Family]:
        read: dict[Shown, list[Sample]] = {}
        for reading in self._readings:
            try:
                for sample in reading():
                    read.setdefault(sample.metric, []).append(sample)
            except Exception:  # the others are shown all the same
                log.exception("metrics could not be read")
        for metric in self._table:
            if isinstance(metric, Shown):
                if metric in read:
                    yield metric.family(read[metric])
            else:
                yield from metric.families()
            rest()

    def _about(self) -> Iterator[Sample]:
        yield BUILD_INFO.of(1, __version__)


def registry_of(service: str, *readings: Readings) -> CollectorRegistry:
    """All that the service exposes."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Exposed(service, readings))
    ProcessCollector(registry=registry)
    return registry


def exposed(registry: CollectorRegistry) -> Response:
    """As Prometheus reads it."""
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def watched(settings: ServiceSettings, probe: Probe, *readings: Readings) -> HealthServer:
    """The server of whoever watches the process, at the place that the settings name."""
    registry = registry_of(settings.service.replace("_", "-"), *readings)

    async def metrics(_: Request) -> Response:
        return exposed(registry)

    logged = MetricsLog(registry, settings.scope())
    token, route = settings.metrics_token.get_secret_value(), Route("/metrics", metrics)
    return HealthServer(
        probe, settings.health_port, settings.health_host, token, [route], logged.report, settings.metrics_log_interval_ms / 1000
    )
