"""What the ResourceManager has its provider do: TaskManagers are started when slots are short, and stopped when they are idle.

An idle one is asked first whether it may be stopped. Its slots may be granted meanwhile, so no job waits for the question. It is stopped
if it agrees and nothing of it was granted since. What attempts hand over lies in storage, so no job needs a TaskManager for what ran there.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.machine import Envelope, Output, Publish, Say
from millrace.core.messages.events import ProviderConfigured
from millrace.core.messages.slots import DrainAnswered, DrainTaskManager
from millrace.core.messages.worker_effects import WorkersListed
from millrace.core.profile import ANY
from millrace.core.states import WorkerState
from millrace.core.topics import task_manager_scope

from . import registration, scaling, slot_manager, workers
from .state import State, Workers, is_quiet, task_manager_of

PATIENCE_MS = 200  # of too few slots, where slots that are busy may be free again meanwhile
DEREGISTERED = "the cluster was deregistered"
LIST_AGAIN_MS = 2_000  # after the provider has not answered

Outputs = Iterator[Output]


def begin_term(state: State, at_ms: AtMs) -> Outputs:
    """A new leader. What the provider has is asked anew: the last one may have died between two effects."""
    limits = state.limits
    if limits.provider:
        state.workers.listed = False
        yield from workers.ask_list(state)
    elif state.workers.lists:
        state.workers = Workers(changes=state.workers.changes, lists=state.workers.lists + 1)
    if state.workers.lists:  # else nobody has ever started any
        least, most = (limits.task_managers_min, limits.task_managers_max) if limits.provider else (0, None)
        yield Publish("cluster.events", "provider", ProviderConfigured(
            provider=limits.provider or "standalone", least=least, most=most, at_ms=at_ms, count=state.workers.lists
        ))  # fmt: skip


def look_after(state: State, envelope: Envelope) -> Outputs:
    if not state.limits.provider:
        return
    now_ms, at_ms = envelope.now_ms, envelope.at_ms
    yield from workers.time_out(state, now_ms, at_ms)
    if state.workers.expected is None and now_ms >= state.workers.list_ms:
        yield from workers.ask_list(state)
    if state.workers.released:
        yield from _stop_all(state, envelope)
    elif state.open and state.workers.listed:
        yield from _start(state, envelope)
        yield from _drain(state, envelope)


def _stop_all(state: State, envelope: Envelope) -> Outputs:
    for name in list(state.workers.known):
        yield from workers.stop(state, name, DEREGISTERED, envelope.at_ms)
        if name in state.task_managers:
            yield from registration.lose(state, envelope, name, DEREGISTERED)


def _start(state: State, envelope: Envelope) -> Outputs:
    known, now_ms = state.workers, envelope.now_ms
    short = scaling.missing(state)
    if not short:
        known.short_ms = None
    elif known.short_ms is None:
        known.short_ms = now_ms
    if known.away:
        return
    waits = state.task_managers and known.short_ms is not None and now_ms < after(known.short_ms, PATIENCE_MS)
    count = max(scaling.below_least(state), 0 if waits else short)
    if not count or now_ms < workers.resume_ms(known):
        return
    if known.problem:
        count = min(count, 1 - len(workers.pending(state)))  # until one has registered again
    for _ in range(min(count, scaling.room(state).workers)):
        yield from workers.start(state, envelope.at_ms)


def _drain(state: State, envelope: Envelope) -> Outputs:
    """Asks those that have been idle for long enough, the highest number first, and no more than are not needed. On a blocked host all that
    are idle are asked at once: they are in the way of others, if there may be some elsewhere."""
    now_ms, limits = envelope.now_ms, state.limits
    quiet = _quiet(state, now_ms)
    if state.blocklist.hosts and not scaling.is_nowhere(state):
        for name in quiet:
            if state.is_blocked(name) and state.workers.known[name].state is WorkerState.REGISTERED:
                yield from _ask_to_drain(state, name, envelope)
        quiet = [name for name in quiet if not state.is_blocked(name)]
    if state.waiting and scaling.demanded(state, max(1, scaling.slots_most(state, ANY))):
        return  # who waits may get what is idle
    asked = sum(each.state is WorkerState.DRAINING and not state.is_blocked(name) for name, each in state.workers.known.items())
    left = scaling.usable(state) - asked - limits.task_managers_min
    free = sum(map(len, state.free.values())) - (limits.task_managers_spare if state.jobs else 0) * limits.worker_slots
    for name in reversed(quiet):
        worker, registered = state.workers.known[name], state.task_managers[name]
        free -= len(registered.slots)
        due = worker.idle_ms is not None and now_ms >= after(worker.idle_ms, limits.worker_idle_ms)
        if worker.state is WorkerState.REGISTERED and due and left > 0 and (free >= 0 or not state.jobs):
            left -= 1
            yield from _ask_to_drain(state, name, envelope)


def _ask_to_drain(state: State, name: str, envelope: Envelope) -> Outputs:
    yield from workers.drain(state, name, envelope.now_ms, envelope.at_ms)
    yield Say(task_manager_scope(name), DrainTaskManager(incarnation=state.task_managers[name].incarnation))


def _quiet(state: State, now_ms: NowMs) -> list[str]:
    """The workers of which no slot is allocated, by number; notes since when. Their slots are given after all others, those of the
    highest number last: else a few short jobs would go round all TaskManagers, and none would ever be idle."""
    found = []
    for name in sorted(state.workers.known, key=workers.number_of):
        registered, worker = state.task_managers.get(name), state.workers.known[name]
        if registered is None:
            continue
        if not is_quiet(registered):
            worker.idle_ms = None
            continue
        worker.idle_ms = now_ms if worker.idle_ms is None else worker.idle_ms
        slot_manager.give_last(state, name)
        found.append(name)
    return found


def on_drain_answered(state: State, body: DrainAnswered, envelope: Envelope) -> Outputs:  # [R33]
    """It is stopped if nothing has changed since it was asked."""
    name = task_manager_of(envelope)
    worker = state.workers.known.get(name)
    if worker is None or worker.state is not WorkerState.DRAINING:
        return  # a slot of it was granted
    if body.refused is not None or not is_quiet(state.task_managers[name]):
        workers.keep(state, name)
        return
    host, idle_ms = state.task_managers[name].host, state.limits.worker_idle_ms
    reason = f"its host {host} is blocked" if state.is_blocked(name) else f"none of its slots was needed for {idle_ms} ms"
    yield from workers.stop(state, name, reason, envelope.at_ms)
    yield from registration.lose(state, envelope, name, reason)


def on_workers_listed(state: State, body: WorkersListed, envelope: Envelope) -> Outputs:  # [R33]
    """Compares what the provider has with what is known. Whether a registered TaskManager lives is told by its heartbeats alone."""
    known, now_ms, at_ms = state.workers, envelope.now_ms, envelope.at_ms
    if body.number != known.lists or known.expected is None:
        return
    expected, known.expected, known.away = known.expected, None, body.problem or ""
    if body.problem is not None:
        known.list_ms = after(now_ms, LIST_AGAIN_MS)
        return
    adopting, known.listed, known.adopting, known.hosts = known.adopting, True, False, body.hosts
    known.left_out = body.left_out
    for name in expected:
        worker = known.known.get(name)
        ended = body.workers.get(name, "its provider does not have it any more")
        if worker is not None and worker.state is WorkerState.STARTING and ended is not None:
            yield from workers.fail(state, name, ended, now_ms, at_ms)
    strangers = [name for name in body.workers if workers.is_worker(name) and name not in known.known]
    for name in sorted(strangers, key=lambda name: (body.workers[name] is not None, workers.number_of(name))):  # first those that run
        ended, needed = body.workers[name], adopting or scaling.below_least(state)
        if ended is None and (name in state.task_managers or (needed and scaling.room(state).workers)):
            yield from workers.adopt(state, name, now_ms, at_ms)
        else:
            yield from workers.stop(state, name, ended or "nobody has asked for it", at_ms)
    soon = bool(workers.pending(state))
    known.list_ms = after(now_ms, workers.LIST_SOON_MS if soon else workers.LIST_MS)
