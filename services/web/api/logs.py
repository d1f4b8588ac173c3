"""What attempts have written: the files with ranges, and as a stream."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from millrace.client import MillraceError
from millrace.io.storage.store import StorageError

from .. import models
from ..kept import Kept, Log
from ..problems import Refusal, responses
from ..view import View
from .asking import JobPath, check_ready, wrong_parameter

TEXT, EVENTS = "text/plain; charset=utf-8", "text/event-stream"
LOOK_S = 0.5
SLOW, SLOW_FROM = 4, 10
"""So many times as long it waits between two looks, once so many have brought nothing: each asks the storage for every file."""
HEARTBEATS = 30  # looks without anything new, or as many times LOOK_S
PIECE_BYTES = 64 << 10
REFUSED = responses(400, 404, 429, 503, 504)
FOLLOWED_MOST = 64
"""Files in one stream: their offsets are in the ids of its events."""
ID_MOST = 1 << 16
"""Characters. Ids have no 3,000; those of earlier versions had the names of tasks, which may have 1,000 each."""
Task = Annotated[str, Path(max_length=1000)]
Number = Annotated[int, Path(ge=0, le=1 << 31)]
OnlyTask = Annotated[str, Query(max_length=1000, description="Of this task alone.")]
OnlyNumber = Annotated[int | None, Query(ge=0, le=1 << 31)]


def logs(view: View, kept: Kept) -> APIRouter:
    """The reads of logs."""
    router = APIRouter(tags=["logs"])
    binary = {"content": {"text/plain": {"schema": {"type": "string"}}}}

    @router.get("/jobs/{job}/logs", responses=REFUSED)
    async def listed(job: JobPath) -> models.Logs:
        """The logs of its attempts, of each subtask those of the last ten; those of TaskManagers that are gone, too."""
        check_ready(view)
        found = await kept.logs(job)
        sizes = await kept.read(lambda: [kept.size(each.path) for each in found])
        return models.Logs(logs=[
            models.LogRow(
                task=each.task, subtask=each.subtask, attempt=each.attempt, stream=each.stream, bytes=size, over=each.over,
                url=f"/api/v1/jobs/{job}/logs/{each.task}/{each.subtask}/{each.attempt}/{each.stream}",
            ) for each, size in zip(found, sizes, strict=True)
        ])  # fmt: skip

    @router.get(
        "/jobs/{job}/logs/{task}/{subtask}/{attempt}/{stream}",
        response_class=Response,
        responses={200: binary, 206: {"description": "Partial Content", **binary}, **responses(400, 404, 416, 429, 503, 504)},
    )
    async def file(
        request: Request, job: JobPath, task: Task, subtask: Number, attempt: Number, stream: Literal["stdout", "stderr"]
    ) -> Response:
        """One of them; `Range: bytes=N-` reads on from N, `bytes=-N` the last N."""
        check_ready(view)
        for each in await kept.logs(job):
            if (each.task, each.subtask, each.attempt, each.stream) == (task, subtask, attempt, stream):
                name = f"{stream} of attempt {attempt} of {task}/{subtask}"
                return await kept.answer(each.path, name, request.headers.get("range", ""), TEXT)
        raise Refusal(404, f"job {job} has no such attempt")

    @router.get(
        "/streams/jobs/{job}/logs",
        response_class=StreamingResponse,
        responses={200: {"description": "Events", "content": {EVENTS: {"schema": {"type": "string"}}}}, **REFUSED},
    )
    async def followed(
        job: JobPath,
        task: OnlyTask = "",
        subtask: OnlyNumber = None,
        attempt: OnlyNumber = None,
        last_event_id: Annotated[str | None, Header(max_length=ID_MOST)] = None,
    ) -> Response:
        """Events `log`: {"task", "subtask", "attempt", "stream", "offset", "text"}, as it is written; `end` when the job has ended and
        all is sent; `trouble` when no more can be read now. `Last-Event-ID` goes on where that event stood."""
        check_ready(view)
        offsets = _offsets(last_event_id)

        async def wanted() -> list[Log]:
            found = [
                each for each in await kept.logs(job)
                if (not task or each.task == task) and subtask in (None, each.subtask) and attempt in (None, each.attempt)
            ]  # fmt: skip
            if len(found) > FOLLOWED_MOST:
                raise wrong_parameter("task", f"{len(found)} logs are more than {FOLLOWED_MOST}: name a task, subtask or attempt")
            return found

        first, comes = await wanted(), False
        if view.ask(lambda view: view.jobs.row(job))[0] is None:
            found = await kept.detail(job)
            comes = found is not None and found.ended_ms is None
        return StreamingResponse(_events(view, kept, job, first, wanted, offsets, comes), media_type=EVENTS)

    return router


async def _events(
    view: View, kept: Kept, job: str, logs: list[Log], wanted: Any, offsets: dict[str, int], comes: bool
) -> AsyncIterator[str]:  # fmt: skip
    """Who reads slowly keeps one piece; the rest stays in storage. `comes`: the tables do not have the job yet."""
    known, idle, quiet = _standing(view, job, comes), 0, 0
    read_out: set[str] = set()  # of those that are over, until it is asked anew which there are
    offsets = _of_those(offsets, logs)
    while True:
        steps = 1 if idle < SLOW_FROM else SLOW
        idle, quiet, passed_over = idle + 1, quiet + steps, False
        for each in logs:
            key = _key(each)
            if key in read_out:
                passed_over = True
                continue
            while True:
                try:
                    text, behind = await kept.threads.queued(functools.partial(kept.text, each, offsets.get(key, 0), PIECE_BYTES))
                except StorageError as failure:
                    yield _trouble(f"{each.path}: {failure.what}")
                    return
                if not text:
                    if each.over:
                        read_out.add(key)
                    break
                data = {
                    "task": each.task, "subtask": each.subtask, "attempt": each.attempt, "stream": each.stream,
                    "offset": offsets.get(key, 0), "text": text,
                }  # fmt: skip
                offsets[key], idle, quiet, steps = behind, 0, 0, 1
                yield f"event: log\nid: {json.dumps(offsets, separators=(',', ':'))}\ndata: {json.dumps(data)}\n\n"
        now = _standing(view, job, comes)
        comes = comes and now == []
        if now is None and not passed_over and all(each.over for each in logs):
            yield "event: end\ndata: {}\n\n"
            return
        if now != known or (now is None and not all(each.over for each in logs)):
            idle, steps = 0, 1
            read_out.clear()
            try:
                logs, known = await wanted(), now
                offsets = _of_those(offsets, logs)
            except (Refusal, MillraceError) as failure:
                if now is None or isinstance(failure, Refusal):
                    yield _trouble(failure.detail if isinstance(failure, Refusal) else str(failure))
                    return
                yield ": the cluster does not answer\n\n"  # those that are known go on, and it is asked again
            if now is None:
                logs = [Log(**{**vars(each), "over": True}) for each in logs]
        elif quiet >= HEARTBEATS:
            quiet = 0
            yield ": nothing new\n\n"
        await asyncio.sleep(LOOK_S * steps)


def _key(log: Log) -> str:
    """Of its offset in an id, which is a header of who comes again: a task's name may be too long for that."""
    return hashlib.sha256(f"{log.task}/{log.subtask}/{log.attempt}/{log.stream}".encode()).hexdigest()[:12]


def _of_those(offsets: dict[str, int], logs: list[Log]) -> dict[str, int]:
    """Without those of attempts that are gone, or in an id of an earlier version: an id has no more of them than a stream has logs."""
    keys = {_key(each) for each in logs}
    return {key: offset for key, offset in offsets.items() if key in keys}


def _trouble(detail: str) -> str:
    """Why the stream ends here; who connects again goes on where it stood."""
    return f"event: trouble\ndata: {json.dumps({'detail': detail})}\n\n"


def _standing(view: View, job: str, comes: bool) -> Any:
    """Which attempts there are, and how they stand; None: the job has ended. `comes`: one that is not there has not."""

    def standing(view: View) -> Any:
        found = view.jobs.described(job)
        if found is None or found["ended_ms"] is not None:
            return [] if found is None and comes else None
        return [(task["task"], each["subtask"], each["attempt"], each["state"]) for task in found["tasks"] for each in task["subtasks"]]

    return view.ask(standing)[0]


def _offsets(id: str | None) -> dict[str, int]:
    if id is None:
        return {}
    try:
        found = json.loads(id)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or len(found) > FOLLOWED_MOST or not all(
        type(value) is int and 0 <= value < 1 << 60 for value in found.values()
    ):
        raise wrong_parameter("Last-Event-ID", "it is no id of an event of this stream")
    return found
