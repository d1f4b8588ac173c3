"""The leader's thread submits what is due: published once or more, run once, whoever dies between any two steps."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.core.fold import ScopeState
from millrace.core.messages import schedule_effects
from millrace.core.messages.client import SubmitJob
from millrace.core.messages.schedules import ScheduleGraph, ScheduleProgress, StoredSchedule
from millrace.io.interfaces import Put, Txn, UnknownOutcome
from millrace.io.storage.store import NotFound, Storage, upload_path
from millrace.runtime.hosting import Term
from millrace.runtime.metrics import SCHEDULE_TIMES
from millrace.runtime.performer import Fence, Refused
from services.dispatcher.core.state import Closing, LiveJob, State
from services.dispatcher.ports import JobStore
from services.dispatcher.schedules import deciding, firing, ports
from services.dispatcher.schedules.firing import Firing, Schedules
from services.dispatcher.schedules.stored import GRAPHS, PROGRESS, SCHEDULES, in_use, progress_of
from tests.core.of_dispatcher import stored as job_stored
from tests.dispatcher.test_schedule_times import HOUR_MS, MINUTE_MS, NOON
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.store import MemoryEtcd, MemoryStore

GRAPH = {"name": "one", "parameters": {"scheduled_date": "x"}, "vertices": {"v": {"sql": "SELECT '${scheduled_date}'"}}}
SHA = "5" * 64


class World:
    """etcd and Kafka in memory, and who leads; `accept` is the rest of the Dispatcher."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.store = MemoryStore(MemoryEtcd(self.clock), "/m/")
        self.broker = MemoryBroker(self.clock)
        self.broker.ensure_topics([("client.commands", 1, {})])
        self.bus = MemoryBus(self.broker, client_id="me", on_fatal=pytest.fail)
        self.storage = Storage(str(folder))
        self.state, self.now_ms, self.read, self.number = State(), NOON, 0, 0
        self.runs: list[str] = []
        self.jobs = JobStore(self.store, self.storage, lambda: self.now_ms)
        self.lead()

    def lead(self) -> None:
        """A new leader, whose process knows nothing."""
        self.store.txn(Txn([], [Put("leaders/dispatcher", b"me")]))
        entry = self.store.get("leaders/dispatcher")
        assert entry is not None
        self.fence = Fence("dispatcher", entry.mod_revision)
        self.jobs.schedules_changed = threading.Event()
        self.jobs = JobStore(self.store, self.storage, lambda: self.now_ms)
        self.firing = Firing(self.store, self.bus, self.jobs.schedules_changed, self.fence)

    def do(self, effect: Any) -> Any:
        [outcome] = self.jobs.ports()[type(effect)]([effect], self.fence)
        return outcome

    def set(self, name: str = "s", graph: dict[str, Any] = GRAPH, **fields: Any) -> schedule_effects.ScheduleStored:
        self.number += 1
        known = {"revision": f"1.{self.number}", "cron": "0 * * * *", "time_zone": "UTC", "missed": "latest", "overlap": "skip"}
        stored = StoredSchedule(**{**known, "since_ms": NOON - 1, "set_ms": NOON, "name": "one", **fields})
        outcome: schedule_effects.ScheduleStored = self.do(
            schedule_effects.StoreSchedule(
                number=self.number, schedule=name, stored=stored, graph=ScheduleGraph(graph=graph, parameters={})
            )
        )
        return outcome

    def change(self, change: Any, name: str = "s") -> schedule_effects.ScheduleChanged:
        effect = schedule_effects.ChangeSchedule(number=1, schedule=name, change=change, at_ms=self.now_ms)
        outcome: schedule_effects.ScheduleChanged = self.do(effect)
        return outcome

    def look(self, times: int = 1, ms: int = 0) -> None:
        for _ in range(times):
            self.now_ms += ms
            self.firing.look(self.now_ms, self.state)

    def published(self) -> list[SubmitJob]:
        """What was since it was looked at last."""
        self.bus.flush(1_000)
        reader = self.bus.reader("client.commands", 0, self.read)
        found = reader.poll(0)
        self.read += len(found)
        return [SubmitJob.model_validate_json(each.value) for each in found]

    def accept(self) -> None:
        """The jobs are in etcd, unless they were."""
        for request in self.published():
            if self.store.get(f"jobs/{request.job}") is None:
                self.put_job(request.job, "accepted")
                self.runs.append(request.job)

    def put_job(self, job: str, state: str) -> None:
        self.store.txn(Txn([], [Put(f"jobs/{job}", job_stored(job, state).model_dump_json().encode())]))

    def progress(self, name: str = "s") -> ScheduleProgress:
        return progress_of(self.store.get(f"{PROGRESS}{name}"))

    def keys(self) -> list[str]:
        return [entry.key for entry in self.store.list("schedule")[0]]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "storage")


def live(**fields: Any) -> LiveJob:
    return LiveJob(acceptance="0.7", digest="d", shard=0, accepted_ms=1, graph="{}", name="n", subtasks=1, **fields)


def test_a_time_becomes_a_job(world: World) -> None:
    world.set()
    world.look()
    assert world.progress().pending is not None and world.published() == []
    world.look()
    [request] = world.published()
    assert (request.job, request.graph, request.parameters, request.reply_to) == (
        "s-20260601T1200Z", GRAPH, {"scheduled_date": "2026-06-01"}, "",
    )  # fmt: skip
    assert request.scheduled is not None and request.scheduled.model_dump() == {
        "schedule": "s", "due": "2026-06-01T12:00:00+00:00", "time_zone": "UTC",
    }  # fmt: skip
    assert request.accept_before_ms == NOON + firing.ACCEPT_MS
    world.look(5)
    assert world.published() == [], "it is on its way"
    world.put_job(request.job, "accepted")
    world.look()
    assert world.progress() == ScheduleProgress(through_ms=NOON, last_job=request.job, last_ms=NOON)
    world.look(5, 10 * MINUTE_MS)
    assert world.published() == []


@pytest.mark.parametrize("dies_after", range(1, 8))
@pytest.mark.parametrize("late", [False, True])
def test_whoever_dies_between_two_steps_each_time_is_run_once(world: World, dies_after: int, late: bool) -> None:
    """Two hours; the leader dies after so many looks, again and again. `late`: what it published is read only by the next one."""
    world.set(missed="all", since_ms=NOON - HOUR_MS - 1)
    for step in range(1, 60):
        world.look()
        if not late or step % dies_after == 0:
            world.accept()
        if step % dies_after == 0:
            world.lead()
        for job in world.runs:
            world.put_job(job, "dirty")
    assert world.runs == ["s-20260601T1100Z", "s-20260601T1200Z"]
    assert world.progress().pending is None and world.progress().left_out == []


def test_an_answer_of_etcd_that_is_lost_leads_to_no_second_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    txn, lost = world.store.txn, [0]

    def without_answer(each: Txn) -> Any:
        result = txn(each)
        if any(isinstance(one, Put) and one.key.startswith(PROGRESS) for one in each.then):
            lost[0] += 1
            if lost[0] % 2:
                raise UnknownOutcome("the answer was lost")
        return result

    world.set()
    monkeypatch.setattr(world.store, "txn", without_answer)
    for _ in range(10):
        world.look()
        world.accept()
    assert world.runs == ["s-20260601T1200Z"] and world.progress().pending is None and lost[0] >= 2


def test_who_was_replaced_changes_nothing(world: World) -> None:
    world.set()
    old = world.firing
    world.lead()
    with pytest.raises(Refused):
        old.look(world.now_ms, world.state)
    assert world.progress() == ScheduleProgress()


def test_of_two_leaders_at_once_each_time_is_run_once(world: World) -> None:
    """The old one has not noticed yet, and publishes what it has noted before."""
    world.set()
    world.look()
    old, old_fence = world.firing, world.fence
    world.lead()
    old.look(world.now_ms, world.state)
    assert old_fence.epoch < world.fence.epoch
    world.accept()
    world.look(3)
    world.accept()
    world.look(3)
    assert world.runs == ["s-20260601T1200Z"] and world.progress().last_job == world.runs[0]
    with pytest.raises(Refused):
        old.look(world.now_ms, world.state)


def count() -> float:
    """Times that were left out, as the metrics have them."""
    [family] = SCHEDULE_TIMES.families()
    return next(sample.value for sample in family.samples if sample.name.endswith("_total"))


def test_what_is_not_accepted_is_published_again_ever_less_often_and_given_up(world: World) -> None:
    world.set()
    counted = count()
    world.look(2)
    found = len(world.published())
    for _ in range(120):
        world.look(1, 30_000)
        found += len(world.published())
    assert 6 <= found <= 9
    world.look(4, 1_000)
    [gone] = world.progress().left_out
    assert (gone.due_ms, gone.why) == (NOON, deciding.REFUSED) and count() == counted + 1
    assert world.progress().pending is not None and world.progress().pending.due_ms == NOON + HOUR_MS, "the next time comes"


def test_one_run_at_a_time(world: World) -> None:
    world.set(overlap="wait")
    world.look(2)
    world.accept()
    world.look(2)
    world.state.live[world.runs[0]] = live()
    world.look(4, HOUR_MS // 4)
    world.look(4)
    assert world.progress().pending is not None and world.published() == [], "it waits"
    del world.state.live[world.runs[0]]
    world.look(4)
    assert world.published() == [], "etcd has no ending of it yet"
    world.put_job(world.runs[0], "dirty")
    world.look(1)
    assert [each.job for each in world.published()] == ["s-20260601T1300Z"]


def test_a_run_that_waited_longer_than_runs_are_tried_is_tried_as_long_as_any(world: World) -> None:
    """One that is given up at once is lost, or runs and the next one runs beside it."""
    world.set(overlap="wait")
    world.look(2)
    world.accept()
    world.look(2)
    world.state.live[world.runs[0]] = live()
    world.look(9, HOUR_MS // 4)
    del world.state.live[world.runs[0]]
    world.put_job(world.runs[0], "dirty")
    tried: list[str] = []
    for _ in range(deciding.TRIED_MS // 30_000):
        world.look(1, 30_000)
        tried += [each.job for each in world.published()]
    assert set(tried) == {"s-20260601T1300Z"} and len(tried) > 1 and world.progress().left_out == []
    world.look(2, 30_000)
    assert [each.why for each in world.progress().left_out] == [deciding.REFUSED]


def test_what_is_published_is_not_accepted_after_it_was_given_up(world: World) -> None:
    """It would run unknown to its schedule, and the next time beside it."""
    world.set(cron="*/20 * * * *")
    world.look()
    valid: list[int | None] = []
    while world.progress().left_out == []:
        world.look(1, 30_000)
        valid += [each.accept_before_ms for each in world.published() if each.job == "s-20260601T1200Z"]
    assert valid[-1] == NOON + 20 * MINUTE_MS < world.now_ms


def test_a_time_is_left_out_while_the_run_before_goes_on(world: World) -> None:
    world.set()
    world.look(2)
    world.accept()
    world.look(2)
    world.look(4, HOUR_MS // 4)
    assert [each.why for each in world.progress().left_out] == [deciding.OVERLAP] and world.progress().pending is None


def test_a_paused_schedule_runs_nothing_and_makes_up_for_nothing(world: World) -> None:
    world.set(missed="all")
    world.look()
    assert world.change("pause").summary is not None
    world.look(3, HOUR_MS)
    assert world.published() == [] and [each.why for each in world.progress().left_out] == [deciding.PAUSED]
    summary = world.change("resume").summary
    assert summary is not None and (summary.paused, summary.next[0]) == (False, "2026-06-01T16:00:00+00:00")
    world.look(3)
    assert world.published() == [] and world.progress().pending is None
    world.look(2, HOUR_MS)
    assert [each.job for each in world.published()] == ["s-20260601T1600Z"]


def test_a_run_that_is_published_when_its_schedule_is_paused_may_be_accepted_yet(world: World) -> None:
    world.set(overlap="wait")
    world.look(2)
    world.change("pause")
    world.look(2, MINUTE_MS)
    assert world.progress().pending is not None and world.progress().left_out == []
    world.accept()
    world.look()
    assert world.progress().pending is None and world.progress().last_job == world.runs[0] == "s-20260601T1200Z"


def test_a_run_that_is_published_when_its_schedule_is_paused_is_published_no_more(world: World) -> None:
    world.set()
    world.look(2)
    assert len(world.published()) == 1
    world.change("pause")
    world.look(12, MINUTE_MS)
    assert world.published() == [] and [each.why for each in world.progress().left_out] == [deciding.PAUSED]


def test_a_schedule_that_is_removed_while_a_run_is_decided_on_leaves_nothing(world: World) -> None:
    world.set()
    world.look()
    assert world.change("remove").found and world.keys() == []
    assert not world.change("remove").found
    world.look(3)
    assert world.keys() == [] and world.published() == []


def test_a_schedule_that_is_removed_at_the_moment_of_a_look_stays_removed(world: World) -> None:
    """The thread has read it, and writes what becomes of its time: the key would be there for ever."""
    world.set(since_ms=NOON)
    world.look()
    world.store.txn(Txn([], [each for each in map(_delete, world.keys())]))  # and nobody has said so to the thread
    world.look(3, HOUR_MS // 3)
    assert world.keys() == []


def _delete(key: str) -> Any:
    from millrace.io.interfaces import Delete

    return Delete(key)


def test_a_schedule_that_is_set_again_keeps_its_progress_and_is_stored_once(world: World) -> None:
    world.set()
    world.look(2)
    world.accept()
    world.look()
    before = world.progress()
    assert world.set(cron="30 * * * *", since_ms=NOON).summary is not None
    assert world.progress() == before
    entry = world.store.get(f"{SCHEDULES}s")
    world.number -= 1
    world.lead()
    world.set(cron="15 * * * *")  # carried out again by the next leader: the same revision
    assert entry == world.store.get(f"{SCHEDULES}s")


def test_there_are_so_many_schedules_and_no_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "SCHEDULES_MOST", 2)
    assert world.set("a").summary and world.set("b").summary
    assert world.set("c").problem == "there are 2 schedules already: remove some"
    assert world.set("a").summary is not None


def test_pages_of_schedules_are_whole(world: World) -> None:
    for name in ("a", "b", "c"):
        world.set(name)
    world.store.txn(Txn([], [Put(f"{SCHEDULES}bb", b"foreign")]))
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = world.do(schedule_effects.FindSchedules(number=1, after=after, limit=2))
        found, after = found + [each.schedule for each in page.schedules], page.next
    assert found == ["a", "b", "c"]


def test_a_run_by_hand_has_the_time_of_now(world: World) -> None:
    world.set(time_zone="Asia/Kathmandu")
    found = world.do(schedule_effects.FindSchedules(number=1, schedule="s", run_at_ms=NOON + 8 * HOUR_MS))
    assert found.graph == ScheduleGraph(graph=GRAPH, parameters={"scheduled_date": "2026-06-02"})
    assert world.do(schedule_effects.FindSchedules(number=1, schedule="t", run_at_ms=NOON)).schedules == []


@pytest.mark.parametrize("value", [b"", b"foreign", b"{}", json.dumps({"cron": 1}).encode()])
def test_what_cannot_be_read_is_the_trouble_of_that_schedule_alone(world: World, value: bytes) -> None:
    world.set("b")
    for name in ("a", "/", "x" * 200):
        world.store.txn(Txn([], [Put(f"{SCHEDULES}{name}", value), Put(f"{PROGRESS}{name}", value)]))
    world.store.txn(Txn([], [Put(f"{PROGRESS}b", value)]))
    world.look(2)
    assert [each.job for each in world.published()] == ["b-20260601T1200Z"]
    assert "cannot be read" in world.do(schedule_effects.FindSchedules(number=1, schedule="a")).problem
    assert "cannot be read" in (world.change("pause", "a").problem or "")
    assert not in_use(world.store).known
    assert world.change("remove", "a").found


def test_a_graph_that_is_gone_is_given_up(world: World) -> None:
    world.set()
    world.store.txn(Txn([], [_delete(f"{GRAPHS}s")]))
    world.look(3)
    [gone] = world.progress().left_out
    assert "set it again" in gone.why and world.progress().pending is None


def test_nothing_begins_while_the_cluster_is_shut_down(world: World) -> None:
    world.set()
    world.state.closing = Closing(name="end", since_ms=1, due_ms=2)  # type: ignore[arg-type]  # machine time
    world.look(3)
    assert world.progress() == ScheduleProgress()


def test_uploads_are_young_when_a_schedule_is_set_and_known_as_in_use(world: World) -> None:
    assert "was not uploaded" in (world.set(modules=[SHA]).problem or "") and world.keys() == []
    world.storage.put_new(upload_path(SHA), b"x")
    world.set(modules=[SHA])
    world.look()
    assert in_use(world.store) == (frozenset({SHA}), frozenset({"s-20260601T1200Z"}), True)
    with pytest.raises(NotFound):
        world.storage.get(upload_path("6" * 64))


def test_clocks_that_differ_run_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is a year ahead would run what is due next year, and nothing until then."""
    monkeypatch.setattr(firing, "LOOK_S", 0.001)
    world.set()
    looked: list[int] = []
    monkeypatch.setattr(Firing, "look", lambda self, now_ms, state: (looked.append(now_ms), len(looked) > 1 and term.ended.set()))
    own_ms = [NOON + firing.CLOCKS_MS + 1, NOON + 7, NOON - 3]
    clock = SimpleNamespace(now=lambda: own_ms.pop(0) if len(own_ms) > 1 else own_ms[0])
    folded = ScopeState(generation=1, next_offset=1, state=world.state)
    folded.stamp_ms = NOON
    term = Term(world.fence.epoch, folded, lambda record: None)
    Schedules(world.store, world.bus, threading.Event(), pytest.fail, clock.now).lead(term)
    assert term.ended.wait(20) and looked[:2] == [NOON, NOON - 3], "the earlier of the two clocks counts"


def test_a_failure_ends_the_process_and_a_term_that_is_over_does_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(firing, "LOOK_S", 0.001)
    failures: list[str] = []
    ended = threading.Event()
    folded = ScopeState(generation=1, next_offset=1, state=world.state)
    folded.stamp_ms = NOON

    def run(failure: Exception) -> None:
        monkeypatch.setattr(Firing, "look", lambda self, now_ms, state: (_ for _ in ()).throw(failure))
        Schedules(world.store, world.bus, ended, failures.append, lambda: NOON)._run(Term(1, folded, lambda record: None))

    run(Refused())
    assert failures == []
    run(KeyError("x"))
    assert failures == ["schedules: KeyError: 'x'"]
