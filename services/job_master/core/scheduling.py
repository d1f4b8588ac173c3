"""Moves a job on: what may run is scheduled, slots are filled or given back, the end is recognised.

`advance` is called once after every change to a job and yields what follows, the way of a submission first. It looks at the job's tasks and
at the slots that it holds, never at all its subtasks.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.core.bounded import fields_fitting
from millrace.core.jobgraph.compile import PLAN_TASK, Plan, Published, attempt_spec, plan_spec, producers
from millrace.core.machine import Output, Publish, Say
from millrace.core.messages.events import AttemptStateChanged, JobStateChanged
from millrace.core.messages.jobs import JobEnded, JobStatusChanged, RequestSlots
from millrace.core.messages.slots import CancelTasks, DeployTask, DeployTasks, FreeSlots
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER

from . import publication
from .execution_graph import (
    all_finished,
    attempt_name,
    describe,
    log_folder,
    schedule_due,
    scheduled,
    task_folder,
    wanted_slots,
)
from .state import Job, State, Subtask
from .transitions import (
    ENDED_JOB,
    ENDING_JOB,
    ExecutionState,
    JobStatus,
    check_execution,
    check_job,
)

SPEC_BYTES_MAX = 800_000
CAUSE_BYTES_MAX = 64_000


def count(job: Job, kind: str) -> int:
    """The number of the next public event of this kind about the job [16]."""
    job.counts[kind] = job.counts.get(kind, 0) + 1
    return job.counts[kind]


def move_job(job: Job, status: JobStatus, now_ms: int) -> None:
    check_job(job.status, status)
    job.status, job.since_ms = status, now_ms


def move(subtask: Subtask, state: ExecutionState) -> None:
    check_execution(subtask.state, state)
    subtask.state = state
    if state is not ExecutionState.FINISHED:
        subtask.outputs = None


def release(job: Job, subtask: Subtask) -> None:
    """Takes the subtask out of its slot, which stays held and idle."""
    assert subtask.allocation is not None
    slot = job.slots[subtask.allocation]
    slot.task, slot.subtask = None, 0
    subtask.allocation = None


def drop(state: State, job: Job, allocation: str) -> None:
    """The job holds this slot no more."""
    del job.slots[allocation]
    del state.allocations[allocation]


def attempt_event(job: Job, task: str, index: int, now_ms: int, error: dict[str, Any] | None = None) -> Publish:
    subtask = job.tasks[task].rows[index]
    slot = job.slots.get(subtask.allocation or "")
    event = AttemptStateChanged(
        job=job.id,
        at_ms=now_ms,
        count=count(job, "AttemptStateChanged"),
        task=task,
        subtask=index,
        attempt=subtask.attempt,
        state=subtask.state.value,
        task_manager=subtask.task_manager.partition("/")[2] or None,
        slot=slot.slot if slot is not None else None,
        error=error,
    )
    return Publish("job.events", job.id, event)


def advance(
    state: State, job: Job, plan: Plan | None, now_ms: int, before: JobStatus | None = None
) -> Iterator[Output]:
    """What follows from the job as it now is. `now_ms` is when it happened, for people; timers go by `state.now_ms`. `plan` is
    None only for a job whose graph cannot be compiled: it is failing. `before`: its status before the record, if that has changed it."""
    before = before or job.status
    if job.status in ENDED_JOB:
        return
    if job.status in ENDING_JOB:
        yield from _end_attempts(job, plan, now_ms)
    else:
        assert plan is not None, f"{job.id} runs without a plan"
        schedule_due(job, state.now_ms)
        waits = any(task.retry for task in job.tasks.values())
        running = JobStatus.RESTARTING if waits else JobStatus.RUNNING
        if job.status is JobStatus.CREATED and waits:
            move_job(job, JobStatus.RUNNING, now_ms)
        if job.status is not running:
            move_job(job, running, now_ms)
        yield from _fill_slots(state, job, plan, now_ms)
        if job.status in ENDING_JOB:
            yield from _end_attempts(job, plan, now_ms)
    yield from _give_back(state, job)
    yield from _request(job)
    if job.status in ENDING_JOB:
        lives = any(slot.task is not None for slot in job.slots.values())
        if not lives and publication.published(job):  # the end deletes what is staged: not while it is being moved
            yield from end(state, job, plan, now_ms)
    elif all_finished(job):
        assert plan is not None
        yield from publication.publish(job, plan)
        if publication.published(job):
            yield from end(state, job, plan, now_ms)
    _set_timer(state, job)
    if before is JobStatus.CREATED and job.status is JobStatus.RUNNING:
        yield state_event(job, now_ms)  # the Dispatcher reads it in JobMasterStarted
    elif job.status is not before and job.status not in ENDED_JOB:
        yield from tell_status(job, now_ms)


def status_of(job: Job) -> Say:
    changed = JobStatusChanged(
        job=job.id, status=job.status.value, waiting=job.waiting, position=job.position, running_ms=job.running_ms or None
    )
    return Say(DISPATCHER, changed)


def tell_status(job: Job, now_ms: int) -> Iterator[Output]:
    yield status_of(job)
    yield state_event(job, now_ms)


def state_event(job: Job, now_ms: int) -> Publish:
    event = JobStateChanged(
        job=job.id, at_ms=now_ms, count=count(job, "JobStateChanged"), status=job.status.value, cause=job.cause
    )
    return Publish("job.events", job.id, event)


def _end_attempts(job: Job, plan: Plan | None, now_ms: int) -> Iterator[Output]:
    """Cancels what runs; what does not run yet is canceled at once."""
    cancels: dict[str, list[str]] = {}
    for task in job.tasks.values():
        for index in (*task.ready, *task.retry):
            move(task.rows[index], ExecutionState.CANCELED)
        task.ready, task.retry = [], {}
    place = {name: number for number, name in enumerate(job.tasks)}
    held = [(place[slot.task], slot.subtask, slot.task, slot.task_manager) for slot in job.slots.values() if slot.task is not None]
    for _, index, name, task_manager in sorted(held):
        subtask = job.tasks[name].rows[index]
        if subtask.state in (ExecutionState.DEPLOYING, ExecutionState.RUNNING):
            move(subtask, ExecutionState.CANCELING)
            assert plan is not None
            attempt = attempt_name(job, task_folder(plan, name), index, subtask.attempt)
            cancels.setdefault(task_manager, []).append(attempt)
    reason = "the job is canceled" if job.status is JobStatus.CANCELLING else "another task of the job failed"
    for task_manager, attempts in cancels.items():
        yield Say(task_manager, CancelTasks(attempts=attempts, reason=reason))


def _fill_slots(state: State, job: Job, plan: Plan, now_ms: int) -> Iterator[Output]:
    """Deploys scheduled subtasks into idle slots, all of one TaskManager in one message."""
    deploys: dict[str, list[DeployTask]] = {}
    events: list[Output] = []
    for allocation, slot in job.slots.items():
        following = scheduled(job) if slot.task is None else None
        if following is None:
            continue
        task, index = following
        subtask = job.tasks[task].rows[index]
        deployment = _deployment(state, job, plan, task, index, allocation)
        if len(json.dumps(deployment.spec)) > SPEC_BYTES_MAX:
            fail(job, _too_large(task), now_ms)
            break
        heapq.heappop(job.tasks[task].ready)
        subtask.attempt += 1
        subtask.allocation, subtask.task_manager = allocation, slot.task_manager
        subtask.deployed_ms, subtask.running_ms, subtask.ended_ms = now_ms, 0, 0
        slot.task, slot.subtask = task, index
        move(subtask, ExecutionState.DEPLOYING)
        job.queue_due_ms = None
        job.running_ms = job.running_ms or now_ms
        deploys.setdefault(slot.task_manager, []).append(deployment)
        events.append(attempt_event(job, task, index, now_ms))
    for task_manager, tasks in deploys.items():
        for some in _in_messages(tasks):
            yield Say(task_manager, DeployTasks(tasks=some))
    yield from events


def _deployment(state: State, job: Job, plan: Plan, task: str, index: int, allocation: str) -> DeployTask:
    number = job.tasks[task].rows[index].attempt + 1
    if task == PLAN_TASK:
        spec = plan_spec(plan, job=job.id, attempt=number)
    else:
        schemas = {name: {v: {"schema": s} for v, s in job.tasks[name].schemas.items()} for name in plan.tasks[task].upstream}
        published = {}
        for producer, which in producers(plan, task, index):
            done = job.tasks[producer].rows[which]
            assert done.outputs is not None, f"{job.id}: {producer}[{which}] has not published"
            published[producer, which] = Published(done.attempt, schemas[producer])
        spec = attempt_spec(
            plan,
            job=job.id,
            task=task,
            subtask=index,
            attempt=number,
            published=published,
            planned=job.planned,
            exchange=state.settings.exchange_url,
            run=run_folder(job),
        )
    name = attempt_name(job, task_folder(plan, task), index, number)
    return DeployTask(
        allocation=allocation,
        attempt=name,
        acceptance=job.acceptance,
        folder=log_folder(job, name),
        spec=spec,
        start_timeout_ms=plan.graph.timeouts.start_ms,
        run_timeout_ms=plan.graph.timeouts.run_ms,
    )


def run_folder(job: Job) -> str:
    """The folder of the job's exchange data: of this acceptance and this life of its state, used by nothing else [20]."""
    return f"{job.acceptance}/{job.life}"


def fail(job: Job, cause: Mapping[str, Any], now_ms: int) -> None:
    """The job is failing from now on; the first cause counts."""
    if job.status not in ENDING_JOB:
        move_job(job, JobStatus.FAILING, now_ms)
        job.cause = fields_fitting(cause, CAUSE_BYTES_MAX)  # it is told twice in JobEnded


def _too_large(task: str) -> dict[str, Any]:
    message = (
        f"what an attempt of task {task} must be told is larger than {SPEC_BYTES_MAX} bytes: lower the parallelism of what it "
        "reads, or read fewer files (a folder instead of many)"
    )
    return {"kind": "user", "retryable": False, "message": message}


def _in_messages(tasks: list[DeployTask]) -> Iterator[list[DeployTask]]:
    """As few messages as the limit allows [15]."""
    some: list[DeployTask] = []
    size = 0
    for task in tasks:
        bytes_ = len(json.dumps(task.spec))
        if some and size + bytes_ > SPEC_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(task)
        size += bytes_
    yield some


def _give_back(state: State, job: Job) -> Iterator[Output]:
    """Slots that the job has nothing for."""
    freed: dict[str, list[str]] = {}
    for allocation, slot in list(job.slots.items()):
        if slot.task is None:
            freed.setdefault(slot.task_manager, []).append(allocation)
            drop(state, job, allocation)
    for task_manager, allocations in freed.items():
        yield Say(task_manager, FreeSlots(allocations=allocations))


def _request(job: Job) -> Iterator[Output]:
    """Tells the ResourceManager the wanted set when it has changed."""
    wanted = wanted_slots(job)
    if wanted != job.wanted:
        job.wanted = wanted
        if wanted == 0:
            job.waiting, job.position = None, None
        yield request_slots(job)


def request_slots(job: Job) -> Say:
    return Say(
        RESOURCE_MANAGER,
        RequestSlots(
            job=job.id,
            slots=job.wanted,
            priority=job.graph.get("priority", 0),
            since_ms=job.accepted_ms,
            memory_mb=job.graph.get("resources", {}).get("memory_mb"),
        ),
    )


def _set_timer(state: State, job: Job) -> None:
    times = [due for task in job.tasks.values() for due in task.retry.values()]
    if job.queue_due_ms is not None and job.status not in ENDING_JOB:
        times.append(job.queue_due_ms)
    if times and job.status not in ENDED_JOB:
        state.due[job.id] = min(times)
    else:
        state.due.pop(job.id, None)


def end(state: State, job: Job, plan: Plan | None, now_ms: int) -> Iterator[Output]:
    """The job has reached its end here; what counts is what the Dispatcher stores of it."""
    ends = {JobStatus.FAILING: JobStatus.FAILED, JobStatus.CANCELLING: JobStatus.CANCELED}
    move_job(job, ends.get(job.status, JobStatus.FINISHED), now_ms)
    job.ended_ms, job.waiting, job.position = now_ms, None, None
    assert not job.slots, f"{job.id} ends and holds {list(job.slots)}"
    state.due.pop(job.id, None)
    yield job_ended(job, plan)


def job_ended(job: Job, plan: Plan | None) -> Say:
    """What the Dispatcher is owed until it says JobRetired [10]."""
    return Say(
        DISPATCHER,
        JobEnded(
            job=job.id,
            acceptance=job.acceptance,
            status=job.status.value,  # type: ignore[arg-type]
            cause=job.cause,
            ended_ms=job.ended_ms,
            archive=describe(plan, job) | {"result": publication.result(job)},
            running_ms=job.running_ms or None,
        ),
    )
