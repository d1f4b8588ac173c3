"""What a job leaves: the rows of its result, its files, its logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from millrace.core.messages.attempts import ResultRows
from millrace.core.messages.execution import JobDetail, ResultParts
from millrace.core.states import ENDED_JOB, JobStatus

from . import errors, files
from .files import Files
from .logs import LogPiece, LogReader
from .processes import Processes
from .queries import Shown

LOG_TURN_S = 0.5  # between two looks at logs that are followed


@dataclass(frozen=True)
class Result:
    """The first rows of a FINISHED job. `truncated`: there are more. Values are JSON's."""

    columns: list[str]
    types: list[str]
    rows: list[list[Any]]
    truncated: bool


class Results(Processes):
    """The calls for what a job leaves."""

    def result(self, job: str) -> Result:
        """The rows of a FINISHED job. Raises NotFinished (also when it has none), NotFound."""
        described = self._describe(job)
        summary = described.summary
        if described.archive is None or summary.status not in ENDED_JOB:
            raise errors.NotFinished(f"job {job} is {summary.status}: it has no result yet", summary.status)
        archive = self.archive(described.archive)
        if summary.status != JobStatus.FINISHED:
            cause = archive.cause
            reason = f": {cause.message}" if cause is not None and cause.message else ""
            raise errors.NotFinished(f"job {job} is {summary.status} and has no result{reason}", summary.status, cause)
        found = archive.detail.result if archive.detail is not None else None
        if found is None:
            why = "a script has none, nor has a graph whose several last vertices leave open which is its `result`"
            raise errors.NotFinished(f"job {job} has no rows to show: {why}; what sinks wrote is at their paths", "FINISHED")
        return self.rows(found)

    def rows(self, found: ResultRows | ResultParts) -> Result:
        """The Result that an archive, or the event of a job's end, describes; what it only names is fetched."""
        parts = found.parts if isinstance(found, ResultParts) else [found]
        whole = [ResultRows.model_validate(self._json(part.path)) if part.path is not None else part for part in parts]
        rows = [row for part in whole for row in part.rows or ()]
        return Result(whole[0].columns, whole[0].types, rows, any(part.truncated for part in whole))

    def files(self, job: str) -> Files:
        """The files that its attempts left in their folders: of each subtask those of the last attempt that left any. Raises NotFound;
        Unavailable, also where the JobMaster is silent."""
        found = Files()
        for where in files.folders(self._detailed(job).detail):
            path = f"results/{where[3]}/files.json"
            try:
                part = files.listed(where, self.file(path))
            except ValueError as wrong:
                raise errors.Unavailable(f"{path} on the blob server is damaged: {wrong}") from None
            found = Files(found.kept + part.kept, found.left_out + part.left_out, found.left_out_in_all + part.left_out_in_all)
        return found

    def logs(self, job: str, follow: bool = False, every_attempt: bool = False) -> Iterator[LogPiece]:
        """What the attempts of a job wrote: the last attempt of each subtask, or every one. follow: also what comes, until
        the job's end. Raises NotFound; Unavailable, also where the JobMaster is silent: who follows waits for it."""
        reader = self._log_reader(job, every_attempt or follow, self.show if follow else self._detailed)
        while True:
            ended = reader.look()
            yield from reader.read()
            if not follow or ended or self._closed.wait(LOG_TURN_S):
                return

    def log_end(self, folder: str, stream: str, most: int) -> tuple[bytes, int]:
        """The last bytes of what an attempt wrote to a stream, and how many bytes that is in all. `folder`: as its `LogPlace` has it."""
        from .blobs import BlobError, Piece

        def end(blobs: Any) -> Piece:
            try:
                piece: Piece = blobs.get_range(f"logs/{folder}/{stream}", -most)
            except BlobError as failure:
                if failure.status in (404, 416):
                    return Piece(b"", 0)  # not written yet
                raise
            return piece

        found = self._call_blobs(end)
        return found.data[-most:], found.size

    def log_reader(self, job: str, every_attempt: bool = True) -> LogReader:
        """Reads on in what the attempts of a job write, whenever it is asked to."""
        return self._log_reader(job, every_attempt, self.show)

    def _log_reader(self, job: str, every_attempt: bool, show: Callable[[str], Shown]) -> LogReader:
        def described() -> tuple[str, JobDetail | None]:
            shown = show(job)
            return shown.summary.status, shown.detail

        return LogReader(described, self._call_blobs, every_attempt)

    def _detailed(self, job: str) -> Shown:
        """The job with its attempts, if it has any. Raises Unavailable where only a JobMaster that is silent could tell."""
        shown = self.show(job)
        if shown.detail is None and shown.silent is not None:
            message = f"{shown.silent} does not answer, and nobody else knows what job {job} has left so far; its attempts go on meanwhile"
            raise errors.Unavailable(message, shown.silent)
        return shown
