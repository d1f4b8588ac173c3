"""What follows a failed attempt: pure policy. And how a job begins to fail."""

from __future__ import annotations

from typing import Any

from millrace.core import faults
from millrace.core.bounded import fields_fitting
from millrace.core.clocks import AtMs, NowMs
from millrace.core.jobgraph.model import Restart
from millrace.core.messages.attempts import Decided, Fault
from millrace.core.states import ENDING_JOB, JobStatus

from .restarts import STRATEGIES, Decision, out_of_memory
from .state import Failure, Job, Subtask, move_job

MOVE_FIRST_MS, MOVE_MOST_MS = 100, 10_000
"""Delay of a subtask's second move, and the longest one."""

KEPT_FAILURES, KEPT_FAILURES_JOB = 3, 300
"""Failed attempts that are kept for `show`: of a subtask, and of a job in all."""

MESSAGE_CHARS, FIELD_CHARS, FAULT_BYTES_MAX = 2000, 500, 16_000
"""What is reported and kept of an error, which user code can write, too: of its message, of its other texts, and in all."""

CAUSE_BYTES_MAX = 64_000
"""Of a job's cause, which JobEnded holds twice."""


def decide(restart: Restart, job: Job, subtask: Subtask, error: Fault, moves_most: int, now_ms: NowMs) -> Decision:
    """What follows this failure, which is counted: the class of the fault decides whose budget it spends."""
    kind = faults.class_of(error)
    if kind is faults.STORAGE:
        _, waits = faults.OF_STORAGE[error.condition or ""]
        return Decision(MOVE_MOST_MS if _lacked_storage(job, subtask) else MOVE_FIRST_MS, waits)
    if is_move(error):
        return _move(subtask, error, moves_most)
    if kind is faults.ANALYSIS:
        return Decision(None, f"{error.kind or 'this'}: it would fail again")
    if kind is faults.MEMORY:
        return out_of_memory(restart, job)
    return STRATEGIES[restart.strategy](restart, job, now_ms)


def _lacked_storage(job: Job, subtask: Subtask) -> bool:
    """Whether it has failed so before: else another slot, perhaps of another host, is tried at once."""
    return any(job.tasks[each.task].rows.get(each.subtask) is subtask for each in lacking_storage(job))


def lacking_storage(job: Job) -> list[Failure]:
    """Failures of what is there still; of those that are kept."""
    return [each for each in job.failures if each.task in job.tasks and faults.class_of(each.error) is faults.STORAGE]


def _move(subtask: Subtask, error: Fault, most: int) -> Decision:
    """A moved attempt goes on at once, the next ones with a growing backoff: what moved them may need a moment. A subtask that was moved
    too often fails the job: then it is likely to be what ends its slots."""
    is_lost = faults.class_of(error) is faults.LOST
    before = subtask.moves if is_lost else subtask.broken
    if before >= most:
        return Decision(None, f"{faults.class_of(error)}: {before} of {most} moves used")
    if is_lost:
        subtask.moves += 1
    else:
        subtask.broken += 1
    return Decision(_move_delay_ms(before), f"{faults.class_of(error)}: move {before + 1} of {most}")


def recompute(job: Job, most: int) -> Decision:
    """Rows that finished subtasks have handed on are gone: they are made anew, so often and ever later."""
    if job.recomputed >= most:
        return Decision(None, f"lost exchange data: made anew {job.recomputed} of {most} times")
    job.recomputed += 1
    return Decision(_move_delay_ms(job.recomputed - 1), f"lost exchange data: made anew, time {job.recomputed} of {most}")


def _move_delay_ms(before: int) -> int:
    return min(MOVE_FIRST_MS << before - 1, MOVE_MOST_MS) if before else 0


def unreadable() -> Fault:
    message = "the stored JobGraph cannot be read by this version of Millrace: submit it again"
    return faults.fault("infrastructure", message)


def note(job: Job, error: Fault, decision: Decision, then: str | None = None) -> Fault:
    """The error with what is decided on it; `then`: in a word, where it is neither a restart nor a move. A failure while the job restarts
    or fails for an earlier one is concurrent with that, as in Flink's exception history."""
    job.failed += 1
    waits = job.held_until_ms is not None or any(task.retry for task in job.tasks.values())
    restarting = decision.delay_ms is not None and waits
    given: dict[str, Any] = {"number": job.failed, "then": "fail", "why": decision.why}
    if decision.delay_ms is not None:
        given |= {"then": then or ("move" if is_move(error) else "restart"), "delay_ms": decision.delay_ms}
    if job.root and (restarting or job.status in ENDING_JOB):
        given["concurrent_with"] = job.root
    else:
        job.root = job.failed
    return error.model_copy(update={"decided": Decided(**given)})


def is_move(error: Fault) -> bool:
    return faults.then(error) is faults.MOVE


def shortened(error: Fault) -> Fault:
    """An error without its stack trace (which the attempt's stderr has), bounded. Only a JobMaster says what is decided on it."""
    kept = {name: value for name, value in error.json_value().items() if name not in ("detail", "decided", "progress")}
    for name, value in kept.items():
        if isinstance(value, str):
            kept[name] = value[: MESSAGE_CHARS if name == "message" else FIELD_CHARS]
    return Fault.model_validate(fields_fitting(kept, FAULT_BYTES_MAX))


def keep_failure(job: Job, failure: Failure) -> None:  # [R30]
    """Keeps a failed attempt for `show`; the oldest of its subtask, or of the job, makes room."""
    same = [one for one in job.failures if (one.task, one.subtask) == (failure.task, failure.subtask)]
    if len(same) == KEPT_FAILURES:
        job.failures.remove(same[0])
    elif len(job.failures) == KEPT_FAILURES_JOB:
        del job.failures[0]
    job.failures.append(failure)


def fail(job: Job, cause: Fault, at_ms: AtMs) -> None:
    """The job is failing from now on; the first cause counts."""
    if job.status not in ENDING_JOB:
        move_job(job, JobStatus.FAILING, at_ms)
        job.cause = Fault.model_validate(fields_fitting(cause.json_value(), CAUSE_BYTES_MAX))
