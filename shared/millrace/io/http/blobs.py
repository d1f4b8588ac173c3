"""Files over HTTP: a client puts what a job needs, and gets logs and results, without sharing a folder with the
cluster. The other side is `client/blobs.py`.

    PUT  /blobs/<sha256>     201 stored, 200 stood there already; 413 too large, 422 another hash, 408 too slow,
                             507 no room, or the storage fails
    GET  /blobs/<sha256>     the content (HEAD: whether it is there)
    GET  /files/<path>       a file below logs/, results/ or archives/ (HEAD: its size)

Every request carries `Authorization: Bearer <token>`, else 401. `Range: bytes=N-` reads on from N, which is how a log
is followed. 206 has what came after N. 204: nothing has come yet, ask again. 416: the file is shorter than N, so it is another
one. `Range: bytes=-N` is the last N bytes. `Content-Range: bytes */SIZE` tells the size with 204 and
416. Errors are one line of JSON: {"error": "..."}. Too many requests at once: 503, ask again.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

import structlog
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.io.addresses import SHORTEST_TOKEN, is_loopback
from millrace.io.storage.disk_space import DiskSpace
from millrace.io.storage.store import BadName, NotFound, Storage, StorageError, is_sha256, upload_path

from .ranges import byte_range
from .server import BACKLOG, MOST_CONNECTIONS, CannotListen, HttpServer, application, carries, keep_renewed, reply

log = structlog.get_logger(__name__)

MOST_BYTES = 100 << 20
_FOLDERS = ("logs", "results", "archives")
MOST_REQUESTS = 64
_SLOWEST_STEP_S = 30.0
_BATCH = 1 << 18
YOUNG_MS = 3600 * 1000


class BlobServer:
    """Serves one storage from `start` to `stop`, on loopback unless another host is given."""

    def __init__(
        self,
        storage: Storage,
        token: str,
        host: str = "127.0.0.1",
        port: int | Sequence[int] = 0,
        most_bytes: int = MOST_BYTES,
        disk_space: DiskSpace | None = None,
        fatal: Callable[[str], None] = lambda reason: None,
        most_requests: int = MOST_REQUESTS,
        backlog: int = BACKLOG,
        young_ms: int = YOUNG_MS,
        certificate: Path | None = None,
        key: Path | None = None,
    ) -> None:
        """`token`: what every request must carry. `most_bytes`: the largest upload. `disk_space`: without room there, no upload
        is taken. `fatal` is told when it ends and was not to. `most_requests`: at once; more are asked to come again. `backlog`,
        `certificate`, `key`: as of an HttpServer. `young_ms`: a blob that is older becomes young again when it is used. Raises
        CannotListen without a token, and off loopback with one that could be guessed."""
        if not token:
            raise CannotListen("a BlobServer does not listen without a token; set one")
        if not is_loopback(host) and len(token) < SHORTEST_TOKEN:
            raise CannotListen(
                f"a BlobServer on {host} can be reached by other machines; give it a token of at least "
                f"{SHORTEST_TOKEN} characters, or let it listen on 127.0.0.1"
            )
        handlers = _Handlers(storage, most_bytes, disk_space or DiskSpace(storage), young_ms)
        routes = [
            Route("/blobs/{sha256}", handlers.put_blob, methods=["PUT"]),
            Route("/blobs/{sha256}", handlers.get_blob, methods=["GET"]),
            Route("/files/{path:path}", handlers.get_file, methods=["GET"]),
        ]
        guard = Middleware(_Guard, token=token, most_requests=most_requests)
        self._server = HttpServer(
            application(routes, [guard]), host, port, name="blobs", fatal=fatal, most_connections=max(MOST_CONNECTIONS, 4 * most_requests),
            certificate=certificate, key=key, backlog=backlog,
        )  # fmt: skip

    def start(self) -> int:
        """Listens, and returns the port. Raises CannotListen."""
        return self._server.start()

    def keep_renewed(self, stopping: threading.Event) -> None:
        """Takes up the next certificate while it serves, until the process is asked to stop."""
        keep_renewed(self._server, stopping)

    def stop(self) -> None:
        """Ends within a second; transfers under way get half of it."""
        self._server.stop()


class _Guard:
    """Lets in who has the token, not too many at once, and nobody who stops reading."""

    def __init__(self, app: ASGIApp, token: str, most_requests: int) -> None:
        self._app, self._most_requests = app, most_requests
        self._token = token
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_soon(message: Message) -> None:
            await asyncio.wait_for(send(message), _SLOWEST_STEP_S)

        if not carries(scope, self._token):
            headers = {"WWW-Authenticate": "Bearer"}
            refusal = reply({"error": "the token is missing or wrong"}, 401, headers)
        elif self._under_way >= self._most_requests:
            refusal = reply({"error": "too many requests at once; ask again"}, 503, {"Retry-After": "1"})
        else:
            self._under_way += 1
            try:
                await self._app(scope, receive, send_soon)
            except asyncio.TimeoutError:
                log.info("blob_reader_too_slow", path=scope["path"])
            finally:
                self._under_way -= 1
            return
        await refusal(scope, receive, send_soon)


class _Handlers:
    def __init__(self, storage: Storage, most_bytes: int, disk_space: DiskSpace, young_ms: int) -> None:
        self._storage, self._most_bytes, self._disk_space, self._young_ms = storage, most_bytes, disk_space, young_ms

    async def put_blob(self, request: Request) -> Response:
        sha256 = _content_hash(request)
        path, body = upload_path(sha256), request.stream()
        try:
            known = await asyncio.to_thread(self._use, path)
            if not known and (shortage := await asyncio.to_thread(self._disk_space.shortage)):
                await self._drain(body)
                raise HTTPException(507, f"the blob is not taken: {shortage}")
            with nullcontext() if known else self._storage.writer(path) as writer:
                await self._receive(request, body, sha256, writer.write if writer else _ignore)
                fresh = writer is not None and await asyncio.to_thread(writer.commit)
        except ClientDisconnect:
            return reply({"error": "the upload broke off"}, 400)  # for the record: nobody hears it
        except StorageError as error:
            log.error("blob_not_stored", sha256=sha256, reason=str(error))
            await self._drain(body)
            raise HTTPException(507, f"the blob could not be stored: {error}") from None
        return reply({"sha256": sha256}, 201 if fresh else 200)

    async def get_blob(self, request: Request) -> Response:
        sha256 = _content_hash(request)
        path = upload_path(sha256)
        with suppress(StorageError):  # whether it can be read, says the reading
            await asyncio.to_thread(self._use, path)
        return await self._send(request, path, f"the blob {sha256}", {"ETag": f'"{sha256}"'})

    async def get_file(self, request: Request) -> Response:
        path = request.path_params["path"]
        if path.split("/")[0] not in _FOLDERS:
            raise HTTPException(404, f"only files below {', '.join(_FOLDERS)} can be read here")
        return await self._send(request, path, path, {})

    def _use(self, path: str) -> bool:
        """Whether the blob is there; if so its age starts anew, so that none is swept between upload and submission."""
        try:
            if self._storage.stat(path).modified_ms < time.time() * 1000 - self._young_ms:
                self._storage.touch(path)
        except NotFound:
            return False
        return True

    async def _receive(
        self, request: Request, body: AsyncGenerator[bytes, None], sha256: str, write: Callable[[bytes], None]
    ) -> None:
        """Takes the body. Raises HTTPException: too large, too slow, another hash."""
        digest, batch, taken = hashlib.sha256(), bytearray(), 0
        size = int(request.headers.get("content-length", 0))
        while size <= self._most_bytes:
            try:
                chunk = await asyncio.wait_for(anext(body, None), _SLOWEST_STEP_S)
            except asyncio.TimeoutError:
                raise HTTPException(408, "the upload came too slowly", {"Connection": "close"}) from None
            if chunk is None:
                break
            digest.update(chunk)
            batch += chunk
            taken += len(chunk)
            size = max(size, taken)
            if len(batch) >= _BATCH:
                await asyncio.to_thread(write, bytes(batch))
                batch.clear()
        else:
            await self._drain(body)
            message = f"the blob is larger than {self._most_bytes} bytes, the most that is taken"
            raise HTTPException(413, message, {"Connection": "close"})
        if digest.hexdigest() != sha256:
            raise HTTPException(422, f"what came has the hash {digest.hexdigest()}, not {sha256}")
        await asyncio.to_thread(write, bytes(batch))

    async def _drain(self, body: AsyncGenerator[bytes, None]) -> None:
        """Reads what the client still sends: an answer before would reach it as a broken connection."""
        left = self._most_bytes
        with suppress(ClientDisconnect, asyncio.TimeoutError):
            while left > 0 and (chunk := await asyncio.wait_for(anext(body, None), _SLOWEST_STEP_S)) is not None:
                left -= len(chunk)

    async def _send(self, request: Request, path: str, name: str, headers: dict[str, str]) -> Response:
        try:
            size = (await asyncio.to_thread(self._storage.stat, path)).size
        except (NotFound, BadName):
            raise HTTPException(404, f"{name} is not there") from None
        except StorageError as error:
            raise HTTPException(507, f"{name} cannot be read: {error}") from None
        start, end, partial = byte_range(request.headers.get("range", ""), size)
        headers = {**headers, "Accept-Ranges": "bytes"}
        if partial and start >= end:
            headers["Content-Range"] = f"bytes */{size}"
            if start > size:
                raise HTTPException(416, f"{name} has {size} bytes", headers)
            return Response(status_code=204, headers=headers)
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        headers["Content-Length"] = str(end - start)
        body = iter(()) if request.method == "HEAD" else self._storage.chunks(path, start, end - start)
        return StreamingResponse(body, 206 if partial else 200, headers, media_type="application/octet-stream")


def _ignore(_: bytes) -> None: ...


def _content_hash(request: Request) -> str:
    sha256: str = request.path_params["sha256"]
    if not is_sha256(sha256):
        raise HTTPException(400, "a blob is named by its SHA-256, 64 small hexadecimal digits")
    return sha256
