"""What both implementations of `Store` tell of the keys below a prefix."""

from __future__ import annotations

import pytest

from millrace.io.interfaces import Change, Delete, Put, Txn, Unavailable
from tests.contract.conftest import StoreWorld
from tests.contract.test_store import put


def test_all_changes_below_a_prefix_are_told_in_order_from_any_revision_on(store_world: StoreWorld) -> None:
    store, other = store_world.store(), store_world.store()
    before = put(store, "jobs/a", b"1")
    told: list[Change] = []
    later: list[Change] = []
    lost: list[bool] = []
    store.changes("jobs/", 0, told.append, lost.append)
    second = put(other, "jobs/a", b"2")
    put(other, "job", b"x")
    put(other, "jobs0", b"x")
    both = other.txn(Txn((), [Put("jobs/b", b"3"), Delete("jobs/a")])).revision
    seen = [Change("jobs/a", second, b"2", before), Change("jobs/a", both, None), Change("jobs/b", both, b"3", both)]
    end = store.changes("jobs/", before - 1, later.append, lost.append)
    store_world.seen(lambda: len(told) >= 3 and len(later) >= 4, "the changes")
    assert sorted(told, key=lambda each: (each.revision, each.key)) == seen
    assert sorted(later, key=lambda each: (each.revision, each.key)) == [Change("jobs/a", before, b"1", before), *seen]
    end()
    store_world.store("two").txn(Txn((), [Put("jobs/c", b"another cluster's")]))
    last = put(other, "jobs/c", b"4")
    store_world.seen(lambda: len(told) >= 4, "the last change")
    assert told[3:] == [Change("jobs/c", last, b"4", last)] and len(later) == 4 and lost == []


def test_what_is_compacted_is_not_told_and_who_asks_for_it_learns_that(store_world: StoreWorld) -> None:
    store = store_world.store()
    first = put(store, "jobs/a", b"1")
    told: list[Change] = []
    lost: list[bool] = []
    store.changes("jobs/", first, told.append, lambda compacted: lost.append(compacted))
    for number in range(3):
        put(store, "jobs/a", b"%d" % number)
    store_world.seen(lambda: len(told) >= 3, "three changes")
    store_world.compact(store)
    fifth = put(store, "jobs/b")
    store_world.seen(lambda: len(told) >= 4, "one after the compaction")
    assert told[3] == Change("jobs/b", fifth, b"", fifth) and lost == [], "who has heard all goes on"
    again: list[Change] = []
    store.changes("jobs/", first, again.append, lambda compacted: lost.append(compacted))
    store_world.seen(lambda: lost, "the loss")
    assert lost == [True] and again == []
    store.changes("jobs/", fifth - 1, again.append, lost.append)
    store_world.seen(lambda: again, "what is not compacted")
    assert again == [Change("jobs/b", fifth, b"", fifth)] and lost == [True]


def test_who_follows_changes_learns_that_the_connection_is_lost(store_world: StoreWorld) -> None:
    store = store_world.store()
    lost: list[bool] = []
    store.changes("jobs/", 0, lambda change: None, lost.append)
    store_world.stop()
    store_world.seen(lambda: lost, "the loss")
    assert lost == [False]
    with pytest.raises(Unavailable):
        store.changes("jobs/", 0, lambda change: None, lost.append)
    store_world.start()
