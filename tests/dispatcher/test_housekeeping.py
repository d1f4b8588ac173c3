"""What is old goes, what is young or in use stays, and nothing is listed as a whole."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.core.fold import ScopeState
from millrace.core.messages import effects
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.schedules import PendingRun, ScheduleProgress, StoredSchedule
from millrace.core.states import Recovery
from millrace.io.interfaces import Delete, Put, Txn
from millrace.io.storage.store import Entry, Storage, blob_path, upload_path
from millrace.runtime import troubles
from millrace.runtime.hosting import Term
from millrace.runtime.inspection import FOLDER
from millrace.runtime.performer import Fence, Refused
from services.dispatcher import housekeeping
from services.dispatcher.core.retirement import tombstone_of
from services.dispatcher.core.state import EndedJob, LiveJob, State
from services.dispatcher.housekeeping import REPEATS_MS, Housekeeping
from services.dispatcher.ports import JobStore
from tests.core.of_dispatcher import stored
from tests.simulation import Clock
from tests.simulation.bus import MemoryBroker, MemoryBus
from tests.simulation.performing import StagingAtOnce
from tests.simulation.store import MemoryEtcd, MemoryStore

HOUR_MS = 3_600_000
KEEP_MS = 100 * HOUR_MS
SHA = "5" * 64


class World:
    """etcd and Kafka in memory, a real folder, and the housekeeping of who leads."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.store = MemoryStore(MemoryEtcd(self.clock), "/m/")
        self.broker = MemoryBroker(self.clock)
        self.broker.ensure_topics([("client.commands", 1, {})])
        self.bus = MemoryBus(self.broker, client_id="me", on_fatal=pytest.fail)
        self.storage = Storage(str(folder / "storage"))
        self.store.txn(Txn([], [Put("leaders/dispatcher", b"me")]))
        self.fence = Fence("dispatcher", self.store.get("leaders/dispatcher").mod_revision)
        self.state = State(recovery=Recovery.DONE)
        self.failures: list[str] = []
        self.housekeeping = Housekeeping(self.store, self.storage, self.bus, StagingAtOnce(), KEEP_MS, self.failures.append)

    def file(self, path: str, age_ms: int = 0) -> str:
        """A file that was last changed so long ago."""
        self.storage.put_new(path, b"x")
        when_s = (self.clock.now_ms() - age_ms) / 1000
        os.utime(self.storage.local(path), (when_s, when_s))
        return path

    def set(self, job: str, state: str, **fields: Any) -> None:
        value = stored(job, state, **fields).model_dump_json(exclude_defaults=True)
        self.store.txn(Txn([], [Put(f"jobs/{job}", value.encode())]))

    def holds(self, job: str) -> StoredJob | None:
        entry = self.store.get(f"jobs/{job}")
        return StoredJob.model_validate_json(entry.value) if entry else None

    def request(self) -> None:
        """A record on client.commands."""
        self.bus.append("client.commands", 0, b"x")

    def sweep(self, ms: int = 0) -> list[str]:
        """So much later. What files are left."""
        self.clock.advance(ms)
        self.housekeeping.sweep(self.clock.now_ms(), self.fence, self.state)
        return [entry.path for entry in self.storage.list()]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_old_uploads_logs_results_and_archives_go_and_young_ones_stay(world: World) -> None:
    for path in (upload_path(SHA), "logs/0.1/a/stdout", "results/0.1/a/r.json", "archives/j/0.1/1.json"):
        world.file(path, KEEP_MS + 1)
    kept = [upload_path("6" * 64), "logs/0.2/a/stdout", "results/0.2/a/r.json", "archives/j/0.2/1.json"]
    kept = [world.file(path, KEEP_MS - 1) for path in kept] + [world.file("snapshots/dispatcher/1-2-x.jsonl.zst", 2 * KEEP_MS)]
    assert world.sweep() == sorted(kept)
    assert sorted(each.name for each in world.storage.local("logs").iterdir()) == ["0.2"], "empty folders go, too"


def test_uploads_may_go_earlier_than_the_rest_but_not_the_copies_of_a_live_job(world: World) -> None:
    """Flink's blob.service.cleanup.interval. An upload that broke off with its Dispatcher goes after a day at most."""
    world.set("live", "accepted", acceptance="0.5")
    world.housekeeping._keep_uploads_ms = HOUR_MS
    world.file(upload_path(SHA), HOUR_MS + 1)
    kept = [world.file(upload_path("6" * 64), HOUR_MS - 1), world.file(blob_path("live", "0.5", SHA), KEEP_MS)]
    kept.append(world.file("archives/j/0.2/1.json", KEEP_MS - 1))
    half = world.storage.local("uploads") / ".tmp-half"
    half.write_bytes(b"h")
    when_s = (world.clock.now_ms() - HOUR_MS - 1) / 1000
    os.utime(half, (when_s, when_s))
    assert world.sweep() == sorted(kept) and not half.exists()


def test_what_a_schedule_needs_is_not_swept(world: World) -> None:
    """Its uploads, and the tombstone of a run that is perhaps submitted again: after days without a leader the sweep comes first."""
    schedule = StoredSchedule(
        revision="1.1", cron="@daily", time_zone="UTC", missed="latest", overlap="skip", since_ms=1, set_ms=1, modules=[SHA]
    )
    progress = ScheduleProgress(pending=PendingRun(job="s-1", due_ms=1, since_ms=1))
    values = {"schedules/s": schedule, "schedule-progress/s": progress}
    world.store.txn(Txn([], [Put(key, each.model_dump_json().encode()) for key, each in values.items()]))
    kept = world.file(upload_path(SHA), 9 * KEEP_MS)
    world.file(upload_path("6" * 64), 9 * KEEP_MS)
    for job in ("s-1", "s-2"):
        world.set(job, "clean", ended_ms=1)
    world.clock.advance(2 * REPEATS_MS)
    world.request()
    assert world.sweep() == [kept] and world.holds("s-1") is not None and world.holds("s-2") is None
    world.store.txn(Txn([], [Put("schedules/s", b"what another build wrote")]))
    assert world.sweep() == [kept], "what it needs is not known"
    world.store.txn(Txn([], [Delete("schedules/s"), Delete("schedule-progress/s")]))
    assert world.sweep() == [] and world.holds("s-1") is None


def test_pieces_of_logs_that_were_asked_for_go_after_an_hour(world: World) -> None:
    world.file(f"{FOLDER}/1", HOUR_MS + 1)
    kept = [world.file(f"{FOLDER}/2", HOUR_MS - 1), world.file("logs/0.1/a/stdout", HOUR_MS + 1)]
    assert world.sweep() == sorted(kept)


def test_the_oldest_archives_beyond_so_many_go(world: World) -> None:
    world.housekeeping._archives_most = 3
    paths = [world.file(f"archives/j{n}/0.{n}/1.json", n * HOUR_MS + 1) for n in range(2, 9)]
    assert world.sweep() == sorted(paths[:3])
    assert sorted(each.name for each in world.storage.local("archives").iterdir()) == ["j2", "j3", "j4"], "empty folders go, too"
    assert world.sweep() == sorted(paths[:3])


def test_an_archive_that_is_young_or_of_a_job_that_is_not_cleaned_up_stays_beyond_any_number(world: World) -> None:
    """An ending whose cleanup is not done is announced again, with its archive; and who waited for a result asks for it now."""
    world.housekeeping._archives_most = 1
    world.set("ended", "dirty", acceptance="0.6")
    world.state.live["known"] = LiveJob(acceptance="0.7", digest="d", shard=0, accepted_ms=1, graph="{}", name="n", subtasks=1)
    kept = [world.file(f"archives/{job}/{acceptance}/1.json", 9 * HOUR_MS) for job, acceptance in (("ended", "0.6"), ("known", "0.7"))]
    kept += [world.file(f"archives/young{n}/0.{n}/1.json", HOUR_MS // 2 + n * 120_000) for n in range(10, 13)]
    world.file("archives/old/0.9/1.json", 2 * HOUR_MS)
    assert world.sweep() == sorted(kept)


def test_an_archive_of_a_job_whose_key_is_damaged_stays_beyond_any_number(world: World) -> None:
    """Whether its end will be announced again is not known."""
    world.housekeeping._archives_most = 1
    world.store.txn(Txn([], [Put("jobs/torn", b"torn")]))
    kept = [world.file("archives/torn/0.7/1.json", 9 * HOUR_MS), world.file("archives/new/0.8/1.json", 2 * HOUR_MS)]
    world.file("archives/old/0.9/1.json", 8 * HOUR_MS)
    assert world.sweep() == sorted(kept)


def test_archives_of_one_minute_go_or_stay_together(world: World) -> None:
    world.housekeeping._archives_most = 2
    age_ms = world.clock.now_ms() % 60_000 + 3 * HOUR_MS + 1000
    together = [world.file(f"archives/j{n}/0.{n}/1.json", age_ms) for n in range(5)]
    assert world.sweep() == sorted(together), "never fewer than are to be kept"
    newer = [world.file(f"archives/k{n}/0.1{n}/1.json", 2 * HOUR_MS) for n in range(2)]
    assert world.sweep() == sorted(newer)


def test_what_a_live_job_wrote_long_ago_stays(world: World) -> None:
    """Results and quiet logs of a job that ran for longer than they are kept were gone before it ended; so were the modules of a job
    that somebody had called uploads."""
    world.set("uploads", "accepted", acceptance="0.5")
    world.set("ended", "dirty", acceptance="0.6")
    paths = ["logs/{}/a/stdout", "results/{}/a/r.json", "exchange/{}/1/0-v/part"]
    kept = [world.file(path.format(acceptance), 9 * KEEP_MS) for path in paths for acceptance in ("0.5", "0.6")]
    kept.append(world.file(blob_path("uploads", "0.5", SHA), 9 * KEEP_MS))
    assert world.sweep() == sorted(kept)


def test_exchange_data_and_modules_that_nobody_owns_go(world: World) -> None:
    """What could not be deleted within a minute of its job's end stayed for ever, and so did modules that were copied for nothing."""
    world.set("done", "clean", acceptance="0.5")
    for path in ("exchange/0.5/1/0-v/part", blob_path("done", "0.5", SHA), blob_path("never", "0.7", SHA)):
        world.file(path, 2 * HOUR_MS)
    young = [world.file("exchange/0.8/1/0-v/part"), world.file(blob_path("being-accepted", "0.8", SHA))]
    assert world.sweep() == sorted(young)


def test_modules_are_young_when_they_are_kept_however_old_their_upload_is(world: World) -> None:
    world.file(upload_path(SHA), KEEP_MS - HOUR_MS)
    world.storage.copy_new(upload_path(SHA), blob_path("j", "0.1", SHA))
    now_ms = max(world.storage.stat(blob_path("j", "0.1", SHA)).modified_ms, world.clock.now_ms())
    world.clock.advance(now_ms - world.clock.now_ms())
    assert world.sweep() == [blob_path("j", "0.1", SHA), upload_path(SHA)]


def test_a_sweep_holds_no_listing_and_what_it_has_deleted_is_gone_when_it_is_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listed every file first: 700,000 of them ended a Dispatcher of 256 MB a minute after it led, and its successor, and nothing
    was ever deleted."""
    jobs = 200
    for number in range(jobs):
        world.file(f"logs/0.{number}/a/stdout", 2 * KEEP_MS)
    delete, left = world.storage._backend.delete, [jobs // 2]

    def dying(path: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        delete(path)

    monkeypatch.setattr(world.storage._backend, "delete", dying)
    with pytest.raises(KeyboardInterrupt):
        world.sweep()
    assert len(world.storage.list("logs")) == jobs - jobs // 2
    monkeypatch.undo()
    walk, held = world.storage._backend.walk, [0, 0]

    def walked(prefix: str) -> Iterator[Entry]:
        for each in walk(prefix):
            held[0] += 1
            held[1] = max(held)
            yield each

    def counted(path: str) -> None:
        held[0] -= 1
        delete(path)

    monkeypatch.setattr(world.storage._backend, "walk", walked)
    monkeypatch.setattr(world.storage._backend, "delete", counted)
    assert world.sweep() == []
    assert held == [0, 1], "each file is deleted before the next one is looked at"


DAY_MS = 24 * HOUR_MS


def test_a_tombstone_goes_when_no_submission_of_its_job_stands_in_client_commands(world: World) -> None:
    world.request()
    world.set("old", "clean", ended_ms=world.clock.now_ms())
    world.set("live", "accepted")
    world.clock.advance(2 * DAY_MS)
    world.request()
    world.bus.delete_below("client.commands", 0, 1)
    world.sweep()
    assert world.holds("old") is not None, "too young, though its submission is gone"
    world.sweep(REPEATS_MS)
    assert world.holds("old") is None and world.holds("live") is not None


def test_a_tombstone_stays_for_as_long_as_its_owner_wants_and_no_shorter_than_it_must(world: World) -> None:
    world.housekeeping._keep_ended_ms = 2 * REPEATS_MS
    world.set("old", "clean", ended_ms=world.clock.now_ms())
    world.sweep(2 * REPEATS_MS)
    assert world.holds("old") is not None
    world.sweep(1)
    assert world.holds("old") is None
    world.housekeeping._keep_ended_ms = 1
    world.set("young", "clean", ended_ms=world.clock.now_ms())
    world.sweep(REPEATS_MS)
    assert world.holds("young") is not None


def test_a_tombstone_stays_while_its_submission_may_be_read_again(world: World) -> None:
    """A new generation of the Dispatcher reads all of client.commands: the job would run a second time."""
    world.request()
    world.set("old", "clean", ended_ms=world.clock.now_ms())
    world.sweep(10 * REPEATS_MS)
    assert world.holds("old") is not None
    world.clock.advance(1)
    world.request()
    keep = JobStore(world.store, world.storage).ports()[effects.KeepJob]
    assert keep([effects.KeepJob(job="old", at_ms=world.clock.now_ms())], world.fence) == [effects.JobKept(job="old")]
    world.bus.delete_below("client.commands", 0, 1)
    world.sweep(10 * REPEATS_MS)
    assert world.holds("old") is not None, "its repeat stands there"
    world.bus.delete_below("client.commands", 0, 2)
    world.sweep()
    assert world.holds("old") is None and world.store.count("repeats/") == 0


def test_a_repeat_of_a_job_whose_tombstone_is_gone_puts_it_back(world: World) -> None:
    """The state still knew the job: the repeat was answered from there, its stamp stayed for ever, and a new generation that read it
    again ran the job a second time."""
    job = EndedJob("0.9", "d", "one", "FINISHED", 5, world.clock.now_ms(), None)
    world.clock.advance(10 * REPEATS_MS)
    world.request()
    effect = effects.KeepJob(job="old", at_ms=world.clock.now_ms(), tombstone=tombstone_of(job, 0))
    keep = JobStore(world.store, world.storage).ports()[effects.KeepJob]
    for _ in range(2):  # an answer was lost
        assert keep([effect], world.fence) == [effects.JobKept(job="old")]
    held = world.holds("old")
    assert held is not None and (held.state, held.digest, held.acceptance) == ("clean", "d", "0.9")
    world.sweep(10 * REPEATS_MS)
    assert world.holds("old") == held, "its repeat stands there"
    world.bus.delete_below("client.commands", 0, 1)
    world.sweep()
    assert world.holds("old") is None and world.store.count("repeats/") == 0


def test_a_repeat_over_a_tombstone_changes_nothing_of_it_and_a_term_that_is_over_keeps_nothing(world: World) -> None:
    world.set("old", "clean")
    stone = world.holds("old")
    effect = effects.KeepJob(job="old", at_ms=7, tombstone=stone.model_copy(update={"digest": "other"}))
    keep = JobStore(world.store, world.storage).ports()[effects.KeepJob]
    keep([effect], world.fence)
    assert world.holds("old") == stone
    world.store.txn(Txn([], [Put("leaders/dispatcher", b"another")]))
    with pytest.raises(Refused):
        keep([effect], world.fence)


def test_the_files_of_a_live_job_stay_though_its_key_is_damaged(world: World) -> None:
    """They were nobody's: a running job lost its exchange data and its modules, and a long one its logs."""
    world.store.txn(Txn([], [Put("jobs/j", b"torn")]))
    world.state.live["j"] = LiveJob("0.5", "d", 0, 7, "n", "{}")
    paths = ["logs/0.5/a/stdout", "results/0.5/a/r.json", "exchange/0.5/1/0-v/part", blob_path("j", "0.5", SHA)]
    kept = [world.file(path, 9 * KEEP_MS) for path in paths]
    assert world.sweep() == sorted(kept)
    del world.state.live["j"]
    world.state.recovery = Recovery.RUNNING
    assert world.sweep() == sorted(kept), "nobody knows yet whether it lives"
    world.state.recovery = Recovery.DONE
    assert world.sweep() == [blob_path("j", "0.5", SHA)], "modules tell whose they are"


FOREIGN = {
    "troubles/staging/a": b'{"folders": ["/x"], "reason": "r", "since_ms": "y"}',
    "troubles/staging/b": b'{"folders": null, "reason": "r", "since_ms": 5}',
    "troubles/staging/c": b'{"folders": [7], "reason": "r", "since_ms": 1%s}' % (b"0" * 5_000),
    "troubles/unreadable/d": b"[]",
    "troubles/staging/\udcff": b"",
    "repeats/old": b"9" * 5_000,
    "repeats/\udcff": b"x",
    "jobs/\udcff": b"x",
}


@pytest.mark.parametrize("key", FOREIGN)
def test_a_foreign_value_or_key_ends_no_sweep(world: World, key: str) -> None:
    """Each of them ended every Dispatcher a minute after it led."""
    world.request()
    world.set("old", "clean", ended_ms=world.clock.now_ms())
    world.store.txn(Txn([], [Put(key, FOREIGN[key])]))
    world.file("logs/0.5/a/stdout", 2 * KEEP_MS)
    world.clock.advance(10 * REPEATS_MS)
    world.request()
    world.bus.delete_below("client.commands", 0, 1)
    assert world.sweep() == []
    assert world.holds("old") is None, "what comes behind it is swept"


def test_a_job_under_a_key_that_is_no_job_id_is_told_and_no_message_carries_it(world: World) -> None:
    value = stored("j", "accepted").model_dump_json(exclude_defaults=True).encode()
    world.store.txn(Txn([], [Put("jobs/\udcff", value), Put("jobs/j", value)]))
    recover = JobStore(world.store, world.storage).ports()[effects.RecoverJobs]
    [page] = recover([effects.RecoverJobs(retained=5)], world.fence)
    assert list(page.jobs) == ["j"] and page.model_dump_json()
    assert [job for job, _, _ in troubles.noted(world.store, "unreadable")] == ["\udcff"]


def test_a_first_request_that_cannot_be_read_keeps_nothing_from_being_swept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader read it, in its own process: one that ends who reads it ended each leader a minute after its election."""
    world.set("old", "clean", ended_ms=world.clock.now_ms())
    world.clock.advance(2 * DAY_MS)
    world.request()
    world.broker.log("client.commands", 0).flipped.add(0)
    monkeypatch.setattr(world.bus, "reader", lambda *_: pytest.fail("read"))
    world.file(upload_path(SHA), 2 * KEEP_MS)
    assert world.sweep(REPEATS_MS) == []
    assert world.holds("old") is None


def test_while_kafka_is_away_tombstones_stay_and_files_go(world: World) -> None:
    world.set("old", "clean", ended_ms=world.clock.now_ms())
    world.set("torn", "accepted")
    world.store.txn(Txn([], [Put("jobs/torn", b"torn")]))
    world.file(upload_path(SHA), 2 * KEEP_MS)
    world.broker.pause()
    assert world.sweep(10 * REPEATS_MS) == []
    assert world.holds("old") is not None
    assert [job for job, _, _ in troubles.noted(world.store, "unreadable")] == ["torn"]
    world.broker.resume()
    world.sweep()
    assert world.holds("old") is None


def test_staged_output_is_tried_again_and_given_up_when_it_is_old(world: World, tmp_path: Path) -> None:
    fine, never = tmp_path / ".out.staging/0.5", "ftp://host/.out.staging/0.5"
    fine.mkdir(parents=True)
    for job, folder in (("a", str(fine)), ("b", never)):
        facts = troubles.Facts(folders=[folder], reason="it was away", since_ms=world.clock.now_ms())
        troubles.note(world.store, world.fence, "staging", job, facts)
    world.sweep()
    assert not fine.exists()
    assert [job for job, _, _ in troubles.noted(world.store, "staging")] == ["b"]
    world.sweep(KEEP_MS + 1)
    assert not list(troubles.noted(world.store, "staging"))


def test_a_key_that_holds_no_job_is_noted_until_it_is_mended(world: World) -> None:
    world.store.txn(Txn([], [Put("jobs/x", b"foreign")]))
    world.sweep()
    assert [job for job, _, _ in troubles.noted(world.store, "unreadable")] == ["x"]
    world.set("x", "clean")
    world.sweep()
    assert not list(troubles.noted(world.store, "unreadable"))


def test_troubles_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(troubles, "MOST", 3)
    for number in range(9):
        troubles.note(world.store, world.fence, "unreadable", f"job-{number}", troubles.Facts(reason="foreign"))
    assert world.store.count("troubles/") == 3


def test_who_leads_no_more_deletes_no_tombstone(world: World) -> None:
    world.set("old", "clean", ended_ms=0)
    world.store.txn(Txn([], [Put("leaders/dispatcher", b"another")]))
    world.sweep()
    assert world.holds("old") is not None


@pytest.mark.parametrize("wrong_ms", [365 * 24 * HOUR_MS, -365 * 24 * HOUR_MS, 0])
def test_nothing_goes_while_the_clock_is_not_that_of_kafka(world: World, monkeypatch: pytest.MonkeyPatch, wrong_ms: int) -> None:
    """A Dispatcher whose clock was a year ahead deleted the files of the jobs that it was just accepting, and all tombstones."""
    now_ms = world.clock.now_ms()
    term = Term(world.fence.epoch, ScopeState(1, 0, state=world.state, stamp_ms=now_ms), lambda record: None)
    young = [world.file(upload_path(SHA)), world.file(blob_path("being-accepted", "0.9", SHA)), world.file("logs/0.6/a/stdout")]
    old = [world.file("logs/0.7/a/stdout", KEEP_MS + 1)]
    world.set("done", "clean", acceptance="0.6", ended_ms=now_ms)

    def time_ns() -> int:
        term.ended.set()  # once
        return (now_ms + wrong_ms) * 1_000_000

    monkeypatch.setattr(housekeeping, "FIRST_S", 0.0)
    monkeypatch.setattr(housekeeping, "time", SimpleNamespace(time_ns=time_ns))
    world.housekeeping._run(term)
    left = [entry.path for entry in world.storage.list()]
    assert left == sorted(young + old if wrong_ms else young)
    assert world.holds("done") is not None and not world.failures


def test_a_sweep_that_fails_ends_the_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread had ended, and nobody knew."""
    monkeypatch.setattr(housekeeping, "FIRST_S", 0.0)
    ended = threading.Event()
    monkeypatch.setattr(world.housekeeping, "sweep", lambda now_ms, fence, state: 1 / 0)
    monkeypatch.setattr(world.housekeeping, "_fatal", lambda reason: (world.failures.append(reason), ended.set()))
    world.housekeeping.lead(Term(1, ScopeState(1, 0, stamp_ms=time.time_ns() // 1_000_000), lambda record: None))
    assert ended.wait(120) and "division by zero" in world.failures[0]
