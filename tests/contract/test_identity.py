"""Whose etcd, Kafka and storage these are [R29]."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from millrace.io.interfaces import Bus, Delete, Put, Store, Txn
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime import identity
from millrace.runtime.identity import NotProvisioned, OtherCluster, Owner, check, claim, put_back, take
from millrace.runtime.snapshots import Pointer
from tests.contract.conftest import BusWorld, StoreWorld, asked


@pytest.fixture
def bus(bus_world: BusWorld, monkeypatch: pytest.MonkeyPatch) -> Bus:
    """Of a Kafka that nobody owns."""
    monkeypatch.setattr(identity, "IDENTITY", bus_world.topic("cluster.identity"))
    return bus_world.bus()


@pytest.fixture
def store(store_world: StoreWorld) -> Store:
    return store_world.store()


def test_a_cluster_has_one_identity_however_often_it_is_provisioned(bus: Bus, store: Store, tmp_path: Path) -> None:
    cluster, wrote = claim(bus, store, "one")
    assert wrote and len(cluster) == 32
    assert claim(bus, store, "one") == (cluster, False) == put_back(bus, store)
    storage = Storage(str(tmp_path))

    def checked(storage: Storage | None) -> str:
        return asked(lambda: check(bus, store, storage, "one"))

    assert checked(storage) == checked(storage) == checked(None) == cluster


def test_a_service_of_a_cluster_without_an_identity_says_what_to_do(bus: Bus, store: Store, tmp_path: Path) -> None:
    """It was made by a version that had none."""
    with pytest.raises(NotProvisioned, match="etcd holds no identity of this cluster: run `python -m deploy.provision` once"):
        check(bus, store, Storage(str(tmp_path)), "one")
    assert put_back(bus, store) == ("", False), "never a new one"
    assert list(tmp_path.iterdir()) == [], "nothing is taken by who does not know who it is"


def test_two_clusters_on_one_kafka_are_refused(bus: Bus, store: Store, store_world: StoreWorld) -> None:
    """Both folded the same inboxes, each with a leader that its own etcd had chosen."""
    mine, _ = claim(bus, store, "one")
    other = store_world.store("two")
    with pytest.raises(OtherCluster, match=rf"this Kafka belongs to cluster 'one' \({mine}\), and this is cluster 'two', of which"):
        claim(bus, other, "two")
    assert other.list("")[0] == []
    other.txn(Txn([], [Put(identity.KEY, b"f" * 32)]))  # it has a Kafka, and is told of this one
    for refused in (lambda: claim(bus, other, "two"), lambda: asked(lambda: check(bus, other, None, "two"))):
        with pytest.raises(OtherCluster, match=rf"Kafka belongs to cluster 'one' \({mine}\), and this is cluster 'two' \(f{{32}}\): "):
            refused()


def test_of_two_that_are_provisioned_at_the_same_moment_the_first_has_the_kafka(
    bus: Bus, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = claim(bus, store, "one")
    store.txn(Txn([], [Delete(identity.KEY)]))
    looks = iter([None, asked(lambda: identity.of_log(bus))])
    monkeypatch.setattr(identity, "of_log", lambda bus: next(looks))
    with pytest.raises(OtherCluster, match=f"belongs to cluster 'one' .{first}"):
        claim(bus, store, "two")


def test_an_etcd_that_has_lost_everything_gets_the_same_identity_back(bus: Bus, store: Store) -> None:
    cluster, _ = claim(bus, store, "one")
    for back in (lambda: claim(bus, store, "one"), lambda: put_back(bus, store)):
        store.txn(Txn([], [Delete(identity.KEY)]))
        assert back() == (cluster, True)


def test_storage_of_another_cluster_is_refused_until_it_is_given_over(bus: Bus, store: Store, tmp_path: Path) -> None:
    """A fresh cluster gives the same generations and offsets: files of the one would be taken, and deleted, by the other."""
    cluster, _ = claim(bus, store, "one")
    storage, before = Storage(str(tmp_path)), Owner("e" * 32, "gone")
    storage.put_new(identity.OWNER, before.value())
    both = rf"storage {tmp_path} belongs to cluster 'gone' \(e+\), and this is cluster 'one' \({cluster}\): name a storage_url"
    with pytest.raises(OtherCluster, match=both):
        asked(lambda: check(bus, store, storage, "one"))
    assert take(storage, Owner(cluster, "one")) == before
    assert take(storage, Owner(cluster, "one")) is None
    assert asked(lambda: check(bus, store, storage, "one")) == cluster


@pytest.mark.parametrize("name", ["snapshots/dispatcher/1-20000-ab12.jsonl.zst", "exchange/1.57/1/part", "uploads/" + "a" * 64])
def test_storage_that_a_cluster_without_an_owner_may_use_is_not_taken_silently(
    bus: Bus, store: Store, tmp_path: Path, name: str
) -> None:
    """Version 0.1.0 wrote no owner: a fresh cluster took the storage of one that still ran."""
    cluster, _ = claim(bus, store, "one")
    storage = Storage(str(tmp_path))
    storage.put_new(name, b"x")
    with pytest.raises(OtherCluster, match=r"storage .* belongs to a cluster that is not named, and this is .*--take-storage"):
        asked(lambda: check(bus, store, storage, "one"))
    assert not storage.exists(identity.OWNER)
    take(storage, Owner(cluster, "one"))
    assert asked(lambda: check(bus, store, storage, "one")) == cluster


def test_storage_in_which_this_etcds_snapshot_lies_is_taken_after_an_upgrade(bus: Bus, store: Store, tmp_path: Path) -> None:
    cluster, _ = claim(bus, store, "one")
    storage, pointer = Storage(str(tmp_path)), Pointer(1, 20_000, "ab" * 32, "0.1.0", final=True)
    store.txn(Txn([], [Put("snapshots/dispatcher", pointer.value())]))
    storage.put_new("exchange/1.57/1/part", b"x")
    with pytest.raises(OtherCluster, match="a cluster that is not named"):
        asked(lambda: check(bus, store, storage, "one"))
    storage.put_new(pointer.path("dispatcher"), b"x")
    assert asked(lambda: check(bus, store, storage, "one")) == cluster == Owner.parse(storage.get(identity.OWNER)).cluster


def test_storage_whose_mount_is_missing_is_waited_for_and_not_taken_anew(bus: Bus, store: Store, tmp_path: Path) -> None:
    cluster, _ = claim(bus, store, "one")
    storage, pointer = Storage(str(tmp_path)), Pointer(1, 20_000, "ab" * 32, "0.1.0", final=True)
    assert asked(lambda: check(bus, store, storage, "one")) == cluster
    assert storage.mark == identity.OWNER
    store.txn(Txn([], [Put("snapshots/dispatcher", pointer.value())]))
    (tmp_path / identity.OWNER).unlink()
    for missing in (str(tmp_path), str(tmp_path / "gone")):
        with pytest.raises(StorageError, match="is empty, and the cluster has a snapshot of dispatcher in its storage; mount it"):
            asked(partial(check, bus, store, Storage(missing), "one"))
    assert list(tmp_path.iterdir()) == []
    take(storage := Storage(str(tmp_path)), Owner(cluster, "one"))
    assert asked(lambda: check(bus, store, storage, "one")) == cluster


@pytest.mark.parametrize("written", [b"[]", b"{}", b"no JSON", b'{"cluster": 3, "name": "x"}', b'{"cluster": "\n", "name": "x"}'])
def test_an_owner_that_is_none_is_told_in_a_sentence(bus: Bus, store: Store, tmp_path: Path, written: bytes) -> None:
    """It was a traceback."""
    cluster, _ = claim(bus, store, "one")
    storage = Storage(str(tmp_path))
    storage.put_new(identity.OWNER, written)
    with pytest.raises(OtherCluster, match=r"^owner.json of storage .* names no cluster .it is not of the form .*--take-storage [^\n]*$"):
        asked(lambda: check(bus, store, storage, "one"))
    take(storage, Owner(cluster, "one"))
    assert asked(lambda: check(bus, store, storage, "one")) == cluster
