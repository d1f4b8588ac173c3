"""What the attempts of a job write, read on from where it was read to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from millrace.core.messages.execution import JobDetail
from millrace.core.states import ENDED_EXECUTION, ENDED_JOB, NOT_DEPLOYED

NAMES = ("stdout", "stderr")
PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class LogPiece:
    """Part of what one attempt wrote to `stream` (stdout or stderr)."""

    task: str
    subtask: int
    attempt: int
    stream: str
    data: bytes


@dataclass(frozen=True)
class _Attempt:
    task: str
    subtask: int
    attempt: int
    folder: str


class LogReader:
    """Reads on in the logs of a job's attempts. Not for several threads at once.

    `describe`: status and `JobDetail` of the job as it is now. `call`: does a call of a BlobClient.
    """

    def __init__(
        self,
        describe: Callable[[], tuple[str, JobDetail | None]],
        call: Callable[[Callable[[Any], Any]], Any],
        every_attempt: bool,
    ) -> None:
        self._describe, self._call, self._every = describe, call, every_attempt
        self._offsets: dict[str, int] = {}  # path -> what is read of it
        self._write: dict[str, _Attempt] = {}  # folder -> attempt, until it has been read after its end
        self._over: set[str] = set()

    def look(self) -> bool:
        """Learns which attempts there are; whether the job has ended."""
        status, detail = self._describe()
        for attempt, is_over in _attempts(detail, self._every, status in ENDED_JOB):
            if attempt.folder in self._over:
                continue
            self._write[attempt.folder] = attempt
            if is_over:
                self._over.add(attempt.folder)
        return status in ENDED_JOB

    def read(self) -> Iterator[LogPiece]:
        """What was written since. An attempt that was over when it was looked at is read for the last time."""
        for folder, attempt in list(self._write.items()):
            over = folder in self._over
            for stream in NAMES:
                for data in self._rest(f"logs/{folder}/{stream}"):
                    yield LogPiece(attempt.task, attempt.subtask, attempt.attempt, stream, data)
            if over:
                del self._write[folder]

    def _rest(self, path: str) -> Iterator[bytes]:
        from .blobs import BlobError

        def rest(blobs: Any) -> bytes:
            try:
                data: bytes = blobs.get_range(path, self._offsets.get(path, 0), PIECE_BYTES).data
            except BlobError as failure:
                if failure.status in (404, 416):
                    return b""  # not written yet
                raise
            return data

        while data := self._call(rest):
            self._offsets[path] = self._offsets.get(path, 0) + len(data)
            yield data


def _attempts(detail: JobDetail | None, every: bool, ended: bool) -> Iterator[tuple[_Attempt, bool]]:
    """The attempts of a job (the last of each subtask, or every one), and whether each is over."""
    for task in detail.tasks if detail is not None else ():
        for subtask in task.subtasks:
            for log in subtask.logs if every else subtask.logs[-1:]:
                over = ended or log.attempt < subtask.attempt or subtask.state in (*ENDED_EXECUTION, *NOT_DEPLOYED)
                yield _Attempt(task.task, subtask.subtask, log.attempt, log.path), over
