"""The client library's calls without a cluster: what storage has is answered from there, and all else says that nobody is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar, cast

from millrace.client import Millrace, NotFound, Refused, Unavailable
from millrace.client.blobs import BlobClient, BlobError, Piece
from millrace.client.link import Link
from millrace.core.messages.client import JobDescribed, JobSummary
from millrace.io.storage.store import NotFound as NoFile
from millrace.io.storage.store import Storage, StorageError

from ..commands import NoCluster
from ..core.archived import ARCHIVE_MOST, Damaged
from ..view import View
from .archives import find

T = TypeVar("T")
SERVED = ("archives", "logs", "results")
"""Folders of storage that a client may read, as the BlobServer has it."""
NOBODY = "this is a history: it shows jobs that ended, and no cluster is behind it; ask the web service of a running one"


class Past(Millrace):
    """For any number of threads."""

    def __init__(self, view: View, storage: Storage) -> None:
        super().__init__("", timeout_s=0.0)
        self._view, self._storage, self._files = view, storage, StoredFiles(storage)

    def _connect(self, bootstrap: str, options: Mapping[str, Any] | None) -> Link:
        return cast(Link, _Nobody())

    def begin_submit(self, *args: Any, **more: Any) -> NoReturn:
        """Nobody would take it."""
        raise NoCluster(NOBODY)

    def status(self, job: str) -> JobSummary:
        """Raises NotFound."""
        return self._describe(job).summary

    def cancel(self, job: str) -> str:
        """Each job here has ended."""
        raise Refused(f"job {job} is {self._describe(job).summary.status}: it has ended")

    def events(self, *args: Any, **more: Any) -> NoReturn:
        """They were in Kafka."""
        raise NoCluster(NOBODY)

    def _describe(self, job: str) -> JobDescribed:
        row = self._view.ask(lambda view: view.jobs.row(job))[0]
        if row is not None:
            names = ("job", "name", "status", "accepted_ms", "ended_ms", "running_ms")
            summary = JobSummary.model_validate({name: row.get(name) for name in names})
            return JobDescribed(correlation="", summary=summary, archive=row["archive"])
        try:
            found = find(self._storage, job)
        except Damaged as damaged:
            raise Unavailable(f"the archive of job {job} is damaged: {damaged}") from None
        except StorageError as failure:
            raise Unavailable(f"the storage cannot be read: {failure.what}") from None
        if found is None:
            raise NotFound(f"there is no archive of a job {job!r}: it never ended here, or its archive went by age or number")
        path, archive = found
        summary = JobSummary(
            job=job, name=archive.name, status=archive.status, accepted_ms=archive.accepted_ms, ended_ms=archive.ended_ms
        )
        return JobDescribed(correlation="", summary=summary, archive=path)

    def _call_blobs(self, call: Callable[[BlobClient], T]) -> T:
        try:
            return call(cast(BlobClient, self._files))
        except BlobError as failure:
            raise Unavailable(str(failure)) from None


class StoredFiles:
    """As much of a BlobClient as is read, over storage itself."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def get_file(self, path: str) -> bytes:
        """The whole of a file. Raises BlobError."""
        return self.get_range(path, 0).data

    def get_range(self, path: str, start: int, length: int | None = None) -> Piece:
        """As BlobClient does."""
        if path.partition("/")[0] not in SERVED:
            raise BlobError(f"{path[:200]}: there is no such file", 404)
        try:
            size = self._storage.size(path)
            start = max(0, size + start) if start < 0 else start
            wanted = max(0, size - start) if length is None else length
            if wanted > ARCHIVE_MOST:
                raise BlobError(f"{path}: {wanted} bytes are more than the {ARCHIVE_MOST} that are read here", 413)
            return Piece(self._storage.get_range(path, start, wanted), size)
        except NoFile:
            raise BlobError(f"{path[:200]}: there is no such file; it went by age", 404) from None
        except StorageError as failure:
            raise BlobError(f"{path}: {failure.what}") from None  # its own path begins with the storage's URL, which may have a password


class _Nobody:
    """In place of the link to Kafka."""

    def close(self) -> None: ...

    def __getattr__(self, name: str) -> NoReturn:
        raise NoCluster(NOBODY)
