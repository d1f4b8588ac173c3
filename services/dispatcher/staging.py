"""Staged output of sinks is deleted, at paths that users named: on threads of its own, and nowhere but where sinks may lie.

A URL names a host and what is asked of it, with this process's rights: only schemes that this cluster allows are opened. Any path
may hang for ever, such as a mount whose server is gone. Nobody waits for one longer than a moment, and what was not deleted then is
told, and tried again by the sweep.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

AT_ONCE = 16
OF_ONE_PLACE = 2
"""Folders that are being deleted; one that hangs counts for as long as it does. Of one mount, host or kind of store only a few: when its
server is gone, all of them hang, and the others go on."""
MOUNTS = "/proc/self/mounts"
PATIENCE_S = 2.0
STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
"""Schemes whose URLs name a bucket, not a host to speak to."""


@dataclass(eq=False)
class _Order:
    folder: str
    place: str
    done: threading.Event = field(default_factory=threading.Event)
    problem: str = ""
    left: bool = False  # nobody waits for it any more


class Staging:  # [R32]
    """Deletes folders, some at once. Callable from any thread."""

    def __init__(self, schemes: Collection[str] = STORES, patience_s: float = PATIENCE_S) -> None:
        self._schemes, self._patience_s = frozenset(schemes), patience_s
        self._lock = threading.Lock()
        self._orders: list[_Order] = []
        self._busy: Counter[str] = Counter()  # place -> threads

    def delete(self, folders: Sequence[str]) -> dict[str, str]:
        """Folder -> why it is not deleted, or not yet; nothing for those that are gone. Takes a moment at most, for all together."""
        mounts = _mounts() if folders else []
        orders = [_Order(folder, place_of(folder, mounts)) for folder in folders]
        with self._lock:
            self._orders = [order for order in self._orders if not order.left] + orders
            while (order := self._next()) is not None:
                threading.Thread(target=self._run, args=(order,), name="staging", daemon=True).start()
        end = time.monotonic() + self._patience_s
        for order in orders:
            if not order.done.wait(max(0.0, end - time.monotonic())):
                order.problem, order.left = f"it is not deleted after {self._patience_s:g} s: its place does not answer", True
        return {order.folder: order.problem for order in orders if order.problem}

    def _next(self) -> _Order | None:
        """The oldest that somebody waits for, and for which a thread may be busy: it is from now on. Under the lock."""
        if self._busy.total() >= AT_ONCE:
            return None
        for at, order in enumerate(self._orders):
            if not order.left and self._busy[order.place] < OF_ONE_PLACE:
                self._busy[order.place] += 1
                return self._orders.pop(at)
        return None

    def _run(self, order: _Order | None) -> None:
        """Ends when there is nothing to do."""
        while order is not None:
            try:
                delete_staging(order.folder, self._schemes)
            except Exception as failure:  # a path that a user named can be anything
                order.problem = f"{type(failure).__name__}: {failure}"[:500]
            order.done.set()
            with self._lock:
                self._busy[order.place] -= 1
                self._busy += Counter()  # forgets places where nothing is done
                order = self._next()


def place_of(folder: str, mounts: Sequence[str]) -> str:
    """What hangs together. By the words of the path alone: to ask for it would hang, too."""
    scheme, is_url, rest = folder.removeprefix("file://").partition("://")
    if is_url:
        return scheme if scheme in STORES else f"{scheme}://{rest.partition('/')[0]}"
    above = [mount for mount in mounts if folder.removeprefix("file://").startswith(f"{mount.rstrip('/')}/")]
    return max(above, key=len, default="/")


def _mounts() -> list[str]:
    """Where something is mounted; nothing where the system does not say."""
    try:
        lines = Path(MOUNTS).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), line.split(" ")[1]) for line in lines if " " in line]


def delete_staging(folder: str, schemes: Collection[str] = STORES) -> None:
    """Deletes one job's part of a sink's staging folder `.../.<name>.staging/<acceptance>`, and that folder if it is empty then.
    Raises OSError; refuses any other path, for sinks are named by users."""
    path, _, acceptance = folder.removeprefix("file://").rpartition("/")
    name = path.rpartition("/")[2]
    if not (name.startswith(".") and name.endswith(".staging") and acceptance and acceptance not in (".", "..")):
        raise OSError(f"{folder} is no staging folder")
    scheme, is_url, _ = path.partition(":")
    if is_url and "/" not in scheme:
        if "::" in path or scheme not in schemes:
            raise OSError(f"{scheme}: is no scheme that the Dispatcher opens; sink_schemes names those")
        import fsspec

        fs, root = fsspec.url_to_fs(folder)
        if fs.exists(root):
            fs.rm(root, recursive=True)
        return
    local = Path(path)
    if (local / acceptance).exists():
        shutil.rmtree(local / acceptance)
    with contextlib.suppress(OSError):  # another job stages there, or it is gone
        local.rmdir()
