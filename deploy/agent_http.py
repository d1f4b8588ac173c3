"""An agent over HTTP, for the ResourceManager's provider `process`."""

from __future__ import annotations

import re
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millrace.io.http.server import application, carries, reply
from services.resource_manager.providers.process import SUPERSEDED

from .agent import Agent, Refused, Superseded
from .local.errors import LocalError

CLUSTER = re.compile(r"[A-Za-z0-9-]{0,64}")


def served(agent: Agent, token: str) -> Starlette:
    """The agent over HTTP. GET /workers; PUT and DELETE /workers/NAME; each with `?epoch=` and `&cluster=`, and the token."""

    def guarded(request: Request) -> tuple[int, str]:
        if not carries(request.scope, token):
            raise HTTPException(401, "this needs the agent's token")
        try:
            epoch = int(request.query_params["epoch"])
        except (KeyError, ValueError):
            raise HTTPException(400, "the query must have the leader's epoch") from None
        cluster = request.query_params.get("cluster", "")
        if not CLUSTER.fullmatch(cluster):
            raise HTTPException(400, "cluster must be a cluster's uuid")
        return epoch, cluster

    def workers(request: Request) -> Response:
        epoch, cluster = guarded(request)
        return _answer(lambda: {"workers": agent.workers(epoch, cluster), "host": agent.host, "most": agent.most})

    def worker(request: Request) -> Response:
        (epoch, cluster), name = guarded(request), request.path_params["name"]
        change = agent.start if request.method == "PUT" else agent.stop
        return _answer(lambda: change(name, epoch, cluster) or {})

    return application([
        Route("/workers", workers, methods=["GET"]),
        Route("/workers/{name:str}", worker, methods=["PUT", "DELETE"]),
    ])  # fmt: skip


def _answer(act: Callable[[], dict[str, object]]) -> Response:
    try:
        return reply(act())
    except Superseded as failure:
        raise HTTPException(SUPERSEDED, str(failure)) from None
    except (Refused, LocalError, OSError) as failure:
        raise HTTPException(409, str(failure)) from None
