"""What the ResourceManager knows: TaskManagers with their slots, what jobs want, who waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace.core.allocation import life_of
from millrace.core.fold import TICK_MS
from millrace.core.states import ALLOCATED_SLOT, HELD_SLOT, SlotState

PARTED_KEPT = 5_000  # TaskManagers that were lost and may come back: those before have long ended by themselves
STEP_MAX_MS = 500
QUIET_STEP_MAX_MS = 1000  # the same while nobody holds a slot: ticks come every two seconds then, and silence is borne for longer
AWAY_MS = 500  # by which the broker's clock went on further between two ticks than machine time: it was away, or the leader
DECLARE_MS = 10_000  # of machine time, in which a JobMaster that died with the ResourceManager is back
RETURN_MS = 3000  # of the detector's time, the most that everybody then has to find the broker again


@dataclass
class Limits:
    """The settings that decide."""

    heartbeat_interval_ms: int = 100  # at least; grows with the number of TaskManagers
    beats_per_s_max: int = 1000  # of all TaskManagers together
    lost_after_ms: int = 600  # at least; four intervals where those have grown, and never less than four ticks
    ageing_ms: int = 60_000  # of waiting outweigh one step of priority


@dataclass
class Slot:
    memory_mb: int
    state: SlotState
    allocation: str | None = None  # given exactly in ALLOCATED_SLOT
    job: str | None = None  # given exactly in HELD_SLOT
    changes: int = 0  # SlotChanged events said about it
    broken: str | None = None  # why, of a BROKEN one


@dataclass
class TaskManager:
    incarnation: int
    host: str
    since_ms: int
    last_beat_ms: int
    # By the clock of State.clock_ms, of the last heartbeat, or when its first slot was given away; later than now after a gap in the ticks.
    heard_ms: int = 0
    slots: dict[int, Slot] = field(default_factory=dict)  # by the TaskManager's number of the slot


@dataclass
class Job:
    """What a job wants and holds. Known while it wants or holds something."""

    wanted: int = 0
    held: int = 0  # = slots whose allocation is this job's
    earlier: int = 0  # of these, granted to a life of the shard before `life`: nothing more is granted until they are over [11]
    shard: int = -1  # who asked; -1: only held slots are known, from reports
    life: int = 0  # of the shard, when it asked
    priority: int = 0
    since_ms: int = 0
    memory_mb: int = 0  # a slot at least
    rank: int = 0  # place in the queue, by matching.rank
    told: str | None = None  # the last JobQueued's reason; None: its shard believes that it does not wait
    told_position: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it is to be given more."""
        return self.held < self.wanted and not self.earlier


@dataclass
class Expected:
    """A TaskManager that a shard knows and that has not registered in this life of ours."""

    incarnation: int
    due_ms: int  # machine time at which it is declared lost


@dataclass
class State:
    shards: int
    limits: Limits = field(default_factory=Limits)
    interval_ms: int = 100  # heartbeats, as told to all registered TaskManagers
    # The detector's time: goes on at ticks, by a step's most, so that a pause of the broker makes nobody lost.
    clock_ms: int = 0
    ticked_ms: int = 0  # machine time of the last tick
    stamp_ms: int = 0  # of the last tick, by the broker's clock
    # By id: those that count as alive.
    task_managers: dict[str, TaskManager] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    # memory_mb -> sorted (rank, job) of the jobs that wait; no group is empty.
    queues: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    # memory_mb -> key -> (TaskManager, slot) of the FREE slots, longest free first; no group is empty.
    free: dict[int, dict[str, tuple[str, int]]] = field(default_factory=dict)
    # Waiting jobs whose shard has not been told; all are in queues.
    untold: dict[str, None] = field(default_factory=dict)
    # Waiting jobs that were told their place; all are in queues.
    placed: dict[str, None] = field(default_factory=dict)
    told_ms: int = 0  # when places were last told anew
    # Shards that have declared [11].
    declared: dict[int, None] = field(default_factory=dict)
    declare_ms: int = 0  # machine time up to which those that have not are waited for
    # Shards that are passed over until they declare: they have not in time, or do not use what they are granted [31].
    silent: dict[int, None] = field(default_factory=dict)
    open_ms: int = 0  # machine time before which a reborn one grants nothing: who holds slots has time to register [11]
    granted: int = 0  # slots granted in this life: the number in an allocation's name
    # By TaskManager id; none of them is registered.
    expected: dict[str, Expected] = field(default_factory=dict)
    # TaskManager -> the last incarnation that shards were told is lost, by a life of ours that is over, or as it did not register;
    # none is registered; the last PARTED_KEPT, those noted first first.
    parted: dict[str, int] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Slots may be granted: every shard has declared in this life, or is passed over, and who holds slots had time to register [11]."""
        return len(self.declared | self.silent) == self.shards and self.ticked_ms >= self.open_ms

    def queues_for(self, job: Job) -> bool:
        """Whether a job is to be given more, and its shard is there to use it."""
        return job.waits and job.shard not in self.silent

    @property
    def lost_after_ms(self) -> int:
        """A TaskManager beats, and looks whether it is heard, once a tick at most: with less than four it would end between two beats."""
        return max(self.limits.lost_after_ms, 4 * max(self.interval_ms, TICK_MS))


def is_quiet(task_manager: TaskManager) -> bool:
    """Nothing of it is given away."""
    return all(slot.allocation is None for slot in task_manager.slots.values())


def slot_key(task_manager: str, slot: int) -> str:
    return f"{task_manager}#{slot}"


def check(state: State) -> None:
    """Asserts what the parts of a state owe each other."""
    held: dict[str, int] = {}
    earlier: dict[str, int] = {}
    free: dict[str, int] = {}
    for name, task_manager in state.task_managers.items():
        for number, slot in task_manager.slots.items():
            assert (slot.allocation is not None) == (slot.state in ALLOCATED_SLOT), (name, number, slot)
            assert (slot.job is not None) == (slot.state in HELD_SLOT), (name, number, slot)
            if slot.job is not None:
                held[slot.job] = held.get(slot.job, 0) + 1
                if life_of(slot.allocation or "") < state.jobs[slot.job].life:
                    earlier[slot.job] = earlier.get(slot.job, 0) + 1
            if slot.state is SlotState.FREE:
                free[slot_key(name, number)] = slot.memory_mb
    assert held == {job: known.held for job, known in state.jobs.items() if known.held}, (held, state.jobs)
    assert earlier == {job: known.earlier for job, known in state.jobs.items() if known.earlier}, (earlier, state.jobs)
    assert free == {key: memory for memory, keys in state.free.items() for key in keys}
    assert all(state.free.values()) and all(state.queues.values()), "an empty group stays"
    waiting = {job for job, known in state.jobs.items() if state.queues_for(known)}
    queued = [(memory, rank, job) for memory, queue in state.queues.items() for rank, job in queue]
    assert len(queued) == len(waiting) and {job for _, _, job in queued} == waiting, (queued, waiting)
    for memory, rank, job in queued:
        assert (memory, rank) == (state.jobs[job].memory_mb, state.jobs[job].rank), job
    for queue in state.queues.values():
        assert queue == sorted(queue)
    for job, known in state.jobs.items():
        assert known.wanted or known.held, f"{job} is known for nothing"
        assert job in waiting or known.told is None, f"{job} does not wait and its shard was told so"
    assert set(state.untold) <= waiting and set(state.placed) <= waiting
    assert not set(state.expected) & set(state.task_managers)
    assert not set(state.parted) & set(state.task_managers)
    if state.open and state.free:
        assert not any(memory <= max(state.free) for memory in state.queues), "a free slot, and who can use it"
