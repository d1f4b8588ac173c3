"""New lives: of this shard, and of the peers that it then sends all that they need [R10]."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Born, Configured, Envelope, Output, PeerBorn, Say, settings_of
from millrace.core.messages.jobs import STARTED_ANEW, DeclareAgain, JobMasterDeclared, TaskManagersParted
from millrace.core.states import ENDED_JOB
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, task_manager_name

from . import holding, suspension
from .plans import plan_of
from .reporting import job_ended, job_started, report_status, status_changed
from .slot_pool import request_slots
from .state import Settings, State


def on_configured(state: State, body: Configured, envelope: Envelope) -> Iterator[Output]:
    state.settings = settings_of(Settings, body)
    yield from ()


def on_born(state: State, body: Born, envelope: Envelope) -> Iterator[Output]:
    """Nothing to ask: the Dispatcher sends the jobs, TaskManagers offer their slots."""
    yield from ()


def on_peer_born(state: State, body: PeerBorn, envelope: Envelope) -> Iterator[Output]:  # [R10]
    if body.peer == DISPATCHER:
        yield from _declare_jobs(state, envelope)
        yield from suspension.resume(state, envelope.at_ms)  # it does not know that the cluster was to be shut down
    elif body.peer == RESOURCE_MANAGER:
        state.blocked = {}
        yield from _declare_requests(state)
        state.declared_to = body.life
    else:
        state.lost.pop(task_manager_name(body.peer), None)
        yield from holding.fail_slots_of(state, body.peer, body.life - 1, STARTED_ANEW, envelope.at_ms)


def on_declare_again(state: State, body: DeclareAgain, envelope: Envelope) -> Iterator[Output]:  # [R31]
    """The ResourceManager took this shard for absent. It still has the jobs' requests, or says that it has forgotten them."""
    if body.requests:
        yield from _declare_requests(state)
    else:
        yield _declared(state)


def _declare_jobs(state: State, envelope: Envelope) -> Iterator[Output]:
    """To a new life of the Dispatcher: the status of every job, and the end of those that have ended."""
    for job in state.jobs.values():
        if job.status in ENDED_JOB:
            yield job_ended(job, plan_of(state, job))
        else:
            yield job_started(job)
            yield from report_status(job, envelope.at_ms)


def _declare_requests(state: State) -> Iterator[Output]:
    """To the ResourceManager, in a new life or after it has forgotten them: what the jobs want, which TaskManagers are lost, on which slots
    are held."""
    for job in state.jobs.values():
        if job.wanted:
            yield request_slots(state, plan_of(state, job), job)
        if job.waiting is not None:  # its life before sent the reason; this one sends it again if it still holds
            job.waiting, job.position, job.expected_ms = None, None, None
            yield status_changed(job)
    if state.lost:
        yield Say(RESOURCE_MANAGER, TaskManagersParted(lost=dict(state.lost)))
    yield _declared(state)


def _declared(state: State) -> Say:
    """With the TaskManagers on which slots are held, each with its incarnation."""
    held = {}
    for job in state.jobs.values():
        for slot in job.slots.values():
            held[task_manager_name(slot.task_manager)] = slot.incarnation
    return Say(RESOURCE_MANAGER, JobMasterDeclared(task_managers=held))
