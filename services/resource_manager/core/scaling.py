"""How many TaskManagers are wanted, and how many there may be. A policy over the state: it changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from millrace.core.profile import Profile, largest
from millrace.core.states import SlotState

from .state import Settings, State
from .workers import pending

COMING_SLOT = (SlotState.STARTING, SlotState.RELEASING)


def missing(state: State) -> int:
    """How many more workers the waiting jobs, and the slots that are kept free, need besides those that are being started.

    A job whose profile no slot of a worker satisfies needs none, nor one beyond its tenant's quota: it would wait on."""
    limits, waiting = state.limits, state.waiting
    spare = limits.task_managers_spare * limits.worker_slots if state.jobs else 0
    new = limits.worker_profile
    fitting = [wanted.profile for wanted in waiting.lines if new.satisfies(wanted.profile)]
    if not fitting and not spare:
        return 0
    least = largest(fitting)
    free = sum(map(len, state.free.values()))
    usable = sum(len(slots) for profile, slots in state.free.items() if profile.satisfies(least)) if fitting else 0
    coming = len(pending(state)) * limits.worker_slots + _coming_slots(state, least) + usable
    demand = demanded(state, coming + limits.task_managers_max * limits.worker_slots)
    over = max(0, coming - demand) + free - usable
    return -(-(max(0, demand - coming) + max(0, spare - over)) // limits.worker_slots)


def demanded(state: State, most: int) -> int:
    """The slots that waiting jobs lack and may have, up to `most`: more than that is not started at once."""
    waiting, left, demand, new = state.waiting, dict[str, int](), 0, state.limits.worker_profile
    for wanted, tenant, queue in waiting.jobs():
        if not new.satisfies(wanted.profile):
            continue
        quota = waiting.quota(tenant)
        room = most if quota is None else left.setdefault(tenant, max(0, quota - waiting.held.get(tenant, 0)))
        for _, name in queue:
            lacks = state.lacks(name)[wanted]
            if lacks > room and wanted.need > 1:
                break
            taken = min(lacks, room)
            demand, room = demand + taken, room - taken
            if demand >= most or not room:
                break
        left[tenant] = room
        if demand >= most:
            break
    return min(demand, most)


def slots_most(state: State, wanted: Profile) -> int:
    """So many slots that satisfy this there can be: those that are registered, and those that may still be started."""
    limits = state.limits
    new = limits.provider and limits.worker_profile.satisfies(wanted) and not state.workers.released
    more = (len(pending(state)) + room(state).workers) * limits.worker_slots if new else 0
    there = sum(slot.profile.satisfies(wanted) for each in state.task_managers.values() for slot in each.slots.values())
    return there + more


def below_least(state: State) -> int:
    """How many workers the smallest number of TaskManagers lacks."""
    return max(0, state.limits.task_managers_min - usable(state) - len(pending(state)))


def usable(state: State) -> int:
    """The registered TaskManagers whose slots are granted."""
    return len(state.task_managers) - sum(map(state.is_blocked, state.task_managers) if state.blocklist.hosts else ())


class Room(NamedTuple):
    """How many more workers may be started, and which limit allows no more."""

    workers: int
    limit: str


def room(state: State) -> Room:  # [R33]
    """By the limit that allows least. A worker counts until nothing of it runs any more. None is started on a blocked host."""
    if state.workers.released:
        closing = state.workers.closing
        return Room(0, "the cluster is being shut down" if closing else "the cluster is deregistered (millrace deregister --undo)")
    if is_nowhere(state):
        return Room(0, f"all hosts of their provider are blocked ({', '.join(state.workers.hosts)})")
    rooms = [Room(max(0, most - used) // each, text) for text, most, used, each in _limits(state)]
    return min(rooms, key=lambda each: each.workers)


def is_nowhere(state: State) -> bool:
    """Whether all hosts on which the provider starts TaskManagers are known, and blocked."""
    hosts = state.workers.hosts
    return bool(hosts) and all(host in state.blocklist.hosts for host in hosts)


def _limits(state: State) -> Iterator[tuple[str, int, int, int]]:
    """(what the limit is, the most, how much of it is used, how much a worker adds)."""
    for limit in LIMITS:
        most = getattr(state.limits, limit.setting)
        each = limit.of_worker(state.limits)
        if most is not None and each:
            yield f"{limit.setting} is {most}", most, limit.registered(state) + each * limit.unseen(state), each


def _not_registered(state: State) -> int:
    return sum(name not in state.task_managers for name in state.workers.known)


class Limit(NamedTuple):
    """`of_worker`: how much a worker adds; `registered`: what the registered TaskManagers have of it; `unseen`: how many workers are not
    counted there."""

    setting: str
    of_worker: Callable[[Settings], int]
    registered: Callable[[State], int]
    unseen: Callable[[State], int] = _not_registered


LIMITS = (
    Limit("task_managers_max", lambda limits: 1, lambda state: len(state.task_managers)),
    Limit("slots_max", lambda limits: limits.worker_slots, lambda state: sum(len(each.slots) for each in state.task_managers.values())),
    Limit(
        "memory_mb_max", lambda limits: limits.worker_slots * limits.worker_memory_mb,
        lambda state: sum(slot.profile.memory_mb for each in state.task_managers.values() for slot in each.slots.values()),
    ),
    # A worker's slots may share its cores, so `worker_cores` counts. Of those that came by themselves only the slots' are known.
    Limit(
        "cores_max", lambda limits: limits.worker_cores,
        lambda state: sum(
            slot.profile.cores
            for name, each in state.task_managers.items() if name not in state.workers.known
            for slot in each.slots.values()
        ),
        lambda state: len(state.workers.known),
    ),
)  # fmt: skip


def outlook(state: State) -> str:
    """What is done about too few slots: for the jobs that wait. "" where no provider can do anything about it."""
    said, left_out = _outlook(state), state.workers.left_out
    if not left_out or not state.limits.provider or state.workers.away:
        return said
    more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
    return "; ".join(filter(None, (said, f"{left_out[0]}{more}")))


def _outlook(state: State) -> str:
    workers, limits = state.workers, state.limits
    if not limits.provider:
        return ""
    if workers.released:
        return f"no more are started: {room(state).limit}"
    names = pending(state)
    failed = f" ({workers.problem})" if workers.problem else ""
    if len(names) == 1:
        return f"{names[0]} is being started{failed}"
    if names:
        return f"{len(names)} TaskManagers are being started{failed}"
    if workers.away:
        return f"the provider of TaskManagers does not answer: {workers.away}"
    if workers.problem and not is_nowhere(state):
        return f"the last one was not started, and another one will be: {workers.problem}"
    allowed = room(state)
    return "" if allowed.workers else f"no more are started: {allowed.limit}{failed}"


def _coming_slots(state: State, least: Profile) -> int:
    """The slots of registered TaskManagers that are free in a moment."""
    return sum(
        slot.state in COMING_SLOT and slot.profile.satisfies(least) and not state.is_blocked(name)
        for name, each in state.task_managers.items()
        for slot in each.slots.values()
    )  # fmt: skip
