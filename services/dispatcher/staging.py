"""Staged output of sinks is deleted, at paths that users named: on threads of its own, and nowhere but where sinks may lie.

A URL names a host and what is asked of it, with this process's rights: only schemes that this cluster allows are opened. Any path
may hang for ever, such as a mount whose server is gone: nobody waits for one longer than a moment, and what was not deleted then is
told, and tried again by the sweep.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PLACES = 8
"""Folders that are being deleted at once; one that hangs has its place for as long as it does."""
PATIENCE_S = 2.0
STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss")
"""Schemes whose URLs name a bucket, not a host to speak to."""


@dataclass(eq=False)
class _Order:
    folder: str
    done: threading.Event = field(default_factory=threading.Event)
    problem: str = ""
    left: bool = False  # nobody waits for it any more


class Staging:
    """Deletes folders, `PLACES` at once. Callable from any thread."""

    def __init__(self, schemes: Collection[str] = STORES, patience_s: float = PATIENCE_S) -> None:
        self._schemes, self._patience_s = frozenset(schemes), patience_s
        self._orders: deque[_Order] = deque()
        self._changed = threading.Condition()
        self._threads = 0

    def delete(self, folders: Sequence[str]) -> dict[str, str]:
        """Folder -> why it is not deleted, or not yet; nothing for those that are gone. Takes a moment at most, for all together."""
        orders = [_Order(folder) for folder in folders]
        with self._changed:
            self._orders += orders
            for _ in range(min(PLACES - self._threads, len(orders))):
                self._threads += 1
                threading.Thread(target=self._run, name="staging", daemon=True).start()
            self._changed.notify_all()
        end = time.monotonic() + self._patience_s
        for order in orders:
            if not order.done.wait(max(0.0, end - time.monotonic())):
                order.problem, order.left = f"it is not deleted after {self._patience_s:g} s: its place does not answer", True
        return {order.folder: order.problem for order in orders if order.problem}

    def _run(self) -> None:
        """One place; ends when there is nothing to do."""
        while True:
            with self._changed:
                while self._orders and self._orders[0].left:
                    self._orders.popleft()
                if not self._orders:
                    self._threads -= 1
                    return
                order = self._orders.popleft()
            try:
                delete_staging(order.folder, self._schemes)
            except Exception as failure:  # a path that a user named can be anything
                order.problem = f"{type(failure).__name__}: {failure}"[:500]
            order.done.set()


class AtOnce(Staging):
    """The same without threads."""

    def delete(self, folders: Sequence[str]) -> dict[str, str]:
        problems = {}
        for folder in folders:
            try:
                delete_staging(folder, self._schemes)
            except Exception as failure:
                problems[folder] = f"{type(failure).__name__}: {failure}"[:500]
        return problems


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
