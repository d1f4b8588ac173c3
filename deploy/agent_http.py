"""An agent over HTTP, for the ResourceManager's provider `process`."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millrace.io.http.server import application, carries, reply

from .agent import Agent, Refused
from .local.errors import LocalError


def served(agent: Agent, token: str) -> Starlette:
    """The agent over HTTP. GET /workers; PUT and DELETE /workers/NAME; each with `?epoch=`, and the token."""

    def guarded(request: Request) -> int:
        if not carries(request.scope, token):
            raise HTTPException(401, "this needs the agent's token")
        try:
            return int(request.query_params["epoch"])
        except (KeyError, ValueError):
            raise HTTPException(400, "the query must have the leader's epoch") from None

    def workers(request: Request) -> Response:
        epoch = guarded(request)
        return _answer(lambda: {"workers": agent.workers(epoch), "host": agent.host})

    def worker(request: Request) -> Response:
        epoch, name = guarded(request), request.path_params["name"]
        change = agent.start if request.method == "PUT" else agent.stop
        return _answer(lambda: change(name, epoch) or {})

    return application([
        Route("/workers", workers, methods=["GET"]),
        Route("/workers/{name:str}", worker, methods=["PUT", "DELETE"]),
    ])  # fmt: skip


def _answer(act: Callable[[], dict[str, object]]) -> Response:
    try:
        return reply(act())
    except (Refused, LocalError, OSError) as failure:
        raise HTTPException(409, str(failure)) from None
