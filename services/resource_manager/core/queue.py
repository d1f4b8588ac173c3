"""The queue for slots: which jobs wait, why, and in which place; and what their shards are sent about that.

That a job waits is sent at the next tick, for most jobs do not wait so long. That it waits no more is sent at once; changed places once
a second to the first hundred, and to the others in turn. Nothing is sent of those that have their slots in a moment: where jobs are
short, their places would be half of all records. All are counted once a second, and less often where more than ten thousand wait.
After a flood of jobs a few are notified at each tick: each notification leads to three more records, and jobs that start would have to
wait for those.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple
from zlib import crc32

from millrace.core.clocks import AtMs, NowMs
from millrace.core.machine import Say
from millrace.core.messages.jobs import JobQueued, NotEnoughResources
from millrace.core.profile import Profile, largest, part_text
from millrace.core.states import SlotState
from millrace.core.topics import shard_scope

from . import pace, scaling
from .state import Job, State
from .waiting import SHARE, Wanted

PLACES_MAX = 100
PLACES_EVERY_MS = 1000
NOTIFIED_A_TICK = 20
IN_TURN = 100  # of those behind the first ones: so many are looked at in a turn, and so many more that have moved far
COUNTED_A_TICK, COUNTED_A_SECOND = 1000, 10_000  # where fewer wait, all are counted whenever one begins to; once a second
HOSTS_NAMED = 3
Queues = list[tuple[Wanted, list[tuple[int, str]]]]
"""What is wanted, and (rank, job) of those that want it, in order."""


def update(state: State, name: str) -> Iterator[Say]:
    """Puts a job into or out of the queue after what it wants or holds has changed; forgets a job that does neither."""
    job = state.jobs[name]
    if not job.trace or not job.short:
        job.lacks_ms = None
    elif job.lacks_ms is None:
        job.lacks_ms = state.stamp_ms  # it has lost one that it held
    if state.queues_for(job):
        was = name in state.waiting.places
        state.waiting.add(name, tuple(state.lacks(name)), job.tenant, job.rank)
        if not was and job.sent_reason is None:
            state.unnotified[name] = None
        return
    remove(state, name)
    job.never_ms = None
    if job.waits:  # still, but its shard is excluded: a reason is sent again when that declares
        job.sent_reason = job.sent_position = job.sent_expected_ms = None
    elif job.sent_reason is not None:
        job.sent_reason = job.sent_position = job.sent_expected_ms = None
        yield Say(shard_scope(job.shard), JobQueued(job=name, reason=None, position=None))
    if not job.wanted and not job.held:
        del state.jobs[name]
        state.spare.pop(name, None)


def remove(state: State, name: str) -> None:
    """Takes a job out of the queue, if it is there. Its shard is sent nothing."""
    state.waiting.remove(name)
    state.unnotified.pop(name, None)
    state.placed.pop(name, None)


class Place(NamedTuple):
    """Where a job stands in the queue, what it waits for there, and until when. `is_first`: it is looked at each second. `is_near`: it has
    its slots before anybody reads its place."""

    position: int | None
    wanted: Wanted
    is_first: bool
    expected_ms: AtMs | None = None
    is_near: bool = False


def notify(state: State, now_ms: NowMs, at_ms: AtMs) -> Iterator[Say]:
    """Notifies the shards of jobs that began to wait, and once a second of places and reasons that changed."""
    again = now_ms - state.places_sent_ms >= PLACES_EVERY_MS and bool(state.waiting)
    if not state.unnotified and not again:
        return
    census = _SlotCensus(state)
    never: Queues = []
    others: Queues = []
    for wanted, tenant, queue in state.waiting.jobs():
        (others if census.fits(wanted, tenant) else never).append((wanted, queue))
    begun = list(islice(state.unnotified, NOTIFIED_A_TICK))
    seconds = -(-len(state.waiting) // COUNTED_A_SECOND)  # between two times that all are counted
    turn, behind = divmod(now_ms // PLACES_EVERY_MS, max(1, seconds))
    counts_all = len(state.waiting) <= COUNTED_A_TICK or (again and not behind)
    found = dict(_places(state, census, never, at_ms, None if counts_all else PLACES_MAX))
    names = dict.fromkeys(begun)
    if again:
        names |= dict.fromkeys(name for name in state.placed if name in found)
        names |= dict.fromkeys(name for name, place in found.items() if place.is_first)
        names |= dict.fromkeys(_in_turn(state, [name for name, place in found.items() if not place.is_first], found, turn))
    for name in names:
        state.unnotified.pop(name, None)
        job = state.jobs[name]
        place = found.get(name) or Place(None, census.never_of(name) or state.waiting.places[name][0][0], False)
        if place.position is None or not place.is_first:
            state.placed.pop(name, None)
        else:
            state.placed[name] = None
        if place.is_near:
            continue
        reason = census.reason(job, place.wanted)
        moved = (job.sent_reason, job.sent_position) != (reason, place.position)
        if moved or pace.is_news(job.sent_expected_ms, place.expected_ms, at_ms):
            job.sent_reason, job.sent_position, job.sent_expected_ms = reason, place.position, place.expected_ms
            yield Say(
                shard_scope(job.shard),
                JobQueued(job=name, reason=reason, position=place.position, expected_ms=place.expected_ms),
            )
    if again:
        state.places_sent_ms = now_ms
        yield from _give_up(state, census, never, others, now_ms)


def _in_turn(state: State, names: list[str], found: dict[str, Place], turn: int) -> Iterator[str]:
    """Of the jobs behind the first ones, those that are looked at now: those whose turn it is, and some that have moved far or have no
    place yet. A turn comes whatever happens to the others."""
    turns = max(1, len(names) // IN_TURN)
    yield from (name for name in names if crc32(name.encode()) % turns == turn % turns)

    def moved_far(name: str) -> bool:
        sent, now = state.jobs[name].sent_position, found[name].position
        return sent is not now if sent is None or now is None else abs(now - sent) * 10 > sent

    yield from islice(filter(moved_far, names), IN_TURN)


def _give_up(state: State, census: _SlotCensus, never: Queues, others: Queues, now_ms: NowMs) -> Iterator[Say]:
    """Notifies the shards of jobs that have wanted for too long what the cluster cannot have: they fail. The time counts for all of them;
    of those that it is over for, the first ones are sent, and the next ones a second later."""
    jobs, limit_ms = state.jobs, state.limits.not_enough_resources_ms
    if limit_ms is None or not state.open:
        for job in jobs.values():
            job.never_ms = None
        return
    for _, queue in others:
        for _, name in queue:
            if jobs[name].never_ms is not None and census.fits_all(name):  # it could have it now, and others are before it
                jobs[name].never_ms = None
    for _, queue in never:
        for _, name in queue:
            if jobs[name].never_ms is None:
                jobs[name].never_ms = now_ms

    def is_over(place: tuple[int, str]) -> bool:
        since_ms = jobs[place[1]].never_ms
        return since_ms is not None and now_ms - since_ms >= limit_ms

    first = [[(rank, name, wanted) for rank, name in islice(filter(is_over, queue), PLACES_MAX)] for wanted, queue in never]
    for name, wanted in {name: wanted for _, name, wanted in islice(heapq.merge(*first), PLACES_MAX)}.items():
        job = jobs[name]
        job.never_ms = now_ms  # it is sent again where its shard did not get it
        yield Say(shard_scope(job.shard), NotEnoughResources(job=name, reason=census.reason(job, wanted)))


def _places(
    state: State, census: _SlotCensus, never: Queues, at_ms: AtMs, most: int | None
) -> Iterator[tuple[str, Place]]:
    """The first jobs in the queue, `most` of them or all. Also of those that no registered slots can serve: they delay no other job and
    have no place. One that wants slots of several profiles has none, either, if one of those can never come: it cannot end."""
    slots, jobs = 0, state.jobs
    pace_ms = pace.pace_ms(state, at_ms) if state.open else None
    for position, (name, wanted, limited) in enumerate(islice(in_order(state, census.fits), most), 1):
        job = jobs[name]
        expected_ms = None if limited else pace.expected_ms(state, pace_ms, slots + wanted.need, at_ms)
        is_near = not limited and pace.is_near(state, pace_ms, slots + wanted.need, at_ms)
        slots += job.wanted - job.held
        yield name, Place(position, wanted, position <= PLACES_MAX, expected_ms, is_near)
    others = [[(rank, name, wanted) for rank, name in queue[:most]] for wanted, queue in never]
    for number, (_, name, wanted) in enumerate(islice(heapq.merge(*others), most), 1):
        yield name, Place(None, wanted, number <= PLACES_MAX)


def in_order(state: State, fits: Callable[[Wanted, str], bool]) -> Iterator[tuple[str, Wanted, bool]]:
    """The jobs in the order in which they get what they want, if slots are freed and nothing else happens, each with what it gets first.
    Last those that wait for their own tenant's slots, each with True."""
    waiting, jobs = state.waiting, state.jobs
    held, shares, left = dict[str, int](), dict[str, int](), dict[str, int | None]()  # by tenant, with what its jobs before would hold
    heads: list[tuple[int, int, str, int, Wanted, str]] = []
    for wanted, tenant, queue in waiting.jobs():
        if fits(wanted, tenant):
            held[tenant], shares[tenant], left[tenant] = waiting.held.get(tenant, 0), waiting.share(tenant), waiting.left(tenant)
            heads.append((shares[tenant], *queue[0], 0, wanted, tenant))
    heapq.heapify(heads)
    weights = {tenant: waiting.weight(tenant) for tenant in held}
    limited: list[tuple[int, int, str, int, Wanted, str]] = []  # by the quota of their tenant
    is_last, seen = False, dict[str, None]()
    while heads or limited:
        if not heads:
            heads, limited, is_last = sorted(limited), [], True
        share, rank, name, index, wanted, tenant = heads[0]
        if share != shares[tenant]:
            heapq.heapreplace(heads, (shares[tenant], rank, name, index, wanted, tenant))
            continue
        room = left[tenant]
        if room is not None and wanted.need > room and not is_last:
            limited.append(heapq.heappop(heads))
            continue
        if name not in seen:  # it may be in several lines
            seen[name] = None
            yield name, wanted, is_last
            job = jobs[name]
            gets = job.wanted - job.held
            held[tenant] += gets
            shares[tenant] = held[tenant] * SHARE // weights[tenant]
            if room is not None:
                left[tenant] = room - gets
        queue = waiting.lines[wanted].jobs[tenant]
        if index + 1 < len(queue):
            heapq.heapreplace(heads, (shares[tenant], *queue[index + 1], index + 1, wanted, tenant))
        else:
            heapq.heappop(heads)


class _SlotCensus:
    """The registered slots as they are now, counted once for all jobs of a notification."""

    def __init__(self, state: State) -> None:
        self._state = state
        limits = state.limits
        there = (slot.profile for each in state.task_managers.values() for slot in each.slots.values())
        new = [limits.worker_profile] if limits.provider and limits.task_managers_max else []
        self._there = list(dict.fromkeys([*there, *new]))
        self._outlook = scaling.outlook(state)
        self._counts: dict[Profile, str] = {}  # by what is wanted
        self._most: dict[Profile, int] = {}

    def fits(self, wanted: Wanted, tenant: str) -> bool:
        """Whether it could be given what it wants, if all that is registered or may be started were free."""
        return not self._never(wanted, tenant)

    def fits_all(self, name: str) -> bool:
        """Whether that is so of all that this job wants: it may be in several lines."""
        return self.never_of(name) is None

    def never_of(self, name: str) -> Wanted | None:
        """What this job wants and could never be given; None: nothing."""
        lines, tenant, _ = self._state.waiting.places[name]
        return next((each for each in lines if not self.fits(each, tenant)), None)

    def _never(self, wanted: Wanted, tenant: str) -> str:
        """Why not; "" if it could."""
        profile, need = wanted
        if self._there and not any(each.satisfies(profile) for each in self._there):
            return _too_small(profile, largest(self._there))
        quota = self._state.waiting.quota(tenant)
        if quota is not None and need > quota:
            may = f"{_plural(quota, 'slot')} at most" if quota else "none"
            return f"needs {_plural(need, 'slot')}{' at once' if need > 1 else ''}, and its tenant {tenant or '(none)'} may have {may}"
        if need > 1 and self._state.task_managers and need > (most := self._slots_most(profile)):
            return f"needs {need} slots at once, and there are {most} at most"
        return ""

    def _slots_most(self, wanted: Profile) -> int:
        if wanted not in self._most:
            self._most[wanted] = scaling.slots_most(self._state, wanted)
        return self._most[wanted]

    def reason(self, job: Job, wanted: Wanted) -> str:
        """One sentence on why a job waits for this."""
        at_once = " at once" if wanted.need > 1 else ""
        part = f"{job.held} of {job.wanted} slots{at_once}: " if job.wanted > 1 else ""
        state = self._state
        if not state.open:
            missing = state.shards - len(state.declared | state.silent)
            if state.blocklist.reading:
                return f"{part}the ResourceManager has just started and reads from etcd which hosts are blocked"
            whom = _plural(missing, "JobMaster shard") if missing else "TaskManagers"
            return f"{part}the ResourceManager has just started and waits to hear from {whom}"
        if never := self._never(wanted, job.tenant):
            return part + never
        if not state.waiting.allows(job.tenant, wanted.need):
            quota, held = state.waiting.quota(job.tenant), state.waiting.held.get(job.tenant, 0)
            return f"{part}its tenant {job.tenant or '(none)'} has {held} of the {_plural(quota or 0, 'slot')} of its quota"
        profile = wanted.profile
        if profile not in self._counts:
            self._counts[profile] = self._count(profile) if state.task_managers else "no TaskManager is registered"
        outlook = f"; {self._outlook}" if self._outlook and state.limits.worker_profile.satisfies(profile) else ""
        return part + self._counts[profile] + outlook

    def _count(self, wanted: Profile) -> str:
        """The slots that satisfy this, and what they do. Free ones on blocked hosts are told of beside the others."""
        blocked = self._count_blocked(wanted)
        others = self._count_others(wanted, bool(blocked))
        return "; ".join(each for each in (others, blocked) if each)

    def _count_blocked(self, wanted: Profile) -> str:
        free: dict[str, int] = {}
        for name, each in self._state.task_managers.items():
            if self._state.is_blocked(name):
                fitting = (slot.state is SlotState.FREE and slot.profile.satisfies(wanted) for slot in each.slots.values())
                free[each.host] = free.get(each.host, 0) + sum(fitting)
        hosts = sorted(host for host, number in free.items() if number)
        if not hosts:
            return ""
        number, more = sum(free.values()), len(hosts) - HOSTS_NAMED
        names = ", ".join(hosts[:HOSTS_NAMED]) + (f" and {more} more" if more > 0 else "")
        on = "on a blocked host" if len(hosts) == 1 else "on blocked hosts"
        return f"{_plural(number, 'free slot')} {'is' if number == 1 else 'are'} {on} ({names})"

    def _count_others(self, wanted: Profile, are_more: bool) -> str:
        counts = {"busy": 0, "free": 0, "kept": 0, "starting": 0, "broken": 0}
        hosts, why = 0, ""
        kept = {profile: turn.kept_for for profile, turn in self._state.turns.items() if turn.kept_for}
        for name, task_manager in self._state.task_managers.items():
            fitting = [
                slot for slot in task_manager.slots.values()
                if slot.profile.satisfies(wanted) and not (slot.state is SlotState.FREE and self._state.is_blocked(name))
            ]  # fmt: skip
            hosts += bool(fitting)
            for slot in fitting:
                word = _WORDS.get(slot.state, "busy")
                counts["kept" if word == "free" and slot.profile in kept else word] += 1
                why = why or (f" ({name}: {slot.broken})" if slot.broken else "")
        total = sum(counts.values())
        if not total:
            return "" if are_more else "no TaskManager has a slot"
        size = f" with {wanted.text}" if wanted.text else ""
        whole = f"{_plural(total, 'slot')}{size} of {_plural(hosts, 'TaskManager')}"
        for_whom = next((f" for {job}" for profile, job in kept.items() if profile.satisfies(wanted)), "")
        some = {f"kept{for_whom}" if word == "kept" else word: number for word, number in counts.items() if number}
        if len(some) == 1:
            (word,) = some
            return f"the {whole} is {word}{why}" if total == 1 else f"all {whole} are {word}{why}"
        each = (f"{number} {'is' if number == 1 else 'are'} {word}" for word, number in some.items())
        return f"of {whole} {', '.join(each)}{why}"


_WORDS = {SlotState.STARTING: "starting", SlotState.BROKEN: "broken", SlotState.FREE: "free"}


def _too_small(wanted: Profile, there: Profile) -> str:
    """Why no slot satisfies this. `there`: the most that any has of each part."""
    most = dict(there.parts())
    for name, number in wanted.parts():
        if number > most.get(name, 0):
            if name in ("memory_mb", "cores"):
                return f"needs {part_text(name, number)} a slot, the largest has {part_text(name, most.get(name, 0))}"
            return f"needs {name} {number} a slot, of at most {most.get(name, 0)}"
    return f"needs {wanted.text} in one slot, and none has all of it"


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
