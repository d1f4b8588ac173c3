"""What the ResourceManager knows: TaskManagers with their slots, what jobs want, who waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from millrace.core.allocation import life_of
from millrace.core.clocks import AtMs, NowMs
from millrace.core.fold import TICK_MS
from millrace.core.machine import Envelope, beside, formerly
from millrace.core.messages.blocklist import BLOCKED_MOST, AskBlocklist, BlockedTaskManagers
from millrace.core.profile import Profile, unmet
from millrace.core.states import ALLOCATED_SLOT, HELD_SLOT, WITH_TASK_MANAGER, SlotState, WorkerState
from millrace.core.timing import FORWARDED_MOST
from millrace.core.topics import shard_number, task_manager_name

from .matching import PASSED_MAX
from .waiting import Waiting, Wanted

TICK_STEP_MAX_MS = 500
QUIET_STEP_MAX_MS = 1000  # the same while no slot is allocated: ticks come every two seconds then, and a longer silence is allowed
AWAY_MS = 500  # by which the broker's clock went on further between two ticks than machine time: the broker or the leader was away
FREED_KEPT = 32
DECLARE_MS = 10_000  # of machine time, in which a JobMaster that died with the ResourceManager is back [R31]


@dataclass
class Settings:
    """The settings that decide, as the leader was configured."""

    heartbeat_interval_ms: int = 100  # at least; grows with the number of TaskManagers
    beats_per_s_max: int = 1000  # of all TaskManagers together
    lost_after_ms: int = 600  # at least; four intervals where those have grown, and never less than four ticks
    ageing_ms: int = 60_000  # of waiting outweigh one step of priority
    slots_placement: str = "warmest"  # one of placement.PLACEMENTS
    # tenant -> "slots": what its jobs may hold together, and "weight": its share among tenants; "*": each tenant that is not named.
    tenants: dict[str, dict[str, int]] = field(default_factory=dict)
    # After which a job fails that wants what the cluster cannot have; None: it waits on.
    not_enough_resources_ms: int | None = None
    job_master_silent_ms: int = 10_000  # after which a JobMaster shard that sends nothing is granted nothing
    job_timeout_ms: int = 300_000  # after which what its jobs want is forgotten, and what they hold unused is freed
    # The provider that starts and stops TaskManagers. "": none, they come by themselves, and none of what follows decides anything.
    provider: str = ""
    task_managers_min: int = 0  # so many are kept, needed or not
    task_managers_max: int = 1  # with those that came by themselves
    task_managers_spare: int = 0  # while jobs run: the slots of so many are kept free
    slots_max: int | None = None  # of all TaskManagers together; None: no limit
    cores_max: int | None = None  # of all TaskManagers together
    memory_mb_max: int | None = None  # of all slots together
    worker_slots: int = 2  # of each TaskManager that the provider starts
    worker_cores: int = 1
    worker_memory_mb: int = 4096  # of each of its slots
    worker_slot_cores: int = 0  # of each of its slots; 0: not known
    worker_slot_extras: dict[str, int] = field(default_factory=dict)  # of each of its slots
    worker_start_ms: int = 60_000  # in which it must have registered
    worker_idle_ms: int = 60_000  # after which one that nobody needs is asked whether it may be stopped

    @property
    def worker_profile(self) -> Profile:
        """Of each slot of a TaskManager that the provider starts."""
        return Profile.of(self.worker_memory_mb, self.worker_slot_cores, self.worker_slot_extras)


@dataclass
class Slot:
    profile: Annotated[Profile, formerly("profile", "memory_mb")]
    state: SlotState
    allocation: str | None = None  # given exactly in ALLOCATED_SLOT
    job: str | None = None  # given exactly in HELD_SLOT
    changes: int = 0  # SlotChanged events about it
    broken: str | None = None  # why, of a BROKEN one
    # Of its last grant, where spans are made: since when the job lacked a slot, and when it was granted this one.
    waited: tuple[AtMs, AtMs] | None = None
    warm: int = 0  # of a FREE one: attempts that its JVM has finished since one failed, at most WARM_MOST


@dataclass
class TaskManager:
    incarnation: int
    host: str
    since_ms: AtMs
    last_beat_ms: AtMs
    # From where its silence counts, by State.clock_ms: its last heartbeat, or the grant of its first slot. Later than now after a gap in
    # the ticks.
    silent_from_ms: Annotated[int, formerly("silent_from_ms", "heard_ms")] = 0
    slots: dict[int, Slot] = field(default_factory=dict)  # by the TaskManager's number of the slot
    build: str = ""  # "": it is of 0.1.0


@dataclass
class Job:
    """What a job wants and holds. Known while it wants or holds something."""

    wanted: int = 0
    held: int = 0  # = slots whose allocation is this job's
    earlier: int = 0  # of these, granted to an earlier life of the shard: nothing more is granted until they are over [R11]
    shard: int = -1  # that requested them; -1: only held slots are known, from reports
    life: int = 0  # of the shard, when it requested them
    priority: int = 0
    since_ms: int = 0
    memory_mb: int = 0  # a slot at least, where `wants` is empty
    wants: dict[Profile, int] = field(default_factory=dict)  # what a slot has at least -> how many of `wanted`
    tenant: str = ""
    together: bool = False  # it gets all slots that it lacks at once, or none
    ending: dict[str, None] = field(default_factory=dict)  # of such a job: held allocations that it has given back [R35]
    spare: list[str] = field(default_factory=list)  # for second attempts it wants more, each not on this TaskManager [R38]
    never_ms: NowMs | None = None  # since when the cluster cannot have what it wants; None: it can, or that was not looked at
    rank: int = 0  # place in the queue, by matching.rank
    trace: str = ""  # as of RequestSlots
    lacks_ms: AtMs | None = None  # of such a job: since when it holds less than it wants
    # Of the last JobQueued. The reason is None where its shard takes the job for one that does not wait.
    sent_reason: Annotated[str | None, formerly("sent_reason", "told")] = None
    sent_position: Annotated[int | None, formerly("sent_position", "told_position")] = None
    sent_expected_ms: AtMs | None = None

    @property
    def short(self) -> bool:
        """Whether it holds less than it wants, for second attempts too."""
        return self.held < self.wanted + len(self.spare)

    @property
    def waits(self) -> bool:  # [R11]
        """Whether it is to be granted more."""
        return self.held < self.wanted and not self.earlier and not self.ending

    def lacks(self, holds: Mapping[Profile, int]) -> dict[Wanted, int]:
        """What it is granted next, while it waits -> how many such slots, the largest first. `holds`: of what profiles its slots are."""
        left = self.wanted - self.held
        if len(self.wants) > 1:
            return {Wanted(profile, 1): number for profile, number in unmet(self.wants, holds).items()}
        profile = next(iter(self.wants), Profile(self.memory_mb))
        return {Wanted(profile, left if self.together else 1): left}


@dataclass
class Turn:
    """Of the slots of one profile. `passed`: granted one after the other to jobs that are not first in one queue of all. `kept_ms`: since
    when free ones are kept for `kept_for`, which wants several at once; None: they are not. `vain`: how often that was for too short a
    time, one after the other."""

    passed: int = 0
    vain: int = 0
    kept_ms: NowMs | None = None
    kept_for: str = ""


@dataclass
class Expected:
    """A TaskManager on which a shard holds slots, and that has not registered with this life of the ResourceManager."""

    incarnation: int
    due_ms: NowMs  # when it is declared lost


@dataclass
class Worker:
    """A TaskManager that the provider starts and stops. `due_ms`: until when it must have registered (STARTING), or have answered
    (DRAINING). `idle_ms`: since when none of its slots is allocated; None: one is, or it has not been looked at."""

    state: WorkerState
    due_ms: NowMs = NowMs(0)
    idle_ms: NowMs | None = None


@dataclass
class Workers:
    """What is known of the provider and its TaskManagers."""

    known: dict[str, Worker] = field(default_factory=dict)  # by the TaskManager's id
    changes: int = 0  # WorkerChanged events
    # What the provider has is known in this term. Nothing is started before, and who registers is taken: it may be in the list.
    listed: bool = False
    adopting: bool = True  # no list has been taken in this life: what runs may have been started by an earlier one
    lists: int = 0  # number of the last ListWorkers
    # The workers that are expected in the list that is awaited; None: none is awaited.
    expected: dict[str, None] | None = None
    list_ms: NowMs = NowMs(0)  # when the next list is due
    hosts: list[str] = field(default_factory=list)  # where the provider starts them, as the last list says; empty: not known
    left_out: list[str] = field(default_factory=list)  # why parts of the provider are not used, as the last list says
    away: str = ""  # why the last list did not come, in the provider's words
    failures: int = 0  # of workers, each less than a minute after the one before
    failed_ms: NowMs = NowMs(0)  # when the last of these was
    problem: str = ""  # of the last one that did not start; "" once one has registered since
    short_ms: NowMs | None = None  # since when slots are short
    deregistered: bool = False  # by a user: all are to be stopped, and none is started
    closing: bool = False  # the cluster is being shut down: the same

    @property
    def released(self) -> bool:
        return self.deregistered or self.closing


@dataclass
class Blocked:
    """A host of which no slot is granted. `due_ms`: when its time is over; None: it has no limit."""

    since_ms: AtMs
    until_ms: AtMs | None = None  # as people are shown it
    due_ms: NowMs | None = None
    by: str = ""
    reason: str = ""
    evacuate: bool = False


@dataclass
class Blocklist:
    """The hosts that are blocked, by name. At most BLOCKED_MOST."""

    hosts: dict[str, Blocked] = field(default_factory=dict)
    reading: bool = False  # this life does not know yet what etcd has of it, and grants nothing
    changes: int = 0  # BlocklistChanged events
    writes: int = 0  # StoreBlock effects
    # Host -> the newest change while it is read, of those that want no answer. At most UNANSWERED_MOST.
    unread: dict[str, AskBlocklist] = field(default_factory=dict)
    # Number of a StoreBlock -> the client that is answered when it is done. At most ANSWERS_MOST, and more of those that want no answer.
    answers: dict[int, AskBlocklist] = field(default_factory=dict)
    due: dict[int, NowMs] = field(default_factory=dict)  # of these, when the client is answered without etcd; none where it has been
    sent: list[BlockedTaskManagers] = field(default_factory=list)  # to the shards, last


@dataclass
class Asked:
    """A client's question that a TaskManager was asked, and has not answered."""

    task_manager: str
    reply_to: str
    correlation: str
    number: int  # the Dispatcher's, of the question
    due_ms: NowMs = NowMs(0)  # when the client is answered without it


@dataclass
class State:
    shards: int
    limits: Settings = field(default_factory=Settings)
    interval_ms: int = 100  # of heartbeats, as sent to all registered TaskManagers
    # The detector's time. It goes on at ticks, each time by a limited step, so that no TaskManager is lost by a pause of the broker.
    clock_ms: int = 0
    ticked_ms: NowMs = NowMs(0)  # of the last tick
    stamp_ms: AtMs = AtMs(0)  # of the last tick
    # Id -> TaskManager: those that count as alive.
    task_managers: dict[str, TaskManager] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    queues: dict[int, list[tuple[int, str]]] = field(default_factory=dict)  # in snapshots of builds before; `waiting` has it now
    waiting: Waiting = beside()  # the jobs that wait
    # Profile -> whose turn it is, where it is not that of whom the policy would take.
    turns: dict[Profile, Turn] = field(default_factory=dict)
    # Profile -> key -> (TaskManager, slot) of the FREE slots, longest free first; no group is empty.
    free: dict[Profile, dict[str, tuple[str, int]]] = field(default_factory=dict)
    # Profile -> Slot.warm -> those of them that are so warm, the last one freed is last. No group is empty.
    warm: dict[Profile, dict[int, dict[str, tuple[str, int]]]] = field(default_factory=dict)
    spare: dict[str, None] = field(default_factory=dict)  # jobs that want slots for second attempts, as they asked
    # Waiting jobs whose shard has not been notified yet; all are in `waiting`.
    unnotified: Annotated[dict[str, None], formerly("unnotified", "untold")] = field(default_factory=dict)
    # Waiting jobs whose place was sent; all are in `waiting`.
    placed: dict[str, None] = field(default_factory=dict)
    places_sent_ms: Annotated[NowMs, formerly("places_sent_ms", "told_ms")] = NowMs(0)  # when changed places were last sent
    # When slots were last freed, while jobs waited: the last FREED_KEPT.
    freed: list[AtMs] = field(default_factory=list)
    # Shards that have declared [R11].
    declared: dict[int, None] = field(default_factory=dict)
    declare_ms: NowMs = NowMs(0)  # until then those that have not are waited for
    # Shards that are excluded until they declare: they have not in time, do not use what they are granted, or send nothing [R31]. Until
    # when what their jobs want is kept; None: it is forgotten, or a build before excluded them.
    silent: dict[int, NowMs | None] = field(default_factory=dict)
    # Shards that send heartbeats -> State.clock_ms when something was last received of them, or nothing was expected.
    heard_ms: dict[int, int] = field(default_factory=dict)
    # Shard -> allocation that it holds and this state does not, or the reverse -> since when.
    doubts: dict[int, dict[str, NowMs]] = field(default_factory=dict)
    unused_ms: NowMs = NowMs(0)  # when what shards hold whose jobs' requests are forgotten is looked at again
    open_ms: NowMs = NowMs(0)  # before it a new generation grants nothing: TaskManagers have time to register with what they hold [R11]
    granted: int = 0  # slots granted in this life: the number in an allocation's name
    # TaskManager -> until when it is expected to register; none of them is registered.
    expected: dict[str, Expected] = field(default_factory=dict)
    workers: Workers = field(default_factory=Workers)
    # TaskManager -> the last incarnation that was declared lost, by an earlier life of ours, or because it did not register.
    # None is registered. The last LOST_KEPT, in the order in which they were noted.
    parted: dict[str, int] = field(default_factory=dict)
    # Number -> question of a client to a registered TaskManager, in the order in which they came. At most FORWARDED_MOST.
    asked: dict[int, Asked] = field(default_factory=dict)
    questions: int = 0  # asked of TaskManagers in this life
    blocklist: Blocklist = field(default_factory=Blocklist)

    @property
    def open(self) -> bool:
        """Slots may be granted: each shard has declared in this life or is excluded, TaskManagers had time to register [R11], and it is
        known which hosts are blocked [R37]."""
        return len(self.declared | self.silent) == self.shards and self.ticked_ms >= self.open_ms and not self.blocklist.reading

    def is_blocked(self, task_manager: str) -> bool:  # [R37]
        """Whether the host of a registered TaskManager is blocked."""
        return bool(self.blocklist.hosts) and self.task_managers[task_manager].host in self.blocklist.hosts

    def lacks(self, name: str) -> dict[Wanted, int]:
        """See `Job.lacks`."""
        return self.jobs[name].lacks(self.waiting.holds.get(name, {}))

    def queues_for(self, job: Job) -> bool:
        """Whether a job is to be granted more, and its shard is not excluded."""
        return job.waits and job.shard not in self.silent

    @property
    def lost_after_ms(self) -> int:
        """A TaskManager sends a heartbeat, and looks for its acknowledgement, once a tick at most. With less than four ticks it would end
        between two heartbeats."""
        return max(self.limits.lost_after_ms, 4 * max(self.interval_ms, TICK_MS))


def waiting_of(state: State) -> Waiting:
    """`state.waiting`, made anew."""
    waiting = Waiting(state.limits.tenants)
    for job in state.jobs.values():
        if job.held:
            waiting.hold(job.tenant, job.held)
    for each, task_manager in state.task_managers.items():
        for slot in task_manager.slots.values():
            waiting.allocated += slot.allocation is not None
            if slot.state is not SlotState.BROKEN and not state.is_blocked(each):
                waiting.count_slot(slot.profile, 1)
            if slot.job is not None:
                waiting.hold_slot(slot.job, slot.profile, 1)
    for name, job in state.jobs.items():
        if state.queues_for(job):
            waiting.add(name, tuple(job.lacks(waiting.holds.get(name, {}))), job.tenant, job.rank)
    return waiting


def is_quiet(task_manager: TaskManager) -> bool:
    """None of its slots is allocated."""
    return all(slot.allocation is None for slot in task_manager.slots.values())


def shard_of(envelope: Envelope) -> int:
    """The shard that sent it."""
    return shard_number(envelope.sender)


def task_manager_of(envelope: Envelope) -> str:
    """The TaskManager that sent it."""
    return task_manager_name(envelope.sender)


def slot_key(task_manager: str, slot: int) -> str:
    return f"{task_manager}#{slot}"


def check(state: State) -> None:
    """The invariants of the state."""
    held: dict[str, int] = {}
    earlier: dict[str, int] = {}
    ending: dict[str, int] = {}
    free: dict[str, Profile] = {}
    for name, task_manager in state.task_managers.items():
        for number, slot in task_manager.slots.items():
            assert (slot.allocation is not None) == (slot.state in ALLOCATED_SLOT), (name, number, slot)
            assert (slot.job is not None) == (slot.state in HELD_SLOT), (name, number, slot)
            if slot.job is not None:
                held[slot.job] = held.get(slot.job, 0) + 1
                if life_of(slot.allocation or "") < state.jobs[slot.job].life:
                    earlier[slot.job] = earlier.get(slot.job, 0) + 1
                if slot.allocation in state.jobs[slot.job].ending:
                    ending[slot.job] = ending.get(slot.job, 0) + 1
            if slot.state is SlotState.FREE and not state.is_blocked(name):
                free[slot_key(name, number)] = slot.profile
    assert held == {job: known.held for job, known in state.jobs.items() if known.held}, (held, state.jobs)
    assert earlier == {job: known.earlier for job, known in state.jobs.items() if known.earlier}, (earlier, state.jobs)
    assert ending == {job: len(known.ending) for job, known in state.jobs.items() if known.ending}, (ending, state.jobs)
    assert free == {key: profile for profile, keys in state.free.items() for key in keys}
    assert all(state.free.values()) and all(state.warm.values()), "an empty group stays"
    for profile, levels in state.warm.items():
        for level, keys in levels.items():
            assert keys and all(key in state.free[profile] for key in keys), "an empty group stays"
            assert all(state.task_managers[name].slots[number].warm == level for name, number in keys.values())
    if state.waiting is None:  # a snapshot of which no record was folded
        state.waiting = waiting_of(state)
    assert state.waiting == waiting_of(state), (state.waiting, waiting_of(state))
    waiting = {job for job, known in state.jobs.items() if state.queues_for(known)}
    assert set(state.waiting.places) == waiting, (state.waiting.places, waiting)
    for job, known in state.jobs.items():
        assert known.wanted or known.held, f"{job} is known for nothing"
        assert not known.wants or sum(known.wants.values()) == known.wanted, f"{job} wants {known.wants}, {known.wanted} in all"
        assert known.lacks_ms is None or known.trace and known.short, f"{job} lacks nothing"
        assert job in waiting or known.sent_reason is None, f"{job} does not wait, and its shard was sent a reason"
    assert set(state.unnotified) <= waiting and set(state.placed) <= waiting
    assert {*state.spare} == {name for name, known in state.jobs.items() if known.spare}, state.spare
    assert not set(state.expected) & set(state.task_managers)
    assert not set(state.parted) & set(state.task_managers)
    for name, worker in state.workers.known.items():
        assert (worker.state in WITH_TASK_MANAGER) == (name in state.task_managers), (name, worker)
        assert worker.idle_ms is None or worker.state in WITH_TASK_MANAGER, (name, worker)
    assert len(state.asked) <= FORWARDED_MOST and all(number <= state.questions for number in state.asked)
    assert {asked.task_manager for asked in state.asked.values()} <= set(state.task_managers), "nobody would answer"
    assert len(state.blocklist.hosts) <= BLOCKED_MOST and all(number <= state.blocklist.writes for number in state.blocklist.answers)
    assert all(state.blocklist.answers[number].reply_to for number in state.blocklist.due)
    assert not (state.blocklist.reading and state.blocklist.hosts), "what is in etcd would be lost"
    for size, turn in state.turns.items():
        assert 0 <= turn.passed <= PASSED_MAX and (turn.kept_ms is None) == (not turn.kept_for), (size, turn)
    _check_granted(state)


def _check_granted(state: State) -> None:
    """No free slots, and who can use them."""
    if not state.open:
        return
    kept = {profile for profile, turn in state.turns.items() if turn.kept_for}
    for name, known in state.jobs.items():
        for wanted in state.lacks(name) if state.queues_for(known) else ():
            if state.waiting.allows(known.tenant, wanted.need):
                free = [len(keys) for profile, keys in state.free.items() if profile.satisfies(wanted.profile) and profile not in kept]
                assert sum(free) < wanted.need, f"{state.free} are free, and a job waits for {wanted}"
