"""The read-only JSON: FastAPI with its OpenAPI document, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, get_args

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from millrace import __version__
from millrace.core.states import SlotStateShown, StatusShown
from millrace.io.http.server import is_loopback

from . import models
from .follow import Follows
from .view import View

PAGE_MOST = 1000
STARTING: dict[int | str, dict[str, Any]] = {400: {"model": models.Refusal}, 503: {"model": models.Refusal}}
REFUSED: dict[int | str, dict[str, Any]] = {404: {"model": models.Refusal}}


def application(
    view: View, follows: Callable[[], Follows], host: str = "127.0.0.1", allowed_hosts: Sequence[str] = ()
) -> FastAPI:
    """The application over a view; `follows` says whether it does. `host`: what it listens on; behind loopback it answers to loopback's
    names alone, so that no page in a browser can read it under a name of its own. `allowed_hosts`: the names that it answers to instead."""
    app = FastAPI(
        title="Millrace",
        version=__version__,
        description="Jobs, TaskManagers, slots and leaders of a Millrace cluster, read-only, as told on job.events and cluster.events. "
        "Each answer says as_of when it is.",
        openapi_url="/api/v1/openapi.json",
        dependencies=[Depends(_known_alone)],
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    names = list(allowed_hosts) or (["127.0.0.1", "localhost", "[::1]", host] if is_loopback(host) else [])
    if names:
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=names)
    app.add_middleware(Head)
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    _add_answers(app, view)
    _add_state(app, view, follows)
    described = app.openapi()  # kept, and answered from then on
    for operations in described["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # what the library answers; here it is 400, as described
    return app


class Head:
    """HEAD is answered as GET is; the server leaves the body out. Monitors ask so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)


def _add_answers(app: FastAPI, view: View) -> None:
    def ask(question: Callable[[View], Any]) -> tuple[Any, models.AsOf]:
        if not view.ready:
            raise HTTPException(503, "the tables are being brought back: ask again in a moment")
        found, as_of = view.ask(question)
        return found, models.AsOf(**as_of)

    @app.get("/api/v1/jobs", responses=STARTING | REFUSED)
    async def jobs(
        status: Annotated[StatusShown | None, Query(description="Only jobs of this status.")] = None,
        limit: Annotated[int, Query(ge=1, le=PAGE_MOST)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> models.Jobs:
        """The jobs, newest first."""
        found, as_of = ask(lambda view: view.jobs.listed(status))
        return models.Jobs(as_of=as_of, total=len(found), jobs=found[offset : offset + limit])

    @app.get("/api/v1/jobs/{job}", responses=STARTING | REFUSED)
    async def job(job: str) -> models.Job:
        """A job with its tasks, subtasks and attempts."""
        found, as_of = ask(lambda view: view.jobs.described(job))
        if found is None:
            raise HTTPException(404, f"there is no job {job!r} among those that are shown; `millrace show` knows older ones")
        return models.Job(as_of=as_of, job=found)

    @app.get("/api/v1/taskmanagers", responses=STARTING | REFUSED)
    async def task_managers(
        gone: Annotated[bool, Query(description="Those that are gone, instead of those that are registered.")] = False,
    ) -> models.TaskManagers:
        """The TaskManagers, by name."""
        found, as_of = ask(lambda view: view.cluster.task_managers(gone))
        return models.TaskManagers(as_of=as_of, task_managers=found)

    @app.get("/api/v1/slots", responses=STARTING)
    async def slots() -> models.Slots:
        """The slots of the registered TaskManagers, and what is in them."""
        found, as_of = ask(_slots)
        return models.Slots(as_of=as_of, slots=found)

    @app.get("/api/v1/leaders", responses=STARTING)
    async def leaders() -> models.Leaders:
        """Who was last elected for each scope."""
        found, as_of = ask(lambda view: view.cluster.leaders())
        return models.Leaders(as_of=as_of, leaders=found)

    @app.get("/api/v1/overview", responses=STARTING)
    async def overview() -> models.Overview:
        """How many there are of everything."""
        found, as_of = ask(_overview)
        return models.Overview(as_of=as_of, **found)


def _add_state(app: FastAPI, view: View, follows: Callable[[], Follows]) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(view, follows))

    @app.get("/healthz", responses={503: {"model": models.Health}})
    async def healthz(response: Response) -> models.Health:
        """Whether the tables are whole and follow the topics: 503 while they do not."""
        state = follows()
        _, as_of = view.ask(lambda _: None)
        status: Literal["ok", "starting", "degraded"]
        status = "starting" if not view.ready else "degraded" if state.trouble else "ok"
        reason = "the tables are being brought back" if not view.ready else state.trouble or None
        response.status_code = 200 if status == "ok" else 503
        return models.Health(status=status, reason=reason, last_fold_s=round(state.folded_s, 1), as_of=models.AsOf(**as_of))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """For Prometheus."""
        return PlainTextResponse(generate_latest(registry), media_type="text/plain; version=0.0.4")


class _Metrics:
    """Counts what the view shows, when it is asked."""

    def __init__(self, view: View, follows: Callable[[], Follows]) -> None:
        self._view, self._follows = view, follows

    def collect(self) -> Iterator[Metric]:
        found, as_of = self._view.ask(_overview)
        for name, what, label, values in (
            ("jobs", "Jobs by status", "status", StatusShown), ("slots", "Slots by state", "state", SlotStateShown),
        ):  # fmt: skip
            family = GaugeMetricFamily(f"millrace_{name}", what, labels=[label])
            for value, count in {**dict.fromkeys(get_args(values), 0), **found[name]}.items():
                family.add_metric([value], count)
            yield family
        yield GaugeMetricFamily("millrace_task_managers", "Registered TaskManagers", found["task_managers"])
        facts = CounterMetricFamily("millrace_web_facts", "Records read since the start", labels=["what"])
        for what, count in self._view.folded.items():
            facts.add_metric([what], count)
        yield facts
        offsets = GaugeMetricFamily("millrace_web_offset", "Last offset shown", labels=["topic", "partition"])
        for topic, places in as_of["offsets"].items():
            for partition, offset in places.items():
                offsets.add_metric([topic, partition], offset)
        yield offsets
        state = self._follows()
        yield GaugeMetricFamily("millrace_web_follows", "1: Kafka answers, and what it has is read", float(not state.trouble))
        yield GaugeMetricFamily("millrace_web_last_fold_age_seconds", "Time since the last record was taken in", state.folded_s)
        yield GaugeMetricFamily("millrace_web_as_of_seconds", "Time of the newest record shown", as_of["time_ms"] / 1000)


def _slots(view: View) -> list[dict[str, Any]]:
    return view.cluster.slots(view.jobs.in_slots())


def _overview(view: View) -> dict[str, Any]:
    states: dict[str, int] = {}
    for slot in _slots(view):
        states[slot["state"]] = states.get(slot["state"], 0) + 1
    return {
        "jobs": view.jobs.statuses(), "slots": states, "task_managers": len(view.cluster.task_managers()),
        "leaders": len(view.cluster.leaders()),
    }  # fmt: skip


async def _known_alone(request: Request) -> None:
    """A parameter that is not known would be taken for one that allows all."""
    known = [field.alias for field in request.scope["route"].dependant.query_params]
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        told = f"there are: {', '.join(known)}" if known else "there are none"
        raise HTTPException(400, f"{unknown[0]}: no parameter of {request.url.path}; {told}")


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 400)
