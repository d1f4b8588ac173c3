"""Storage: what is too large for Kafka and etcd, in a folder or an object store, under names that are never used twice.

A name that a record or a key of etcd refers to is written by `put_new` and holds the same bytes for ever [R20]. A repeat
of the same write is no write; another content under the same name is refused. A file appears whole or not at all. What
was put survives the end of any process, but not a power cut of the machine, as the inboxes do.

    uploads/<sha256>                        what clients uploaded; goes by age
    blobs/<job>/<acceptance>/<sha256>       what an accepted job uses
    snapshots/ archives/ exchange/ logs/ results/
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .backends import TEMPORARY, Backend, Entry, Folder, Remote

__all__ = ["BadName", "Damaged", "Entry", "NameTaken", "NotFound", "Storage", "StorageError", "Swept", "Writer"]
__all__ += ["blob_path", "is_sha256", "upload_path"]

_ABANDONED_MS = 24 * 3600 * 1000


class StorageError(Exception):
    """Storage could not do what was asked: which path, what is the matter, what to do about it."""

    def __init__(self, path: str, what: str, do: str) -> None:
        super().__init__(f"{path}: {what}; {do}")
        self.path, self.what, self.do = path, what, do


class NotFound(StorageError):
    """There is no such file."""


class NameTaken(StorageError):
    """Other content stands under this name [R20]."""


class Damaged(StorageError):
    """A file holds other content than its name says."""


class BadName(StorageError):
    """No path below the storage's root."""


@dataclass(frozen=True)
class Swept:
    """What a sweep deleted: how many files, how many bytes."""

    files: int
    bytes: int


def is_sha256(text: str) -> bool:
    """Whether this is a content hash as it stands in names: 64 hexadecimal digits, small."""
    return re.fullmatch(r"[0-9a-f]{64}", text) is not None


def upload_path(sha256: str) -> str:
    """Where an uploaded blob lies."""
    return f"uploads/{_hash(sha256)}"  # not below blobs/, where a job can have any name


def blob_path(job: str, acceptance: str, sha256: str) -> str:
    """Where a blob of an accepted job lies."""
    return f"blobs/{job}/{acceptance}/{_hash(sha256)}"


class Storage:
    """Files below one root. All paths are relative to it, with / between names. Callable from any thread.

    All methods raise StorageError (NotFound if there is no such file) and BadName for a path that is none."""

    def __init__(self, url: str) -> None:
        """`url`: a folder, made when it is first written to, or an fsspec URL (s3://bucket/millrace, memory://x)."""
        self.url = url
        self.mark: str | None = None
        """A file that a cluster has written there: without it this is not the cluster's storage, whatever is below the root."""
        self._backend: Backend = _open(url)

    # ---- writing

    def put_new(self, path: str, data: bytes) -> bool:  # [R20]
        """Writes a file that is there to stay. False: it stood there already, with the same bytes. Raises NameTaken if
        it holds others."""
        if self.put_if_absent(path, data):
            return True
        if self.size(path) != len(data) or self.get(path) != data:
            raise NameTaken(self._place(path), "other content stands under this name", "names are never used twice")
        return False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Writes a file unless there is one. False: there is one; it is left as it is."""
        with self.writer(path) as writer:
            writer.write(data)
            return writer.commit()

    def writer(self, path: str) -> Writer:
        """Writes a file piece by piece: `with storage.writer(path) as writer: writer.write(...); writer.commit()`."""
        if self.is_folder:  # what is written below the place of a mount is seen by nobody later
            self.check_there()
        return Writer(self._backend, _checked(path), self._place(path))

    def copy_new(self, source: str, path: str) -> None:
        """Gives the content of `source` a second name, without taking space where that is possible, and makes it young. A file
        that stands under it already is left alone if its size is the same. Raises NotFound, NameTaken."""
        size = self.size(source)
        if not self.exists(path):
            with self._asked(path):
                self._backend.copy(_checked(source), _checked(path))
        elif self.size(path) == size:
            self.touch(path)
        else:
            raise NameTaken(self._place(path), "other content stands under this name", "names are never used twice")

    def touch(self, path: str) -> None:
        """Makes the file young again for `sweep`."""
        with self._asked(path):
            self._backend.touch(_checked(path))

    # ---- reading

    def get(self, path: str) -> bytes:
        """The whole content."""
        return self.get_range(path, 0, self.size(path))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` on; fewer, or none, at the end of the file."""
        return b"".join(self.chunks(path, start, length))

    def chunks(self, path: str, start: int, length: int) -> Iterator[bytes]:
        """As `get_range`, in pieces of at most 256 KiB. Ends early if the file ends."""
        with self._asked(path, reading=True):
            yield from self._backend.chunks(_checked(path), start, start + length)

    def stat(self, path: str) -> Entry:
        """Size and age of a file."""
        with self._asked(path, reading=True):
            return self._backend.stat(_checked(path))

    def size(self, path: str) -> int:
        """Bytes."""
        return self.stat(path).size

    def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        try:
            self.stat(path)
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "") -> list[Entry]:
        """All files below the folder `prefix`, however deep, in order of their paths. Nothing below it: an empty
        list."""
        return sorted((each for each in self._walk(prefix) if not _is_temporary(each.path)), key=lambda each: each.path)

    def walk(self, prefix: str) -> Iterator[Entry]:
        """The same in no order, as they are read: there may be millions."""
        return (each for each in self._walk(prefix) if not _is_temporary(each.path))

    def find(self, prefix: str) -> Iterator[Entry]:
        """The same, fast in an object store: that tells a thousand names at once, and `walk` asks it for each folder alone. All that it
        tells is held meanwhile, about 1 KB for each file."""
        with _explained(self._place(prefix)):
            yield from (each for each in self._backend.find(_checked(prefix)) if not _is_temporary(each.path))

    @property
    def is_folder(self) -> bool:
        """Whether it is one of this machine, or mounted there."""
        return isinstance(self._backend, Folder)

    def local(self, path: str = "") -> Path:
        """The folder or file as this machine's other programs see it. Raises StorageError if storage is no folder."""
        if not isinstance(self._backend, Folder):
            raise StorageError(self._place(path), "is not on a disk of this machine", "use a folder as storage_url")
        return self._backend.root / _checked(path) if path else self._backend.root

    # ---- cleaning up

    def delete_tree(self, path: str) -> None:
        """Deletes a folder with all below it, or a file. Nothing there: nothing to do."""
        with _explained(self._place(path)):
            self._backend.delete_tree(_checked(path))

    def folders(self, prefix: str) -> Iterator[str]:
        """The names of the folders in the folder `prefix`, in no order, as they are read: there may be millions."""
        with _explained(self._place(prefix)):
            yield from self._backend.folders(_checked(prefix))

    def sweep(self, prefix: str, older_than_ms: int, wall_ms: int, keep: Container[str] = ()) -> Swept:  # [R32]
        """Deletes the files below `prefix` that were last changed more than `older_than_ms` before `wall_ms`, but not
        those of the paths `keep`; the folders left empty; and what was never finished for a day. Deletes as it goes: it holds no
        listing, and one that is interrupted has done its part."""
        files = size = 0
        for each in self._walk(prefix):
            limit = min(older_than_ms, _ABANDONED_MS) if _is_temporary(each.path) else older_than_ms
            if each.modified_ms < wall_ms - limit and each.path not in keep:
                with _explained(self._place(each.path)):
                    self._backend.delete(each.path)
                files, size = files + 1, size + each.size
        with _explained(self._place(prefix)):
            self._backend.prune(_checked(prefix), wall_ms - older_than_ms)
        return Swept(files, size)

    def check_there(self) -> None:
        """Raises StorageError if its mark is gone: a mount is missing, or somebody deleted it. Of no file is known then that it is gone."""
        if self.mark is None:
            return
        try:
            with _explained(self._place(self.mark), reading=True):
                self._backend.stat(self.mark)
        except NotFound:
            what = f"is not there: it has no {self.mark}, which its cluster wrote"
            raise StorageError(self.url, what, "mount it, or restore it") from None

    def free(self) -> int | None:
        """Bytes free on the disk; None: the store does not say."""
        with _explained(self.url):
            return self._backend.free()

    @contextlib.contextmanager
    def _asked(self, path: str, reading: bool = False) -> Iterator[None]:
        """As `_explained`. A file is not there only where storage is."""
        try:
            with _explained(self._place(path), reading):
                yield
        except NotFound:
            self.check_there()
            raise

    def _walk(self, prefix: str) -> Iterator[Entry]:
        with _explained(self._place(prefix)):
            yield from self._backend.walk(_checked(prefix) if prefix else "")

    def _place(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"


class Writer:
    """A file that appears when it is committed, and leaves nothing behind if it is not."""

    def __init__(self, backend: Backend, path: str, place: str) -> None:
        self._backend, self._path, self._place = backend, path, place

    def __enter__(self) -> Writer:
        with _explained(self._place):
            self._temporary = self._backend.temporary(self._path)
            self._file = open(self._temporary, "wb", buffering=0)
        return self

    def write(self, data: bytes) -> None:
        """Adds to the file."""
        with _explained(self._place):
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]

    def commit(self) -> bool:
        """Makes the file appear. False: something stands under its name."""
        self._file.close()
        with _explained(self._place):
            return self._backend.commit(self._temporary, self._path)

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            self._temporary.unlink()


# ---- small helpers


def _open(url: str) -> Backend:
    if "://" not in url or url.startswith("file://"):
        return Folder(Path(url.removeprefix("file://")).expanduser().absolute())
    import fsspec  # a folder needs none of it

    of_s3 = url.startswith(("s3://", "s3a://"))
    try:
        fs, root = fsspec.url_to_fs(url, use_listings_cache=False, **({"config_kwargs": _PATIENCE} if of_s3 else {}))
    except (ImportError, ValueError) as error:
        raise StorageError(url, f"cannot be opened ({error})", "use a folder, or install what this URL needs") from None
    if of_s3:
        fs.retries = _TRIES
    return Remote(fs, root)


_PATIENCE = {"connect_timeout": 5, "read_timeout": 15, "retries": {"mode": "standard", "total_max_attempts": 3}}
_TRIES = 2
"""Of S3, as botocore and s3fs have them. With their own a read of a store that hangs takes 25 minutes, and holds a thread of its
service; with these it fails within two."""


def _checked(path: str) -> str:
    names = path.split("/")
    bad = any(
        name in ("", ".", "..") or name.startswith(TEMPORARY) or len(name.encode("utf-8", "replace")) > 255
        for name in names
    )
    if bad or re.search(r"[\x00-\x1f\x7f\\\ud800-\udfff]", path):
        raise BadName(repr(path), "is no path in storage", "give names with / between them, without . and ..")
    return path


def _hash(sha256: str) -> str:
    if not is_sha256(sha256):
        raise BadName(repr(sha256), "is no content hash", "give a SHA-256 as 64 small hexadecimal digits")
    return sha256


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY)


_NO_FILE = (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)
_REASONS = {
    errno.ENOSPC: ("no space is left on the disk", "free some, or move storage_url to another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or raise the quota"),
    errno.EACCES: ("permission denied", "give the user who runs Millrace the right to read and write there"),
    errno.EPERM: ("not permitted", "give the user who runs Millrace the right to read and write there"),
    errno.EROFS: ("the disk is read-only", "mount it writable, or move storage_url to another disk"),
    errno.ENOTDIR: ("a file stands where a folder is needed", "move the file away, or change storage_url"),
    errno.EEXIST: ("a file stands where a folder is needed", "move the file away, or change storage_url"),
    errno.EISDIR: ("a folder stands where a file is needed", "move the folder away"),
    errno.ENAMETOOLONG: ("the name is too long", "use a shorter folder as storage_url"),
    errno.EIO: ("the disk reports an error", "check the disk"),
    errno.EMFILE: ("too many files are open", "raise the limit of open files (ulimit -n)"),
}


@contextlib.contextmanager
def _explained(place: str, reading: bool = False) -> Iterator[None]:
    """Errors of the system, and of the libraries below fsspec, in one sentence. Who reads a name that cannot be that of
    a file is told that there is none."""
    try:
        yield
    except (StorageError, GeneratorExit):
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError) or (reading and error.errno in _NO_FILE):
            raise NotFound(place, "is not there", "it was never written, or was cleaned up by age") from None
        reason = error.strerror or str(error) or type(error).__name__
        what, do = _REASONS.get(error.errno or 0, (reason, "check storage_url"))
        raise StorageError(place, what, do) from error
    except Exception as error:  # each object store's library has errors of its own
        raise StorageError(
            place, f"{type(error).__name__}: {error}", "check storage_url and its credentials"
        ) from error
