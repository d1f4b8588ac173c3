"""How the service itself is: its health, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from millrace.core.topics import WEB
from millrace.runtime import metrics
from millrace.runtime.exposition import exposed, registry_of
from millrace.runtime.metrics import Sample

from . import models
from .api.cluster import overview_of
from .follow import Follows
from .view import View


def state(view: View, follows: Callable[[], Follows]) -> APIRouter:
    """/healthz and /metrics."""
    router = APIRouter(tags=["service"])
    registry = registry_of(WEB, lambda: readings(view, follows))

    @router.get("/healthz", responses={503: {"model": models.Health}})
    async def healthz(response: Response) -> models.Health:
        """Whether the tables are whole and follow the topics: 503 while they do not."""
        state = follows()
        _, as_of = view.ask(lambda _: None)
        status: Literal["ok", "starting", "degraded"]
        status = "starting" if not view.caught_up else "degraded" if state.trouble else "ok"
        reason = state.trouble or ("the tables are being brought back" if not view.caught_up else None)
        response.status_code = 200 if status == "ok" else 503
        return models.Health(status=status, reason=reason, last_fold_s=round(state.folded_s, 1), as_of=models.AsOf(**as_of))

    @router.get("/metrics", response_class=PlainTextResponse)
    def measured() -> Response:  # it rests between its steps: in a thread of its own, and not on the event loop
        """For Prometheus."""
        return exposed(registry)

    return router


def readings(view: View, follows: Callable[[], Follows]) -> Iterator[Sample]:
    """What the view shows. Any thread."""
    found, as_of = view.ask(overview_of)
    yield from metrics.WEB_JOBS.counts(found["jobs"])
    yield from metrics.WEB_SLOTS.counts(found["slots"])
    yield metrics.WEB_TASK_MANAGERS.of(found["task_managers"])
    yield from metrics.WEB_FACTS.counts(view.folded)
    for topic, places in as_of["offsets"].items():
        for partition, offset in places.items():
            yield metrics.WEB_OFFSET.of(offset, topic, partition)
    state = follows()
    yield metrics.WEB_FOLLOWS.of(not state.trouble)
    yield metrics.WEB_FOLD_AGE.of(state.folded_s)
    yield metrics.WEB_AS_OF.of(as_of["time_ms"] / 1000)
