"""How far client.commands is decided, as etcd keeps it."""

from __future__ import annotations

import pytest

from millrace.core.fold import ScopeState
from millrace.io.interfaces import Put, Txn
from services.dispatcher.request_marks import KEY, Begun, RequestMarks
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore


@pytest.mark.parametrize("value", [
    b"foreign", b"[]", b'{"log": "l", "mark": "x"}', b'{"log": "l", "mark": null}', b'{"log": 7, "mark": 5}', b'{"log": "l", "times": "2"}',
    b'{"log": "l", "mark": 1%s}' % (b"0" * 5_000),
])  # fmt: skip
def test_a_foreign_mark_is_replaced_and_ends_nobody(value: bytes) -> None:
    """A text for a number was believed, and ended each client port as soon as it was compared with one."""
    store = MemoryStore(MemoryEtcd(Clock()), "/m/")
    store.txn(Txn([], [Put("leaders/dispatcher", b"me"), Put(KEY, value)]))
    epoch = store.get("leaders/dispatcher").mod_revision
    asked = RequestMarks(store, lambda: 100.0)
    assert asked.begin("l", epoch, 0, waits=True) == Begun(-1, 0)
    folded = ScopeState(1, 5)
    folded.client_log, folded.client_mark = "l", 3
    asked.note(folded, epoch)
    assert RequestMarks(store).begin("l", epoch, 0, waits=False) == Begun(3, 1)
