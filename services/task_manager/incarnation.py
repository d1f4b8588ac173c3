"""A TaskManager's key in etcd. Its revision is the incarnation: it grows with every start [R28]."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import Any, Protocol

from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Compare, Delete, Put, Store, Txn, Unavailable


def take(store: Store, name: str, about: dict[str, Any]) -> int:  # [R28]
    """Begins the next incarnation, and returns it. Raises Unavailable."""
    key = task_manager_key(name)
    put = Put(key, json.dumps(about).encode())
    entry = store.txn(Txn(compares=(), then=(put,), reads=(key,))).reads[key]
    assert entry is not None, "etcd does not show what it was just given"
    return entry.mod_revision


def give_back(store: Store, name: str, incarnation: int) -> None:
    """Deletes the key, if it is still this incarnation's."""
    key = task_manager_key(name)
    with contextlib.suppress(Unavailable):  # it says where a TaskManager was last; no more depends on it
        store.txn(Txn(compares=(Compare(key, incarnation),), then=(Delete(key),)))


class Probe(Protocol):
    """Finds out whether etcd is there, and what it has of this TaskManager, without waiting for it."""

    def ask(self) -> None:
        """Asks, unless an answer is awaited already."""
        ...

    def answered(self) -> int | None:
        """The incarnation that etcd has (0: none), if an answer has come since this was last called; None: it has not."""
        ...


class EtcdProbe:
    """Asks etcd, by a store of short patience, on a thread of its own."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._key = store, task_manager_key(name)
        self._asking = threading.Lock()
        self._answer: int | None = None

    def ask(self) -> None:
        if self._asking.acquire(blocking=False):
            threading.Thread(target=self._ask, name="probe", daemon=True).start()

    def answered(self) -> int | None:
        answer, self._answer = self._answer, None
        return answer

    def _ask(self) -> None:
        try:
            entry = self._store.get(self._key)
            self._answer = entry.mod_revision if entry is not None else 0
        except Unavailable:
            pass
        finally:
            self._asking.release()
