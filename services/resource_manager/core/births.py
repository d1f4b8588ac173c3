"""New lives: of the ResourceManager, and of its peers. A new leader's settings."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import after
from millrace.core.machine import Born, Configured, Envelope, Output, PeerBorn, settings_of
from millrace.core.messages.jobs import STARTED_ANEW
from millrace.core.timing import registration_ms
from millrace.core.topics import DISPATCHER, JOB_MASTER, shard_number, task_manager_name

from . import blocklist, matching, providing, reconciling, registration, requests
from .state import DECLARE_MS, Settings, State, waiting_of

Outputs = Iterator[Output]


def on_born(state: State, body: Born, envelope: Envelope) -> Outputs:
    """Shards and TaskManagers declare themselves. Which hosts are blocked only etcd knows, if there was a life before.

    Where a log was lost, a shard may have lost its own too, and know of no TaskManager. So all TaskManagers have time to register, with
    the allocations that they hold, before anything is granted [R11]."""
    state.ticked_ms, state.stamp_ms = envelope.now_ms, envelope.at_ms
    state.declare_ms = after(envelope.now_ms, DECLARE_MS)
    if envelope.generation > 1:
        state.open_ms = after(envelope.now_ms, registration_ms(state.lost_after_ms))
        yield from blocklist.read(state)


def on_configured(state: State, body: Configured, envelope: Envelope) -> Outputs:
    before = state.lost_after_ms
    state.limits = settings_of(Settings, body)
    for job in state.jobs.values():
        job.rank = matching.rank(job.priority, job.since_ms, state.limits.ageing_ms)
    state.waiting = waiting_of(state)
    yield from registration.adjust_heartbeats(state, before)
    yield from providing.begin_term(state, envelope.at_ms)


def on_peer_born(state: State, body: PeerBorn, envelope: Envelope) -> Outputs:
    if body.peer.startswith(JOB_MASTER):
        shard = shard_number(body.peer)
        requests.forget_requests_of(state, shard)
        reconciling.forget(state, shard)
        yield from blocklist.declare(state, shard)
        return
    if body.peer == DISPATCHER:  # where it has lost its log nobody is shutting the cluster down any more
        state.workers.closing = False
        return
    name = task_manager_name(body.peer)
    known = state.task_managers.get(name)
    if known is not None and known.incarnation != envelope.life:
        yield from registration.lose(state, envelope, name, STARTED_ANEW, alive=False)
