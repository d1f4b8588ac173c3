"""Where a job's time goes, for `show`: each moment since it was accepted belongs to one phase.

The job's state decides the phase until the next record about it. The order is fixed: attempts run, those among them that are canceled and
have not ended; else a subtask waits for a slot or for its retry; else attempts start; else outputs are committed. So the parts sum to the
whole, however attempts overlap. The time in which attempts ran is divided as attempts that are over divided theirs.
"""

from __future__ import annotations

from millrace.core.clocks import AtMs
from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.messages.attempts import AttemptReport

from .state import Job, Rival, Subtask, Task, TimeSpent, runs

QUEUE, START, PLAN, RUN, PUBLISH = "queue", "start", "plan", "run", "publish"
COMPUTE, EXCHANGE = "compute", "exchange"
OWN = (START, PLAN, EXCHANGE, COMPUTE)
"""What an attempt reports of its own time. What the JobMaster sees of it beyond that is the way of its report: PUBLISH."""
SHOWN = (QUEUE, START, PLAN, COMPUTE, EXCHANGE, PUBLISH)


def spend(job: Job, at_ms: AtMs) -> None:
    """The time since the last record about the job belongs to the phase that it was in; from now on the job is in that of its state."""
    spent = job.spent
    if spent is None:  # of a snapshot of a build before: what is not known is not shown
        return
    now_ms = max(at_ms, job.accepted_ms)
    _add(spent.ms, spent.phase, now_ms - spent.until_ms)
    spent.until_ms = now_ms
    spent.phase = _phase(job, spent)


def _add(parts: dict[str, int], phase: str, step_ms: int) -> None:
    """The broker's clock may jump back: what it takes back, the last phases lose first."""
    if step_ms > 0:
        parts[phase] = parts.get(phase, 0) + step_ms
        return
    for each in (phase, *reversed(parts)):
        back = min(-step_ms, parts.get(each, 0))
        if back:
            parts[each] -= back
            step_ms += back


def _phase(job: Job, spent: TimeSpent) -> str:
    if spent.running:
        return PLAN if PLAN_TASK in job.tasks and not job.tasks[PLAN_TASK].finished else RUN
    if any(task.ready or task.retry or task.held for task in job.tasks.values()):
        return QUEUE
    return START if job.slots else PUBLISH


def began(job: Job, at_ms: AtMs) -> None:
    """An attempt is RUNNING from now on."""
    if job.spent is not None:
        job.spent.running += 1
        spend(job, at_ms)


def stopped(job: Job, subtask: Subtask | Rival) -> None:
    """Its attempt is about to be over. `spend` follows in the same record."""
    if job.spent is not None and runs(subtask):
        job.spent.running = max(0, job.spent.running - 1)  # in a snapshot of a build before, none counted that is canceled


def note_attempt(job: Job, task: Task, subtask: Subtask | Rival, at_ms: AtMs, report: AttemptReport | None = None) -> None:
    """How an attempt that is over divides its time. `report`: of a finished one. Others, and those of other builds, have computed."""
    if job.spent is None or not subtask.running_ms or task is job.tasks.get(PLAN_TASK):
        return
    left = max(0, at_ms - subtask.running_ms)
    own = report.spent if report is not None else None
    parts = job.spent.ran
    if own is None:
        parts[COMPUTE] = parts.get(COMPUTE, 0) + left
        return
    for phase in OWN:
        part = min(left, max(0, getattr(own, f"{phase}_ms") or 0))  # its clock is another, and user code may have written it
        parts[phase] = parts.get(phase, 0) + part
        left -= part
    parts[PUBLISH] = parts.get(PUBLISH, 0) + left


def parts_of(job: Job) -> dict[str, int] | None:
    """Phase -> ms, up to the last record about the job; None: not known."""
    spent = job.spent
    if spent is None:
        return None
    parts = {f"{phase}_ms": spent.ms.get(phase, 0) for phase in SHOWN}
    run, whole = spent.ms.get(RUN, 0), sum(spent.ran.values())
    left = run
    for phase, weight in spent.ran.items():
        if phase != COMPUTE and whole:
            part = run * weight // whole
            parts[f"{phase}_ms"] += part
            left -= part
    parts[f"{COMPUTE}_ms"] += left
    return parts
