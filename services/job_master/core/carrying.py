"""What a rescaled job carries over: the subtasks that have FINISHED of each task that is the same with the new parallelism.

A task is the same if it does the same with the same rows, and hands on as much to as many: `definitions` has that, and all that the task
reads is in it. So a task whose reader by hash gets another parallelism is another one, for it hands on other shares; one that is read by
broadcast is not.
"""

from __future__ import annotations

from millrace.core.bounded import bytes_of
from millrace.core.clocks import AtMs
from millrace.core.jobgraph.compile import PLAN_TASK, Plan, producers
from millrace.core.jobgraph.definitions import definitions
from millrace.core.states import ExecutionState, JobStatus

from .state import NEVER, Job, Rescaled, Seconds


def leave(job: Job, before: Plan, after: Plan, at_ms: AtMs) -> None:
    """The tasks of `before` are over, and none of their attempts is in a slot. What they leave is kept until the sources of `after` begin:
    only then is known what a plan attempt finds now."""
    kept = job.rescaled
    assert kept is not None, f"{job.id} is rescaled without a request"
    if job.planned is not None or not before.needs_planning:
        defined = definitions(before, job.planned)
        kept.tasks = {name: job.tasks[name] for name in before.tasks if job.tasks[name].finished}
        kept.defined = {name: "/".join(defined[name]) for name in kept.tasks}
        kept.planned = job.planned if kept.tasks else None
        for row in (row for task in kept.tasks.values() for row in task.rows.values()):
            row.created_ms = row.created_ms or kept.since_ms or job.entered.get(JobStatus.CREATED.value, NEVER)
    # Else the sources have not begun since the job was rescaled last: what it had left then is still there.
    names = {**dict.fromkeys((PLAN_TASK, *after.tasks)), **dict.fromkeys(kept.tasks)}
    had = {**kept.attempts, **{name: _last_attempt(job, name) for name in job.tasks}}
    kept.attempts = {name: had[name] for name in names if had.get(name)}
    _number(kept, before, after, list(names))
    kept.since_ms = at_ms
    # A subtask that stays goes on counting from its own attempt, not from `kept.attempts`: what its second ones had is taken, too [R20].
    job.seconds = {name: Seconds(numbered=its.numbered) for name, its in job.seconds.items() if name in kept.tasks and its.numbered}
    job.planned = None


def _last_attempt(job: Job, name: str) -> int:
    task = job.tasks[name]
    return max([task.attempts, *(row.attempt for row in task.rows.values()), *job.of_seconds(name).numbered.values()])


def _number(kept: Rescaled, before: Plan, after: Plan, names: list[str]) -> None:
    """A task keeps the folder that it had, which the names of its attempts and files carry; a new one gets a number that none has had."""
    had = {**kept.folders, **{name: task.index for name, task in before.tasks.items()}}
    kept.numbered = max([kept.numbered, *had.values()])
    kept.folders = {}
    for name in names:
        if name in had:
            kept.folders[name] = had[name]
        elif name in after.tasks:
            kept.numbered += 1
            kept.folders[name] = kept.numbered


def carry_over(plan: Plan, job: Job) -> None:
    """Before the sources begin: what had finished of each task that is the same counts as before."""
    kept = job.rescaled
    if kept is None:
        return
    defined = definitions(plan, job.planned) if kept.tasks else {}
    for name, task in plan.tasks.items():
        left = kept.tasks.get(name)
        if left is None or kept.defined[name] != "/".join(defined[name]):
            continue
        its = job.tasks[name]
        for index, row in sorted(left.rows.items()):
            read = (job.tasks[other].rows.get(number) for other, number in producers(plan, name, index))
            if row.state is ExecutionState.FINISHED and all(one and one.state is ExecutionState.FINISHED for one in read):
                its.rows[index] = row
        its.finished = len(its.rows)
        if not its.finished:
            continue
        its.schemas, its.schemas_of = left.schemas, left.schemas_of
        if its.finished == its.parallelism:
            for reader in task.readers:
                job.tasks[reader].blocked -= name in plan.tasks[reader].whole
        job.kept_untold.append((name, job.id, list(its.rows)))
    for name in kept.tasks:
        if name not in job.tasks or not job.tasks[name].finished:
            job.seconds.pop(name, None)
    kept.tasks, kept.defined, kept.planned = {}, {}, None
    _forget_results(plan, job)


def _forget_results(plan: Plan, job: Job) -> None:
    """The parts of the result whose subtasks run again; and what attempts have reported is counted anew."""
    its = next((job.tasks[name].rows for name, task in plan.tasks.items() if plan.result in task.vertices), {})
    job.results = {index: part for index, part in job.results.items() if index in its}
    reported = [job.planned, *job.results.values()]
    job.kept_bytes = sum(each.json_bytes() for each in reported if each is not None)
    job.kept_bytes += sum(bytes_of(task.schemas) for task in job.tasks.values() if task.schemas)
