"""GET /health and /ready of a service, on loopback, for whoever watches the process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millrace.core.replica import Replica
from millrace.io.http.server import HttpServer, application, reply

log = structlog.get_logger(__name__)

Probe = Callable[[], Mapping[str, Any]]
"""Says how the service is, as JSON values: `status` ("ok", else what is wrong), `ready` (may be given work; as `status`
if absent), and what helps who looks: role (leader or standby), epoch, offset, lag, ... Called on the server's thread:
it only reads, and at once."""


class HealthServer:
    """Answers what the probe says: /health with 200 if its status is "ok", else 503; /ready with 200 if it is ready,
    else 503. A probe that raises is 503 on both."""

    def __init__(self, probe: Probe, port: int = 0) -> None:
        self._server = HttpServer(application(health_routes(probe)), port=port, name="health")

    def start(self) -> int:
        """Listens on loopback, and returns the port. Raises CannotListen."""
        return self._server.start()

    def stop(self) -> None:
        """Ends within a second."""
        self._server.stop()


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
