"""What a TaskManager is sent to run an attempt."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.bounded import batches
from millrace.core.faults import fault
from millrace.core.jobgraph.compile import PLAN_TASK, Plan
from millrace.core.jobgraph.specs import Pattern, attempt_spec, is_pattern, plan_spec
from millrace.core.machine import Output, Say
from millrace.core.messages.attempts import AttemptSpec, Fault
from millrace.core.messages.slots import DeployTask, DeployTasks
from millrace.core.topics import Scope

from . import patterns
from .execution_graph import attempt_name, log_folder, task_folder
from .plans import in_short
from .state import Job, State

SPEC_BYTES_MAX = 800_000


def deployment(state: State, job: Job, plan: Plan, task: str, index: int, allocation: str) -> tuple[DeployTask, int]:
    """The next attempt of a subtask, into this slot; and the bytes of its spec."""
    number = next_number(job, task, index)
    name = attempt_name(job, task_folder(plan, task), index, number)
    spec, size = _spec(state, job, plan, task, index, number, job.slots[allocation].takes_runs)
    deploy = DeployTask(
        allocation=allocation,
        attempt=name,
        acceptance=job.acceptance,
        folder=log_folder(job, name),
        spec=spec,
        start_timeout_ms=plan.graph.timeouts.start_ms,
        run_timeout_ms=plan.graph.timeouts.run_ms,
    )
    return deploy, size


def next_number(job: Job, task: str, index: int) -> int:
    """Of the next attempt of a subtask: attempts' names are for ever, those of second attempts among them [R20]."""
    return max(job.tasks[task].rows[index].attempt, job.of_seconds(task).numbered.get(index, 0)) + 1


def _spec(state: State, job: Job, plan: Plan, task: str, index: int, number: int, takes_runs: bool) -> Pattern:
    """Made of that of another of the task's attempts, where there is one. Whether this replica has one changes nothing but the time."""
    follows = patterns.follows_from(state, job, plan, task) if takes_runs else None
    known = patterns.find(state, job, task, follows) if follows is not None else None
    if known is not None:
        return known.of(index, number)
    spec = _new_spec(state, job, plan, task, index, number, takes_runs)
    asked = dict(plan.profiles[task].parts())
    spec = spec.model_copy(update={"resources": asked}) if asked else spec
    made = Pattern(spec, spec.json_bytes())
    if follows is not None and is_pattern(spec):
        patterns.keep(state, job, task, follows, made)
    return made


def _new_spec(state: State, job: Job, plan: Plan, task: str, index: int, number: int, takes_runs: bool) -> AttemptSpec:
    if task == PLAN_TASK:
        return plan_spec(plan, job=job.id, attempt=number)
    for producer in plan.tasks[task].upstream:
        its, whole = job.tasks[producer], producer in plan.tasks[task].whole
        published = its.finished == plan.tasks[producer].parallelism if whole else its.rows[index].outputs is not None
        assert published, f"{job.id}: {producer} has not published"
    return attempt_spec(
        plan,
        job=job.id,
        task=task,
        subtask=index,
        attempt=number,
        published=job.tasks,
        planned=job.planned,
        exchange=state.settings.exchange_url,
        run=run_folder(job),
        **({"in_short": lambda name: in_short(state, job, name)} if takes_runs else {}),
    )


def run_folder(job: Job) -> str:
    """The folder of the job's exchange data: of this acceptance and this life of its state, used by nothing else [R20]."""
    return f"{job.acceptance}/{job.life}"


def too_large(task: str) -> Fault:
    """The cause of a job one of whose specs is larger than a message may be."""
    message = (
        f"what an attempt of task {task} needs to know is larger than {SPEC_BYTES_MAX} bytes: lower the parallelism of what it "
        "reads, or read fewer files (a folder instead of many)"
    )
    return fault("user", message)


def deploy_tasks(task_manager: Scope, tasks: list[tuple[DeployTask, int]]) -> Iterator[Output]:
    """As few messages as the limit allows [R15]. `tasks`: each with the bytes of its spec."""
    for batch in batches(tasks, SPEC_BYTES_MAX):
        yield Say(task_manager, DeployTasks(tasks=batch))
