"""What a JobMaster does to the outside world: publishing sinks."""

from __future__ import annotations

import contextlib
import errno
import json
import posixpath
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import fsspec
from fsspec.implementations.local import LocalFileSystem

from millrace.core.messages.effects import PublishSink, SinkPublished
from millrace.io.interfaces import Store, Unavailable
from millrace.runtime.performer import Fence, PerEffect, Port, Refused

RECORD = "_publication.json"
"""In the first staged folder: what a publication was to do when it began."""
NOTE = re.compile(r"\.files-([0-9]{1,9})")
"""In each staged folder: how many files its attempt has written there (`task_manager/slot/attempt/exchange_files.py:STAGED`)."""
FOR_THE_USER = (FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError, ImportError, ValueError)
FOR_THE_USER_ERRNO = (errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP)
TRIES = 20
"""Of a sink that is refused by what may be mended by itself, within half a minute."""
AT_ONCE = 8
"""Sinks of a shard that are published together: what hangs, or copies for minutes, has one of these places, and holds up no other."""


class Torn(OSError):
    """The record of a publication cannot be read."""


MAY_HEAL = (PermissionError, Torn)
"""Errors of an object store that may pass: renewed rights, and new files, reach its servers one after the other."""
AWAY = re.compile(
    "connect|timeout|transport|proxy|ssl|httpclient|servicere|throttl|incomplete|payload|encoding|decoding|retrieval|memory", re.IGNORECASE
)
"""In the name of an error, or of what it is one of: the trouble of the network, of a server, or of this machine, as drivers have it."""
NO_THREAD = "can't start new thread"  # which Python says by a RuntimeError
REFUSED_ERRNO = (None, errno.EINVAL, errno.EMSGSIZE, errno.ENOSYS, getattr(errno, "EREMCHG", None))
"""Of object stores' errors; others are of a network, a disk, or a server that has much to do."""
TRY_LATER = (408, 429)
FENCED_S = 0.25
"""So long files are moved before it is asked again who leads."""


class OneByPath:
    """Sinks that are published together, but those of one path one after the other: each decides by the files that are there. One that
    has waited too long for its path gives its place to others: the path may hang."""

    PATIENCE_S = 1.0

    def __init__(self, store: Store) -> None:
        self._store = store
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._finding = threading.Lock()
        self._refused: Counter[str] = Counter()  # how often this sink was, by what may be mended by itself

    def __call__(self, effect: PublishSink, fence: Fence) -> SinkPublished | None:
        name = _as_storage_has_it(effect.path)  # may hang, as all that opens a path: nobody waits for that
        with self._finding:
            path = self._locks.setdefault(name, threading.Lock())
        if not path.acquire(timeout=self.PATIENCE_S):
            return None
        try:
            return self._publish(effect, fence)
        finally:
            path.release()

    def _publish(self, effect: PublishSink, fence: Fence) -> SinkPublished | None:
        sink = _prefix(effect)
        try:
            outcome = publish_sink(effect, partial(fence.check, self._store), self._refused[sink] + 1 >= TRIES)
        except Exception as failure:
            if isinstance(failure, MAY_HEAL) or _refuses(failure):
                self._refused[sink] += 1
            raise
        del self._refused[sink]
        return outcome


def _as_storage_has_it(path: str) -> str:
    """One name of a path that can be written in several ways: `file:///x/out`, `/x/out/`."""
    try:
        fs, target = fsspec.core.url_to_fs(path)
    except Exception:  # whoever publishes there reports it
        return path
    return f"{type(fs).__name__} {target}"


def ports(store: Store) -> dict[type, Port]:
    return {PublishSink: PerEffect(OneByPath(store), AT_ONCE)}


def publish_sink(effect: PublishSink, check_fence: Callable[[], None], last: bool = True) -> SinkPublished:
    """As `_publish`; what the user must mend is the job's problem, all else is tried again. `last`: so is what may be mended by itself,
    and what a file system that is not local refuses. `check_fence` is called before anything is moved or deleted, and raises what ends
    this: who was stopped for long would delete what its successor has published. Or its rows would stand beside those of a later life."""
    fs: Any = None
    try:
        fs, target = fsspec.core.url_to_fs(effect.path)
        last = last or isinstance(fs, LocalFileSystem)  # a disk's rights do not come back by themselves
        return _publish(effect, fs, target, check_fence, last)
    except Exception as failure:
        if not _for_the_user(failure, fs, last):
            raise
        said = str(failure) or type(failure).__name__
        return _problem(effect, f"{effect.path} cannot be written as a folder of files: {said}")


def _publish(effect: PublishSink, fs: Any, target: str, check_fence: Callable[[], None], last: bool) -> SinkPublished:
    """Moves the staged files of the attempts that count to the sink's path.

    A file's published name is made of (acceptance, vertex, life, subtask). So a repeat after a crash finds what was moved and goes on.
    What an earlier life of the JobMaster's state published for the same job is replaced, not doubled.

    All moves and deletions are written down before the first move, and a repeat goes by that record: files that others put there
    meanwhile are not judged or deleted. In mode overwrite the old files are deleted only after the new ones are in place.
    """
    staged = [fs._strip_protocol(folder) for folder in effect.staged]
    record = posixpath.join(staged[0], RECORD)
    listed = {folder: _files(fs, folder) for folder in staged}
    waiting = {file for files in listed.values() for file in files}
    begun = _begun(effect, fs, target, record, last) if record in waiting else {"moves": []}
    moved = [published for file, published in begun["moves"] if file not in waiting]
    if not moved:
        begun = _begin(effect, fs, target, listed)
        if "problem" in begun:
            return _problem(effect, begun["problem"])
        if begun["moves"]:
            fs.pipe_file(f"{record}.new", json.dumps(begun).encode())
            _move(fs, f"{record}.new", record)
    elif effect.mode == "overwrite" and not {*moved} <= {*_files(fs, target)}:
        return SinkPublished(job=effect.job, vertex=effect.vertex)  # a later job has overwritten the path: what waits is of the past
    fs.makedirs(target, exist_ok=True)
    try:
        fenced_s = -FENCED_S
        for file, published in begun["moves"]:
            if file in waiting:
                if time.monotonic() - fenced_s >= FENCED_S:
                    check_fence()
                    fenced_s = time.monotonic()
                fs.makedirs(posixpath.dirname(published), exist_ok=True)
                _move(fs, file, published)
    except Exception as failure:
        if _for_the_user(failure, fs, last):
            check_fence()
            with contextlib.suppress(Exception):
                _take_back(effect, fs, target)
        raise
    if begun["deletes"]:
        check_fence()
    for file in begun["deletes"]:
        with contextlib.suppress(FileNotFoundError):  # by a try before, or by another job
            fs.rm_file(file)
    return SinkPublished(job=effect.job, vertex=effect.vertex)


def _begun(effect: PublishSink, fs: Any, target: str, record: str, last: bool) -> dict[str, Any]:
    """What a try before has written down. Raises Torn."""
    try:
        return dict(json.loads(fs.cat_file(record)))
    except ValueError:
        pass
    if last and not _own(effect, fs, target):  # it was torn as it was written: nothing is moved before it is complete
        return {"moves": []}
    raise Torn(f"what was to be moved there is written in {record}, which is damaged")


def _begin(effect: PublishSink, fs: Any, target: str, staged: dict[str, list[str]]) -> dict[str, Any]:
    """{"moves": [[staged file, published file], ...], "deletes": files}, or {"problem"}."""
    standing = _files(fs, target)
    jobs_own = [file for file in standing if posixpath.basename(file).startswith(f"{effect.name}-")]
    if effect.mode == "error" and len(jobs_own) < len(standing):
        return {"problem": f"{effect.path} is there already (mode: error); use mode overwrite or append, or another path"}
    prefix = _prefix(effect)
    ours = [file for file in standing if posixpath.basename(file).startswith(prefix)]
    moves = []
    for index, (folder, files) in enumerate(staged.items()):
        mine = f"{prefix}{index:05d}-"
        found = [file for file in files if not posixpath.basename(file).startswith(("_", "."))]
        its = []
        for file in found:
            relative = posixpath.relpath(file, folder)
            name = f"{mine}{posixpath.basename(relative)}"
            its.append([file, posixpath.join(target, posixpath.dirname(relative), name)])
        there, noted = len(its), _noted(files)
        if there < noted:  # a try before, whose record is gone, may have moved some
            moved = {file for file in ours if posixpath.basename(file).startswith(mine)}
            there = len(moved.union(published for _, published in its))
        if there < noted:
            return {"problem": _missed(effect, index, there, noted)}
        moves += its
    old = standing if effect.mode == "overwrite" else jobs_own
    deletes = [file for file in old if not posixpath.basename(file).startswith(prefix)]
    return {"moves": moves, "deletes": deletes if moves else []}  # who finds nothing staged comes late: the job has ended


def _noted(files: list[str]) -> int:
    """How many files an attempt staged, at least. Builds before noted nothing; but Spark writes a file where there are no rows, too."""
    notes = [note for file in files if (note := NOTE.fullmatch(posixpath.basename(file)))]
    return max([1, *(int(note[1]) for note in notes)])


def _missed(effect: PublishSink, index: int, there: int, noted: int) -> str:
    hint = "is this path the same storage for JobMasters and TaskManagers, and did anybody delete beside it?"
    what = f"written to {effect.staged[index]} for {effect.path}"
    return f"of {noted} files that were {what} only {there} are there: {hint}" if there else f"what was {what} is not there: {hint}"


def _move(fs: Any, source: str, target: str) -> None:
    """One file: fsspec's own `mv`, and `rm`, take a name for a pattern, and with it files of others."""
    if type(fs).mv is not fsspec.AbstractFileSystem.mv:
        fs.mv(source, target)
    else:
        fs.cp_file(source, target)
        fs.rm_file(source)


def _for_the_user(failure: Exception, fs: Any, last: bool) -> bool:
    if isinstance(failure, MAY_HEAL):
        return last
    if isinstance(failure, FOR_THE_USER) or getattr(failure, "errno", None) in FOR_THE_USER_ERRNO:
        return True
    return last and not isinstance(fs, LocalFileSystem) and _refuses(failure)


def _refuses(failure: BaseException | None) -> bool:
    """Whether a driver's error says that a repeat will not help. Each driver has errors of its own: a plain OSError, or none at all."""
    if isinstance(failure, (Refused, Unavailable)) or getattr(failure, "errno", None) not in REFUSED_ERRNO:
        return False
    while failure is not None:
        status = str(getattr(failure, "code", None) or getattr(failure, "status_code", None) or getattr(failure, "status", ""))
        if status.isdecimal() and (int(status) >= 500 or int(status) in TRY_LATER):
            return False
        if getattr(failure, "retryable", False) or any(AWAY.search(each.__name__) for each in type(failure).__mro__):
            return False
        if NO_THREAD in str(failure):
            return False
        failure = failure.__cause__
    return True


def _take_back(effect: PublishSink, fs: Any, target: str) -> None:
    """The job fails, and nothing that it was to replace is deleted yet: nothing of it stays at the path."""
    for file in _own(effect, fs, target):
        fs.rm_file(file)


def _own(effect: PublishSink, fs: Any, target: str) -> list[str]:
    """What is published of it."""
    return [file for file in _files(fs, target) if posixpath.basename(file).startswith(_prefix(effect))]


def _prefix(effect: PublishSink) -> str:
    return f"{effect.name}-{effect.life}-"


def _problem(effect: PublishSink, what: str) -> SinkPublished:
    return SinkPublished(job=effect.job, vertex=effect.vertex, problem=what[:500])


def _files(fs: Any, folder: str) -> list[str]:
    """All files below a folder, in order; none if it is not there."""
    fs.invalidate_cache()
    return sorted(fs.find(folder)) if fs.exists(folder) else []
