"""A small HTTP server on a thread of its own, for a service whose main thread does something else.

Starlette on uvicorn, one stack for health and blobs. Measured in a service's process: 5 MB, no wake-up while idle
(0.001 % of a core; uvicorn's own main loop, which wakes ten times a second, cost 0.2 %), a request in 0.8 ms.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import json
import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import h11
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from millrace.io.addresses import joined

RAW = "millrace.raw"
"""In the scope of a request that came alone and whole: its bytes, where its server may answer it again by them."""
Again = Callable[[bytes], "bytes | None"]
"""The bytes of a request -> the whole answer, if that is the same as before; None: it is to be made."""
MOST_CONNECTIONS = 256
_HEADERS_WITHIN_S = 10.0
_IDLE_CONNECTION_S = 15
_GRACE_S = 0.5
_LOOK_S = 1.0
BACKLOG = 128

log = structlog.get_logger("http")


class CannotListen(Exception):
    """The address cannot be listened on; the message says why and what to do."""


class _Taken(CannotListen):
    """By somebody else."""


def reply(content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON on one line."""
    text = json.dumps(content, separators=(",", ":"), default=str) + "\n"
    return Response(text, status, headers, media_type="application/json")


def application(routes: Sequence[BaseRoute], middleware: Sequence[Middleware] = ()) -> Starlette:
    """An application whose errors are one line of JSON: {"error": "..."}."""

    def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return reply({"error": error.detail}, error.status_code, error.headers)

    def failed(_: Request, __: Exception) -> Response:
        return reply({"error": "an internal error; the log of the service has it"}, 500)

    handlers: dict[Any, Any] = {HTTPException: refused, Exception: failed}
    return Starlette(routes=list(routes), middleware=list(middleware), exception_handlers=handlers)


def carries(scope: Scope, token: str) -> bool:
    """Whether a request has `Authorization: Bearer <token>`."""
    given = dict(scope["headers"]).get(b"authorization", b"")
    return hmac.compare_digest(given, f"Bearer {token}".encode())


class HttpServer:
    """Serves `app` from `start` to `stop`. Not to be started twice."""

    def __init__(
        self,
        app: Starlette,
        host: str = "127.0.0.1",
        port: int | Sequence[int] = 0,
        name: str = "http",
        fatal: Callable[[str], None] = lambda reason: None,
        most_connections: int = MOST_CONNECTIONS,
        certificate: Path | None = None,
        key: Path | None = None,
        again: Again | None = None,
        backlog: int = BACKLOG,
    ) -> None:
        """`port`: of several, the first that is free. `fatal` is told when it ends and was not to. Beyond `most_connections` each is
        answered 503, and closed. `certificate`, `key`: PEM files, for TLS; without them it speaks plain HTTP. `again` answers what it
        knows, before anything of it is read; it is called in the server's thread. `backlog`: so many connections may wait to be taken."""
        self._fatal, self._stopping = fatal, False
        self._host, self._name, self._backlog = host, name, backlog
        self._ports = [port] if isinstance(port, int) else list(port)
        self._certificate, self._key = certificate, key
        self._mark: object = None
        self._unusable = ""
        self._server = _Server(
            uvicorn.Config(
                app,
                http=partial(_Protocol, again=again),  # type: ignore[arg-type]  # it is called as a class is
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                limit_concurrency=most_connections,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                timeout_keep_alive=_IDLE_CONNECTION_S,
                timeout_graceful_shutdown=_GRACE_S,  # type: ignore[arg-type]  # passed on to asyncio, which takes fractions
            )
        )
        self._thread: threading.Thread | None = None
        self._failure = "the server ended at once"

    def start(self) -> int:
        """Listens, and returns the port. Raises CannotListen."""
        self._load_certificate()
        bound = self._bind()
        port: int = bound.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(bound,), name=self._name, daemon=True)
        self._thread.start()
        self._server.up.wait()
        if not self._server.serves:
            raise CannotListen(f"nothing answers at {joined(self._host, port)}: {self._failure}")
        return port

    def every(self, seconds: float, do: Callable[[], object]) -> None:
        """Does it in the server's thread, again and again until it ends. Only of one that was started; `do` is short."""

        def again() -> None:
            asyncio.get_running_loop().call_later(seconds, again)
            do()

        self._server.call(lambda: asyncio.get_running_loop().call_later(seconds, again))

    def stop(self) -> None:
        """Ends within a second: requests under way get half of it. Does nothing if not started, or ended already."""
        self._stopping = True
        if self._thread is not None:
            self._server.end()
            self._thread.join(2 * _GRACE_S)
            self._thread = None

    def renew_certificate(self) -> bool:
        """Reads the certificate again if its files have changed: new connections have the new one. While it cannot be used, the one before
        stays, and each call tries again. Raises CannotListen, once for each reason."""
        if self._certificate is None or (self._mark == (mark := self._stat()) and not self._unusable):
            return False
        self._mark, before = mark, self._unusable
        certificate, context = self._certificate, self._server.config.ssl
        try:
            _check(certificate, self._key)
            self._unusable = ""
        except CannotListen as failure:
            self._unusable = str(failure)
            if self._unusable == before:
                return False
            raise
        if context is not None:
            self._server.call(lambda: context.load_cert_chain(certificate, self._key))  # in the thread of handshakes
        return True

    def _load_certificate(self) -> None:
        if self._certificate is not None:
            self._mark = self._stat()
            _check(self._certificate, self._key)

    def _stat(self) -> object:
        try:
            found = [each.stat() for each in (self._certificate, self._key) if each is not None]
            return [(each.st_mtime_ns, each.st_ctime_ns, each.st_ino) for each in found]
        except OSError:
            return None

    def _run(self, bound: socket.socket) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[bound]))
        except Exception as failure:
            self._failure = f"{type(failure).__name__}: {failure}"
        finally:
            bound.close()
            self._server.up.set()
        if self._server.serves and not self._stopping:  # its process would look well, and answer nobody
            self._fatal(f"{self._name}: {self._failure}")

    def _bind(self) -> socket.socket:
        """Raises CannotListen."""
        for port in self._ports:
            try:
                return self._bind_to(port)
            except _Taken as taken:
                failure = taken
        if len(self._ports) == 1:
            raise failure
        raise CannotListen(f"cannot listen on {self._host}: all {len(self._ports)} ports that it was given are taken; give more")

    def _bind_to(self, port: int) -> socket.socket:
        where = joined(self._host, port)
        try:
            found = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
            family, kind, protocol, _, address = found[0]
            # With the protocol named, asyncio sets TCP_NODELAY; without, every answer with a body takes 40 ms more.
            bound = socket.socket(family, kind, protocol)
        except OSError as error:
            raise CannotListen(f"{where} is no address to listen on ({error.strerror}); give another host") from None
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(self._backlog)
            return bound
        except OSError as error:
            bound.close()
            reasons = {
                errno.EADDRINUSE: "the port is taken; give another one, or 0 for a free one",
                errno.EACCES: "ports below 1024 need root; give another one, or 0 for a free one",
                errno.EADDRNOTAVAIL: "this machine has no such address; give another host",
            }
            reason = reasons.get(error.errno or 0, os.strerror(error.errno or 0))
            kind_of = _Taken if error.errno == errno.EADDRINUSE else CannotListen
            raise kind_of(f"cannot listen on {where}: {reason}") from None


def keep_renewed(server: HttpServer, stopping: threading.Event) -> None:
    """Lets the server read its certificate again whenever it changes, until the process is asked to stop. In a thread of its own: what
    else the process does may take minutes."""

    def look() -> None:
        while not stopping.wait(_LOOK_S):
            try:
                if server.renew_certificate():
                    log.info("the certificate was read again")
            except CannotListen as failure:
                log.error("the certificate is still the one before", reason=str(failure))

    threading.Thread(target=look, name="certificate", daemon=True).start()


def _check(certificate: Path, key: Path | None) -> None:
    """Raises CannotListen for files that are no certificate and its key."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        message = f"the certificate {certificate} and its key {key} cannot be used: {reason}; both must be PEM, the key without a password"
        raise CannotListen(message) from None


class _Server(uvicorn.Server):
    """uvicorn, sleeping until it is told to end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    @property
    def serves(self) -> bool:
        """It has begun to."""
        return self._loop is not None

    async def main_loop(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self.up.set()
        await self._ended.wait()

    def end(self) -> None:
        if self._ended is not None:
            self.call(self._ended.set)

    def call(self, what: Callable[[], object]) -> None:
        """In its thread, soon."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what)


class _Protocol(H11Protocol):
    """Closes a connection whose request does not come: uvicorn alone would hold it for ever. Answers again what was answered before."""

    _patience: asyncio.TimerHandle | None = None
    _again_s = 0.0

    def __init__(self, *args: Any, again: Again | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._again = again

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        alone = self._again is not None and data.endswith(b"\r\n\r\n") and self._is_idle()
        if alone and self._answer_again(data):
            return
        before = self.scope
        super().data_received(data)
        if alone and self.scope is not before and self.conn.their_state is h11.DONE and not self.conn.trailing_data[0]:
            cast(dict[str, Any], self.scope)[RAW] = data  # the application is called later
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._forget()  # from here to the next byte the idle limit holds

    def timeout_keep_alive_handler(self) -> None:
        left_s = self._again_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _is_idle(self) -> bool:
        """No request is under way or has begun to come, and what was sent goes out."""
        return (
            (self.cycle is None or self.cycle.response_complete)
            and self.conn.their_state is h11.IDLE
            and not self.conn.trailing_data[0]
            and not self.flow.write_paused
            and (self.limit_concurrency is None or len(self.connections) < self.limit_concurrency)
        )

    def _answer_again(self, data: bytes) -> bool:
        answer = self._again(data) if self._again is not None else None
        if answer is None:
            return False
        self.transport.write(answer)
        self._forget()
        self._again_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        return True

    def _expect_request(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()
        elif self._patience is None:
            self._patience = self.loop.call_later(_HEADERS_WITHIN_S, self.transport.close)

    def _forget(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
