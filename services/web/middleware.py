"""What every request passes through, whichever part of the application answers it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access.rates import network
from .access.roles import STREAMS
from .problems import Refusal, answer

BODY_MOST = 1 << 20
UPLOAD_MOST = 128 << 20
"""Of a multipart body, in bytes."""
STEP_MOST_S = 30.0
"""For so long the next bytes of a body may fail to come, or an answer fail to be read."""
PACE_BYTES = 16 << 10
"""A second: so fast at least a body comes on the whole, beside STEP_MOST_S once. Else one that trickles would hold its place for hours."""
REQUESTS_MOST = 256
"""At once."""
LOOPBACK = ("127.0.0.1", network("::1"))
SHARE = 2
"""Of the places for requests, one address has at most this part: behind a proxy that may be all who ask. On loopback clients cannot be told
apart, and none of them is a stranger: they have all places."""
STREAMS_MOST = 1500
SAFE = ("GET", "HEAD", "OPTIONS")
REQUEST_ID = "millrace.request"
"""In the scope of a request that passed RequestId."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'self'",
}


class Middleware:
    """Of requests alone: what begins and ends a process is passed on."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self.pass_on if scope["type"] == "http" else self._app)(scope, receive, send)

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class RequestId(Middleware):
    """Gives each request an id, by which its answer, the log and the audit topic speak of it."""

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[REQUEST_ID] = secrets.token_hex(8)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Request-Id"] = scope[REQUEST_ID]
            await send(message)

        await self._app(scope, receive, send_with_id)


class Ending(Middleware):
    """Answers what is still under way when the process ends: the server cancels that, and its own answer is a bare 500."""

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except asyncio.CancelledError:
            if begun:
                raise
            again = {"Retry-After": "1", "Connection": "close"}
            refusal = Refusal(503, "this web service ends just now; ask again", headers=again)
            if scope["method"] not in SAFE:
                what = "this web service ends just now; whether the request was carried out is not known: look, or ask again"
                refusal = Refusal(503, what, "outcome-unknown", headers=again)
            await answer(refusal)(scope, receive, send)


class Names(Middleware):
    """Answers to the names that it is given, so that no page in a browser can read it under a name of its own."""

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        super().__init__(app)
        self._names = {name.lower() for name in names}

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = Headers(scope=scope).get("host", "")
        name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
        if name.lower() in self._names:
            await self._app(scope, receive, send)
        else:
            refusal = Refusal(400, f"{name[:255]!r} is no name of this service (its setting allowed_hosts has them)", "wrong-host")
            await answer(refusal)(scope, receive, send)


class Head(Middleware):
    """HEAD is answered as GET is; the server leaves the body out. Monitors ask so. A stream has no end, and is left alone."""

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        as_get = scope["method"] == "HEAD" and not scope["path"].startswith(STREAMS)
        await self._app({**scope, "method": "GET"} if as_get else scope, receive, send)


class SecurityHeaders(Middleware):
    """What a browser is to hold a page to. A part of the application may set its own."""

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-cache")
                if scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        await self._app(scope, receive, send_with)


def is_own(origin: str, scope: Scope) -> bool:
    """Whether a browser's `Origin` is this service. One of https is also where we speak http: something before us speaks TLS."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in (scope["scheme"], "https") and parts.netloc == Headers(scope=scope).get("host")


class SameOrigin(Middleware):
    """Refuses a page of another origin what changes something: a form there can send multipart to loopback unasked."""

    def __init__(self, app: ASGIApp, others: Sequence[str] = ()) -> None:
        """`others`: origins that may."""
        super().__init__(app)
        self._others = others

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        own = site in ("none", "same-origin") if origin is None else is_own(origin, scope) or origin in self._others
        if scope["method"] not in SAFE and not own:
            refusal = Refusal(403, "a page of another origin may not change anything here", "cross-origin")
            await answer(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _stranger(client: tuple[str, int] | None) -> str:
    """Of whom a request is; empty: of a client on loopback, or it is not known."""
    of = network(client[0]) if client else ""
    return "" if of in LOOPBACK else of


class Limits(Middleware):
    """Bounds a request in bytes, in time, and in number. Streams, below STREAMS, are counted apart: they stay."""

    def __init__(
        self,
        app: ASGIApp,
        step_most_s: float | None = None,
        requests_most: int = REQUESTS_MOST,
        streams_most: int | None = None,
    ) -> None:
        super().__init__(app)
        self._step_most_s = step_most_s or STEP_MOST_S
        self._most = {False: requests_most, True: streams_most or STREAMS_MOST}
        self._under_way = {False: 0, True: 0}
        self._of: Counter[str] = Counter()  # requests that are under way, of each address

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        stays = scope["path"].startswith(STREAMS)
        client = _stranger(scope.get("client")) if not stays else ""
        share, full = self._most[False] // SHARE, ""
        if self._under_way[stays] >= self._most[stays]:
            full = f"{self._most[stays]} {'streams are open' if stays else 'requests are under way'}"
        elif client and self._of[client] >= share:
            full = f"{share} requests of {client} are under way"
        if full:
            await answer(Refusal(429, f"{full} already; try again", headers={"Retry-After": "1"}))(scope, receive, send)
            return
        self._under_way[stays] += 1
        self._of[client] += 1
        try:
            await self._bounded(scope, receive, send)
        finally:
            self._under_way[stays] -= 1
            self._of[client] -= 1
            if not self._of[client]:
                del self._of[client]

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        most = UPLOAD_MOST if headers.get("content-type", "").lower().startswith("multipart/form-data") else BODY_MOST
        closed = {"Connection": "close"}
        too_large = Refusal(413, f"the body is larger than {most} bytes, the most that is taken here", headers=closed)
        taken, waited_s, whole = 0, 0.0, False

        async def receive_bounded() -> Message:
            nonlocal taken, waited_s, whole
            if whole:
                return await receive()  # waits for the end of the connection
            message: Message | None = None
            left_s, began_s = self._step_most_s + taken / PACE_BYTES - waited_s, time.monotonic()
            with anyio.move_on_after(min(self._step_most_s, left_s)):
                message = await receive()
            waited_s += time.monotonic() - began_s
            if message is None and left_s < self._step_most_s:
                raise Refusal(408, f"the body comes too slowly: {taken} bytes in {waited_s:.0f} s", headers=closed)
            if message is None:
                raise Refusal(408, f"no more of the body came for {self._step_most_s:g} s", headers=closed)
            taken += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if taken > most:
                raise too_large
            return message

        async def send_soon(message: Message) -> None:
            with anyio.move_on_after(self._step_most_s) as patience:  # not wait_for, which makes a task for each
                await send(message)
            if patience.cancelled_caught:
                raise ClientDisconnect  # nobody reads it

        size = headers.get("content-length", "0")
        if size.isdecimal() and int(size) > most:
            await answer(too_large)(scope, receive, send)
            return
        with suppress(ClientDisconnect):
            await self._app(scope, receive_bounded, send_soon)
