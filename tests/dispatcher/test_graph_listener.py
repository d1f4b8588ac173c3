"""What others do to the keys of jobs is noticed: by the changes that etcd tells, or by a comparison of all keys."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from millrace.core.clocks import NowMs
from millrace.core.fold import ScopeState
from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.effects import JobGraphKept, JobGraphStored, KeepJobGraph, PutJobGraph
from millrace.core.messages.graphs import JobGraphAdded, JobGraphChanged, JobGraphRemoved
from millrace.core.messages.records import Fact
from millrace.core.states import Recovery
from millrace.io.interfaces import Delete, Put, Txn
from millrace.io.storage.store import Storage
from millrace.runtime import troubles
from millrace.runtime.hosting import Term
from millrace.runtime.performer import Fence, Refused
from services.dispatcher.core import starting
from services.dispatcher.core.state import Closing, EtcdLookup, JobRequest, LiveJob, State
from services.dispatcher.graphs import AGAIN_MS, SETTLE_MS, Listening
from services.dispatcher.intake import Intake
from services.dispatcher.ports import JobStore
from services.dispatcher.stored import key_of, stored_of, value_of
from tests.core.of_dispatcher import GRAPH, JOB, OTHER, stored
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore


class Scene:
    """A Dispatcher's leader and a stranger, on one etcd."""

    def __init__(self, tmp_path: Any) -> None:
        self.etcd = MemoryEtcd(Clock())
        self.store, self.stranger = MemoryStore(self.etcd, "/m"), MemoryStore(self.etcd, "/m", "stranger")
        self.storage = Storage(f"file://{tmp_path}")
        self.epoch = self.put("leaders/dispatcher", b"me")
        self.state = State(recovery=Recovery.DONE)
        self.told: list[Any] = []
        self.kafka_takes = True
        self.now_ms = 0
        self.jobs = JobStore(self.store, self.storage, lambda: 0)
        self.lead(self.store.revision)

    def lead(self, revision: int) -> list[Any]:
        """A term that begins where the log knows of this revision; what is told in it at first."""
        folded = ScopeState(1, 0, epoch=self.epoch, revision=revision, state=self.state)
        term = Term(self.epoch, folded, self._append, threading.Event())
        self.listening = Listening(self.store, Intake(self.storage, DEFAULT_LIMITS), term)
        return self.look()

    def _append(self, record: Any, on_ack: Any = None) -> None:
        assert isinstance(record, Fact)
        self.told.append(record.body)
        if on_ack is not None and self.kafka_takes:
            on_ack()

    def put(self, key: str, value: bytes) -> int:
        return self.stranger.txn(Txn((), [Put(key, value)])).revision

    def delete(self, job: str = JOB) -> None:
        self.stranger.txn(Txn((), [Delete(key_of(job))]))

    def look(self, after_ms: int = 0) -> list[Any]:
        """What is told of all that has settled."""
        for wait_ms in (0, 0, SETTLE_MS + after_ms):
            self.now_ms += wait_ms
            self.etcd.deliver()
            self.listening.look(self.now_ms)
        told, self.told = self.told, []
        return told

    def live(self, job: str = JOB, **fields: Any) -> LiveJob:
        """A job that lives, and has its key."""
        known = stored(job, **fields)
        list(starting.announce_accepted(self.state, job, known))
        self.put(key_of(job), value_of(known))
        return self.state.live[job]

    def perform(self, effect: Any) -> Any:
        [outcome] = self.jobs.ports()[type(effect)]([effect], Fence("dispatcher", self.epoch))
        return outcome


@pytest.fixture
def scene(tmp_path: Any) -> Scene:
    return Scene(tmp_path)


def test_a_graph_that_somebody_puts_there_is_told_once_until_there_is_room(scene: Scene) -> None:
    revision = scene.put(key_of(JOB), value_of(stored(acceptance="0123abcd.1.7")))
    [told] = scene.look()
    assert isinstance(told, JobGraphAdded) and told.graph == GRAPH and told.problems == []
    assert (told.job, told.revision, told.acceptance) == (JOB, revision, "0123abcd.1.7")
    assert scene.look() == []
    assert [type(each) for each in scene.look(AGAIN_MS)] == [JobGraphAdded], "the machine had no room, or was shut down"
    scene.state.settings.max_live_jobs = 0
    assert scene.look(AGAIN_MS) == [], "none is told of what cannot be taken"


def test_what_the_leader_does_itself_is_not_told(scene: Scene) -> None:
    scene.state.lookups[OTHER] = EtcdLookup("0.9", None, behind=[JobRequest("GetJobStatus", OTHER, "", "")])
    scene.put(key_of(OTHER), value_of(stored(OTHER)))
    scene.live()
    assert scene.look() == []
    list(starting.announce_accepted(scene.state, OTHER, stored(OTHER)))
    del scene.state.lookups[OTHER]
    assert scene.look() == []
    scene.put(key_of(JOB), value_of(stored(state="dirty")))
    del scene.state.live[JOB]
    assert scene.look() == []
    scene.put(key_of(JOB), value_of(stored(state="clean")))
    scene.delete()
    assert scene.look() == [], "a tombstone was swept"


def test_nothing_is_told_before_all_is_recovered_or_while_the_cluster_is_shut_down(scene: Scene) -> None:
    scene.state.recovery = Recovery.RUNNING
    scene.put(key_of(JOB), value_of(stored()))
    assert scene.look() == []
    scene.state.recovery, scene.state.closing = Recovery.DONE, Closing("c", 0, NowMs(0))
    assert scene.look() == []
    scene.state.closing = None
    assert [type(each) for each in scene.look()] == [JobGraphAdded]


@pytest.mark.parametrize(
    "value, kind, words",
    [
        (b"{", "unreadable", "cannot be read"),
        (b'{"state":"accepted"}', "unreadable", "Field required"),
        (value_of(stored(graph={"name": "one", "vertices": {}})), "graphs", "vertices"),
        (value_of(stored(graph={"name": "one", "vertices": {"v": {"sql": "SELEC 1"}}})), "graphs", ""),
        (value_of(stored(graph={**GRAPH, "modules": [{"name": "m", "sha256": "0" * 64}]})), "graphs", "was not uploaded"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_told_once_and_noted_until_it_is_gone(scene: Scene, value: bytes, kind: troubles.Kind, words: str) -> None:
    scene.put(key_of(JOB), value)
    scene.put(key_of(OTHER), value_of(stored(OTHER)))
    told = {each.job: each for each in scene.look()}
    assert told[OTHER].graph is not None, "nothing else is delayed"
    assert told[JOB].graph is None and words in str(told[JOB].problems[0])
    assert told[JOB].size_bytes == len(value)
    assert [job for job, _, _ in troubles.noted(scene.store, kind)] == [JOB]
    assert scene.look(AGAIN_MS) == [told[OTHER]]
    assert scene.lead(1) == [told[OTHER]], "the next leader has it noted"
    scene.delete()
    assert scene.look() == []
    assert list(troubles.noted(scene.store, kind)) == []


def test_what_a_term_could_not_tell_the_next_one_tells(scene: Scene) -> None:
    """Its note stood in etcd, and Kafka had nothing when the process ended: nobody was told, ever."""
    scene.kafka_takes = False
    scene.put(key_of(JOB), b"{")
    assert [type(each) for each in scene.look()] == [JobGraphAdded]
    assert scene.look(AGAIN_MS) == [], "told once in a term"
    scene.kafka_takes = True
    assert list(troubles.noted(scene.store, "unreadable")) == []
    assert [type(each) for each in scene.lead(0)] == [JobGraphAdded]
    assert [job for job, _, _ in troubles.noted(scene.store, "unreadable")] == [JOB]
    assert scene.lead(0) == []



def test_a_delete_that_etcd_tells_of_is_told_whoever_leads_then(scene: Scene) -> None:
    live = scene.live()
    scene.look()
    scene.delete()
    assert scene.lead(scene.store.revision) == [JobGraphRemoved(job=JOB, acceptance=live.acceptance)]


def test_a_key_that_is_put_back_in_time_was_not_removed(scene: Scene) -> None:
    scene.live()
    scene.look()
    scene.delete()
    scene.put(key_of(JOB), value_of(stored()))
    assert scene.look() == []


def test_a_key_that_is_gone_without_a_delete_that_etcd_knows_of_was_lost(scene: Scene) -> None:
    """As in an etcd that was restored from a backup: its history is compacted."""
    live = scene.live()
    scene.live(OTHER)
    scene.look()
    known = scene.store.revision
    scene.delete()
    for number in range(20_000):
        scene.etcd.revision += number > 0
    scene.put(key_of("added"), value_of(stored("added")))
    scene.etcd.compact()
    told = [*scene.lead(known), *scene.look()]
    assert JobGraphChanged(job=JOB, acceptance=live.acceptance, revision=0) in told
    assert [each.job for each in told if isinstance(each, JobGraphAdded)] == ["added"] and len(told) == 2


def test_a_lost_connection_is_taken_up_where_it_was_lost(scene: Scene) -> None:
    live = scene.live()
    scene.look()
    scene.etcd.lose_watches()
    scene.delete()
    scene.put(key_of(OTHER), value_of(stored(OTHER)))
    told = scene.look()
    assert JobGraphRemoved(job=JOB, acceptance=live.acceptance) in told and len(told) == 2
    scene.etcd.pause()
    assert scene.look() == []
    scene.etcd.resume()
    scene.put(key_of("third"), value_of(stored("third")))
    assert "third" in [each.job for each in [*scene.look(), *scene.look()]]


def test_what_stands_over_a_job_that_is_known_is_told_as_a_change(scene: Scene) -> None:
    live = scene.live()
    revision = scene.put(key_of(JOB), value_of(stored(acceptance="other.1.1")))
    [told] = scene.look()
    assert isinstance(told, JobGraphChanged) and (told.acceptance, told.revision) == (live.acceptance, revision)
    edited = stored(graph={**GRAPH, "name": "edited"})
    revision = scene.put(key_of(JOB), value_of(edited))
    [told] = scene.look()
    assert isinstance(told, JobGraphChanged) and told.revision == revision, "its acceptance tells nothing"
    garbage = scene.put(key_of(JOB), b"garbage")
    [told] = scene.look()
    assert isinstance(told, JobGraphChanged) and told.revision == garbage


def test_who_leads_no_more_looks_no_more(scene: Scene) -> None:
    scene.put("leaders/dispatcher", b"another")
    scene.put(key_of(JOB), value_of(stored()))
    with pytest.raises(Refused):
        scene.look()


# the ports


def replaced(scene: Scene, replaces: int) -> PutJobGraph:
    return PutJobGraph(job=JOB, stored=stored(acceptance="1.77"), replaces=replaces)


def test_what_is_accepted_takes_the_place_of_what_somebody_has_put(scene: Scene) -> None:
    revision = scene.put(key_of(JOB), value_of(stored(acceptance="other.1.1")))
    effect = replaced(scene, revision)
    done = JobGraphStored(job=JOB, stands=effect.stored.model_copy(update={"graph": None}))
    assert scene.perform(effect) == done
    assert stored_of(scene.store.get(key_of(JOB))) == effect.stored
    again = scene.perform(effect)
    assert again.stands.acceptance == "1.77" and again.refused is None, "a try before whose answer was lost"


@pytest.mark.parametrize("gone", [True, False])
def test_what_was_changed_meanwhile_is_not_replaced(scene: Scene, gone: bool) -> None:
    revision = scene.put(key_of(JOB), value_of(stored(acceptance="other.1.1")))
    if gone:
        scene.delete()
    else:
        scene.put(key_of(JOB), value_of(stored(acceptance="other.1.2")))
    before = scene.store.get(key_of(JOB))
    outcome = scene.perform(replaced(scene, revision))
    assert outcome.stands is None and "changed again, or removed" in outcome.refused.reason
    assert scene.store.get(key_of(JOB)) == before


@pytest.mark.parametrize("fault", ["unavailable", "unknown, not done", "unknown, done"])
def test_a_lost_answer_is_asked_for_again(scene: Scene, fault: Any) -> None:
    revision = scene.put(key_of(JOB), value_of(stored(acceptance="other.1.1")))
    scene.store.write_faults.append(fault)
    assert scene.perform(replaced(scene, revision)) is None
    assert scene.perform(replaced(scene, revision)).stands.acceptance == "1.77"


def test_what_the_log_knows_is_put_back_and_an_ending_stays(scene: Scene) -> None:
    keep = KeepJobGraph(job=JOB, stored=stored(acceptance="1.77"))
    key = key_of(JOB)
    edited = stored(acceptance="1.77", graph={**GRAPH, "name": "edited"})
    for before in (None, b"garbage", value_of(stored(acceptance="other.1.1")), value_of(edited)):
        if before is not None:
            scene.put(key, before)
        assert scene.perform(keep) == JobGraphKept(job=JOB)
        assert stored_of(scene.store.get(key)) == keep.stored
    revision = scene.store.get(key).mod_revision
    assert scene.perform(keep) == JobGraphKept(job=JOB) and scene.store.get(key).mod_revision == revision, "it stands there already"
    stone = KeepJobGraph(job=JOB, stored=stored(state="clean", acceptance="1.77"))
    assert scene.perform(stone) == JobGraphKept(job=JOB)
    assert stored_of(scene.store.get(key)).status == "FINISHED"
    assert scene.perform(keep) == JobGraphKept(job=JOB)
    assert stored_of(scene.store.get(key)).status == "FINISHED", "it has ended"
    scene.delete()
    assert scene.perform(stone) == JobGraphKept(job=JOB) and scene.store.get(key) is None, "it was swept"
