"""TaskManagers and the processes of services, as they are asked about themselves: how they are, where their threads are, their logs,
their settings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from millrace.core.messages import base, client, processes
from millrace.core.messages.processes import (
    LOG_PIECE_MOST,
    Ask,
    AskProcess,
    DescribeAsk,
    LogFile,
    LogPiece,
    LogsAsk,
    Setting,
    SettingsAsk,
    ThreadDump,
    ThreadsAsk,
    UploadAsk,
)

from . import errors
from .queries import Queries
from .session import BUSY_S, expected

if TYPE_CHECKING:
    from .blobs import BlobClient

ANSWER_S = 3.0  # of a process of a service: nobody answers for one that is silent
GATHER_S = 1.0  # for the answers of all of them
REQUESTS: dict[type[Ask], type[processes.AboutTaskManager]] = {
    DescribeAsk: processes.DescribeTaskManager,
    ThreadsAsk: processes.DumpThreads,
    LogsAsk: processes.ListLogs,
    UploadAsk: processes.UploadLog,
    SettingsAsk: processes.ListSettings,
}
R = TypeVar("R", bound=base.Reply)


@dataclass(frozen=True)
class Piece:
    """A piece of a log: where it begins, and how many bytes the whole has."""

    start: int
    data: bytes
    size: int


class Process:
    """A TaskManager, or a process of a service. Each call asks it. All raise NotFound for what is not there, Refused, and Unavailable with
    `silent` for one that does not answer."""

    def __init__(self, session: Processes, name: str, is_service: bool) -> None:
        self.name, self.is_service = name, is_service
        self._session = session

    def threads(self, slot: int | None = None) -> list[ThreadDump]:
        """Where its threads are; of a TaskManager those of its slots, too. `slot`: of this one alone."""
        return self._session._answer(self, ThreadsAsk(slot=slot), processes.ThreadsDumped).dumps

    def logs(self) -> list[LogFile]:
        """Its logs, by id."""
        return self._session._answer(self, LogsAsk(), processes.LogsListed).logs

    def settings(self) -> list[Setting]:
        """What it runs with, and where each is from; secrets are stars."""
        return self._session._answer(self, SettingsAsk(), processes.SettingsListed).settings

    def upload(self, log: str, start: int = 0, length: int = LOG_PIECE_MOST) -> LogPiece:
        """Has it put at most `length` bytes of a log where the blob server serves them, from `start` on; a negative one counts from the
        end. What looks like a secret is stars."""
        if not 1 <= len(log) <= 200:
            raise errors.NotFound(f"there is no log {log[:200]!r}")
        asked = UploadAsk(log=log, start=start, length=min(max(length, 1), LOG_PIECE_MOST))
        return self._session._answer(self, asked, processes.LogUploaded).piece

    def piece(self, log: str, start: int = 0, length: int = LOG_PIECE_MOST) -> Piece:
        """As `upload`, with the bytes."""
        found = self.upload(log, start, length)
        return Piece(found.start, self._session._piece(found.path) if found.path else b"", found.size)

    def read(self, log: str, start: int = 0) -> Iterator[bytes]:
        """A log from `start` on, piece by piece, as long as it is when this begins."""
        piece = self.piece(log, start)
        end, at = piece.size, piece.start + len(piece.data)
        while piece.data:
            yield piece.data
            piece = self.piece(log, at, end - at) if at < end else Piece(at, b"", end)
            at = piece.start + len(piece.data)


class TaskManager(Process):
    """A registered TaskManager."""

    def describe(self) -> processes.TaskManagerDescribed:
        """Its process, and its slots with what is in them and how their JVMs are."""
        return self._session._answer(self, DescribeAsk(), processes.TaskManagerDescribed)


class Service(Process):
    """A process of a control service or of the web service, leader or standby."""

    def describe(self) -> processes.ProcessDescribed:
        """How it is, and which scopes it leads or follows."""
        return self._session._answer(self, DescribeAsk(), processes.ProcessDescribed)


class Processes(Queries):
    """The calls about processes."""

    def task_manager(self, name: str) -> TaskManager:
        """Asks nothing yet."""
        return TaskManager(self, _checked(name), False)

    def service(self, name: str) -> Service:
        """By the name of its process, which is its setting `instance`. Asks nothing yet."""
        return Service(self, _checked(name), True)

    def services(self, within_s: float = GATHER_S) -> list[processes.ProcessDescribed]:
        """All that answer within this time, by name. Who is silent is not among them."""
        replies = self._link.ask_all(AskProcess(reply_to="", ask=DescribeAsk())).results(within_s)
        found = [reply for reply in replies if isinstance(reply, processes.ProcessDescribed)]
        return sorted(found, key=lambda each: (each.status.service, each.process))

    def _answer(self, process: Process, ask: Ask, kind: type[R]) -> R:
        """One that is too busy is asked again within the time-out, and one that is silent is not."""
        limit_s = ANSWER_S if process.is_service else self._timeout_s
        deadline = time.monotonic() + self._timeout_s
        request = _request(process, ask)
        try:
            reply = self._link.ask(request).result(limit_s)
            while isinstance(reply, client.RequestRefused) and _may_do(reply) and time.monotonic() < deadline:
                self._closed.wait(BUSY_S)
                reply = self._link.ask(request).result(max(BUSY_S, min(limit_s, deadline - time.monotonic())))
        except errors.OutcomeUnknown as unknown:
            if not process.is_service:
                raise errors.Unavailable(str(unknown), "dispatcher") from None
            why = f"there is no process {process.name} of a service, or it hangs: it has not answered within {limit_s:g} s"
            raise errors.Unavailable(why, silent_of(process.name)) from None
        return expected(reply, kind)

    def _piece(self, path: str) -> bytes:
        def got(blobs: BlobClient) -> bytes:
            return blobs.get_file(path)

        return self._call_blobs(got)


def silent_of(name: str) -> str:
    """What `Unavailable.silent` has of a process of a service: a scope may have the same name."""
    return f"process {name}"


def _request(process: Process, ask: Ask) -> base.Request | AskProcess:
    if process.is_service:
        return AskProcess(process=process.name, reply_to="", ask=ask)
    return REQUESTS[type(ask)](task_manager=process.name, **ask.model_dump(exclude={"do"}))


def _may_do(reply: client.RequestRefused) -> bool:
    """Whether it may answer when it is asked again."""
    return reply.kind == "busy" and reply.silent is None


def _checked(name: str) -> str:
    """Raises Malformed for what is no name of a process."""
    if not 1 <= len(name) <= 200:
        raise errors.Malformed(f"{name[:200]!r} is no name of a process")
    return name
