"""What clients are told about the cluster. The Dispatcher forwards their requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from millrace.core import answering
from millrace.core.answering import answered
from millrace.core.bounded import fitting
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages.base import Reply
from millrace.core.messages.client import (
    ClusterDeregistered,
    ClusterOverview,
    Provided,
    SlotInfo,
    TaskManagerInfo,
    TaskManagersListed,
)
from millrace.core.messages.jobs import Query, QuestionAnswered
from millrace.core.messages.profiles import parts_of
from millrace.core.topics import DISPATCHER

from .blocklist import blocked_host
from .state import State
from .workers import pending


def on_query(state: State, body: Query, envelope: Envelope) -> Iterator[Output]:
    workers, releases = state.workers, body.what == "deregister"
    if body.what not in ("deregister", "register"):
        pass
    elif body.number and not body.reply_to:  # the Dispatcher asks for itself: the cluster is shut down, or opened again
        workers.closing = releases  # the next tick does the rest
        unknown = bool(state.limits.provider) and not workers.listed
        yield Say(DISPATCHER, QuestionAnswered(number=body.number, workers=max(len(workers.known), int(unknown))))
    else:
        workers.deregistered = releases
    if body.reply_to:  # else nobody wants an answer
        yield from answered(body.reply_to, body.number, _ANSWERS[body.what](state, body))


def refuse(body: Query, error: str) -> Iterator[Output]:
    """A query whose handling ended processes."""
    reason = f"a fault of Millrace in handling this request: {error}"
    yield from answering.refuse(body, "internal", reason)


def _overview(state: State, body: Query) -> ClusterOverview:
    return ClusterOverview(
        correlation=body.correlation,
        jobs=body.jobs,
        task_managers=len(state.task_managers),
        slots=sum(len(each.slots) for each in state.task_managers.values()),
        free_slots=sum(len(keys) for keys in state.free.values()),
        waiting_jobs=len(state.waiting),
        provided=_provided(state) if state.limits.provider else None,
    )


def _task_managers(state: State, body: Query) -> TaskManagersListed:
    listed = fitting(_listed(state))
    return TaskManagersListed(correlation=body.correlation, task_managers=listed, total=len(state.task_managers))


def _provided(state: State) -> Provided:
    return Provided(starting=len(pending(state)), least=state.limits.task_managers_min, most=state.limits.task_managers_max)


def _deregistered(state: State, body: Query) -> ClusterDeregistered:
    return ClusterDeregistered(correlation=body.correlation, workers=len(state.workers.known))


_ANSWERS: dict[str, Callable[[State, Query], Reply]] = {
    "overview": _overview, "task_managers": _task_managers, "deregister": _deregistered, "register": _deregistered,
}  # fmt: skip


def _listed(state: State) -> Iterator[TaskManagerInfo]:
    for name, each in sorted(state.task_managers.items()):
        slots = [
            SlotInfo(slot=number, state=slot.state.value, job=slot.job, broken=slot.broken, **parts_of(slot.profile))
            for number, slot in sorted(each.slots.items())
        ]
        yield TaskManagerInfo(
            task_manager=name,
            incarnation=each.incarnation,
            host=each.host,
            slots=slots,
            since_ms=each.since_ms,
            last_beat_ms=each.last_beat_ms,
            blocked=blocked_host(each.host, state.blocklist.hosts[each.host]) if each.host in state.blocklist.hosts else None,
        )
