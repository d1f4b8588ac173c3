"""All messages, in one registry: type and version <-> class, topic, senders, receiver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..topics import DISPATCHER, JOB_MASTER, OPERATOR, RESOURCE_MANAGER, SERVICES, TASK_MANAGER
from . import client, events, jobs, records, slots
from .base import Body

CLIENT = "client"
AnyBody = type[Body]  # a class that has a field `type` cannot say so


@dataclass(frozen=True)
class Contract:
    """Who says a message, to whom, on which topic."""

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

    yield from of(client.REQUESTS, "client.commands", (CLIENT,), (DISPATCHER,))
    for reply in client.REPLIES:
        yield from of((reply,), "client.replies", SAID_BY.get(reply, (DISPATCHER,)), (CLIENT,))
    yield from of((records.Hello, records.Forked), "*.commands", SERVICES, SERVICES)
    senders: dict[tuple[type[Body], str], tuple[str, ...]] = {}
    for (sender, receiver), bodies in LINKS.items():
        for body in bodies:
            senders[body, receiver] = (*senders.get((body, receiver), ()), sender)
    for (body, receiver), some in senders.items():
        yield from of((body,), f"{receiver}.commands", some, (receiver,))
    d, rm, jm = (DISPATCHER,), (RESOURCE_MANAGER,), (JOB_MASTER,)
    everyone = ("anyone",)
    yield from of(
        (events.JobAccepted, events.JobFinished, events.JobFailed, events.JobCanceled), "job.events", d, everyone
    )
    yield from of((events.JobWaiting, events.JobStateChanged, events.AttemptStateChanged), "job.events", jm, everyone)
    yield from of(
        (events.TaskManagerJoined, events.TaskManagerGone, events.SlotChanged), "cluster.events", rm, everyone
    )
    yield from of((events.LeaderElected,), "cluster.events", SERVICES[:3], everyone)
    yield from of((events.DeadLetter,), "dead-letters", d, everyone)
    yield from of((events.DeadLetterRedriven,), "dead-letters", (OPERATOR,), everyone)


SAID_BY: dict[type[Body], tuple[str, ...]] = {
    client.RequestRefused: (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER),
    client.JobDescribed: (DISPATCHER, JOB_MASTER),
    client.ClusterOverview: (DISPATCHER, RESOURCE_MANAGER),
    client.TaskManagersListed: (DISPATCHER, RESOURCE_MANAGER),
}
"""The replies that not the Dispatcher alone says: who is asked answers, and the Dispatcher where nobody does in time [31]."""
LINKS: dict[tuple[str, str], tuple[type[Body], ...]] = {
    (DISPATCHER, JOB_MASTER): (jobs.StartJob, jobs.CancelStartedJob, jobs.JobRetired, jobs.DescribeStartedJob),
    (JOB_MASTER, DISPATCHER): (jobs.JobMasterStarted, jobs.JobStatusChanged, jobs.JobEnded, jobs.QuestionAnswered),
    (DISPATCHER, RESOURCE_MANAGER): (jobs.Query,),
    (RESOURCE_MANAGER, DISPATCHER): (jobs.QuestionAnswered,),
    (JOB_MASTER, RESOURCE_MANAGER): (jobs.RequestSlots, jobs.TaskManagersParted, jobs.JobMasterDeclared),
    (RESOURCE_MANAGER, JOB_MASTER): (jobs.JobQueued, jobs.DeclareAgain, jobs.TaskManagerLost),
    (TASK_MANAGER, RESOURCE_MANAGER): (
        slots.RegisterTaskManager, slots.SlotReport, slots.TaskManagerHeartbeat, slots.SlotFreed, slots.SlotUnused,
        slots.DisconnectTaskManager,
    ),
    (RESOURCE_MANAGER, TASK_MANAGER): (slots.TaskManagerRegistered, slots.AllocateSlot, slots.ReleaseTaskManager),
    (TASK_MANAGER, JOB_MASTER): (slots.OfferSlots, slots.TaskStateChanged, slots.FailSlot),
    (JOB_MASTER, TASK_MANAGER): (slots.DeployTasks, slots.CancelTasks, slots.FreeSlots),
}  # fmt: skip

CONTRACTS: dict[tuple[str, int], Contract] = {(c.type, c.version): c for c in _contracts()}
"""(type, version) -> its contract. A message that is not here does not exist."""
