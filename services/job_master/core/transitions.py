"""The states of jobs and subtasks, and which follow which. The tables are the specification; `move` refuses all else."""

from __future__ import annotations

from enum import Enum


class JobStatus(str, Enum):
    """State of a job in its JobMaster. FINISHED, FAILED and CANCELED are ends: nothing leaves them."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FAILING = "FAILING"
    CANCELLING = "CANCELLING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class ExecutionState(str, Enum):
    """State of a subtask's current attempt. A retry is a new attempt: the subtask goes back to CREATED with the next number."""

    CREATED = "CREATED"  # waits for its producers, or for its retry
    SCHEDULED = "SCHEDULED"  # wants a slot
    DEPLOYING = "DEPLOYING"
    RUNNING = "RUNNING"
    CANCELING = "CANCELING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


_J, _E = JobStatus, ExecutionState

JOB_TRANSITIONS: dict[JobStatus, tuple[JobStatus, ...]] = {
    _J.CREATED: (_J.RUNNING, _J.FAILING, _J.CANCELLING),
    _J.RUNNING: (_J.RESTARTING, _J.FAILING, _J.CANCELLING, _J.FINISHED),
    _J.RESTARTING: (_J.RUNNING, _J.FAILING, _J.CANCELLING),
    _J.FAILING: (_J.FAILED, _J.CANCELLING),
    _J.CANCELLING: (_J.CANCELED,),
    _J.FINISHED: (),
    _J.FAILED: (),
    _J.CANCELED: (),
}

EXECUTION_TRANSITIONS: dict[ExecutionState, tuple[ExecutionState, ...]] = {
    _E.CREATED: (_E.SCHEDULED, _E.CANCELED),
    _E.SCHEDULED: (_E.DEPLOYING, _E.CANCELED),
    _E.DEPLOYING: (_E.RUNNING, _E.FINISHED, _E.FAILED, _E.CANCELING),
    _E.RUNNING: (_E.FINISHED, _E.FAILED, _E.CANCELING),
    _E.CANCELING: (_E.CANCELED,),
    _E.FINISHED: (),  # what it has published lies in storage that outlives its TaskManager
    _E.FAILED: (_E.CREATED,),  # a retry
    _E.CANCELED: (),
}

ENDED_JOB = (_J.FINISHED, _J.FAILED, _J.CANCELED)
ENDING_JOB = (_J.FAILING, _J.CANCELLING)
IN_SLOT = (_E.DEPLOYING, _E.RUNNING, _E.CANCELING)
"""Subtasks in these states have an allocation with a living attempt."""
WANTS_SLOT = (_E.SCHEDULED, *IN_SLOT)


def check_job(old: JobStatus, new: JobStatus) -> None:
    assert new in JOB_TRANSITIONS[old], f"a job does not go from {old.value} to {new.value}"


def check_execution(old: ExecutionState, new: ExecutionState) -> None:
    assert new in EXECUTION_TRANSITIONS[old], f"a subtask does not go from {old.value} to {new.value}"
