"""What takes long to make: the first who asks waits for it, and nobody else does."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class Once(Generic[T]):
    """Made on a thread when it is first asked for, and kept. On the event loop its making would hold all requests for half a second."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._making = functools.cache(make), threading.Lock()
        self._made: tuple[T] | None = None

    async def get(self) -> T:
        if self._made is None:
            self._made = (await run_in_threadpool(self._whole),)
        return self._made[0]

    def _whole(self) -> T:
        with self._making:  # who asks meanwhile waits for the same one
            return self._make()


def add_document(app: FastAPI, path: str, described: Callable[[], dict[str, Any]]) -> None:
    """Answers with the application's OpenAPI document, as JSON. `described` makes it."""
    app.openapi = functools.cache(described)  # type: ignore[method-assign]  # as FastAPI documents it
    document = Once(lambda: json.dumps(app.openapi(), separators=(",", ":"), ensure_ascii=False).encode())

    async def answer(_: Request) -> Response:
        return Response(await document.get(), media_type="application/json")

    app.add_route(path, answer, ["GET"], include_in_schema=False)
