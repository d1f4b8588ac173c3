"""How many subtasks and slots of a job a record makes the JobMaster look at: those that it changes, and not all. Counted, not timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millrace.core.machine import Envelope, Ticked
from millrace.core.messages import jobs, slots
from services.job_master.core.state import check
from tests.core.of_job_master import RM, TM, USER, D, Shard, kinds

FEW, MANY = 10, 1_000
MOVED = {"kind": "lost", "retryable": True, "message": "gone"}


class Watched(dict[Any, Any]):
    """A dict that counts the values that are taken from it, one by one or in a row."""

    looks = 0

    def __getitem__(self, key: Any) -> Any:
        Watched.looks += 1
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        Watched.looks += 1
        return super().get(key, default)

    def __iter__(self) -> Iterator[Any]:
        for key in super().__iter__():
            Watched.looks += 1
            yield key

    def keys(self) -> Any:
        return list(self)

    def values(self) -> Any:
        return [super(Watched, self).__getitem__(key) for key in self]

    def items(self) -> Any:
        return [(key, super(Watched, self).__getitem__(key)) for key in self]


def wide(width: int) -> dict[str, Any]:
    """Two tasks: every subtask of the second reads every subtask of the first."""
    return {
        "name": "wide",
        "restart": {"attempts": 1_000, "delay_ms": 60_000},
        "vertices": {
            "s": {"sql": "SELECT 1 AS x", "parallelism": width},
            "v": {"sql": "SELECT 1", "parallelism": width, "inputs": {"s": "hash(x)"}},
        },
    }


def step(shard: Shard, body: Any, sender: str = TM) -> None:
    """Without a look at the invariants, which is one at the whole job."""
    shard.offset += 1
    list(shard.machine.handle(shard.state, Envelope(sender, 1, shard.now, f"1.{shard.offset}", body)))


def looks(shard: Shard, body: Any, sender: str = TM) -> int:
    """What the record makes the machine look at."""
    for job in shard.state.jobs.values():
        job.slots = Watched(job.slots)
        for task in job.tasks.values():
            task.rows, task.retry = Watched(task.rows), Watched(task.retry)
    check(shard.state)
    Watched.looks = 0
    step(shard, body, sender)
    counted = Watched.looks
    check(shard.state)
    return counted


def says(subtask: int, state: Any, vertex: str = "s", attempt: int = 1, **more: Any) -> slots.TaskStateChanged:
    """Of the subtask in the slot of its number."""
    report = {"outputs": {vertex: {"schema": "{}", "rows": 1, "bytes": 9}}} if state == "FINISHED" else None
    name = f"j/{'01'[vertex == 'v']}-{vertex}/{subtask}/1.{attempt}"
    return slots.TaskStateChanged(allocation=f"{vertex}{subtask}", attempt=name, state=state, report=report, **more)


def offers(*allocations: str) -> slots.OfferSlots:
    return slots.OfferSlots(offers=[slots.SlotOffer(slot=n, allocation=a, job="j", memory_mb=1) for n, a in enumerate(allocations)])


def first_runs(width: int) -> Shard:
    """All subtasks of the first task run."""
    shard = Shard()
    shard.start(wide(width))
    shard.offer(*(f"s{n}" for n in range(width)))
    assert len(shard.job.slots) == width
    for subtask in range(width):
        step(shard, says(subtask, "RUNNING"))
    return shard


def half_deployed(width: int) -> Shard:
    """Half of the first task's subtasks wait for slots, the first of the others have finished."""
    shard = Shard()
    shard.start(wide(width))
    shard.offer(*(f"s{n}" for n in range(width // 2)))
    return shard


def half_failed(width: int) -> Shard:
    """Half of the first task's subtasks wait for their retry, a minute from now."""
    shard = first_runs(width)
    for subtask in range(width // 2):
        step(shard, says(subtask, "FAILED", error=USER))
    return shard


def canceled(width: int) -> Shard:
    """All subtasks of the first task are being canceled."""
    shard = first_runs(width)
    shard(jobs.CancelStartedJob(job="j"))
    return shard


RECORDS: dict[str, tuple[Callable[[int], Shard], Callable[[int], Any], str]] = {
    "an attempt finishes, and nothing waits for its slot": (first_runs, lambda width: says(width - 1, "FINISHED"), TM),
    "an attempt finishes, and another subtask takes its slot": (half_deployed, lambda width: says(0, "FINISHED"), TM),
    "an attempt runs": (half_deployed, lambda width: says(1, "RUNNING"), TM),
    "an attempt fails": (first_runs, lambda width: says(width - 1, "FAILED", error=USER), TM),
    "an attempt is moved": (first_runs, lambda width: says(width - 1, "FAILED", error=MOVED), TM),
    "an attempt fails where many wait for their retry": (half_failed, lambda width: says(width - 1, "FAILED", error=USER), TM),
    "an attempt finishes where many wait for their retry": (half_failed, lambda width: says(width - 1, "FINISHED"), TM),
    "an attempt is canceled among many": (canceled, lambda width: says(width - 1, "CANCELED"), TM),
    "a slot is offered": (half_deployed, lambda width: offers("more"), TM),
    "a slot is offered that nobody wants": (first_runs, lambda width: offers("more"), TM),
    "three slots are offered": (half_deployed, lambda width: offers("x", "y", "z"), TM),
    "a slot breaks": (first_runs, lambda width: slots.FailSlot(allocation=f"s{width - 1}", job="j", reason="x"), TM),
    "the job is queued": (half_deployed, lambda width: jobs.JobQueued(job="j", reason="r", position=1), RM),
    "the Dispatcher asks again": (half_deployed, lambda width: jobs.StartJob(job="j", acceptance="acc-j", graph={}, accepted_ms=1), D),
    "a tick at which nothing is due": (half_failed, lambda width: Ticked(), ""),
}


@pytest.mark.parametrize("what", RECORDS)
def test_a_record_looks_at_what_it_changes_however_wide_the_job_is(what: str) -> None:
    made, body, sender = RECORDS[what]
    few, many = (looks(made(width), body(width), sender) for width in (FEW, MANY))
    assert many == few <= 40, f"of {FEW} subtasks a task the record looks at {few}, of {MANY} at {many}"


def test_what_changes_all_subtasks_looks_at_each_a_few_times() -> None:
    """The last producer publishes, so that all consumers may run; the job is canceled."""
    shard = first_runs(MANY)
    for subtask in range(1, MANY):
        step(shard, says(subtask, "FINISHED"))
    assert looks(shard, says(0, "FINISHED")) <= 3 * MANY
    assert len(shard.job.tasks["v"].ready) == MANY - 1
    shard = first_runs(MANY)
    assert looks(shard, jobs.CancelStartedJob(job="j"), D) <= 3 * MANY + 1, "one slot of the TaskManager: does it bear to be asked?"


def test_an_attempt_that_reads_all_producers_has_each_looked_at_once() -> None:
    """Its spec names the folder of each; a record that deploys nothing looks at none of them."""
    counts = []
    for width in (FEW, 10 * FEW):
        shard = first_runs(width)
        for subtask in range(width):
            step(shard, says(subtask, "FINISHED"))
        assert looks(shard, offers("v0"), TM) <= width + 20
        counts.append(looks(shard, says(0, "RUNNING", "v")))
    assert counts[0] == counts[1]


def test_retries_that_are_due_are_scheduled_at_the_tick() -> None:
    shard = half_failed(FEW)
    before = shard.state.due["j"]
    shard.now += 60_000
    assert kinds(shard(Ticked(), "")) == [
        "resource-manager RequestSlots 10", "dispatcher JobStatusChanged RUNNING", "event JobStateChanged RUNNING",
    ]  # fmt: skip
    assert before == shard.now and "j" not in shard.state.due
