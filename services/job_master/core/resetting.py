"""Subtasks that run again though they have finished, or still run: what has handed on rows that are gone, and all that reads of it; or all
subtasks of a job whose restarts are full.

Whoever has read rows of an attempt must not go on beside others that read those of its successor: a query may give other rows, or give
them in another order, each time. So whatever reads of a subtask that runs again, near or far, runs again, too.
"""

from __future__ import annotations

import heapq

from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.faults import EXCHANGE_LOST
from millrace.core.jobgraph.compile import PLAN_TASK, Plan, producers
from millrace.core.jobgraph.specs import folder_name
from millrace.core.messages.attempts import Fault
from millrace.core.states import ExecutionState

from . import skew, speculation
from .deployment import run_folder
from .execution_graph import withdraw
from .plans import running_plan
from .publication import forget_result, forget_schemas
from .state import Job, State, move_subtask
from .timers import set_timer

Place = tuple[str, int]
"""A task, and the number of a subtask."""


def lost_producers(job: Job, plan: Plan, task: str, index: int, error: Fault) -> list[Place] | None:
    """The finished subtasks whose rows this attempt did not find; empty: they run again already. None: the error is another one, or of a
    TaskManager of an earlier build, which does not name them."""
    if error.condition != EXCHANGE_LOST or not error.lost or task == PLAN_TASK:
        return None
    found: list[Place] = []
    is_named = False
    for name, number in producers(plan, task, index):
        row = job.tasks[name].rows[number]
        folder = f"/{run_folder(job)}/{folder_name(plan.tasks[name])}/{number}/"
        last = f"/{row.kept}/" if row.kept is not None else f"{folder}{row.attempt}/"
        is_named = is_named or folder in error.lost or last in error.lost
        if last in error.lost and row.state is ExecutionState.FINISHED:
            found.append((name, number))
    return found if is_named else None


def readers_of(job: Job, plan: Plan, places: list[Place]) -> list[Place]:
    """These and all that read of them, near or far, as far as they have begun."""
    found, entered = dict.fromkeys(places), dict[str, None]()
    left = list(places)
    while left:
        name, number = left.pop()
        for reader in plan.tasks[name].readers:
            rows = job.tasks[reader].rows
            its = [number] if number in rows else []
            if name in plan.tasks[reader].whole:
                if reader in entered:  # with all of its subtasks; to look at them for each of ours would take seconds
                    continue
                entered[reader] = None
                its = list(rows)
            more = [(reader, each) for each in its if (reader, each) not in found]
            found.update(dict.fromkeys(more))
            left += more
    return list(found)


def gang(job: Job, task: str, index: int) -> list[Place]:  # [R35]
    """What runs again with this subtask: of a job that wants its slots together all subtasks of the tasks that run or are to run now, for
    they may wait for each other. Of another job the subtask alone."""
    if not job.is_gang:
        return [(task, index)]
    now = {task} | {slot.task for slot in job.slots.values() if slot.task is not None}
    return [(name, each) for name, its in job.tasks.items() if name != PLAN_TASK and (name in now or its.ready) for each in its.rows]


def ends_together(job: Job) -> bool:
    """Whether a gang is not to begin again yet: an attempt of it still ends. Else it would begin one by one, and hold slots while it waits
    for more of them."""
    rows = (job.tasks[slot.task].rows[slot.subtask] for slot in job.slots.values() if slot.task is not None)
    return job.is_gang and any(row.state is ExecutionState.CANCELING for row in rows)


def begin_again(state: State, job: Job, at_ms: AtMs) -> None:  # [R35]
    """A gang has slots for a part of its subtasks alone: it gives them back, and wants all at once again. That is no failure of the job."""
    task, index = next((name, its.ready[0]) for name, its in job.tasks.items() if its.ready)
    reset(state, job, readers_of(job, running_plan(state, job), gang(job, task, index)), 0, at_ms)


def everything(job: Job) -> list[Place]:
    """All that has begun, but the plan: it goes on to hold for all attempts."""
    return [(name, index) for name, task in job.tasks.items() if name != PLAN_TASK for index in task.rows]


def reset(state: State, job: Job, places: list[Place], delay_ms: int, at_ms: AtMs) -> None:
    """These run again, once their attempts have ended, their producers have published, and the delay is over."""
    plan = running_plan(state, job)
    until_ms = after(state.now_ms, delay_ms)
    for name, index in places:
        task = job.tasks[name]
        row = task.rows[index]
        if row.state in (ExecutionState.DEPLOYING, ExecutionState.RUNNING):
            move_subtask(row, ExecutionState.CANCELING)
            row.canceling_ms = at_ms
            job.to_cancel.append((name, index, row.attempt))
            speculation.left(job, name, index)
            speculation.lose(job, name, index, at_ms)
            continue
        if row.state is ExecutionState.CANCELING:
            continue
        if row.state is ExecutionState.FINISHED:
            withdraw(plan, job, name, index)
            state.wholes.pop((job.acceptance, name), None)
            job.of_seconds(name).took.pop(index, None)
            forget_result(job, plan, name, index)
            forget_schemas(job, name)
            skew.forget(job, name)
        elif row.state is ExecutionState.SCHEDULED:
            task.ready.remove(index)
            heapq.heapify(task.ready)
        until_ms = max(until_ms, task.retry.pop(index, until_ms))  # its own delay is not shortened
        if row.state is not ExecutionState.CREATED:
            move_subtask(row, ExecutionState.CREATED)
            row.created_ms = at_ms
        task.held[index] = None
    until_ms = max(until_ms, job.held_until_ms or NowMs(0))
    if until_ms > state.now_ms:
        job.held_until_ms = until_ms
    set_timer(state, job)
