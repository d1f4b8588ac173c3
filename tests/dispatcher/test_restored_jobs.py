"""What an etcd that was restored from a backup lacks, by the Dispatcher's state [R24]."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.core.fold import PendingEffect, ScopeState
from millrace.core.messages.effects import CleanJob, EndJob, StoredJob
from millrace.core.topics import Topology
from millrace.io.interfaces import Put, Txn
from millrace.io.storage.store import Storage
from services.dispatcher.core.state import EndedJob, EtcdLookup, LiveJob, State
from services.dispatcher.ports import value_of
from services.dispatcher.restored import LedMeanwhile, Missing, missing, put_back
from tests.core.of_dispatcher import end_effect
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

CLUSTER = "0123456789abcdef" * 2
GRAPH = {"name": "n", "vertices": {"a": {"sql": "SELECT 1"}}}
ACCEPTED = StoredJob(state="accepted", digest="d", acceptance="1.5", shard=0, accepted_ms=7, graph=GRAPH, name="n")
TOMB = ACCEPTED.model_copy(
    update={"state": "clean", "graph": None, "status": "FINISHED", "ended_ms": 9, "archive": "archives/j/1.5/1.8.json"}
)
DIRTY = TOMB.model_copy(update={"state": "dirty", "staging": ["out/.s.staging/1.5"]})
CLEANS = CleanJob(job="j", tombstone=TOMB, exchange="exchange/1.5", staging=DIRTY.staging)
LIVE = LiveJob("1.5", "d", 0, 7, "n", json.dumps(GRAPH))
ENDED = EndedJob("1.5", "d", "n", "FINISHED", 7, 9, "archives/j/1.5/1.8.json")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(MemoryEtcd(Clock()), "/test/")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(str(tmp_path))


def found(state: State, store: MemoryStore, storage: Storage, *pending: CleanJob | EndJob) -> list[Missing]:
    found, ahead = told(state, store, storage, *pending)
    assert not ahead
    return found


def told(
    state: State, store: MemoryStore, storage: Storage, *pending: CleanJob | EndJob
) -> tuple[list[Missing], list[str]]:
    """Of a log of generation 1 with 850 records."""
    effects = {f"1.{n}.0": PendingEffect(f"jobs/{each.job}", each.model_dump_json()) for n, each in enumerate(pending)}
    return missing(ScopeState(1, 850, effects=effects, state=state), store, storage, Topology(), CLUSTER)


def put(store: MemoryStore, job: str, stored: StoredJob) -> int:
    return store.txn(Txn([], [Put(f"jobs/{job}", value_of(stored))])).revision


def archive(storage: Storage, status: str) -> None:
    kept = {"name": "n", "status": status, "accepted_ms": 7, "ended_ms": 9}
    storage.put_new("archives/j/1.5/1.8.json", json.dumps(kept).encode())


def test_a_live_job_comes_back_with_its_graph(store: MemoryStore, storage: Storage) -> None:
    assert found(State(live={"j": LIVE}), store, storage) == [Missing("j", ACCEPTED, 0)]


def test_an_ended_job_comes_back_as_a_tombstone(store: MemoryStore, storage: Storage) -> None:
    state = State(ended={"j": ENDED})
    assert found(state, store, storage) == [Missing("j", TOMB, 0)]
    revision = put(store, "j", ACCEPTED)
    assert found(state, store, storage) == [Missing("j", TOMB, revision)]


def test_an_ended_job_that_the_state_has_forgotten_is_told_by_its_archive(store: MemoryStore, storage: Storage) -> None:
    archive(storage, "FINISHED")
    assert found(State(), store, storage) == [Missing("j", TOMB.model_copy(update={"digest": ""}), 0)]
    revision = put(store, "j", ACCEPTED)
    assert found(State(), store, storage) == [Missing("j", TOMB, revision)]


def test_a_file_that_is_no_archive_ends_no_recovery(store: MemoryStore, storage: Storage) -> None:
    """`millrace recover` ended at a file manager's .DS_Store."""
    archive(storage, "FINISHED")
    for path in (".DS_Store", "j/notes", "j/1.5/deeper/1.8.json"):
        storage.put_new(f"archives/{path}", b"x")
    assert found(State(), store, storage) == [Missing("j", TOMB.model_copy(update={"digest": ""}), 0)]


def test_without_an_archive_it_does_not_run_again_all_the_same(store: MemoryStore, storage: Storage) -> None:
    put(store, "j", ACCEPTED)
    [one] = found(State(), store, storage)
    assert (one.stored.state, one.stored.status, one.stored.graph) == ("clean", "FAILED", None)
    assert one.stored.cause.json_value() == {
        "kind": "internal", "message": "how it ended was lost with etcd, and its archive is gone"
    }  # fmt: skip


def test_what_is_known_alike_or_under_way_is_left_alone(store: MemoryStore, storage: Storage) -> None:
    archive(storage, "FINISHED")
    put(store, "live", ACCEPTED)
    put(store, "ended", TOMB)
    put(store, "ends", TOMB.model_copy(update={"state": "dirty"}))  # its end is stored, and not folded yet
    asked = EtcdLookup(acceptance="", putting=None)
    state = State(live={"live": LIVE, "ends": LIVE}, ended={"ended": ENDED}, lookups={"j": asked})
    assert found(state, store, storage) == []


def test_what_was_still_to_be_cleaned_up_then_and_is_done_is_a_tombstone(store: MemoryStore, storage: Storage) -> None:
    revision = put(store, "j", DIRTY)
    assert found(State(ended={"j": ENDED}), store, storage) == [Missing("j", TOMB, revision)]
    assert found(State(ended={"j": ENDED}), store, storage, CLEANS) == [], "it is being cleaned up"


@pytest.mark.parametrize("remembered", [True, False])
def test_what_is_still_to_be_cleaned_up_is_dirty(remembered: bool, store: MemoryStore, storage: Storage) -> None:
    """Its cleanup found no key, or an accepted one, and left it so: the job had no tombstone, or ran again."""
    state = State(ended={"j": ENDED} if remembered else {})
    assert found(state, store, storage, CLEANS) == [Missing("j", DIRTY, 0)]
    revision = put(store, "j", ACCEPTED)
    assert found(state, store, storage, CLEANS) == [Missing("j", DIRTY, revision)]


def test_a_job_whose_end_is_still_to_be_stored_is_accepted(store: MemoryStore, storage: Storage) -> None:
    ends = end_effect("j", DIRTY)
    assert found(State(live={"j": LIVE}), store, storage, ends) == [Missing("j", ACCEPTED, 0)]
    put(store, "j", ACCEPTED)
    assert found(State(live={"j": LIVE}), store, storage, ends) == []


def test_nothing_is_put_back_beside_a_leader_or_over_a_change(store: MemoryStore, storage: Storage) -> None:
    lacking = found(State(live={"j": LIVE}), store, storage)
    store.txn(Txn([], [Put("leaders/dispatcher", b"d")]))
    with pytest.raises(LedMeanwhile):
        put_back(lacking, store)
    assert store.get("jobs/j") is None
    put(store, "j", TOMB)
    with pytest.raises(LedMeanwhile):
        put_back(lacking, store)


def test_many_jobs_are_put_back_in_transactions_that_etcd_takes(store: MemoryStore, storage: Storage) -> None:
    state = State(live={f"j{n}": LIVE for n in range(300)})
    put_back(found(state, store, storage), store)
    assert len(store.list("jobs/")[0]) == 300
    assert found(state, store, storage) == []


@pytest.mark.parametrize("acceptance", ["1.850", "1.900", "2.3", "01234567.1.900"])
@pytest.mark.parametrize("state", ["accepted", "dirty"])
def test_a_job_of_the_backup_whose_acceptance_the_log_has_lost_is_not_made_failed(
    acceptance: str, state: str, store: MemoryStore, storage: Storage
) -> None:
    """A power cut took the end of the log, and etcd's disk: the log knows less than the backup."""
    stands = (ACCEPTED if state == "accepted" else TOMB).model_copy(update={"acceptance": acceptance, "state": state})
    put(store, "j", stands)
    assert told(State(), store, storage) == ([], ["j"])


def test_an_archive_of_the_cluster_that_owned_the_storage_before_is_of_another_job(store: MemoryStore, storage: Storage) -> None:
    kept = json.dumps({"name": "n", "status": "FAILED", "accepted_ms": 7, "ended_ms": 9}).encode()
    storage.put_new("archives/j/fedcba98.1.5/1.8.json", kept)
    assert found(State(), store, storage) == []
    storage.put_new("archives/j/01234567.1.5/1.8.json", kept)
    [one] = found(State(), store, storage)
    assert one.stored.archive == "archives/j/01234567.1.5/1.8.json"
