"""The logs of a TaskManager: its own and its JVMs', and what the attempts in its slots write."""

from __future__ import annotations

import contextlib

from fastapi import APIRouter, Depends, Request, Response

from millrace.client import MillraceError
from millrace.core.messages.processes import LogFile

from ..kept import Kept, Log
from ..processes import Of, Processes
from . import cluster_shapes as shapes
from .errors import Reply
from .source import Source
from .taskmanagers import member_of

TEXT = "text/plain; charset=utf-8"
END_BYTES = 256 << 10
"""Of each attempt's log, where several are answered together."""


def router(source: Source, kept: Kept, processes: Processes) -> APIRouter:
    api = APIRouter(tags=["taskmanagers"], dependencies=[Depends(source.live)])

    @api.get("/taskmanagers/{name}/logs", response_model=shapes.LogList)
    async def listed(name: str) -> Reply:
        """Its own, those of its JVMs, and of each attempt in a slot what it writes to stdout and stderr."""
        found = await _logs(source, kept, name)
        sizes = await kept.read(lambda: [kept.size(log.path) for log in found.values()])
        own: list[LogFile] = []
        with contextlib.suppress(MillraceError):  # what attempts write is there, though it does not answer
            own = await processes.logs(Of(name, False))
        wall_ms = source.wall_ms()
        files: list[shapes.LogFile] = [{"name": each.log, "size": each.bytes, "mtime": each.modified_ms} for each in own]
        files += [{"name": file, "size": size, "mtime": wall_ms} for file, size in zip(found, sizes, strict=True)]
        body: shapes.LogList = {"logs": files}
        return Reply(body)

    @api.get("/taskmanagers/{name}/logs/{file}", include_in_schema=False)
    async def one(request: Request, name: str, file: str) -> Response:
        range_header = request.headers.get("range", "")
        log = (await _logs(source, kept, name)).get(file)
        if log is None:
            return await processes.answer(Of(name, False), file, range_header)
        return await kept.answer(log.path, file, range_header, TEXT)

    @api.get("/taskmanagers/{name}/log", include_in_schema=False)
    async def own_log(request: Request, name: str) -> Response:
        member_of(source, name)
        return await processes.answer(Of(name, False), "log", request.headers.get("range", ""))

    @api.get("/taskmanagers/{name}/stdout", include_in_schema=False)
    async def stdout(name: str) -> Response:
        """What attempts print. A TaskManager itself prints nothing."""
        found = await _logs(source, kept, name)
        texts = await kept.read(lambda: [_end(kept, file, log) for file, log in found.items() if log.stream == "stdout"])
        nothing = f"No attempt is in a slot of {name}. `millrace logs JOB` has what ended attempts wrote.\n"
        return Response("".join(texts) or nothing, media_type=TEXT)

    return api


async def _logs(source: Source, kept: Kept, name: str) -> dict[str, Log]:
    """Those of the attempts in its slots, by the name of a file."""
    _, slots = member_of(source, name)
    held = {(slot["job"], slot["task"], slot["subtask"], slot["attempt"]) for slot in slots if slot["job"] is not None}
    found = {}
    for job in sorted({each[0] for each in held}):
        for log in await kept.logs(job):
            if (job, log.task, log.subtask, log.attempt) in held:
                found[f"{job}.{log.task}.{log.subtask}.{log.attempt}.{log.stream}"] = log
    return found


def _end(kept: Kept, file: str, log: Log) -> str:
    """Blocks."""
    text, _ = kept.text(log, max(0, kept.size(log.path) - END_BYTES), END_BYTES)
    return f"--- {file}\n{text}\n"
