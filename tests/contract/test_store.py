"""What both implementations of `Store` do, word for word."""

from __future__ import annotations

import threading
import time

import pytest

from millrace.io import interfaces
from millrace.io.interfaces import (
    PAGE,
    Compare,
    Delete,
    Entry,
    Put,
    Store,
    Txn,
    TxnResult,
    Unavailable,
    UnknownOutcome,
    pages,
)
from tests.contract.conftest import MemoryStoreWorld, StoreWorld


def put(store: Store, key: str, value: bytes = b"", lease: int = 0) -> int:
    """Puts without a condition; the revision."""
    return store.txn(Txn((), [Put(key, value, lease)])).revision


def test_a_key_that_is_not_there_is_none(store_world: StoreWorld) -> None:
    store = store_world.store()
    assert store.get("a") is None
    assert store.txn(Txn((), (), ["a"])).reads == {"a": None}
    assert store.list("")[0] == []


def test_values_come_back_as_they_were(store_world: StoreWorld) -> None:
    store = store_world.store()
    values = {"empty": b"", "bytes": b"\x00\xff", "größer": "größer".encode(), "jobs/a b": b"x" * 300_000}
    for key, value in values.items():
        put(store, key, value)
    for key, value in values.items():
        entry = store.get(key)
        assert entry is not None
        assert (entry.key, entry.value, entry.lease) == (key, value, 0)


def test_a_client_knows_the_highest_revision_that_it_was_answered(store_world: StoreWorld) -> None:
    store, other = store_world.store(), store_world.store()
    assert store.revision == 0
    first = put(store, "a")
    assert store.revision == first
    later = put(other, "b")
    assert store.revision == first, "it has not asked since"
    store.get("a")
    assert store.revision == later


def test_revisions_tell_when_a_key_was_made_and_last_changed(store_world: StoreWorld) -> None:
    store = store_world.store()
    first = put(store, "a", b"1")
    other = put(store, "b", b"2")
    second = put(store, "a", b"1")
    assert first < other < second
    assert store.get("a") == Entry("a", b"1", first, second)
    assert store.get("b") == Entry("b", b"2", other, other)
    deleted = store.txn(Txn((), [Delete("a")])).revision
    third = put(store, "a", b"3")
    assert second < deleted < third
    assert store.get("a") == Entry("a", b"3", third, third)


def test_all_changes_of_a_transaction_have_one_revision(store_world: StoreWorld) -> None:
    store = store_world.store()
    put(store, "c", b"old")
    before = store.list("")[1]
    result = store.txn(Txn((), [Put("a", b"1"), Put("b", b"2"), Delete("c")], ["a", "b", "c"]))
    now = before + 1
    reads = {"a": Entry("a", b"1", now, now), "b": Entry("b", b"2", now, now), "c": None}
    assert result == TxnResult(True, now, reads)
    assert store.list("") == ([reads["a"], reads["b"]], now)


def test_what_changes_nothing_makes_no_revision(store_world: StoreWorld) -> None:
    store = store_world.store()
    revision = put(store, "a")
    assert store.txn(Txn((), [Delete("none")])) == TxnResult(True, revision)
    assert store.txn(Txn([Compare("a", 0)], [Put("a", b"2")])) == TxnResult(False, revision)
    assert store.txn(Txn([Compare("a", revision)])) == TxnResult(True, revision)
    lease = store.grant(60)
    store.keep_alive(lease)
    store.revoke(lease)
    assert store.list("")[1] == revision


def test_a_compare_holds_for_exactly_one_revision(store_world: StoreWorld) -> None:
    store = store_world.store()
    created = put(store, "a", b"1")
    changed = put(store, "a", b"2")
    for wrong in (0, created, changed + 1):
        assert not store.txn(Txn([Compare("a", wrong)], [Put("a", b"3")])).succeeded
    assert store.txn(Txn([Compare("a", changed)], [Put("a", b"3")])).succeeded
    assert not store.txn(Txn([Compare("a", changed)], [Put("a", b"4")])).succeeded


def test_revision_0_means_absent(store_world: StoreWorld) -> None:
    store = store_world.store()
    take = Txn([Compare("leader", 0)], [Put("leader", b"me")])
    assert store.txn(take).succeeded
    assert not store.txn(take).succeeded
    store.txn(Txn((), [Delete("leader")]))
    assert store.txn(take).succeeded
    assert not store.txn(Txn([Compare("none", 1)])).succeeded


def test_all_compares_must_hold(store_world: StoreWorld) -> None:
    store = store_world.store()
    epoch = put(store, "leader", b"me")
    assert not store.txn(Txn([Compare("leader", epoch), Compare("leader", 0)], [Put("job", b"1")])).succeeded
    assert not store.txn(Txn([Compare("leader", epoch), Compare("job", 7)], [Put("job", b"1")])).succeeded
    assert store.txn(Txn([Compare("leader", epoch), Compare("job", 0)], [Put("job", b"1")])).succeeded


def test_a_failed_compare_changes_nothing_and_still_reads(store_world: StoreWorld) -> None:
    store = store_world.store()
    revision = put(store, "job", b"first")
    result = store.txn(Txn([Compare("job", 0)], [Put("job", b"second"), Put("other", b"x")], ["job", "other"]))
    assert result == TxnResult(False, revision, {"job": Entry("job", b"first", revision, revision), "other": None})
    assert store.get("other") is None


def test_reads_come_after_the_changes(store_world: StoreWorld) -> None:
    store = store_world.store()
    put(store, "a", b"before")
    result = store.txn(Txn((), [Put("a", b"after")], ["a"]))
    entry = result.reads["a"]
    assert entry is not None
    assert (entry.value, entry.mod_revision) == (b"after", result.revision)


def test_a_list_has_what_is_below_the_prefix_in_the_order_of_the_keys(store_world: StoreWorld) -> None:
    store = store_world.store()
    for key in ("jobs/b", "jobs/a", "jobs", "jobs/", "jobs0", "job/x", "jobs/ä", "jobs/a/1"):
        put(store, key, key.encode())
    entries, revision = store.list("jobs/")
    assert [one.key for one in entries] == ["jobs/", "jobs/a", "jobs/a/1", "jobs/b", "jobs/ä"]
    assert all(one == store.get(one.key) for one in entries)
    assert revision == put(store, "later") - 1
    assert len(store.list("")[0]) == 9


@pytest.mark.parametrize("count", [63, 64, 65, 1300])
def test_a_list_of_any_length_is_whole(store_world: StoreWorld, count: int) -> None:
    store = store_world.store()
    for first in range(0, count, 100):
        store.txn(Txn((), [Put(f"jobs/{n:05}", b"%d" % n) for n in range(first, min(count, first + 100))]))
    entries, _ = store.list("jobs/")
    assert [one.value for one in entries] == [b"%d" % n for n in range(count)]


def test_pages_have_all_keys_once_and_count_tells_how_many(store_world: StoreWorld) -> None:
    store = store_world.store()
    keys = [f"jobs/{n:03}" for n in range(2 * PAGE + 3)]
    for first in range(0, len(keys), 100):
        store.txn(Txn((), [Put(key, b"x") for key in keys[first : first + 100]]))
    for other in ("jobs", "jobs0", "jo/x"):
        put(store, other)
    assert [one.key for one in store.page("jobs/")] == keys[:PAGE]
    assert [one.key for one in store.page("jobs/", keys[PAGE - 1])] == keys[PAGE : 2 * PAGE]
    assert [one.key for one in store.page("jobs/", "jobs/1300")] == keys[131:], "a key that is not there"
    assert [one.key for one in pages(store, "jobs/")] == keys
    assert (store.count("jobs/"), store.count("nothing/"), store.page("nothing/")) == (len(keys), 0, [])


def test_a_key_that_is_no_text_is_listed_found_and_deleted_like_any_other(store_world: StoreWorld) -> None:
    """Anybody can write one: one such key below jobs/ ended every sweep and every recovery."""
    store = store_world.store()
    keys = ["jobs/a", "jobs/\udcff", "jobs/\udcffz"]
    for key in keys:
        put(store, key)
    assert [one.key for one in pages(store, "jobs/")] == [one.key for one in store.list("jobs/")[0]] == keys
    assert [one.key for one in store.page("jobs/", keys[1])] == keys[2:]
    entry = store.get(keys[1])
    assert entry is not None and store.txn(Txn([Compare(keys[1], entry.mod_revision)], [Delete(keys[1])], keys)).succeeded
    assert [one.key for one in store.list("jobs/")[0]] == [keys[0], keys[2]]


def test_a_list_of_several_pages_is_of_one_revision(store_world: StoreWorld) -> None:
    store, writer = store_world.store(), store_world.store()
    keys = [f"k{n:04}" for n in range(1200)]
    for first in range(0, 1200, 100):
        writer.txn(Txn((), [Put(key, b"0") for key in keys[first : first + 100]]))
    end = threading.Event()

    def write() -> None:
        number = 0
        while not end.is_set():
            number += 1
            writer.txn(Txn((), [Put(keys[0], b"%d" % number), Put(keys[-1], b"%d" % number)]))

    thread = threading.Thread(target=write)
    if not isinstance(store_world, MemoryStoreWorld):  # which is for one thread
        thread.start()
    try:
        for _ in range(20):
            entries, revision = store.list("")
            assert len(entries) == 1200
            assert entries[0].value == entries[-1].value
            assert entries[0].mod_revision <= revision
    finally:
        end.set()
        if thread.ident:
            thread.join()


def test_a_prefix_is_a_world_of_its_own(store_world: StoreWorld) -> None:
    one, ten = store_world.store("one"), store_world.store("one0")
    revision = put(one, "a", b"one")
    put(ten, "a", b"ten")
    assert one.list("")[0] == [Entry("a", b"one", revision, revision)]
    assert ten.txn(Txn([Compare("b", 0)], [Put("b", b"")])).succeeded
    assert one.get("b") is None
    same = store_world.store("one")
    assert same.get("a") == one.get("a")


def test_128_operations_are_taken_and_129_refused(store_world: StoreWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """By etcd, too: what a service may ask for is bounded before, and this test alone asks for more."""
    store = store_world.store()
    assert store.txn(Txn((), [Put(f"k{n}", b"") for n in range(128)])).succeeded
    assert store.txn(Txn((), [Put(f"k{n}", b"") for n in range(100)], [f"k{n}" for n in range(28)])).succeeded
    before = store.list("")[1]
    with pytest.raises(AssertionError, match="128 operations"):
        Txn((), [Put(f"n{n}", b"") for n in range(129)])
    monkeypatch.setattr(interfaces, "TXN_OPERATIONS", 1_000)
    for too_many in (
        Txn((), [Put(f"n{n}", b"") for n in range(129)]),
        Txn((), [Put(f"n{n}", b"") for n in range(100)], [f"k{n}" for n in range(29)]),
        Txn([Compare(f"k{n}", 0) for n in range(129)]),
    ):
        with pytest.raises(ValueError, match="too many operations"):
            store.txn(too_many)
    assert store.list("")[1] == before


def test_a_megabyte_is_refused_and_a_little_less_taken(store_world: StoreWorld) -> None:
    store = store_world.store()
    assert store.txn(Txn((), [Put("a", b"x" * 500_000), Put("b", b"x" * 540_000)])).succeeded
    with pytest.raises(ValueError, match="1048576"):
        store.txn(Txn((), [Put("c", b"x" * 500_000), Put("d", b"x" * 550_000)]))
    assert store.get("c") is None


def test_one_key_twice_is_refused(store_world: StoreWorld) -> None:
    store = store_world.store()
    for twice in ([Put("a", b"1"), Put("a", b"2")], [Put("a", b"1"), Delete("a")]):
        with pytest.raises(ValueError, match="key"):
            store.txn(Txn((), twice))
    assert store.get("a") is None


def test_a_revoked_lease_takes_its_keys_along_at_once(store_world: StoreWorld) -> None:
    store = store_world.store()
    lease, other = store.grant(60), store.grant(60)
    assert lease != other
    assert lease > 0
    put(store, "mine", b"1", lease)
    put(store, "also mine", b"1", lease)
    put(store, "moved", b"1", lease)
    put(store, "moved", b"2", other)
    put(store, "freed", b"1", lease)
    before = put(store, "freed", b"2")
    mine = store.get("mine")
    assert mine is not None
    assert mine.lease == lease
    store.revoke(lease)
    entries, revision = store.list("")
    assert [(one.key, one.lease) for one in entries] == [("freed", 0), ("moved", other)]
    assert revision == before + 1
    assert not store.keep_alive(lease)
    assert store.keep_alive(other)
    store.revoke(lease)


def test_a_lease_that_is_not_renewed_ends_and_one_that_is_renewed_lives(store_world: StoreWorld) -> None:
    store = store_world.store()
    short, kept = store.grant(1), store.grant(1)
    asked_s = time.monotonic()
    put(store, "short", b"", short)
    put(store, "kept", b"", kept)

    def ended() -> bool:
        """Where this test itself was held up for as long as the lease lasts, the other one begins anew."""
        nonlocal kept, asked_s
        before_s, asked_s = asked_s, time.monotonic()
        lives = store.keep_alive(kept) and store.get("kept") is not None
        if not lives:
            assert time.monotonic() - before_s > 1, "it was renewed in time"
            kept = store.grant(1)
            put(store, "kept", b"", kept)
        return lives and store.get("short") is None

    store_world.seen(ended, "the end of the lease, while the other lives")
    assert not store.keep_alive(short)
    store_world.seen(lambda: store.get("kept") is None, "the end of the other")


def test_a_lease_that_has_ended_holds_no_key(store_world: StoreWorld) -> None:
    store = store_world.store()
    lease = store.grant(60)
    store.revoke(lease)
    before = store.list("")[1]
    with pytest.raises(Unavailable) as refused:
        store.txn(Txn((), [Put("a", b""), Put("leader", b"me", lease)]))
    assert not isinstance(refused.value, UnknownOutcome)
    assert store.list("") == ([], before)
    taken = put(store, "leader", b"other")
    unchecked = store.txn(Txn([Compare("leader", 0)], [Put("leader", b"me", lease)], ["leader"]))
    assert unchecked == TxnResult(False, taken, {"leader": Entry("leader", b"other", taken, taken)})


def test_a_watch_tells_every_change_of_its_key_in_order_and_no_other(store_world: StoreWorld) -> None:
    store, other = store_world.store(), store_world.store()
    put(store, "key", b"before")
    told: list[Entry | None] = []
    lost: list[str] = []
    end = store.watch("key", told.append, lambda: lost.append("lost"))
    created = store.get("key").create_revision
    second = put(other, "key", b"2")
    put(other, "key2", b"x")
    put(other, "ke", b"x")
    other.txn(Txn((), [Delete("key")]))
    lease = other.grant(60)
    third = put(other, "key", b"3", lease)
    other.revoke(lease)
    store_world.seen(lambda: len(told) >= 4, "four changes")
    assert told == [Entry("key", b"2", created, second), None, Entry("key", b"3", third, third, lease), None]
    end()
    put(other, "key", b"4")
    again: list[Entry | None] = []
    store.watch("key", again.append, lambda: None)
    fifth = put(other, "key", b"5")
    store_world.seen(lambda: again, "a change")
    assert again == [Entry("key", b"5", fifth - 1, fifth)]
    assert len(told) == 4
    assert lost == []


def test_a_read_after_a_watch_misses_nothing(store_world: StoreWorld) -> None:
    store, other = store_world.store(), store_world.store()
    told: list[Entry | None] = []
    for number in range(20):
        revision = put(other, "key", b"%d" % number)
        end = store.watch("key", told.append, lambda: None)
        assert store.get("key").mod_revision == revision
        changed = put(other, "key", b"changed")
        store_world.seen(lambda: told, "the change")
        assert [one.mod_revision for one in told] == [changed]
        end()
        told.clear()


def test_every_watcher_is_told(store_world: StoreWorld) -> None:
    stores = [store_world.store() for _ in range(3)]
    told: list[list[Entry | None]] = [[] for _ in range(4)]
    for store, where in zip([*stores, stores[0]], told, strict=True):
        store.watch("key", where.append, lambda: None)
    put(stores[1], "key", b"1")
    store_world.seen(lambda: all(told), "all told")
    assert told[0] == told[1] == told[2] == told[3]


def test_a_closed_store_loses_its_watches_and_answers_nothing(store_world: StoreWorld) -> None:
    store, other = store_world.store(), store_world.store()
    told: list[str] = []
    store.watch("a", lambda _: told.append("a"), lambda: told.append("a lost"))
    store.watch("b", lambda _: told.append("b"), lambda: told.append("b lost"))()
    other.watch("a", lambda _: told.append("other a"), lambda: told.append("other lost"))
    store.close()
    store.close()
    put(other, "a")
    store_world.seen(lambda: len(told) >= 2, "all told")
    assert told == ["a lost", "other a"]
    for ask in (lambda: store.get("a"), lambda: put(store, "a"), lambda: store.watch("a", print, print)):
        with pytest.raises(Unavailable):
            ask()


def test_an_etcd_that_is_away_is_unavailable_and_back_by_itself(store_world: StoreWorld) -> None:
    store = store_world.store()
    revision = put(store, "a", b"1")
    lease = store.grant(60)
    told: list[str] = []
    store.watch("a", lambda _: told.append("change"), lambda: told.append("lost"))
    store_world.stop()
    asks = [
        lambda: store.get("a"),
        lambda: store.list(""),
        lambda: put(store, "a"),
        lambda: store.grant(5),
        lambda: store.keep_alive(lease),
        lambda: store.revoke(lease),
        lambda: store.watch("a", print, print),
    ]
    for ask in asks:
        with pytest.raises(Unavailable):
            ask()
    store_world.seen(lambda: told, "the loss")
    with pytest.raises(Unavailable) as refused:  # the connection is known to be gone: nothing was sent
        put(store, "a")
    assert not isinstance(refused.value, UnknownOutcome)
    store_world.start()

    def back() -> bool:
        try:
            return store.get("a") is not None
        except Unavailable:
            return False

    store_world.seen(back, "an answer")
    assert store.get("a") == Entry("a", b"1", revision, revision)
    assert store.keep_alive(lease)
    assert store.txn(Txn([Compare("a", revision)], [Put("a", b"2")])).succeeded
    assert told == ["lost"]


def test_a_change_whose_answer_is_lost_may_have_been_carried_out(store_world: StoreWorld) -> None:
    store = store_world.store()
    epoch = put(store, "leader", b"me")
    lease = store.grant(60)
    assert store.keep_alive(lease)  # over a connection of its own, which stands now
    change = Txn([Compare("leader", epoch), Compare("job", 0)], [Put("job", b"mine")], ["job"])
    with store_world.losing_answers(store):
        for ask in (
            lambda: store.txn(change),
            lambda: store.grant(5),
            lambda: store.keep_alive(lease),
            lambda: store.revoke(lease),
        ):
            with pytest.raises(UnknownOutcome):
                ask()
        for read in (lambda: store.get("job"), lambda: store.list(""), lambda: store.txn(Txn((), (), ["job"]))):
            with pytest.raises(Unavailable) as unavailable:
                read()
            assert not isinstance(unavailable.value, UnknownOutcome)

    def known() -> TxnResult | None:
        try:
            return store.txn(change)
        except Unavailable:
            return None

    job = store_world.seen(known, "an answer").reads["job"]
    assert job is not None
    assert (job.value, job.create_revision) == (b"mine", job.mod_revision)
    store.revoke(lease)
    assert not store.keep_alive(lease)
