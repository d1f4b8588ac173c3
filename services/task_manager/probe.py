"""The question to etcd what it has of this TaskManager; see `shell.Probe`."""

from __future__ import annotations

import threading

from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Store, Unavailable


class EtcdProbe:
    """Asks etcd, by a store of short patience, on a thread of its own."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, task_manager_key(name)
        self._asking = threading.Lock()
        self._heard: int | None = None

    def ask(self) -> None:
        if self._asking.acquire(blocking=False):
            threading.Thread(target=self._ask, name="probe", daemon=True).start()

    def answered(self) -> int | None:
        heard, self._heard = self._heard, None
        return heard

    def _ask(self) -> None:
        try:
            entry = self._store.get(self._key)
            self._heard = entry.mod_revision if entry is not None else 0
        except Unavailable:
            pass
        finally:
            self._asking.release()
