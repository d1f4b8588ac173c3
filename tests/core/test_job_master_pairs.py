"""Each message to a JobMaster in each state of a job: the state stays sound, and the job can still be ended."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import PassedOver, PeerBorn, Ticked
from millrace.core.messages import blocklist, effects, jobs, slots
from millrace.core.messages.links import LINKS
from millrace.core.messages.requirements import Rescale
from millrace.core.states import ENDED_JOB, JobStatus
from tests.core.of_job_master import REPORT, RM, SINK, TM, TWO, USER, D, Shard
from tests.core.of_progress import progress

FATAL = {"kind": "user", "retryable": False, "message": "no"}
OUT = {"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}}
FIRST = "j/0-a/0/1.1"


def shard_in(stage: str) -> Shard:
    shard = Shard()
    if stage == "unknown":
        return shard
    if stage in ("publishing", "published"):
        shard.start(SINK)
        shard.offer("a1")
        shard.told("a1", "FINISHED", report={"outputs": {**REPORT["outputs"], "out": {"schema": "{}", "rows": 1, "bytes": 9}}})
        if stage == "published":
            shard(effects.SinkPublished(job="j", vertex="out"), "")
        return shard
    shard.start(TWO)
    if stage == "scheduled":
        return shard
    shard.offer("a1")
    if stage == "deploying":
        return shard
    shard.told("a1", "RUNNING")
    if stage in ("between", "failing"):
        shard.told("a1", "FINISHED", report=OUT)
        shard.offer("b1", "b2")
        shard.told("b1", "RUNNING")
    if stage == "restarting":
        shard.told("a1", "FAILED", error=USER)
    if stage == "failing":
        shard.told("b1", "FAILED", error=FATAL)
    if stage == "failed":
        shard.told("a1", "FAILED", error=FATAL)
    if stage in ("cancelling", "canceled"):
        shard(jobs.CancelStartedJob(job="j"))
    if stage.startswith("suspen"):
        shard(jobs.SuspendJobs())
    if stage == "suspended":
        shard.told("a1", "CANCELED")
    if stage == "canceled" and "a1" in shard.state.allocations:
        shard.told("a1", "CANCELED")
    return shard


STAGES = {
    "unknown": None, "scheduled": JobStatus.RUNNING, "deploying": JobStatus.RUNNING, "running": JobStatus.RUNNING,
    "between": JobStatus.RUNNING, "restarting": JobStatus.RESTARTING, "failing": JobStatus.FAILING,
    "cancelling": JobStatus.CANCELLING, "publishing": JobStatus.RUNNING, "published": JobStatus.FINISHED,
    "failed": JobStatus.FAILED, "canceled": JobStatus.CANCELED, "suspending": JobStatus.SUSPENDED, "suspended": JobStatus.SUSPENDED,
}  # fmt: skip


def offer(*allocations: str) -> slots.OfferSlots:
    return slots.OfferSlots(
        offers=[slots.SlotOffer(slot=n, allocation=each, job="j", memory_mb=512) for n, each in enumerate(allocations)]
    )


def word(allocation: str, attempt: str, state: str) -> slots.TaskStateChanged:
    more = {"FINISHED": {"report": OUT}, "FAILED": {"error": USER}}.get(state, {})
    return slots.TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more)


def reconcile(*gone: str) -> jobs.ReconcileSlots:
    its = jobs.HeldSlots(task_manager="t1", incarnation=1, allocations=["x1"])
    return jobs.ReconcileSlots(unclaimed=[its], gone=list(gone))


MESSAGES: dict[str, tuple[Any, str]] = {
    "start again": (jobs.StartJob(job="j", acceptance="acc-j", graph=TWO, accepted_ms=500), D),
    "start of another": (jobs.StartJob(job="j", acceptance="later", graph=TWO, accepted_ms=900), D),
    "cancel": (jobs.CancelStartedJob(job="j"), D),
    "rescale": (jobs.RescaleStartedJob(job="j", rescale=Rescale(parallelism={"b": 3}, log="l", offset=7)), D),
    "suspend": (jobs.SuspendJobs(), D),
    "resume": (jobs.ResumeJobs(), D),
    "retired": (jobs.JobRetired(job="j", acceptance="acc-j"), D),
    "retired another": (jobs.JobRetired(job="j", acceptance="later"), D),
    "describe": (jobs.DescribeStartedJob(job="j", reply_to="me", correlation="c"), D),
    "report": (jobs.ReportStartedJob(job="j", task="", subtask=None, reply_to="me", correlation="c"), D),
    "at work": (slots.ProgressReported(attempts=[slots.ReportedProgress(allocation="a1", attempt=FIRST, progress=progress(1))]), TM),
    "answered another": (slots.AttemptAnswered(attempt=FIRST, question=99, no_answer="it has ended"), TM),
    "declare again": (jobs.DeclareAgain(), RM),
    "queued": (jobs.JobQueued(job="j", reason="no slots", position=1), RM),
    "not enough": (jobs.NotEnoughResources(job="j", reason="it wants more than there can be"), RM),
    "lost": (jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="silent"), RM),
    "lost long ago": (jobs.TaskManagerLost(task_manager="t1", incarnation=0, reason="silent"), RM),
    "blocked": (blocklist.TaskManagersBlocked(hosts=[blocklist.BlockedTaskManagers(host="h", task_managers=["t1"])]), RM),
    "evacuated": (
        blocklist.TaskManagersBlocked(hosts=[blocklist.BlockedTaskManagers(host="h", evacuate=True, task_managers=["t1"])]), RM,
    ),
    "lost another": (jobs.TaskManagerLost(task_manager="t2", incarnation=1, reason="silent"), RM),
    "same offer": (offer("a1"), TM),
    "new offers": (offer("n1", "n2", "n3"), TM),
    "counted otherwise": (reconcile("a1"), RM),
    "what is not held is counted": (reconcile(), RM),
    "slot failed": (slots.FailSlot(allocation="a1", job="j", reason="broken"), TM),
    "unknown slot failed": (slots.FailSlot(allocation="none", job="j", reason="broken"), TM),
    **{f"first {state}": (word("a1", FIRST, state), TM) for state in ("RUNNING", "FINISHED", "FAILED", "CANCELED")},
    **{f"late {state}": (word("a1", "j/0-a/0/1.9", state), TM) for state in ("RUNNING", "FINISHED", "FAILED", "CANCELED")},
    "published": (effects.SinkPublished(job="j", vertex="out"), ""),
    "published another": (effects.SinkPublished(job="j", vertex="none"), ""),
    "its TaskManager born": (PeerBorn(TM, 2), TM),
    "ResourceManager born": (PeerBorn(RM, 2), RM),
    "Dispatcher born": (PeerBorn(D, 2), D),
    "tick": (Ticked(), ""),
    "passed over": (PassedOver(word("a1", FIRST, "FINISHED"), "ZeroDivisionError"), TM),
}

OF_NOTHING_HERE = {
    "retired another", "describe", "report", "at work", "answered another", "lost long ago", "lost another",
    "unknown slot failed", "published another", "what is not held is counted", *(each for each in MESSAGES if each.startswith("late ")),
}  # fmt: skip


def test_every_message_that_may_come_is_among_these() -> None:
    links = {body for (_, receiver), bodies in LINKS.items() if receiver == "job-master" for body in bodies}
    assert links <= {type(body) for body, _ in MESSAGES.values()}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_the_state_that_it_is_called_by(stage: str) -> None:
    job = shard_in(stage).state.jobs.get("j")
    assert (job and job.status) is STAGES[stage]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("stage", STAGES)
def test_any_message_in_any_state_leaves_a_job_that_can_be_ended(stage: str, message: str) -> None:
    shard = shard_in(stage)
    before = STAGES[stage]
    shard(*MESSAGES[message])
    job = shard.state.jobs.get("j")
    if message in OF_NOTHING_HERE:
        assert (job and job.status) is before
    elif before in ENDED_JOB and job is not None and message != "start of another":
        assert job.status is before, "nothing leaves an end"
    end(shard)
    job = shard.state.jobs.get("j")
    assert job is None or job.status in ENDED_JOB
    assert shard.state.allocations == {}


def end(shard: Shard) -> None:
    """Cancels the job; its attempts end as they are told to, its sink is published if that was begun."""
    shard(jobs.CancelStartedJob(job="j"))
    for allocation in list(shard.state.allocations):
        shard.told(allocation, "CANCELED")
    shard(effects.SinkPublished(job="j", vertex="out"), "")
