"""Builders for tests of the JobMaster's machine: a state, one message, the exact outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from millrace.core.machine import Born, Configured, Envelope, Forget, Output, Publish, Say
from millrace.core.messages import jobs, slots
from services.job_master.core.machine import JobMaster
from services.job_master.core.state import State, check

ONE: dict[str, Any] = {"name": "one", "vertices": {"q": {"sql": "SELECT 1"}}}
TWO: dict[str, Any] = {
    "name": "two",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x"},
        "b": {"sql": "SELECT x FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}},
    },
}
SINK: dict[str, Any] = {
    "name": "sink",
    "vertices": {
        "q": {"sql": "SELECT 1"},
        "out": {"sink": {"format": "parquet", "path": "/data/out", "mode": "overwrite"}, "inputs": {"q": "forward"}},
    },
}
PLANNED: dict[str, Any] = {
    "name": "planned",
    "vertices": {"s": {"source": {"format": "csv", "path": "/data/x.csv"}, "parallelism": 2}},
}
TM, RM, D = "task-manager/t1", "resource-manager", "dispatcher"
REPORT = {"outputs": {"q": {"schema": "{}", "rows": 1, "bytes": 9}}}
USER = {"kind": "user", "retryable": True, "message": "boom"}


def undeclared(value: Any) -> Iterator[str]:
    """The fields of a part, and of the parts in it, that their models do not have: they are taken from dicts, and kept."""
    if isinstance(value, BaseModel):
        yield from value.model_extra or ()
        value = [getattr(value, name) for name in value.model_fields_set]
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from undeclared(each)


class Shard:
    """A JobMaster with its state; `told` is what the last message led to."""

    takes_runs = False  # of the TaskManagers that offer it slots

    def __init__(self, generation: int = 1) -> None:
        self.machine, self.generation = JobMaster(0), generation
        self.state: State = self.machine.blank()
        self.now = 1000
        self.offset = 0
        self(Configured({"exchange_url": "/x"}), "")
        self(Born(), "")

    def __call__(self, body: Any, sender: str = D, life: int = 1) -> list[Output]:
        self.offset += 1
        envelope = Envelope(sender, life, self.now, f"{self.generation}.{self.offset}", body)
        said = list(self.machine.handle(self.state, envelope))
        check(self.state)
        return said

    def start(self, graph: dict[str, Any] = ONE, job: str = "j", **changes: Any) -> list[Output]:
        return self(jobs.StartJob(job=job, acceptance=f"acc-{job}", graph=graph, accepted_ms=500, **changes))

    def offer(self, *allocations: str, job: str = "j", tm: str = TM) -> list[Output]:
        short: dict[str, Any] = {"takes_runs": True} if self.takes_runs else {}
        offers = [slots.SlotOffer(slot=n, allocation=a, job=job, memory_mb=512, **short) for n, a in enumerate(allocations)]
        return self(slots.OfferSlots(offers=offers), tm)

    def told(self, allocation: str, state: str, attempt: str | None = None, **more: Any) -> list[Output]:
        job = self.state.jobs.get(self.state.allocations.get(allocation, ""))
        if attempt is None:
            assert job is not None
            held = job.slots[allocation]
            number = job.tasks[held.task or ""].rows[held.subtask].attempt
            folder = {"q": "0-q", "a": "0-a", "b": "1-b", "q+out": "0-out", "@plan": "plan", "s": "0-s"}[
                held.task or ""
            ]
            attempt = f"{job.id}/{folder}/{held.subtask}/1.{number}"
        return self(slots.TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more), TM)

    @property
    def job(self) -> Any:
        return self.state.jobs["j"]


def kinds(outputs: list[Output]) -> list[str]:
    """The outputs, a word each: receiver and message, or event and what it says."""
    words = []
    for output in outputs:
        if isinstance(output, Say):
            detail = getattr(output.body, "slots", getattr(output.body, "status", None))
            words.append(
                f"{output.to.partition('/')[0]} {output.body.type}" + (f" {detail}" if detail is not None else "")
            )
        elif isinstance(output, Publish):
            detail = getattr(output.body, "state", getattr(output.body, "status", ""))
            words.append(f"event {output.body.type} {detail}".strip())
        elif isinstance(output, Forget):
            words.append(f"forget {output.peer} {output.life}")
        else:
            words.append(f"do {output.effect.type} {output.key}")
    return words
