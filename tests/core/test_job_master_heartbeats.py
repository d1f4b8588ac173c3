"""What a shard holds, in its heartbeats, and what it does where the ResourceManager counts otherwise [R31]."""

from __future__ import annotations

from typing import Any

from millrace.core.allocation import part_of
from millrace.core.machine import Configured, Say, Ticked
from millrace.core.messages import jobs, slots
from services.job_master.core import heartbeats
from tests.core.of_job_master import RM, TM, TWO, Shard, kinds

HEARTBEAT_MS = 2_000


def beating() -> Shard:
    shard = Shard()
    shard(Configured({"exchange_url": "/x", "heartbeat_ms": HEARTBEAT_MS}), "")
    return shard


def test_a_leader_of_a_build_before_sends_none() -> None:
    shard = Shard()
    shard.start(TWO)
    assert tick(shard) == []


def tick(shard: Shard, ms: int = HEARTBEAT_MS) -> list[Any]:
    shard.now += ms
    return shard(Ticked(), "")


def held(*allocations: str, name: str = "t1") -> jobs.HeldSlots:
    return jobs.HeldSlots(task_manager=name, incarnation=1, allocations=list(allocations))


def wide(count: int = 3) -> Shard:
    shard = beating()
    shard.start({"name": "wide", "vertices": {f"v{number}": {"sql": "SELECT 1"} for number in range(count)}})
    return shard


def test_a_shard_with_jobs_sends_what_it_holds_every_two_seconds() -> None:
    shard = beating()
    assert tick(shard) == []
    shard.start(TWO)
    assert tick(shard) == [Say(RM, jobs.JobMasterHeartbeat(part=0, parts=1, held=[]))]
    shard.offer("a1")
    assert tick(shard, HEARTBEAT_MS - 1) == []
    assert tick(shard, 1) == [Say(RM, jobs.JobMasterHeartbeat(part=0, parts=1, held=[held("a1")]))]


def test_a_shard_whose_jobs_want_nothing_is_quiet() -> None:
    shard = beating()
    shard.start()
    shard(jobs.SuspendJobs())
    assert not [each for each in tick(shard) if each.body.type == "JobMasterHeartbeat"]


def test_what_a_large_shard_holds_comes_in_parts(monkeypatch: Any) -> None:
    monkeypatch.setattr(heartbeats, "HELD_MOST", 2)
    shard = wide(5)
    shard.offer("a1", "a2", "a3")
    shard.offer("b1", "b2", tm="task-manager/t2")
    sent = [each.body for _ in range(4) for each in tick(shard)]
    assert [(each.part, each.parts) for each in sent] == [(0, 3), (1, 3), (2, 3), (0, 3)]
    names = [[allocation for its in each.held for allocation in its.allocations] for each in sent]
    assert sorted(names[0] + names[1] + names[2]) == ["a1", "a2", "a3", "b1", "b2"] and names[3] == names[0]
    assert all(part_of(allocation, 3) == each.part for each, its in zip(sent, names, strict=True) for allocation in its)


def test_what_it_does_not_hold_is_given_back_and_what_it_holds_is_kept() -> None:
    shard = wide()
    shard.offer("a1")
    said = shard(jobs.ReconcileSlots(unclaimed=[held("a1", "x1", "x2"), held("a1")], gone=[]), RM)
    assert said == [Say(TM, slots.FreeSlots(allocations=["x1", "x2"]))]


def test_what_is_not_there_any_more_is_failed_as_a_lost_slot_is() -> None:
    """The message that said so ended processes, and nothing was done of it. The attempt was waited for without end."""
    shard = wide(1)
    shard.offer("a1")
    said = shard(jobs.ReconcileSlots(unclaimed=[], gone=["a1", "unknown"]), RM)
    row = shard.job.tasks["v0"].rows[0]
    assert kinds(said) == ["event AttemptStateChanged FAILED"], "it wants one slot, as before"
    assert (row.state.value, row.attempt, row.moves, shard.state.allocations) == ("SCHEDULED", 1, 1, {})


def test_a_shard_whose_requests_were_forgotten_sends_them_again() -> None:
    shard = wide(2)
    shard(jobs.JobQueued(job="j", reason="all slots are busy", position=1), RM)
    assert kinds(shard(jobs.DeclareAgain(), RM)) == ["resource-manager JobMasterDeclared"]
    said = shard(jobs.DeclareAgain(requests=True), RM)
    assert kinds(said) == ["resource-manager RequestSlots 2", "dispatcher JobStatusChanged RUNNING", "resource-manager JobMasterDeclared"]
    assert shard.job.waiting is None
