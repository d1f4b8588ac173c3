"""All messages, in one registry: type and version <-> class, topic, senders, receiver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..topics import (
    CONTROL,
    DISPATCHER,
    JOB_MASTER,
    OPERATOR,
    PROCESS,
    PROCESS_QUESTIONS,
    RESOURCE_MANAGER,
    SERVICES,
    WEB,
)
from . import audit, events, processes, records
from .base import Body
from .links import LINKS, REPLY_SENDERS
from .requests import REPLIES, REQUESTS

CLIENT = "client"
AnyBody = type[Body]  # a class that has a field `type` cannot say so


@dataclass(frozen=True)
class Contract:
    """Who sends a message, to whom, on which topic."""

    type: str
    version: int
    body: AnyBody
    topic: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]


def _contracts() -> Iterable[Contract]:
    def of(
        bodies: Iterable[type[Body]], topic: str, senders: tuple[str, ...], receivers: tuple[str, ...]
    ) -> Iterable[Contract]:
        for body in bodies:
            fields = body.model_fields
            yield Contract(fields["type"].default, fields["version"].default, body, topic, senders, receivers)

    yield from of(REQUESTS, "client.commands", (CLIENT,), (DISPATCHER,))
    yield from of((processes.AskProcess,), PROCESS_QUESTIONS, (CLIENT,), (PROCESS,))
    for reply in REPLIES:
        yield from of((reply,), "client.replies", REPLY_SENDERS.get(reply, (DISPATCHER,)), (CLIENT,))
    yield from of((records.Hello, records.Forked), "*.commands", SERVICES, SERVICES)
    senders: dict[tuple[type[Body], str], tuple[str, ...]] = {}
    for (sender, receiver), bodies in LINKS.items():
        for body in bodies:
            senders[body, receiver] = (*senders.get((body, receiver), ()), sender)
    for (body, receiver), some in senders.items():
        yield from of((body,), f"{receiver}.commands", some, (receiver,))
    for (topic, publishers), facts in FACTS.items():
        yield from of(facts, topic, publishers, ("anyone",))


FACTS: dict[tuple[str, tuple[str, ...]], tuple[type[Body], ...]] = {
    ("job.events", (DISPATCHER,)): (
        events.JobAccepted, events.JobCancelling, events.JobFinished, events.JobFailed, events.JobCanceled,
    ),
    ("job.events", (JOB_MASTER,)): (
        events.JobWaiting, events.JobStateChanged, events.AttemptStateChanged, events.SubtasksKept, events.AttemptsProgressing,
        events.JobRescaled, events.EdgeSkewed,
    ),
    ("cluster.events", (RESOURCE_MANAGER,)): (
        events.TaskManagerJoined, events.TaskManagerGone, events.SlotChanged, events.WorkerChanged, events.ProviderConfigured,
        events.BlocklistChanged,
    ),
    ("cluster.events", CONTROL): (events.LeaderElected,),
    ("dead-letters", (DISPATCHER,)): (events.DeadLetter,),
    ("dead-letters", (OPERATOR,)): (events.DeadLetterRedriven,),
    ("audit.events", (WEB,)): (audit.CommandRequested, audit.CommandAnswered),
}
"""(topic, who publishes) -> public facts."""
EVENTS: tuple[type[Body], ...] = tuple(body for bodies in FACTS.values() for body in bodies)

CONTRACTS: dict[tuple[str, int], Contract] = {(c.type, c.version): c for c in _contracts()}
"""(type, version) -> its contract. A message that is not here does not exist."""
