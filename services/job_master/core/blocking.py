"""Slots on blocked hosts: they are given back once they are idle, and where the host is evacuated, what runs there runs elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import AtMs
from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.machine import Envelope, Output
from millrace.core.messages.blocklist import TaskManagersBlocked
from millrace.core.states import ENDED_JOB, ENDING_JOB, JobStatus
from millrace.core.topics import Scope, task_manager_scope

from . import speculation
from .resetting import Place, gang, reset
from .scheduling import advance, send_cancels
from .state import Job, State


def on_task_managers_blocked(state: State, body: TaskManagersBlocked, envelope: Envelope) -> Iterator[Output]:  # [R37]
    """A slot that was granted before, and is offered later, is given back as it comes: it is idle."""
    state.blocked = {task_manager_scope(name): host.evacuate for host in body.hosts for name in host.task_managers}
    for host in body.hosts:
        if host.evacuate:
            scopes = dict.fromkeys(map(task_manager_scope, host.task_managers))
            reason = f"host {host.host} is evacuated{': ' if host.reason else ''}{host.reason}"
            for job in list(state.jobs.values()):
                yield from _evacuate(state, job, scopes, reason, envelope.at_ms)


def _evacuate(state: State, job: Job, scopes: dict[Scope, None], reason: str, at_ms: AtMs) -> Iterator[Output]:
    """No attempt has failed: it is canceled, its subtask runs again, and nothing of what the job may use up for failures is used. What ends
    meanwhile without having been canceled counts as it ends."""
    if job.status in (*ENDED_JOB, *ENDING_JOB, JobStatus.SUSPENDED):
        return
    places: dict[Place, None] = {}
    for allocation, slot in job.slots.items():
        if slot.task_manager in scopes and slot.task is not None and not speculation.abandon(job, allocation, at_ms):
            its = [(slot.task, slot.subtask)] if slot.task == PLAN_TASK else gang(job, slot.task, slot.subtask)
            places |= dict.fromkeys(its)
    if places or job.to_cancel:
        before = job.status
        reset(state, job, list(places), 0, at_ms)
        yield from send_cancels(state, job, reason)
        yield from advance(state, job, at_ms, before)
