"""Flink's API as an application of its own, and which requests are for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..kept import Kept
from ..once import Once, add_document
from ..problems import MEDIA_TYPE
from ..processes import Processes
from ..view import View
from . import VERSION, cluster, failures, job_manager, jobs, logs, off, operations, requirements, taskmanagers, vertices
from .commands import Commands
from .dashboard import Dashboard
from .errors import Refusal, add_handlers, answer
from .fetcher import MetricFetcher
from .paths import DASHBOARD, PREFIX, path_of
from .source import Source


def flink(
    view: View, commands: Commands, kept: Kept, settings: Mapping[str, str], dashboard: Dashboard | None, processes: Processes,
    fetcher: MetricFetcher,
) -> FastAPI:  # fmt: skip
    """The application, for paths without a prefix. settings: what is shown as the JobManager's configuration; no secrets. dashboard: the
    files of Flink's own, which are answered as they are."""
    app = FastAPI(
        title="Millrace, as Apache Flink's REST API",
        version=VERSION,
        description="The same jobs and TaskManagers under the paths, fields and ids of Apache Flink, for Flink's own tools.",
        openapi_url=None,  # it is made on the event loop there
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": PREFIX}],
    )
    add_handlers(app)
    source = Source(view, commands)
    for router in (
        cluster.router(source), job_manager.router(source, settings, processes, fetcher),
        jobs.router(source, kept), failures.router(source),
        vertices.router(source), operations.router(source, commands), requirements.router(source, commands),
        taskmanagers.router(source, commands, processes, fetcher),
        logs.router(source, kept, processes), off.router(source),
    ):  # fmt: skip
        app.include_router(router)
    add_document(app, "/openapi.json", lambda: _described(app))
    if dashboard is not None:
        app.mount("/", dashboard)
    return app


def _described(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document: whatever is wrong is answered with `errors`."""
    described = FastAPI.openapi(app)
    shapes = described["components"]["schemas"]
    shapes["Errors"] = {
        "type": "object", "properties": {"errors": {"type": "array", "items": {"type": "string"}}}, "required": ["errors"],
        "additionalProperties": False,
    }  # fmt: skip
    for name in ("HTTPValidationError", "ValidationError"):
        shapes.pop(name, None)
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Errors"}}}
    for operations_of in described["paths"].values():
        for operation in operations_of.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"description": "What was wrong.", "content": content}
    return described


class ForFlink:
    """Passes Flink's paths to Flink's application, and all others on. `flink` makes it at the first request for it: it has as many routes
    as the rest, and most clusters are never asked for one."""

    def __init__(self, app: ASGIApp, flink: Callable[[], ASGIApp]) -> None:
        self._app, self._flink = app, Once(flink)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope["path"]) if scope["type"] == "http" else None
        if scope.get("path") == DASHBOARD:
            await RedirectResponse(f"{DASHBOARD}/")(scope, receive, send)  # its files are named relative to it
        elif path is None:
            await self._app(scope, receive, send)
        else:
            await (await self._flink.get())({**scope, "path": path, "raw_path": path.encode()}, receive, send)


class FlinkErrors:
    """Gives the problems that others answer with under Flink's paths the shape of Flink's errors: a name, a limit, a login."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or path_of(scope["path"]) is None:
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_as_flink(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await answer(_refusal(start, body))(scope, receive, send)

        await self._app(scope, receive, send_as_flink)


def _is_problem(start: Message) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(MEDIA_TYPE.encode()) for name, value in start["headers"])


def _refusal(start: Message, body: bytes) -> Refusal:
    """With its headers, but for those of the body."""
    headers = {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in start["headers"]
        if name.lower() not in (b"content-type", b"content-length")
    }
    problem: dict[str, Any] = json.loads(body)
    return Refusal(start["status"], str(problem["detail"]), headers=headers)
