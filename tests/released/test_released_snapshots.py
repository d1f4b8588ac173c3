"""What 0.1.0 has left is gone on from: its snapshots, a job in each state that lasts, made by its code (`make_snapshots.py`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from millrace.core.fold import ScopeState
from millrace.core.machine import Machine, Ticked
from millrace.core.messages import effects
from millrace.core.states import ENDED_JOB, ExecutionState
from millrace.core.topics import Topology
from millrace.runtime.snapshots import freeze, thaw
from services.dispatcher.core import state as of_dispatcher
from services.dispatcher.core.machine import Dispatcher
from services.job_master.core.machine import JobMaster
from services.job_master.core.state import check
from services.replay.core.trees import planted, tree
from services.resource_manager.core import state as of_resource_manager
from services.resource_manager.core.machine import ResourceManager
from tests.core.of_job_master import Shard

HERE = Path(__file__).parent / "snapshots-0.1.0"
SCHEMA = '{"type":"struct","fields":[]}'
ENDS = {
    "canceling": "CANCELED", "canceled": "CANCELED", "failing": "FAILED", "failed": "FAILED", "unreadable": "FAILED",
    **dict.fromkeys(
        ("queued", "deploying", "running", "half", "done-but-one", "retrying", "moved", "planning", "planned", "publishing", "finished"),
        "FINISHED",
    ),
}  # fmt: skip


def thawed(machine: Machine) -> ScopeState:
    return thaw(machine, (HERE / f"{machine.scope.replace('/', '-')}.jsonl.zst").read_bytes())


@pytest.fixture
def shard() -> Shard:
    made = Shard()
    made.state, made.now = thawed(made.machine).state, 2000
    return made


@pytest.mark.parametrize(
    ("machine", "holds"),
    [
        (Dispatcher(Topology()), of_dispatcher.check),
        (JobMaster(0), check),
        (ResourceManager(1), of_resource_manager.check),
    ],
    ids=lambda each: getattr(each, "scope", ""),
)
def test_a_snapshot_of_0_1_0_is_read_whole(machine: Machine, holds: Callable[[Any], None]) -> None:
    """A shard with a job refused its own snapshot: `values of jobs are not what they should be`."""
    folded = thawed(machine)
    holds(folded.state)
    assert (folded.epoch, folded.next_offset, folded.build) == (5, 1000, "0.1.0")
    again = thaw(machine, freeze(machine, folded))
    assert again == folded, "the next one is of today's shape"


def _dispatcher() -> tuple[Machine, ScopeState]:
    folded = thawed(machine := Dispatcher(Topology()))
    folded.state.received_from["job-master/0"] = None
    folded.state.starts_to_send["job-master/0"] = ["job-b"]
    folded.state.unverified_reports["job-a"] = "1.2"
    return machine, folded


def _resource_manager() -> tuple[Machine, ScopeState]:
    folded = thawed(machine := ResourceManager(1))
    folded.state.task_managers["a"].silent_from_ms, folded.state.places_sent_ms = 70, 80
    folded.state.jobs["one"].sent_reason, folded.state.jobs["one"].sent_position = "all slots are busy", 3
    return machine, folded


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (_dispatcher, {
            "lookups": "fates", "received_from": "heard", "starts_to_send": "declaring", "unverified_reports": "early",
        }),
        (_resource_manager, {
            "silent_from_ms": "heard_ms", "sent_reason": "told", "sent_position": "told_position", "unnotified": "untold",
            "places_sent_ms": "told_ms",
        }),
    ],
    ids=("dispatcher", "resource-manager"),
)  # fmt: skip
def test_a_field_that_had_another_name_is_read_under_that_too(
    made: Callable[[], tuple[Machine, ScopeState]], names: dict[str, str]
) -> None:
    """In a snapshot, and in a recording."""
    machine, folded = made()
    snapshot, recorded = zstandard.ZstdDecompressor().decompressobj().decompress(freeze(machine, folded)), json.dumps(tree(machine, folded))
    for name, formerly in names.items():
        assert name.encode() in snapshot and name in recorded
        snapshot = re.sub(rb"\b%s\b" % name.encode(), formerly.encode(), snapshot)
        recorded = re.sub(rf"\b{name}\b", formerly, recorded)
    assert thaw(machine, zstandard.compress(snapshot)) == folded
    assert planted(machine, json.loads(recorded)) == folded


def test_what_a_job_of_0_1_0_has_gone_through_is_known_still(shard: Shard) -> None:
    jobs = shard.state.jobs
    assert {job: held.status.value for job, held in jobs.items() if held.status in ENDED_JOB} == {
        job: ENDS[job] for job in ("finished", "failed", "canceled", "unreadable")
    }
    [failure] = jobs["retrying"].failures
    assert (failure.task, failure.subtask, failure.attempt, failure.error.message) == ("a", 0, 1, "boom")
    assert jobs["retrying"].tasks["a"].retry == {0: 61_000} and shard.state.due["retrying"] == 61_000
    assert (jobs["half"].tasks["b"].blocked, jobs["done-but-one"].tasks["b"].blocked) == (1, 0)
    done = jobs["done-but-one"].tasks["a"]
    assert (done.finished, done.schemas, done.schemas_of, done.rows[0].outputs) == (2, {"a": SCHEMA}, 0, {"a": (3, 40)})
    assert jobs["planned"].kept_bytes > 0 and jobs["planned"].planned is not None
    assert (jobs["queued"].running_ms, jobs["running"].running_ms) == (0, 1000)
    assert jobs["queued"].tasks["b"].rows == {} and jobs["queued"].tasks["a"].ready == [0]


def test_each_job_of_0_1_0_goes_on_to_its_end(shard: Shard) -> None:
    for turn in range(20):
        shard.now += 10_000
        shard(Ticked(), "")
        for job in [job for job in shard.state.jobs.values() if job.status not in ENDED_JOB]:
            held = len(job.slots)
            if job.wanted > held:
                shard.offer(*(f"{job.id}.{turn}-{number}" for number in range(job.wanted - held)), job=job.id)
            for allocation in list(job.slots):
                _ends(shard, job, allocation)
            for vertex in [vertex for vertex, done in job.sinks.items() if not done]:
                shard(effects.SinkPublished(job=job.id, vertex=vertex), "")
    assert {job: held.status.value for job, held in shard.state.jobs.items()} == ENDS
    assert {job.acceptance: [row.attempt for row in job.tasks["a"].rows.values()] for job in _of(shard, "retrying", "moved")} == {
        "acc-retrying": [2, 1],
        "acc-moved": [2, 1],
    }, "a retry is a new attempt, and nothing that had finished ran again"


def _of(shard: Shard, *names: str) -> list[Any]:
    return [shard.state.jobs[name] for name in names]


def _ends(shard: Shard, job: Any, allocation: str) -> None:
    slot = job.slots.get(allocation)
    if slot is None or slot.task is None:
        return
    if job.tasks[slot.task].rows[slot.subtask].state is ExecutionState.CANCELING:
        shard.told(allocation, "CANCELED")
        return
    vertex = slot.task.partition("+")[0]
    outputs = {} if vertex == "@plan" else {vertex: {"schema": SCHEMA if vertex == "a" else "{}", "rows": 1, "bytes": 9}}
    sources = {"s": {"files": [], "schema": "{}"}}
    shard.told(allocation, "FINISHED", report={"outputs": outputs, "sources": sources})


def test_a_snapshot_names_no_field_that_builds_before_do_not_know_while_it_says_nothing() -> None:
    machine = ResourceManager(1)
    lines = zstandard.ZstdDecompressor().decompressobj().decompress(freeze(machine, ScopeState(0, 0, state=of_resource_manager.State(1))))
    assert b"core client_mark " in lines and b"client_stamp" not in lines
    told = ScopeState(0, 0, client_stamp=(4, 5, 6), state=of_resource_manager.State(1))
    assert thaw(machine, freeze(machine, told)).client_stamp == (4, 5, 6)
