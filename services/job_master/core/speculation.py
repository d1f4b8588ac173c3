"""Second attempts of slow subtasks, on other TaskManagers: the first one to finish counts, and the other one is canceled [R38].

A subtask has a current attempt; the other one is its **rival**. Where the rival finishes first, the two change places before anything is
published: so `attempts._finish` is the one place where an attempt's output becomes a subtask's, and `Subtask.attempt` says whose that is.
What an attempt that is CANCELING reports is its end, and nothing else.

Slow is what Flink's ExecutionTimeBasedSlowTaskDetector finds slow. Tasks of one subtask have no siblings to be measured by, so scripts,
whose effects are outside, and plans are never slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.jobgraph.model import Speculation
from millrace.core.machine import Output
from millrace.core.messages.attempts import Fault
from millrace.core.messages.slots import DeployTask
from millrace.core.states import ExecutionState, JobStatus
from millrace.core.topics import Scope, task_manager_name

from .deployment import SPEC_BYTES_MAX, deploy_tasks, deployment, next_number
from .execution_graph import kept_progress
from .failover import keep_failure, note, shortened
from .plans import running_plan
from .reporting import attempt_state_changed
from .restarts import Decision
from .state import LIVE, Failure, HeldSlot, Job, Rival, Seconds, State, Subtask
from .time_spent import note_attempt, stopped
from .timers import set_timer

SPARE_MOST = 32
"""Second attempts that a job wants at the same time."""
AGAIN_MS = 10_000
"""After a second attempt that ended without a result the next one is not before that: what ends one at once may end each."""
SWAPPED = ("state", "attempt", "allocation", "task_manager", "created_ms", "scheduled_ms", "deployed_ms", "running_ms", "canceling_ms")
"""What a Subtask has of its current attempt, and a Rival of itself."""
LOSES = "another attempt of the subtask has finished"


def slow_after_ms(rule: Speculation, parallelism: int, took: Mapping[int, int]) -> int | None:
    """How long an attempt of a task takes that is slow; None: too few of its subtasks have finished. `took`: how long those did, in ms."""
    needed = math.ceil(parallelism * rule.baseline_ratio)
    if len(took) < needed:
        return None
    fastest = sorted(took.values())[:needed]
    return max(rule.baseline_lower_bound_ms, int(fastest[needed // 2] * rule.baseline_multiplier))


def is_speculative(job: Job) -> bool:
    return job.graph.get("speculative") is not None


def watch(state: State, job: Job) -> None:
    """Notes which subtasks are slow by now, and when the next one will be."""
    plan = running_plan(state, job) if is_speculative(job) else None
    rule = plan.graph.speculative if plan is not None else None
    if plan is None or rule is None or plan.profile is None:  # None: which slot suits which attempt, only first ones ask for
        return
    times: list[NowMs] = []
    for name, its in job.seconds.items():
        slow_ms = slow_after_ms(rule, job.tasks[name].parallelism, its.took) if its.began else None
        if slow_ms is None:
            continue
        for index, began_ms in its.began.items():
            if index in its.slow or index in its.rivals:
                continue
            due_ms = max(after(began_ms, slow_ms), its.spared.get(index, began_ms))
            if due_ms <= state.now_ms:
                its.slow[index] = None
            else:
                times.append(due_ms)
    first_ms = min(times, default=None)
    if first_ms != job.slow_due_ms:
        job.slow_due_ms = first_ms
        set_timer(state, job)


def spare(job: Job) -> list[str]:
    """What it wants of the ResourceManager: for each second attempt the TaskManager of the first one, where it is not to be."""
    if job.status not in (JobStatus.RUNNING, JobStatus.RESTARTING):
        return []
    slow = [task_manager_name(job.tasks[name].rows[index].task_manager) for name, its in job.seconds.items() for index in its.slow]
    return slow[:SPARE_MOST]


def begun(state: State, job: Job, task: str, index: int) -> None:
    """Its current attempt is deployed."""
    if is_speculative(job):
        job.seconds.setdefault(task, Seconds()).began[index] = state.now_ms


def left(job: Job, task: str, index: int) -> None:
    """Its current attempt may not finish any more."""
    its = job.of_seconds(task)
    its.began.pop(index, None)
    its.slow.pop(index, None)
    its.spared.pop(index, None)


def took(state: State, job: Job, task: str, index: int) -> None:
    """Its current attempt FINISHED."""
    its = job.of_seconds(task)
    if index in its.began:
        its.took[index] = max(0, state.now_ms - its.began[index])
    left(job, task, index)


def rival_in(job: Job, allocation: str) -> Rival | None:
    """The rival in this slot; None: it has a current attempt, or none."""
    slot = job.slots[allocation]
    rival = job.of_seconds(slot.task).rivals.get(slot.subtask) if slot.task is not None else None
    return rival if rival is not None and rival.allocation == allocation else None


def of_slot(job: Job, allocation: str) -> Subtask | Rival:
    """The attempt in a slot that is not idle."""
    slot = job.slots[allocation]
    assert slot.task is not None, f"{job.id}: nothing is in {allocation}"
    return rival_in(job, allocation) or job.tasks[slot.task].rows[slot.subtask]


def fill(state: State, job: Job, at_ms: AtMs, idle: Sequence[str]) -> Iterator[Output]:
    """Deploys second attempts into offered slots that no first attempt wants."""
    deploys: dict[Scope, list[tuple[DeployTask, int]]] = {}
    events: list[Output] = []
    for allocation in idle:
        slot = job.slots[allocation]
        found = _slow_elsewhere(job, slot) if slot.task is None else None
        if found is None:
            continue
        name, index = found
        its = job.seconds[name]
        number = next_number(job, name, index)
        attempt, size = deployment(state, job, running_plan(state, job), name, index, allocation)
        del its.slow[index]
        its.numbered[index] = number
        if size > SPEC_BYTES_MAX:  # by a digit of its number
            its.spared[index] = after(state.now_ms, AGAIN_MS)
            continue
        slot.task, slot.subtask = name, index
        rival = its.rivals[index] = Rival(
            ExecutionState.DEPLOYING, number, allocation, slot.task_manager,
            created_ms=at_ms, scheduled_ms=at_ms, deployed_ms=at_ms, began_ms=state.now_ms,
        )  # fmt: skip
        deploys.setdefault(slot.task_manager, []).append((attempt, size))
        events.append(attempt_state_changed(job, name, index, at_ms, rival=rival))
    for task_manager, tasks in deploys.items():
        yield from deploy_tasks(task_manager, tasks)
    yield from events


def _slow_elsewhere(job: Job, slot: HeldSlot) -> tuple[str, int] | None:
    """The first slow subtask whose attempt is on another TaskManager than this slot."""
    slow = ((name, index) for name, its in job.seconds.items() for index in its.slow)
    return next(((name, index) for name, index in slow if job.tasks[name].rows[index].task_manager != slot.task_manager), None)


def swap(job: Job, task: str, index: int) -> None:  # [R38]
    """The rival is the current attempt from here on, and that one the rival. Both live."""
    its = job.seconds[task]
    row, rival = job.tasks[task].rows[index], its.rivals[index]
    for name in SWAPPED:
        mine, others = getattr(row, name), getattr(rival, name)
        setattr(row, name, others)
        setattr(rival, name, mine)
    rival.began_ms, its.began[index] = its.began[index], rival.began_ms


def lose(job: Job, name: str, index: int, at_ms: AtMs) -> None:  # [R38]
    """The subtask's rival, if it has one that lives, is canceled: `scheduling.send_cancels` sends that."""
    rival = job.of_seconds(name).rivals.get(index)
    if rival is not None and rival.state in LIVE:
        rival.state, rival.canceling_ms = ExecutionState.CANCELING, at_ms
        job.to_cancel.append((name, index, rival.attempt))


def abandon(job: Job, allocation: str, at_ms: AtMs) -> bool:
    """The attempt in this slot is not to go on, and its subtask has another one that does. False: it has none."""
    slot, rival = job.slots[allocation], rival_in(job, allocation)
    if slot.task is None:
        return False
    if rival is None:
        other = job.of_seconds(slot.task).rivals.get(slot.subtask)
        if other is None or other.state not in LIVE:
            return False
        swap(job, slot.task, slot.subtask)
    lose(job, slot.task, slot.subtask, at_ms)
    return True


def is_one_of_two(job: Job, allocation: str) -> bool:
    """Whether the end of the attempt in this slot is not its subtask's: it is a rival, or has one that lives."""
    slot = job.slots[allocation]
    assert slot.task is not None
    rival = job.of_seconds(slot.task).rivals.get(slot.subtask)
    return rival is not None and (rival.allocation == allocation or rival.state in LIVE)


def end_one(state: State, job: Job, allocation: str, error: Fault, at_ms: AtMs) -> Iterator[Output]:  # [R38]
    """One of two attempts of a subtask is over without a result: its failure costs nothing, and nothing runs again for it. If it was the
    current one, the other is that from now on."""
    slot = job.slots[allocation]
    name, index = slot.task, slot.subtask
    assert name is not None
    task, its = job.tasks[name], job.seconds[name]
    if rival_in(job, allocation) is None:
        swap(job, name, index)
    over = its.rivals.pop(index)
    if index in its.began:
        its.spared[index] = after(state.now_ms, AGAIN_MS)
    slot.task, slot.subtask, slot.progress = None, 0, None
    stopped(job, over)
    note_attempt(job, task, over, at_ms)
    if over.state is ExecutionState.CANCELING:
        yield attempt_state_changed(job, name, index, at_ms, now=ExecutionState.CANCELED, rival=over)
        return
    kept = note(job, shortened(error), Decision(0, f"attempt {task.rows[index].attempt} of the subtask goes on"), then="none")
    keep_failure(job, Failure(name, index, over.attempt, at_ms, over.task_manager, kept, kept_progress(error.progress)))
    yield attempt_state_changed(
        job, name, index, at_ms, error=kept, now=ExecutionState.FAILED, progress=error.progress, rival=over
    )
