"""The application: what every request passes through, how errors are answered, and the parts that answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from millrace import __version__
from millrace.io.addresses import is_loopback
from millrace.io.interfaces import Entry
from millrace.io.storage.store import Storage

from .access.guard import Guard
from .access.settings import Access
from .again import Answers, KeepAnswers
from .api import api
from .commands import Commands
from .flink.app import FlinkErrors, ForFlink, flink
from .flink.dashboard import Dashboard
from .flink.fetcher import MetricFetcher
from .follow import Follows
from .kept import Kept
from .measured import Measured
from .middleware import Ending, Head, Limits, Names, RequestId, SameOrigin, SecurityHeaders
from .once import add_document
from .problems import add_handlers
from .processes import Processes
from .state import state
from .view import View

if TYPE_CHECKING:
    from .access.login import Login

CORS: dict[str, Any] = {
    "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
    "allow_headers": [
        "Authorization", "Content-Type", "Idempotency-Key", "If-None-Match", "Last-Event-ID", "Range", "traceparent", "tracestate",
    ],
    "expose_headers": ["Content-Range", "ETag", "Location", "Retry-After", "X-Request-Id"],
}  # fmt: skip
"""No cookie is taken from another origin: its pages send a token."""


def application(
    view: View,
    follows: Callable[[], Follows],
    commands: Commands,
    host: str = "127.0.0.1",
    allowed_hosts: Sequence[str] = (),
    shown: Mapping[str, str] | None = None,
    flink_dashboard: Path | None = None,
    storage: Storage | None = None,
    page: APIRouter | None = None,
    login: Login | None = None,
    access: Access | None = None,
    spark_history: str = "",
    processes: Processes | None = None,
    stored: Callable[[str], Entry | None] = lambda key: None,
    metrics_fetch_interval_ms: int = 10_000,
    kept: Kept | None = None,
) -> FastAPI:
    """The application over a view, which asks by `commands`; `follows` says whether the view does.

    host: what it listens on; behind loopback it answers to loopback's names alone. allowed_hosts: the names that it answers to instead.
    shown: settings, without secrets, as Flink's tools are shown them. flink_dashboard: the folder with the files of Flink's dashboard.
    storage: where attempts leave their logs. login: finds out who asks; None: everybody may do everything. access: limits, and origins.
    spark_history: the address of a Spark history server. processes: asks TaskManagers and services. stored: what etcd holds of a job,
    by its key. metrics_fetch_interval_ms: how often processes are asked for Flink's metrics, at most. kept: what attempts
    left in storage; None: in `storage`."""
    app = FastAPI(
        title="Millrace",
        version=__version__,
        description="Jobs, TaskManagers, slots and leaders of a Millrace cluster, and commands to it. "
        "Each answer says as_of when it is.",
        openapi_url=None,  # it is made on the event loop there
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    storage = storage or Storage("memory://none")
    kept, processes = kept or Kept(view, commands, storage, stored), processes or Processes(commands, storage)
    fetcher = MetricFetcher(processes, metrics_fetch_interval_ms / 1000)
    dashboard = Dashboard(flink_dashboard) if flink_dashboard is not None else None  # what is wrong with its folder is said at the start
    app.add_middleware(ForFlink, flink=lambda: flink(view, commands, kept, shown or {}, dashboard, processes, fetcher))
    app.add_middleware(Limits)
    app.add_middleware(Guard, login=login, settings=access)
    origins = access.origins if access is not None else []
    app.add_middleware(SameOrigin, others=origins)
    app.add_middleware(Head)
    if origins:
        app.add_middleware(CORSMiddleware, allow_origins=origins, **CORS)
    names = list(allowed_hosts) or (["127.0.0.1", "localhost", "[::1]", host] if is_loopback(host) else [])
    if names:
        app.add_middleware(Names, names=names)
    app.add_middleware(Ending)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(FlinkErrors)
    app.add_middleware(RequestId)
    app.add_middleware(Measured)
    app.state.answers = Answers(view)
    app.add_middleware(KeepAnswers, answers=app.state.answers)  # what is added last comes first
    add_handlers(app)
    app.include_router(state(view, follows))
    app.include_router(api(view, commands, kept, processes, spark_history))
    if page is not None:
        app.include_router(page)
    add_document(app, "/api/v1/openapi.json", lambda: _described(app))
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document. It takes longer to make than all else of the application."""
    from .problems import Mistake, Problem

    described = FastAPI.openapi(app)
    shapes = described["components"]["schemas"]
    for shape in (Mistake, Problem):
        shapes[shape.__name__] = shape.model_json_schema(ref_template="#/components/schemas/{model}")
        shapes[shape.__name__].pop("$defs", None)
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    for operations in described["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # what the library answers; here it is 400, as described
    return described
