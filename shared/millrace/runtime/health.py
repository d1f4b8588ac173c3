"""GET /health and /ready of a service, for whoever watches the process."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from millrace.core.replica import Replica
from millrace.io.addresses import parted
from millrace.io.http.server import HttpServer, application, carries, reply

log = structlog.get_logger(__name__)

Probe = Callable[[], Mapping[str, Any]]
"""Says how the service is, as JSON values: `status` ("ok", else what is wrong), `ready` (may be given work; as `status`
if absent), and what helps who looks: role (leader or standby), epoch, offset, lag, ... Called on the server's thread:
it only reads, and at once."""


class HealthServer:
    """Answers what the probe says: /health with 200 if its status is "ok", else 503; /ready with 200 if it is ready,
    else 503. A probe that raises is 503 on both."""

    def __init__(
        self, probe: Probe, port: int = 0, host: str = "127.0.0.1", token: str = "", beside: Sequence[Route] = (),
        report: Callable[[], object] | None = None, report_s: float = 0.0,
    ) -> None:  # fmt: skip
        """`token`: what every request must carry; empty: nothing. `beside`: what it answers, too. `report`: what it does each `report_s`
        seconds, in its thread."""
        app = application([*health_routes(probe), *beside], [Middleware(_Door, token=token)])
        self._server = HttpServer(app, host, port, name="health")
        self._report, self._report_s = report, report_s

    def start(self) -> int:
        """Listens, and returns the port. Raises CannotListen."""
        port = self._server.start()
        if self._report is not None and self._report_s:
            self._server.every(self._report_s, self._report)
        return port

    def stop(self) -> None:
        """Ends within a second."""
        self._server.stop()


class _Door:
    """Lets in who has the token. Without one, who names the place by an address: a page in a browser can give loopback a name of its own,
    and would read here what it finds."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._token:
            refusal = reply({"error": "the token is missing or wrong"}, 401, {"WWW-Authenticate": "Bearer"})
            is_let_in = carries(scope, self._token)
        else:
            refusal = reply({"error": "ask by address: there is nothing here under this name"}, 400)
            is_let_in = _is_address(Headers(scope=scope).get("host", ""))
        await (self._app if is_let_in else refusal)(scope, receive, send)


def _is_address(host: str) -> bool:
    """Whether a Host is an address, with or without a port, or localhost."""
    with suppress(ValueError):
        host = parted(host)[0]
    with suppress(ValueError):
        return bool(ipaddress.ip_address(host.strip("[]")))
    return host == "localhost"


def health_routes(probe: Probe) -> list[Route]:
    """The two routes, for a server that has others too."""

    def ask() -> dict[str, Any]:
        try:
            return {"status": "ok", **probe()}
        except Exception as error:
            log.exception("health_probe_failed")
            return {"status": "failing", "error": f"{type(error).__name__}: {error}"}

    async def health(_: Request) -> Response:
        state = ask()
        return reply(state, 200 if state["status"] == "ok" else 503)

    async def ready(_: Request) -> Response:
        state = ask()
        is_ready = bool(state.get("ready", state["status"] == "ok"))
        return reply({"ready": is_ready, "status": state["status"]}, 200 if is_ready else 503)

    return [Route("/health", health), Route("/ready", ready)]


def folded_health(replica: Replica | None) -> dict[str, int]:
    """What a replica has folded, for /health; None: nothing yet."""
    folded = replica.folded if replica is not None else None
    return {
        "epoch": folded.epoch if folded else 0,
        "generation": folded.generation if folded else 0,
        "offset": folded.next_offset if folded else 0,
        "outbox": len(folded.outbox) if folded else 0,
        "effects": len(folded.effects) if folded else 0,
    }
