"""Changes that a ResourceManager is asked for by those who want no answer, from before it was heard: it is sent them when it is.

Who wants an answer is refused at once, and tries again. The others would never hear of it."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Output, Say
from millrace.core.messages.blocklist import UNANSWERED_MOST, AskBlocklist
from millrace.core.messages.jobs import Query
from millrace.core.topics import RESOURCE_MANAGER

from .state import State

WORKERS = ""
"""What a change is about that is about no host: the TaskManagers of the provider."""


def keep(state: State, what: str, change: Query | AskBlocklist) -> None:  # [R37]
    """The newest one of `what`, a host or WORKERS, in the place of one before. Too many others leave no room for it."""
    state.unsent.pop(what, None)
    if len(state.unsent) < UNANSWERED_MOST:
        state.unsent[what] = change


def send(state: State) -> Iterator[Output]:
    for change in state.unsent.values():
        yield Say(RESOURCE_MANAGER, change)
    state.unsent = {}
