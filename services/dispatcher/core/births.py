"""A new leader's settings, and new lives of peers, which are sent all that they need [R10]. The Dispatcher's own birth: `recovery.py`."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Configured, Envelope, Output, PeerBorn, settings_of
from millrace.core.topics import JOB_MASTER, RESOURCE_MANAGER

from . import closing, forwarding, questions, retirement, starting, unsent
from .state import Settings, State

Outputs = Iterator[Output]


def on_configured(state: State, body: Configured, envelope: Envelope) -> Outputs:
    state.settings = settings_of(Settings, body)
    retirement.forget_oldest(state)
    if state.closing is not None and state.closing.name == state.settings.reopened:
        yield from closing.reopen(state)


def on_peer_born(state: State, body: PeerBorn, envelope: Envelope) -> Outputs:  # [R10]
    """A shard's new life is sent StartJob for all its live jobs. Jobs that it holds still, and that have ended, it reports by itself, and
    is sent JobRetired for them."""
    state.received_from[body.peer] = None
    for request in forwarding.withdraw(state, body.peer):
        yield from questions.answer_without(state, request, envelope, body.peer)
    if body.peer == RESOURCE_MANAGER:
        yield from unsent.send(state)
    if not body.peer.startswith(f"{JOB_MASTER}/"):
        return
    if state.closing is None:
        yield from starting.start_all(state, body.peer)
    else:
        yield from closing.suspend(state, state.closing, body.peer)
