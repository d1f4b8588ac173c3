"""Values under a scope's keys in etcd that no build wrote: each is told with its key, and ends nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.doctor import scopes
from millrace.core.fold import Parked
from millrace.core.topics import Topology
from millrace.io.interfaces import Put, Txn, Unavailable
from millrace.io.storage.store import Storage
from millrace.runtime.generations import Generations
from millrace.runtime.parked import ParkedRecords
from millrace.runtime.snapshots import Snapshots
from services.dispatcher.core.machine import Dispatcher
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore

GOOD = b'{"ended":2,"build":"b","error":"it ended one"}'
TYPED = b'{"ended":"9","error":"e"}'
PARKED = [("x", GOOD), ("-1", GOOD), ("5", b"junk"), ("5", b"{}"), ("5", TYPED), ("5", b"[1]"), ("5", b"[" * 100_000)]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(MemoryEtcd(Clock()), "/m/")


@pytest.mark.parametrize(("offset", "value"), PARKED)
def test_a_foreign_key_among_parked_records_is_passed_over(store: MemoryStore, offset: str, value: bytes) -> None:
    """It ended the leader and each standby before they folded anything."""
    store.txn(Txn([], [Put(f"parked/dispatcher/1/{offset}", value), Put("parked/dispatcher/1/7", GOOD)]))
    parked = ParkedRecords(store, "dispatcher", "b")
    parked.load(1)
    assert parked.offsets() == {7: Parked("it ended one")}
    parked.blame(5, ZeroDivisionError())
    found = scopes._scope(store, "dispatcher", (0, 9), None)
    assert "offset 7: it ended one" in found.parked


@pytest.mark.parametrize("value", [b"junk", b"[]", b"{}", b'{"generation":"1","offset":0,"sha256":"x","build":"b"}'])
@pytest.mark.parametrize("kind", ["snapshots", "generations"])
def test_a_foreign_generation_or_snapshot_is_waited_for_and_named(store: MemoryStore, tmp_path: Path, kind: str, value: bytes) -> None:
    """It ended each process of the scope, and doctor, with a traceback that named no key."""
    key = f"{kind}/dispatcher"
    store.txn(Txn([], [Put(key, value)]))
    broker = MemoryBroker(Clock())
    broker.ensure_topics([("dispatcher.commands", 1, {})])
    bus = MemoryBus(broker, client_id="me", on_fatal=pytest.fail)
    with pytest.raises(Unavailable, match=f"no build of Millrace wrote what etcd holds under {key}"):
        if kind == "snapshots":
            Snapshots(store, Storage(str(tmp_path)), Dispatcher(Topology())).newest(1)
        else:
            Generations(store, bus, "dispatcher", "dispatcher.commands", 0, "me").current()
    found = list(scopes.findings([scopes._scope(store, "dispatcher", (0, 9), None)]))
    assert [each.level for each in found if key in each.what] == ["problem"]
