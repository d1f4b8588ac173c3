"""Counts each request over HTTP, and how long its answer took, for the metrics."""

from __future__ import annotations

import time

from starlette.types import Message, Receive, Scope, Send

from millrace.runtime.metrics import NO_ANSWER, WEB_REQUESTS

from .access.roles import STREAMS, route_of
from .middleware import Middleware


class Measured(Middleware):
    """The outermost: what others refuse is counted, too. A HEAD is counted under the route of its GET."""

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s, method = time.perf_counter(), scope["method"]
        stays = scope["path"].startswith(STREAMS)
        status, counted = NO_ANSWER, False

        def count() -> None:
            nonlocal counted
            if not counted:
                counted = True
                route = route_of("GET" if method == "HEAD" else method, scope["path"])
                WEB_REQUESTS.observe(time.perf_counter() - began_s, route, method, status)

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = f"{message['status'] // 100}xx"
                if stays:
                    count()
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception:
            status = "5xx"  # which the server answers
            raise
        finally:
            count()
