"""Moves a job on: what may run is scheduled, slots are filled or given back, the end is recognised.

Every handler that has changed a job ends with `advance`. It looks at what the record changed and at the job's tasks, which are few, but
neither at all subtasks nor at all slots. Two facts make that enough: between two records no slot is idle, so the handler knows which
ones are now; and `state.due` has the earliest timer of each job.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from millrace.core.clocks import AtMs, after
from millrace.core.faults import OF_STORAGE, fault
from millrace.core.jobgraph.compile import Plan
from millrace.core.machine import Output, Say
from millrace.core.messages.slots import CancelTasks, DeployTask
from millrace.core.states import ENDED_JOB, ENDING_JOB, ExecutionState, JobStatus
from millrace.core.topics import Scope

from . import publication, resetting, speculation
from .deployment import SPEC_BYTES_MAX, deploy_tasks, deployment, next_number, too_large
from .execution_graph import all_finished, attempt_name, release, schedule_due, scheduled, scheduled_count, task_folder
from .failover import fail, lacking_storage
from .plans import plan_of, running_plan
from .reporting import attempt_state_changed, job_ended, job_state_changed, job_waiting, report_status, status_changed
from .rescaling import rescale
from .slot_pool import free_slots, request_slots, wants_by_profile
from .state import Job, State, move_job, move_subtask
from .time_spent import spend
from .timers import is_due, set_timer

ASKED_MS = 2_000
"""So long an attempt has to end by itself once it is asked to. It is asked where its job ends or rests. Where its subtask is to run again,
or has finished with another attempt, it is killed at once: somebody waits for its slot."""
PART_MS = 5_000
"""So long a gang of which a part has slots waits for the others, which were granted with them. They are offered within a tick or two."""


def act_on_timers(state: State, at_ms: AtMs) -> Iterator[Output]:
    """Jobs that waited too long for a slot fail; retries that are due are scheduled."""
    for name in [name for name, due in state.due.items() if due <= state.now_ms]:
        job = state.jobs[name]
        before = job.status
        if job.queue_due_ms is not None and job.queue_due_ms <= state.now_ms and job.status not in ENDING_JOB:
            waited = at_ms - job.accepted_ms
            message = f"no slot within {waited} ms (timeouts.queue_ms): {job.waiting or 'slots are short'}"
            fail(job, fault("timeout", message), at_ms)
        if job.part_due_ms is not None and job.part_due_ms <= state.now_ms and job.status not in ENDING_JOB:
            resetting.begin_again(state, job, at_ms)
        yield from advance(state, job, at_ms, before)


def advance(
    state: State, job: Job, at_ms: AtMs, before: JobStatus | None = None, idle: Sequence[str] = (), *, offered: bool = False
) -> Iterator[Output]:
    """What follows from a record that has changed the job. `before`: its status before the record, if that has changed since.
    `idle`: the allocations of the slots that the record has made idle, in the order of `job.slots`. `offered`: it has offered them."""
    before = before or job.status
    if job.status not in ENDED_JOB:
        waited = job.waiting
        yield from settle(state, job, at_ms, before, idle, offered=offered)
        yield from notify_status(job, before, at_ms)
        if job.waiting is not None and job.waiting != waited:  # for its storage: what it waits for else, the ResourceManager says
            if job.status is before:
                yield status_changed(job)
            yield job_waiting(job, at_ms)


def settle(
    state: State, job: Job, at_ms: AtMs, before: JobStatus, idle: Sequence[str] = (), *, offered: bool = False
) -> Iterator[Output]:
    """The phases of `advance`, all but the notice of the job's status."""
    if job.rescaling is not None and job.status not in (*ENDING_JOB, JobStatus.SUSPENDED):
        yield from rescale(state, job, at_ms)
    if job.rescaling is None and job.status not in (*ENDING_JOB, JobStatus.SUSPENDED):
        usable = _usable(state, job, idle)
        if job.is_gang and len(usable) < min(len(idle), scheduled_count(job)):
            resetting.begin_again(state, job, at_ms)
            usable = ()
        _schedule(state, job, at_ms)
        if offered or not _is_part(job, usable):
            yield from _fill(state, job, at_ms, usable)
        if offered:
            yield from speculation.fill(state, job, at_ms, usable)
        speculation.watch(state, job)
        _watch_part(state, job, usable)
        yield from send_cancels(state, job, "it is to run again")
    if job.status in ENDING_JOB and before not in ENDING_JOB:
        _forget_waiting(state, job, at_ms)
        canceled = job.status is JobStatus.CANCELLING
        reason = "the job is canceled" if canceled else "another task of the job failed"
        yield from cancel_attempts(state, job, reason, at_ms, ASKED_MS)
    useless = _useless(job, idle)
    yield from free_slots(state, job, useless)  # from here on every slot that the job holds has an attempt
    yield from _request(state, job, useless)
    spend(job, at_ms)
    if job.status in ENDING_JOB:
        yield from _end_failing(state, job, at_ms)
    elif job.status is not JobStatus.SUSPENDED:
        yield from _end_finished(state, job, at_ms)


def _schedule(state: State, job: Job, at_ms: AtMs) -> None:
    """Schedules the retries that are due. The job is RESTARTING while others wait, else RUNNING."""
    if is_due(state, job):
        schedule_due(job, state.now_ms, at_ms)
        if job.held_until_ms is not None and job.held_until_ms <= state.now_ms:
            job.held_until_ms = None
        set_timer(state, job)
    if job.held_until_ms is None and any(task.held for task in job.tasks.values()) and not resetting.ends_together(job):
        release(running_plan(state, job), job, at_ms)
    waits = job.held_until_ms is not None or any(task.retry for task in job.tasks.values())
    status = JobStatus.RESTARTING if waits else JobStatus.RUNNING
    if job.status is not status:
        move_job(job, status, at_ms)


def _usable(state: State, job: Job, idle: Sequence[str]) -> Sequence[str]:  # [R37]
    """The idle slots without those on blocked hosts, which are given back. A gang goes on with those that it has until they are
    evacuated: it cannot go on with a part of them [R35]."""
    if not state.blocked:
        return idle
    evacuated = {each: state.blocked.get(job.slots[each].task_manager) for each in idle}  # None: its host is not blocked
    return [each for each in idle if evacuated[each] is None or (job.is_gang and not evacuated[each])]


def _fill(state: State, job: Job, at_ms: AtMs, idle: Sequence[str]) -> Iterator[Output]:
    """Deploys scheduled subtasks into the idle slots, all of one TaskManager in one message."""
    deploys: dict[Scope, list[tuple[DeployTask, int]]] = {}
    events: list[Output] = []
    plan = running_plan(state, job)
    for allocation, (task, index) in zip(idle, scheduled(job), strict=False) if plan.profile is not None else _fitting(plan, job, idle):
        slot, subtask = job.slots[allocation], job.tasks[task].rows[index]
        attempt, size = deployment(state, job, plan, task, index, allocation)
        if size > SPEC_BYTES_MAX:
            fail(job, too_large(task), at_ms)
            break
        heapq.heappop(job.tasks[task].ready)
        subtask.attempt = next_number(job, task, index)
        subtask.allocation, subtask.task_manager = allocation, slot.task_manager
        subtask.deployed_ms, subtask.running_ms, subtask.canceling_ms, subtask.ended_ms = at_ms, AtMs(0), AtMs(0), AtMs(0)
        slot.task, slot.subtask = task, index
        move_subtask(subtask, ExecutionState.DEPLOYING)
        speculation.begun(state, job, task, index)
        job.running_ms = job.running_ms or at_ms
        deploys.setdefault(slot.task_manager, []).append((attempt, size))
        events.append(attempt_state_changed(job, task, index, at_ms))
    if deploys and job.queue_due_ms is not None:
        job.queue_due_ms = None
        set_timer(state, job)
    for task_manager, tasks in deploys.items():
        yield from deploy_tasks(task_manager, tasks)
    yield from events


def _fitting(plan: Plan, job: Job, idle: Sequence[str]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Which slot goes to which scheduled subtask, where they want different ones: the tightest slot goes first, to who wants most of
    what it satisfies. So a rare slot is not filled with what any other one would do for. As in `scheduled`, whoever takes the next pair has
    removed the one before."""
    for allocation in sorted(idle, key=lambda each: job.slots[each].profile.size):
        profile = job.slots[allocation].profile
        found = [name for name, task in job.tasks.items() if task.ready and profile.satisfies(plan.profiles[name])]
        if found:
            name = max(found, key=lambda each: plan.profiles[each].size)
            yield allocation, (name, job.tasks[name].ready[0])


def _is_part(job: Job, idle: Sequence[str]) -> bool:  # [R35]
    """Whether idle slots, which attempts have left, are only a part of what a gang wants. They are given back then, and all are requested
    at once: two jobs that each kept a part would wait for each other."""
    return job.is_gang and len(idle) < scheduled_count(job)


def _watch_part(state: State, job: Job, idle: Sequence[str]) -> None:  # [R35]
    """Sets the timer of a gang that has filled a part of the slots that it was granted: each TaskManager offers its slots by itself, so the
    rest is mostly on its way. But a slot may be lost before it is offered, and nobody notifies the job of that. The ResourceManager grants
    in its place what is free; where two gangs hold a part each, nothing ever is."""
    filled = any(job.slots[allocation].task is not None for allocation in idle)
    if job.part_due_ms is not None and not (scheduled_count(job) and job.slots):
        job.part_due_ms = None
        set_timer(state, job)
    elif job.part_due_ms is None and job.is_gang and filled and scheduled_count(job):
        job.part_due_ms = after(state.now_ms, PART_MS)
        set_timer(state, job)


def _forget_waiting(state: State, job: Job, at_ms: AtMs) -> None:
    """Once, when the job begins to end: what does not run yet is canceled at once."""
    for task in job.tasks.values():
        for index in (*task.ready, *task.retry, *task.held):
            row = task.rows[index]
            move_subtask(row, ExecutionState.CANCELED)
            row.ended_ms = row.ended_ms or at_ms  # of one that has run: when its last attempt ended
        task.ready, task.retry, task.held = [], {}, {}
    job.held_until_ms = None
    set_timer(state, job)


def cancel_attempts(state: State, job: Job, reason: str, at_ms: AtMs, within_ms: int = 0) -> Iterator[Output]:
    """Cancels what runs. `within_ms`: it is asked to end first, and has so long."""
    place = {name: number for number, name in enumerate(job.tasks)}
    held = [(place[slot.task], slot.subtask, slot.task) for slot in job.slots.values() if slot.task is not None]
    for _, index, name in sorted(dict.fromkeys(held)):
        subtask = job.tasks[name].rows[index]
        if subtask.state in (ExecutionState.DEPLOYING, ExecutionState.RUNNING):
            move_subtask(subtask, ExecutionState.CANCELING)
            subtask.canceling_ms = at_ms
            job.to_cancel.append((name, index, subtask.attempt))
            speculation.left(job, name, index)
            speculation.lose(job, name, index, at_ms)
    yield from send_cancels(state, job, reason, within_ms)


def send_cancels(state: State, job: Job, reason: str, within_ms: int = 0) -> Iterator[Output]:
    """Cancels the attempts in `to_cancel` that have not ended meanwhile, all of one TaskManager in one message."""
    plan, cancels, asked = plan_of(state, job), dict[Scope, list[str]](), dict[Scope, bool]()
    for name, index, number in job.to_cancel:
        for its in (job.tasks[name].rows[index], job.of_seconds(name).rivals.get(index)):
            if its is not None and its.attempt == number and its.state is ExecutionState.CANCELING:
                assert plan is not None, f"{job.id} has attempts and no plan"
                attempt = attempt_name(job, task_folder(plan, name), index, number)
                if its.task_manager not in cancels:
                    asked[its.task_manager] = job.slots[its.allocation or ""].takes_runs
                cancels.setdefault(its.task_manager, []).append(attempt)
    job.to_cancel = []
    for task_manager, attempts in cancels.items():
        given_ms = within_ms if asked[task_manager] else 0
        yield Say(task_manager, CancelTasks(attempts=attempts, reason=reason, within_ms=given_ms))


def _useless(job: Job, idle: Sequence[str]) -> list[str]:
    """The slots that the job has nothing for."""
    return [allocation for allocation in idle if job.slots[allocation].task is None]


def _request(state: State, job: Job, given_back: Sequence[str]) -> Iterator[Output]:
    """Sends the ResourceManager the number of slots that the job wants, when it has changed, and for which second attempts it wants more;
    of a gang also what it gives back."""
    rests = job.status is JobStatus.SUSPENDED or job.rescaling is not None
    scheduled = {} if rests else {name: len(task.ready) for name, task in job.tasks.items()}
    wanted, wants = sum(scheduled.values()) + len(job.slots), wants_by_profile(plan_of(state, job), job, scheduled)
    spare = speculation.spare(job)
    if wanted != job.wanted or wants != job.wants or spare != job.spare or given_back and job.is_gang:
        if wanted == 0 or job.wanted == 0:
            job.waiting, job.position, job.expected_ms = None, None, None
        if wanted == 0:
            job.waiting = _for_storage(job)
        job.wanted, job.wants, job.spare = wanted, wants, spare
        yield request_slots(state, plan_of(state, job), job, given_back)


def _for_storage(job: Job) -> str | None:
    """Why nothing of the job runs, if that is because its storage cannot be written or read."""
    decided = ((each, each.error.decided, job.tasks[each.task]) for each in lacking_storage(job))
    errors = [
        each.error
        for each, why, its in decided
        if (each.subtask in its.retry or each.subtask in its.held) and why and why.number >= job.root
    ]  # a failure before the last root is one that was tried again since
    return f"{OF_STORAGE[errors[-1].condition or ''][0]} {errors[-1].message}" if errors else None


def _end_failing(state: State, job: Job, at_ms: AtMs) -> Iterator[Output]:
    """Ends a job that is failing or being canceled, once no attempt lives and no sink is being moved: the end deletes what is staged."""
    if not job.slots and publication.all_published(job):
        yield from end(state, job, at_ms)


def _end_finished(state: State, job: Job, at_ms: AtMs) -> Iterator[Output]:
    """Once every task has finished: publishes the sinks, then ends the job."""
    if not job.slots and all_finished(job):
        moves = list(publication.publish_sinks(job, running_plan(state, job)))
        if moves:  # from here on it takes no other parallelism: whoever asks is to be told
            yield status_changed(job)
        yield from moves
        if publication.all_published(job):
            yield from end(state, job, at_ms)


def end(state: State, job: Job, at_ms: AtMs) -> Iterator[Output]:
    """The job has reached its end here; what counts is what the Dispatcher stores of it."""
    ends = {JobStatus.FAILING: JobStatus.FAILED, JobStatus.CANCELLING: JobStatus.CANCELED}
    move_job(job, ends.get(job.status, JobStatus.FINISHED), at_ms)
    job.ended_ms, job.waiting, job.position, job.expected_ms = at_ms, None, None, None
    assert not job.slots, f"{job.id} ends and holds {list(job.slots)}"
    set_timer(state, job)
    yield job_ended(job, plan_of(state, job))


def notify_status(job: Job, before: JobStatus, at_ms: AtMs) -> Iterator[Output]:
    """Sends the job's status when the record has changed it. Its end is in JobEnded, its first status in JobMasterStarted."""
    if job.status is before or job.status in ENDED_JOB:
        return
    if before is JobStatus.CREATED and job.status is JobStatus.RUNNING:
        yield job_state_changed(job, at_ms)
    else:
        yield from report_status(job, at_ms)
