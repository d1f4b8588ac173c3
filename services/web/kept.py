"""What attempts leave in storage, as the web service reads it: without a TaskManager, and of an ended job without Kafka."""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.responses import Response, StreamingResponse

from millrace.client import Millrace
from millrace.client import Unavailable as NotThere
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.execution import Archive, JobDetail
from millrace.core.states import ENDED_EXECUTION, NOT_DEPLOYED, ExecutionState
from millrace.io.http.ranges import byte_range
from millrace.io.interfaces import Entry, Unavailable
from millrace.io.storage.store import NotFound, Storage, StorageError

from .commands import Commands, NotAnswered, StorageAway
from .core.archived import ARCHIVE_MOST
from .core.plans import as_it_runs
from .history.client import Past
from .problems import Refusal
from .threads import Overdue, Threads, TooMany
from .view import View

T = TypeVar("T")

DETAILS_KEPT = 16
READING_MOST = 32
"""Requests that wait for storage at once. A storage that hangs holds each of their threads, and none of those of commands."""
READ_S = 12.0
STREAMS = ("stdout", "stderr")


@dataclass(frozen=True)
class Log:
    """One file that an attempt writes. `over`: nothing more comes."""

    task: str
    subtask: int
    attempt: int
    stream: str
    path: str
    over: bool


class Kept:
    """Details of jobs, and files, for any number of requests. Whatever is not there is a Refusal."""

    def __init__(
        self, view: View, commands: Commands, storage: Storage, stored: Callable[[str], Entry | None] = lambda key: None
    ) -> None:
        """`stored`: what etcd holds of a job, by its key. Raises Unavailable."""
        self._past = Past(view, storage)
        self._view, self._commands, self._storage, self._stored = view, commands, storage, stored
        self._archives: dict[str, Archive] = {}
        self._keeping = threading.Lock()
        self.threads = Threads(READING_MOST, "storage")

    async def read(self, what: Callable[[], T]) -> T:
        """Something that storage is asked, for one request. Raises TooMany, Refusal."""
        try:
            return await self.threads.run(what, READ_S)
        except Overdue:
            detail = f"the storage has not answered within {READ_S:g} s"
            raise Refusal(503, detail, "storage-away", headers={"Retry-After": "1"}) from None

    async def first(self, what: Callable[[Millrace], T], wait_s: float, job: str) -> T:
        """The answer of a call that reads what a job left: as `left` where the tables know its end, else the cluster is asked.
        Raises MillraceError."""
        row = self._view.ask(lambda view: view.jobs.row(job))[0]
        if row is not None and row["archive"] is not None:
            return await self.left(what, wait_s)
        return await self._commands.call(what, wait_s)

    async def left(self, what: Callable[[Millrace], T], wait_s: float) -> T:
        """The answer of a call that reads what an ended job left: from storage, without Kafka. Where storage does not have it, the cluster
        is asked, if there is one. Raises MillraceError; StorageAway: neither can tell, and why."""
        try:
            return await self.threads.run(lambda: what(self._past), min(wait_s, READ_S))
        except Overdue:
            failed = f"the storage has not answered within {min(wait_s, READ_S):g} s"
        except NotThere as failure:
            failed = str(failure)
        if self._view.past:
            raise StorageAway(failed)
        try:
            return await self._commands.call(what, wait_s)
        except (NotThere, NotAnswered) as failure:
            raise StorageAway(f"it cannot be read from storage: {failed}; nor from the cluster: {failure}") from None

    async def detail(self, job: str) -> JobDetail | None:
        """The job as its JobMaster has or had it: of an ended one from its archive, else the cluster is asked. None: nobody can tell."""
        row = self._view.ask(lambda view: view.jobs.row(job))[0]
        if row is not None and row["archive"] is not None:
            return await self.read(lambda: self._archived(row["archive"]).detail)
        return (await self._commands.call(lambda client: client.show(job))).detail

    async def graph(self, job: str) -> Mapping[str, Any] | None:
        """The graph as it runs: of an ended job from its archive, of a live one from etcd. None: neither has it now."""
        row = self._view.ask(lambda view: view.jobs.row(job))[0]
        try:
            if row is not None and row["archive"] is not None:
                return await self.read(lambda: self._archived(row["archive"]).graph) or None
            entry = await asyncio.to_thread(self._stored, f"jobs/{job}")
            return as_it_runs(StoredJob.model_validate_json(entry.value).graph, row or {}) if entry is not None else None
        except (Refusal, TooMany, Unavailable, ValidationError):
            return None

    async def logs(self, job: str) -> list[Log]:
        """What its attempts write, of each subtask the last ten."""
        detail = await self.detail(job)
        if detail is None:
            raise Refusal(503, f"the JobMaster of {job} does not answer, and nobody else knows its logs", headers={"Retry-After": "1"})
        return list(_logs(detail))

    def size(self, path: str) -> int:
        """Of a file; 0: it is not there yet. Blocks."""
        try:
            return self._storage.size(path)
        except NotFound:
            return 0

    def text(self, log: Log, start: int, most: int) -> tuple[str, int]:
        """What it has from an offset on, and the offset behind that. No character is cut where the rest of it may come. Blocks."""
        try:
            data = self._storage.get_range(log.path, start, most)
        except NotFound:
            return "", start
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data, final=log.over and len(data) < most)
        return text, start + len(data) - len(decoder.getstate()[0])

    async def answer(self, path: str, name: str, range_header: str, media_type: str) -> Response:
        """A file, or the part of it that is asked for."""
        try:
            size = await self.read(lambda: self._storage.stat(path).size)
        except NotFound:
            raise Refusal(404, f"{name} is not there, or not yet") from None
        except StorageError as failure:
            raise Refusal(503, f"{name} cannot be read: {failure.what}", "storage-away", headers={"Retry-After": "1"}) from None
        start, end, partial = byte_range(range_header, size)
        partial = partial and (start, end) != (0, 0)  # of what is empty it is the whole: no range can say so
        headers = {"Accept-Ranges": "bytes"}
        if partial and start >= end:
            raise Refusal(416, f"{name} has {size} bytes", headers={**headers, "Content-Range": f"bytes */{size}"})
        if partial:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        headers["Content-Length"] = str(end - start)
        body = self._body(_whole(self._storage.chunks(path, start, end - start), end - start))
        return StreamingResponse(body, 206 if partial else 200, headers, media_type)

    async def _body(self, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (chunk := await self.threads.queued(lambda: next(chunks, None))) is not None:
            yield chunk

    def _archived(self, path: str) -> Archive:
        with self._keeping:
            if path in self._archives:
                return self._archives[path]
        try:
            size = self._storage.size(path)
            if size > ARCHIVE_MOST:
                raise Refusal(503, f"the archive of the job has {size} bytes, more than are read here")
            archive = Archive.model_validate_json(self._storage.get(path), extra="ignore")
        except NotFound:
            raise Refusal(404, "the archive of the job was deleted") from None
        except ValidationError:
            raise Refusal(503, "the archive of the job cannot be read") from None
        except StorageError as failure:
            raise Refusal(503, f"the archive of the job cannot be read: {failure.what}", "storage-away") from None
        with self._keeping:
            self._archives[path] = archive
            while len(self._archives) > DETAILS_KEPT:
                self._archives.pop(next(iter(self._archives)))
        return archive


def shape(detail: JobDetail) -> dict[str, Any]:
    """A job's detail in the shape in which jobs are shown. When its attempts came into some states is not told any more."""
    tasks = [
        {"task": task.task, "subtasks": [
            {"subtask": each.subtask, "attempt": each.attempt, "state": each.state, "attempts": list(_attempts(each)),
             **({} if each.kept_from is None else {"kept_from": each.kept_from})}
            for each in task.subtasks
        ]} for task in detail.tasks
    ]  # fmt: skip
    spent = None if detail.spent is None else detail.spent.model_dump()
    origin = None if detail.origin is None else detail.origin.json_value()
    return {"cause": None if detail.cause is None else detail.cause.json_value(), "spent": spent, "origin": origin, "tasks": tasks}


def _attempts(subtask: Any) -> Iterator[dict[str, Any]]:
    failed = set()
    for each in subtask.failures:
        failed.add(each.attempt)
        yield {
            "attempt": each.attempt, "state": "FAILED", "task_manager": each.task_manager, "slot": None, "error": each.error.json_value(),
            "since_ms": {"FAILED": each.at_ms},
        }  # fmt: skip
    if subtask.attempt and subtask.attempt not in failed:
        times = {
            ExecutionState.CREATED.value: subtask.created_ms, ExecutionState.SCHEDULED.value: subtask.scheduled_ms,
            ExecutionState.DEPLOYING.value: subtask.deployed_ms, ExecutionState.RUNNING.value: subtask.running_ms,
        }  # fmt: skip
        if subtask.state in ENDED_EXECUTION:
            times[subtask.state] = subtask.ended_ms
        since_ms = {state: ms for state, ms in times.items() if ms is not None}
        yield {
            "attempt": subtask.attempt, "state": subtask.state, "task_manager": subtask.task_manager or None, "slot": None, "error": None,
            "since_ms": since_ms,
        }  # fmt: skip


def _logs(detail: JobDetail) -> Iterator[Log]:
    for task in detail.tasks:
        for subtask in task.subtasks:
            for each in subtask.logs:
                ended = subtask.state in (*ENDED_EXECUTION, *NOT_DEPLOYED)
                over = detail.ended_ms is not None or each.attempt < subtask.attempt or ended
                for stream in STREAMS:
                    yield Log(task.task, subtask.subtask, each.attempt, stream, f"logs/{each.path}/{stream}", over)


def _whole(chunks: Iterable[bytes], length: int) -> Iterator[bytes]:
    """The file as long as it was: what is written meanwhile belongs to the next request."""
    for chunk in chunks:
        yield chunk[:length]
        length -= len(chunk)
