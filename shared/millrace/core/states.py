"""The states of jobs, subtasks, slots, attempts, leaders, TaskManagers and the cluster's end, and which may follow which.
No other module lists these.

The tables are the specification: a change that is not in them is a broken assertion. The enums are strings, so what was read from JSON
is compared with their members; what is written is a member's `value`. `Literal` types are for messages, which hold plain strings.
"""

from __future__ import annotations

from enum import Enum
from typing import Literal


class JobStatus(str, Enum):
    """State of a job in its JobMaster. FINISHED, FAILED and CANCELED are ends: nothing leaves them."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    RESTARTING = "RESTARTING"
    FAILING = "FAILING"
    CANCELLING = "CANCELLING"
    SUSPENDED = "SUSPENDED"  # the cluster is being shut down; it goes on when the cluster is up again
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


_J = JobStatus
JOB_TRANSITIONS: dict[JobStatus, tuple[JobStatus, ...]] = {
    _J.CREATED: (_J.RUNNING, _J.FAILING, _J.CANCELLING),
    _J.RUNNING: (_J.RESTARTING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED, _J.FINISHED),
    _J.RESTARTING: (_J.RUNNING, _J.FAILING, _J.CANCELLING, _J.SUSPENDED),
    _J.FAILING: (_J.FAILED, _J.CANCELLING),
    _J.CANCELLING: (_J.CANCELED,),
    _J.SUSPENDED: (_J.RUNNING, _J.FAILING, _J.CANCELLING),
    _J.FINISHED: (),
    _J.FAILED: (),
    _J.CANCELED: (),
}
ENDED_JOB = (_J.FINISHED, _J.FAILED, _J.CANCELED)
ENDING_JOB = (_J.FAILING, _J.CANCELLING)
ENDED_BY: dict[str, str] = {
    "JobFinished": _J.FINISHED.value, "JobFailed": _J.FAILED.value, "JobCanceled": _J.CANCELED.value,
}  # fmt: skip
"""Type of the last event of a job -> the status that it has ended with."""
Ending = Literal["FINISHED", "FAILED", "CANCELED"]
"""Of a job or an attempt."""
INITIALIZING = "INITIALIZING"
"""Shown by the Dispatcher until the job's JobMaster has answered."""
StatusShown = Literal["INITIALIZING", "CREATED", "RUNNING", "RESTARTING", "FAILING", "CANCELLING", "SUSPENDED", Ending]
"""A job's status as events and replies carry it."""
JobState = Literal["QUEUED", StatusShown]
"""A job's status as people are shown it: QUEUED is one that waits for its first slot, whatever its status."""


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


_E = ExecutionState
EXECUTION_TRANSITIONS: dict[ExecutionState, tuple[ExecutionState, ...]] = {
    _E.CREATED: (_E.SCHEDULED, _E.CANCELED),
    _E.SCHEDULED: (_E.DEPLOYING, _E.CANCELED, _E.CREATED),
    _E.DEPLOYING: (_E.RUNNING, _E.FINISHED, _E.FAILED, _E.CANCELING),
    _E.RUNNING: (_E.FINISHED, _E.FAILED, _E.CANCELING),
    _E.CANCELING: (_E.CANCELED, _E.CREATED),  # CREATED: its job is suspended, and goes on later; or it is to run again
    # What it has published lies in storage that outlives its TaskManager. It runs again where that is lost, or was made of what is lost,
    # or where all of the job does: as the ones that are SCHEDULED.
    _E.FINISHED: (_E.CREATED,),
    _E.FAILED: (_E.CREATED,),  # a retry
    _E.CANCELED: (),
}
IN_SLOT = (_E.DEPLOYING, _E.RUNNING, _E.CANCELING)
"""Subtasks in these states have an allocation with a living attempt."""
NOT_DEPLOYED = (_E.CREATED, _E.SCHEDULED)
"""What is known of such a subtask's attempts is of one that has failed."""
ENDED_EXECUTION = (_E.FINISHED, _E.FAILED, _E.CANCELED)


class SlotState(str, Enum):
    """State of a slot. Its TaskManager is the truth about it; what the ResourceManager decides by itself is FREE -> PENDING alone."""

    STARTING = "STARTING"  # no allocation; its JVM is not warm
    FREE = "FREE"  # no allocation; can be given to a job
    PENDING = "PENDING"  # ResourceManager: given to a job, and its TaskManager has not reported the allocation yet
    ALLOCATED = "ALLOCATED"  # a job's; no attempt, or one that has ended and whose ending is kept
    ACTIVE = "ACTIVE"  # a job's; an attempt waits for the JVM, or is in it
    RELEASING = "RELEASING"  # given back by its job; free when the JVM is ready again
    BROKEN = "BROKEN"  # no allocation; cannot be started


_S = SlotState
SLOT_TRANSITIONS: dict[SlotState, tuple[SlotState, ...]] = {
    _S.STARTING: (_S.FREE, _S.ALLOCATED, _S.BROKEN),
    _S.FREE: (_S.STARTING, _S.ALLOCATED, _S.BROKEN),
    _S.ALLOCATED: (_S.ACTIVE, _S.FREE, _S.RELEASING, _S.BROKEN),
    # ACTIVE -> FREE: freed while its attempt waits for the inbox to be read; its JVM is ready.
    _S.ACTIVE: (_S.ALLOCATED, _S.FREE, _S.RELEASING, _S.BROKEN),
    _S.RELEASING: (_S.FREE, _S.BROKEN),
    _S.BROKEN: (_S.FREE,),
}
"""In its TaskManager, where no slot is PENDING. By a report any state may follow any other in the ResourceManager."""
WITH_ALLOCATION = (_S.ALLOCATED, _S.ACTIVE, _S.RELEASING)
HELD_SLOT = (_S.PENDING, _S.ALLOCATED, _S.ACTIVE)
"""ResourceManager: it counts as a job's."""
ALLOCATED_SLOT = (*HELD_SLOT, _S.RELEASING)
UNUSABLE_SLOT = (_S.STARTING, _S.BROKEN)
"""`SlotChanged` tells of the way into these and out."""
SlotStateReported = Literal["STARTING", "FREE", "ALLOCATED", "ACTIVE", "RELEASING", "BROKEN"]
SlotStateFreed = Literal["FREE", "STARTING", "BROKEN"]
SlotStateShown = Literal["STARTING", "FREE", "ACTIVE", "BROKEN"]
"""As the web service counts slots."""


class WorkerState(str, Enum):
    """State of a worker: a TaskManager that the ResourceManager has its provider start and stop."""

    REQUESTED = "REQUESTED"  # the provider is asked to start it
    STARTING = "STARTING"  # the provider has started it; it has not registered
    REGISTERED = "REGISTERED"
    DRAINING = "DRAINING"  # idle, and asked whether it may be stopped; its slots may still be granted
    STOPPING = "STOPPING"  # not wanted any more; it counts until the provider says that nothing of it runs


_W = WorkerState
WORKER_TRANSITIONS: dict[WorkerState, tuple[WorkerState, ...]] = {
    _W.REQUESTED: (_W.STARTING, _W.REGISTERED, _W.STOPPING),  # it may register before the provider has answered
    _W.STARTING: (_W.REGISTERED, _W.STOPPING),
    _W.REGISTERED: (_W.STARTING, _W.DRAINING, _W.STOPPING),  # STARTING: its process has begun anew
    _W.DRAINING: (_W.REGISTERED, _W.STARTING, _W.STOPPING),
    _W.STOPPING: (),
}
PENDING_WORKER = (_W.REQUESTED, _W.STARTING)
"""Its slots will be there soon."""
WITH_TASK_MANAGER = (_W.REGISTERED, _W.DRAINING)
WorkerStateShown = Literal["REQUESTED", "STARTING", "REGISTERED", "DRAINING", "STOPPING", "STOPPED"]
"""As `WorkerChanged` has it. STOPPED: it is forgotten."""


class AttemptState(str, Enum):
    """State of an attempt in its TaskManager."""

    WAITING = "WAITING"  # for the slot's JVM to be ready, or for its TaskManager to have read its inbox
    LAUNCHED = "LAUNCHED"  # the slot was told to run it
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


_A = AttemptState
ENDED_ATTEMPT = (_A.FINISHED, _A.FAILED, _A.CANCELED)
ATTEMPT_TRANSITIONS: dict[AttemptState, tuple[AttemptState, ...]] = {
    _A.WAITING: (_A.LAUNCHED, _A.FAILED, _A.CANCELED),
    _A.LAUNCHED: (_A.RUNNING, *ENDED_ATTEMPT),
    _A.RUNNING: ENDED_ATTEMPT,
    **dict.fromkeys(ENDED_ATTEMPT, ()),
}
AttemptStateChangedTo = Literal["RUNNING", Ending]
AttemptStateReported = Literal["DEPLOYING", AttemptStateChangedTo]
"""DEPLOYING: it is WAITING or LAUNCHED."""


class Recovery(str, Enum):
    """Of a Dispatcher: whether the jobs of earlier generations are known. NONE -> RUNNING at Born -> DONE with the last page."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"


RECOVERY_TRANSITIONS = {
    Recovery.NONE: (Recovery.RUNNING,),
    Recovery.RUNNING: (Recovery.RUNNING, Recovery.DONE),
    Recovery.DONE: (),
}


class StoredState(str, Enum):
    """State of a job's key in etcd. A restored etcd gets what the Dispatcher's log has, whatever stands there."""

    ACCEPTED = "accepted"  # with its graph
    DIRTY = "dirty"  # ended; what it leaves is to be deleted
    CLEAN = "clean"  # a tombstone


_K = StoredState
STORED_TRANSITIONS: dict[StoredState, tuple[StoredState, ...]] = {
    _K.ACCEPTED: (_K.DIRTY,),
    _K.DIRTY: (_K.CLEAN,),
    _K.CLEAN: (),
}
StoredStateWritten = Literal["accepted", "dirty", "clean"]


class ClosingStep(str, Enum):
    """How far the cluster's end is. Each step ends when it is done, or its time is up."""

    SUSPENDING = "SUSPENDING"  # JobMasters suspend their jobs
    RELEASING = "RELEASING"  # the provider stops its TaskManagers
    ENDING = "ENDING"  # it is written into etcd, where each service reads it


_C = ClosingStep
CLOSING_TRANSITIONS: dict[ClosingStep, tuple[ClosingStep, ...]] = {
    _C.SUSPENDING: (_C.RELEASING,),
    _C.RELEASING: (_C.ENDING,),
    _C.ENDING: (),
}
ClosingStepShown = Literal["SUSPENDING", "RELEASING", "ENDING"]


class Role(Enum):
    """What a replica of a scope is. Only the one that leads speaks for the scope. How it changes: `core/election.py:TRANSITIONS`."""

    FOLLOWING = "following"
    CAMPAIGNING = "campaigning"  # asked etcd for the key
    ELECT = "elect"  # has the key, its Elected is not folded yet
    LEADING = "leading"


class PresenceState(str, Enum):
    """Whether a TaskManager may launch what it is told to. How it changes: `task_manager/core/presence.py:TRANSITIONS`."""

    PRESENT = "PRESENT"  # nobody else has its tasks
    BEHIND = "BEHIND"  # others may have them: in this state and the next two it launches nothing
    READ = "READ"  # it has read its inbox since it fell behind; etcd is asked
    CONFIRMED = "CONFIRMED"  # etcd had it at some moment; the next answer was asked for after the inbox was read
    LOST = "LOST"  # it was declared lost, and ends


def check_job(old: JobStatus, new: JobStatus) -> None:
    assert new in JOB_TRANSITIONS[old], f"a job does not go from {old.value} to {new.value}"


def check_execution(old: ExecutionState, new: ExecutionState) -> None:
    assert new in EXECUTION_TRANSITIONS[old], f"a subtask does not go from {old.value} to {new.value}"


def check_slot(old: SlotState, new: SlotState) -> None:
    assert new in SLOT_TRANSITIONS[old], f"a slot does not go from {old.value} to {new.value}"


def check_worker(old: WorkerState, new: WorkerState) -> None:
    assert new in WORKER_TRANSITIONS[old], f"a worker does not go from {old.value} to {new.value}"


def check_attempt(old: AttemptState, new: AttemptState) -> None:
    assert new in ATTEMPT_TRANSITIONS[old], f"an attempt does not go from {old.value} to {new.value}"


def check_recovery(old: Recovery, new: Recovery) -> None:
    assert new in RECOVERY_TRANSITIONS[old], f"a recovery does not go from {old.value} to {new.value}"


def check_stored(old: StoredState, new: StoredState) -> None:
    assert new in STORED_TRANSITIONS[old], f"a job's key does not go from {old.value} to {new.value}"


def check_closing(old: ClosingStep, new: ClosingStep) -> None:
    assert new in CLOSING_TRANSITIONS[old], f"the end of a cluster does not go from {old.value} to {new.value}"
