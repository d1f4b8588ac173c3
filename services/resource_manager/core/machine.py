"""The ResourceManager: the registry of TaskManagers, the one detector of their failure, and who gets which slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.bounded import fitting
from millrace.core.machine import (
    Born,
    Configured,
    Do,
    Envelope,
    Forget,
    Output,
    PassedOver,
    PeerBorn,
    Publish,
    Say,
    Ticked,
    dispatch_old,
    settings_of,
)
from millrace.core.messages.client import ClusterOverview, RequestRefused, SlotInfo, TaskManagerInfo, TaskManagersListed
from millrace.core.messages.effects import FenceTaskManager, TaskManagerFenced
from millrace.core.messages.events import TaskManagerGone, TaskManagerJoined
from millrace.core.messages.jobs import (
    JobMasterDeclared,
    JobQueued,
    Query,
    QuestionAnswered,
    RequestSlots,
    TaskManagerLost,
    TaskManagersParted,
)
from millrace.core.messages.slots import (
    DisconnectTaskManager,
    RegisterTaskManager,
    ReleaseTaskManager,
    SlotFreed,
    SlotReport,
    SlotUnused,
    TaskManagerHeartbeat,
    TaskManagerRegistered,
)
from millrace.core.states import SlotState
from millrace.core.timing import registration_ms
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER, shard_scope, task_manager_key

from . import liveness, queue, slot_manager
from .state import DECLARE_MS, PARTED_KEPT, Expected, Limits, Slot, State, TaskManager, is_quiet

PARTED = "JobMasters were told so before it registered"


class ResourceManager:
    """See `millrace.core.machine.Machine`."""

    scope = RESOURCE_MANAGER
    state_type = State

    def __init__(self, shards: int) -> None:
        """`shards`: how many JobMaster shards the cluster has."""
        self._shards = shards
        self.peers = (DISPATCHER, *map(shard_scope, range(shards)))

    def blank(self) -> State:
        return State(shards=self._shards)

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Whatever happened may have freed a slot or made a job want one: every record ends with a look at both."""
        yield from dispatch_old(HANDLERS, state, envelope)
        yield from slot_manager.grant(state, envelope.id, envelope.at_ms)

    def is_idle(self, state: State) -> bool:
        return not (state.jobs or state.expected) and all(is_quiet(each) for each in state.task_managers.values())


def _born(state: State, envelope: Envelope) -> Iterator[Output]:
    """Nothing to ask: shards and TaskManagers declare themselves. Where a log was lost, a shard may have lost its own, too, and know of no
    TaskManager: all have time to register, with what they hold, before anything is granted [11]."""
    state.ticked_ms, state.stamp_ms = envelope.now_ms, envelope.at_ms
    state.declare_ms = envelope.now_ms + DECLARE_MS
    if envelope.generation > 1:
        state.open_ms = envelope.now_ms + registration_ms(state.lost_after_ms)
    yield from ()


def _configured(state: State, envelope: Envelope) -> Iterator[Output]:
    before = state.lost_after_ms
    state.limits = settings_of(Limits, envelope.body)
    yield from _retune(state, before)


def _ticked(state: State, envelope: Envelope) -> Iterator[Output]:
    now_ms = envelope.now_ms
    liveness.tick(state, now_ms, envelope.at_ms)
    for name in liveness.silent(state):
        silent_ms = state.clock_ms - state.task_managers[name].heard_ms
        yield from _lose(state, envelope, name, f"no heartbeat for {silent_ms} ms")
    for name in liveness.missing(state, now_ms):
        incarnation = state.expected.pop(name).incarnation
        _note_parted(state, name, incarnation)
        yield from _tell_lost(state, name, incarnation, "it did not register with the restarted ResourceManager")
        yield _fence(name, incarnation)
    if now_ms >= state.declare_ms and len(state.declared) < state.shards:
        for shard in range(state.shards):
            if shard not in state.declared:
                yield from slot_manager.pass_over(state, shard)
    yield from slot_manager.grant(state, envelope.id, envelope.at_ms)  # first, so that nobody is told to wait for what it gets
    yield from queue.tell(state, now_ms)


def _peer_born(state: State, envelope: Envelope) -> Iterator[Output]:
    kind, _, name = envelope.body.peer.partition("/")
    if kind == JOB_MASTER:
        slot_manager.forget_requests(state, int(name))
        return
    known = state.task_managers.get(name) if kind == TASK_MANAGER else None
    if known is not None and known.incarnation != envelope.life:
        yield from _lose(state, envelope, name, "it was started anew", alive=False)


def _request_slots(state: State, envelope: Envelope) -> Iterator[Output]:
    """The way of a submission: for a job that asks first nothing is said before the grant."""
    return slot_manager.request(state, _shard(envelope), envelope.life, envelope.body)


def _job_master_declared(state: State, envelope: Envelope) -> Iterator[Output]:
    body: JobMasterDeclared = envelope.body
    yield from slot_manager.heard(state, _shard(envelope))
    due_ms = envelope.now_ms + registration_ms(state.lost_after_ms)
    for name, incarnation in body.task_managers.items():
        known = state.task_managers.get(name)
        if known is None:
            before = state.expected.get(name)
            if before is None or before.incarnation < incarnation:
                state.expected[name] = Expected(incarnation, due_ms)
        elif known.incarnation > incarnation:
            lost = TaskManagerLost(task_manager=name, incarnation=incarnation, reason="it was started anew")
            yield Say(envelope.sender, lost)


def _note_parted(state: State, name: str, incarnation: int) -> None:
    state.parted[name] = max(incarnation, state.parted.pop(name, 0))
    for longest in list(state.parted)[: max(0, len(state.parted) - PARTED_KEPT)]:
        del state.parted[longest]  # its key in etcd is deleted: it ends by itself


def _parted(state: State, envelope: Envelope) -> Iterator[Output]:
    """A life of ours that is over had declared them lost."""
    for name, incarnation in envelope.body.lost.items():
        known = state.task_managers.get(name)
        if known is None:
            _note_parted(state, name, incarnation)
        elif known.incarnation <= incarnation:
            yield from _lose(state, envelope, name, PARTED)


def _register(state: State, envelope: Envelope) -> Iterator[Output]:
    body: RegisterTaskManager = envelope.body
    name = _task_manager(envelope)
    if state.parted.pop(name, 0) >= envelope.life:
        state.parted[name] = envelope.life
        state.expected.pop(name, None)
        yield from _tell_lost(state, name, envelope.life, PARTED)
        yield Say(envelope.sender, ReleaseTaskManager(incarnation=envelope.life, reason=PARTED))
        yield Forget(envelope.sender, envelope.life)
        return
    old = state.task_managers.get(name)
    told: list[Output] = []
    if old is not None and old.incarnation == envelope.life:
        told += slot_manager.unregister(state, name)  # it declares itself again
    elif old is not None:
        yield from _lose(state, envelope, name, "it was started anew", alive=False)
    expected = state.expected.pop(name, None)
    if expected is not None and expected.incarnation < envelope.life:
        yield from _tell_lost(state, name, expected.incarnation, "it was started anew")
    slots = {each.slot: Slot(each.memory_mb, SlotState.STARTING) for each in body.slots}
    since_ms = envelope.at_ms
    if old is not None and old.incarnation == envelope.life:
        since_ms = old.since_ms
        for number, slot in slots.items():
            slot.changes = old.slots[number].changes if number in old.slots else 0  # what was said of it is counted on [16]
    task_manager = TaskManager(envelope.life, body.host, since_ms, envelope.at_ms, state.clock_ms, slots)
    liveness.heard(state, task_manager, envelope.at_ms)
    told += slot_manager.register(state, name, task_manager, body.states)
    yield from _retune(state)
    yield Say(envelope.sender, _registered(state))
    if old is None or old.incarnation != envelope.life:
        yield Publish("cluster.events", name, TaskManagerJoined(
            task_manager=name, incarnation=envelope.life, host=body.host, slots=len(slots), at_ms=envelope.at_ms,
            states=[slot.state.value for _, slot in sorted(slots.items())],
        ))  # fmt: skip
    yield from told


def _slot_report(state: State, envelope: Envelope) -> Iterator[Output]:
    name = _task_manager(envelope)
    if name in state.task_managers and envelope.body.states:
        yield from slot_manager.report(state, name, envelope.body.states, envelope.at_ms)


def _heartbeat(state: State, envelope: Envelope) -> Iterator[Output]:
    task_manager = state.task_managers.get(_task_manager(envelope))
    if task_manager is not None:
        task_manager.last_beat_ms = envelope.at_ms
        liveness.heard(state, task_manager, envelope.at_ms)
        if envelope.body.states is not None:
            yield from _slot_report(state, envelope)


def _slot_freed(state: State, envelope: Envelope) -> Iterator[Output]:
    name = _task_manager(envelope)
    if name in state.task_managers:
        yield from slot_manager.freed(state, name, envelope.body, envelope.at_ms)


def _slot_unused(state: State, envelope: Envelope) -> Iterator[Output]:
    name = _task_manager(envelope)
    if name in state.task_managers:
        yield from slot_manager.unused(state, name, envelope.body)


def _disconnect(state: State, envelope: Envelope) -> Iterator[Output]:
    name = _task_manager(envelope)
    if name in state.task_managers:
        yield from _lose(state, envelope, name, envelope.body.reason, alive=False)


def _query(state: State, envelope: Envelope) -> Iterator[Output]:
    body: Query = envelope.body
    if not body.reply_to:
        return  # who asks does not want to know
    managers = state.task_managers
    if body.what == "overview":
        answer: Any = ClusterOverview(
            correlation=body.correlation,
            jobs=body.jobs,
            task_managers=len(managers),
            slots=sum(len(each.slots) for each in managers.values()),
            free_slots=sum(len(keys) for keys in state.free.values()),
            waiting_jobs=sum(len(waiting) for waiting in state.queues.values()),
        )
    else:
        answer = TaskManagersListed(
            correlation=body.correlation, task_managers=fitting(_listed(state)), total=len(managers)
        )
    yield Publish("client.replies", body.reply_to, answer)
    yield from _answered(body)


def _answered(body: Query) -> Iterator[Output]:
    if body.number:  # of a build before there is none
        yield Say(DISPATCHER, QuestionAnswered(number=body.number))


def _listed(state: State) -> Iterator[TaskManagerInfo]:
    for name, each in sorted(state.task_managers.items()):
        slots = [
            SlotInfo(slot=number, state=slot.state.value, job=slot.job, memory_mb=slot.memory_mb, broken=slot.broken)
            for number, slot in sorted(each.slots.items())
        ]
        yield TaskManagerInfo(
            task_manager=name,
            incarnation=each.incarnation,
            host=each.host,
            slots=slots,
            since_ms=each.since_ms,
            last_beat_ms=each.last_beat_ms,
        )


def _lose(state: State, envelope: Envelope, name: str, reason: str, *, alive: bool = True) -> Iterator[Output]:
    """Decides that a TaskManager is lost. `alive`: it may live on and has to be told to end."""
    lost = state.task_managers[name]
    yield from _tell_lost(state, name, lost.incarnation, reason)
    scope = f"{TASK_MANAGER}/{name}"
    if alive:
        yield Say(scope, ReleaseTaskManager(incarnation=lost.incarnation, reason=reason))
        yield _fence(name, lost.incarnation)
    yield Forget(scope, lost.incarnation)
    yield Publish("cluster.events", name, TaskManagerGone(
        task_manager=name, incarnation=lost.incarnation, reason=reason, at_ms=envelope.at_ms
    ))  # fmt: skip
    yield from slot_manager.unregister(state, name)
    yield from _retune(state)


def _fence(name: str, incarnation: int) -> Do:
    """It may live on and not be heard by Kafka, nor hear it, while etcd answers it."""
    return Do(task_manager_key(name), FenceTaskManager(task_manager=name, incarnation=incarnation))


def _fenced(state: State, envelope: Envelope) -> Iterator[Output]:
    """Nothing depends on it."""
    yield from ()


def _tell_lost(state: State, name: str, incarnation: int, reason: str) -> Iterator[Output]:
    for shard in range(state.shards):
        yield Say(shard_scope(shard), TaskManagerLost(task_manager=name, incarnation=incarnation, reason=reason))


def _retune(state: State, lost_after_ms: int | None = None) -> Iterator[Output]:
    """Keeps the heartbeats of all TaskManagers together below the limit. `lost_after_ms`: what they were told, if settings have changed."""
    told = state.interval_ms, state.lost_after_ms if lost_after_ms is None else lost_after_ms
    state.interval_ms = liveness.interval_ms(state.limits, len(state.task_managers), state.interval_ms)
    if (state.interval_ms, state.lost_after_ms) != told:
        liveness.retuned(state, told[1])
        for name in state.task_managers:
            yield Say(f"{TASK_MANAGER}/{name}", _registered(state))


def _registered(state: State) -> TaskManagerRegistered:
    return TaskManagerRegistered(heartbeat_interval_ms=state.interval_ms, lost_after_ms=state.lost_after_ms)


def _passed_over(state: State, envelope: Envelope) -> Iterator[Output]:
    """What a bad record asked for is not done [26], but no slot and no shard waits for ever."""
    body, error = envelope.body.body, envelope.body.error
    if isinstance(body, RequestSlots):
        yield from _bad_request(state, envelope, body, error)
    elif isinstance(body, SlotFreed):
        # It may be said before any report of its grant, and no report counts until then. What the slot is now the next one says.
        yield from _slot_freed(state, envelope._replace(body=body.model_copy(update={"state": "STARTING"})))
    elif isinstance(body, JobMasterDeclared):
        # It is said once, and nothing is granted before. Where the shard holds slots is not looked at: all have time to register.
        if _shard(envelope) not in state.declared:
            state.open_ms = max(state.open_ms, envelope.now_ms + registration_ms(state.lost_after_ms))
        yield from slot_manager.heard(state, _shard(envelope))
    elif isinstance(body, Query) and body.reply_to:
        reason = f"a fault of Millrace in handling this request: {error}"
        yield Publish(
            "client.replies", body.reply_to, RequestRefused(correlation=body.correlation, kind="internal", reason=reason)
        )
        yield from _answered(body)


def _bad_request(state: State, envelope: Envelope, body: RequestSlots, error: str) -> Iterator[Output]:
    """A shard asks for slots once: why its job waits is told, and its user can cancel it. What it wanted before counts no more: one that
    has ended would be granted that again and again."""
    if body.job in state.jobs:
        slot_manager.forget_request(state, body.job)
    if body.slots:
        reason = f"its request for slots was not taken, by a fault of Millrace: {error}; cancel the job"
        yield Say(envelope.sender, JobQueued(job=body.job, reason=reason, position=None))


def _shard(envelope: Envelope) -> int:
    return int(envelope.sender.removeprefix(f"{JOB_MASTER}/"))


def _task_manager(envelope: Envelope) -> str:
    return envelope.sender.removeprefix(f"{TASK_MANAGER}/")


HANDLERS: dict[type, Any] = {
    Born: _born,
    Configured: _configured,
    Ticked: _ticked,
    PeerBorn: _peer_born,
    PassedOver: _passed_over,
    RequestSlots: _request_slots,
    TaskManagersParted: _parted,
    JobMasterDeclared: _job_master_declared,
    RegisterTaskManager: _register,
    TaskManagerHeartbeat: _heartbeat,
    SlotReport: _slot_report,
    SlotFreed: _slot_freed,
    SlotUnused: _slot_unused,
    DisconnectTaskManager: _disconnect,
    Query: _query,
    TaskManagerFenced: _fenced,
}
