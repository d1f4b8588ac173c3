"""A TaskManager's copies of uploaded files, and the environment variables that were uploaded for a job."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import structlog
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from millrace.io.storage.store import Storage, StorageError, blob_path

AGE_S = 7 * 24 * 3600  # uploaded files that no attempt has asked for since
BYTES_MAX, MOST = 2 << 30, 1_000  # of all of them together: with a new one, those longest unused go
VARIABLES_BYTES_MAX = 1 << 20  # a client's are a sixteenth of that


class _Variables(TypedDict):
    env: dict[str, str]
    salt: str


_VARIABLES = TypeAdapter(_Variables)

log = structlog.get_logger("slots")


class Uploads:
    """The folder that all attempts here read. Callable from any thread; `fetch` of one file also from several at once."""

    def __init__(self, folder: Path, storage: Storage, used: Callable[[], set[str]]) -> None:
        """`used`: the hashes of what attempts here were launched with: they may not have read it yet."""
        self.folder, self._storage, self._used = folder, storage, used

    def trim(self) -> None:
        """Deletes files that are old or too many, but those that are used."""
        used = self._used()
        now, size = time.time(), 0
        found: list[tuple[float, int, Path]] = []
        for file in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another slot's trim
                found.append(((stat := file.stat()).st_mtime, stat.st_size, file))
        for number, (used_s, size_bytes, file) in enumerate(sorted(found, reverse=True)):
            size += size_bytes
            old = used_s < now - AGE_S
            many = (size > BYTES_MAX or number >= MOST) and not file.name.startswith(".")  # those are being written
            if (old or many) and file.name not in used:
                file.unlink(missing_ok=True)

    def fetch(self, job: str, acceptance: str, sha256: str, slot: int) -> None:
        """An uploaded file, by its hash, into the folder. Raises OSError, StorageError."""
        target = self.folder / sha256
        if target.exists():
            if target.is_file() and _holds(target, sha256):
                os.utime(target)
                return
            log.warning("a file that all attempts read was changed, and is fetched again", sha256=sha256)
        path = blob_path(job, acceptance, sha256)
        size = self._storage.size(path)
        temporary = self.folder / f".{sha256}.{slot}"
        found = hashlib.sha256()
        try:
            with open(temporary, "wb") as file:
                for piece in self._storage.chunks(path, 0, size):
                    found.update(piece)
                    file.write(piece)
            if found.hexdigest() != sha256:
                raise StorageError(path, "holds other bytes than its name says", "submit the job again")
            temporary.chmod(0o444)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        self.trim()

    def variables(self, job: str, acceptance: str, sha256: str) -> dict[str, str]:
        """The environment variables that were uploaded for the job. They go to the slot's process through its pipe: into no file here,
        no journal and no log. Raises StorageError."""
        path = blob_path(job, acceptance, sha256)
        size = self._storage.size(path)
        data = self._storage.get(path) if size <= VARIABLES_BYTES_MAX else b""
        try:
            if hashlib.sha256(data).hexdigest() != sha256:
                raise ValueError
            return _VARIABLES.validate_json(data)["env"]
        except ValueError:  # without its words, which have the values in them
            raise StorageError(path, "holds no environment variables", "submit the job again") from None


def _holds(file: Path, sha256: str) -> bool:
    """Whether a file still has the bytes that its name says: attempts run as the user that it belongs to."""
    found = hashlib.sha256()
    with open(file, "rb") as pieces:
        while piece := pieces.read(1 << 20):
            found.update(piece)
    return found.hexdigest() == sha256
