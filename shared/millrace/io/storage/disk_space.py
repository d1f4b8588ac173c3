"""Whether there is room for what is new: admission closes before the disk is full.

Kafka and etcd end on a full disk, and with them all that runs. On one machine, and in one Docker engine, they share their disk with
storage; so what is left beside storage is left for them.
"""

from __future__ import annotations

import threading
import time

from .store import Storage

_LOOKED_AT_S = 0.5


class DiskSpace:
    """Callable from any thread. `least_mb`: what must stay free beside storage; 0: nothing has to."""

    def __init__(self, storage: Storage, least_mb: int = 0) -> None:
        self._storage, self._least_mb = storage, least_mb
        self._lock = threading.Lock()
        self._until_s, self._shortage = 0.0, ""

    def shortage(self) -> str:
        """Why nothing new is taken now; empty: there is room. An object store always has. At most half a second old.
        Raises StorageError."""
        if not self._least_mb:
            return ""
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._shortage = self._look()
                self._until_s = time.monotonic() + _LOOKED_AT_S
            return self._shortage

    def _look(self) -> str:
        free = self._storage.free()
        if free is None or free >= self._least_mb << 20:
            return ""
        left = f"the disk of {self._storage.url} has {free >> 20} MB left, and min_free_mb is {self._least_mb}"
        return f"{left}; try again when there is more"
