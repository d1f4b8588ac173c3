"""What a JobMaster shard knows: its jobs, their ExecutionGraphs, their slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .transitions import ENDED_JOB, ENDING_JOB, IN_SLOT, ExecutionState, JobStatus


@dataclass
class Settings:
    """What decides, from the leader's configuration."""

    exchange_url: str = "exchange"  # folder or URL of exchange data, as attempts see it
    moves_most: int = (
        20  # attempts of one subtask that a lost TaskManager may cost before the job fails: it may be killing them
    )


@dataclass(slots=True)
class Failure:
    """A failed attempt, for `show`: the last few of a subtask and of the job are kept."""

    task: str
    subtask: int
    attempt: int
    at_ms: int
    task_manager: str
    error: dict[str, Any]  # as `failover.short` leaves it: without its stack trace, bounded


@dataclass(slots=True)
class Subtask:
    """One subtask: its current attempt, and what the counted attempt published."""

    state: ExecutionState = ExecutionState.SCHEDULED
    attempt: int = 0  # number of the current attempt; 0: none yet
    allocation: str | None = None  # while IN_SLOT: a key of Job.slots
    task_manager: str = ""  # of the current or last attempt
    moves: int = 0  # attempts lost with their TaskManager or slot
    deployed_ms: int = 0
    running_ms: int = 0
    ended_ms: int = 0
    outputs: dict[str, tuple[int | None, int | None]] | None = None  # FINISHED: vertex -> its rows and bytes
    files: tuple[int, int, int] | None = None  # FINISHED: of what the attempt left: files kept, their bytes, files not kept


@dataclass(slots=True)
class Task:
    """The subtasks of a task. One has a row from when it may first run: a job costs what it has begun [30]. What tells which may run is
    counted, never looked for: a job may have 25,600 subtasks, and each of their words moves it on."""

    parallelism: int
    blocked: int = 0  # tasks of which this one reads every subtask, and that have not all finished
    finished: int = 0  # rows that are FINISHED
    rows: dict[int, Subtask] = field(default_factory=dict)  # index -> subtask; without a row: CREATED, and it has not run
    ready: list[int] = field(default_factory=list)  # the SCHEDULED ones, as a heap: the first goes first
    retry: dict[int, int] = field(default_factory=dict)  # those CREATED after a failure -> machine time of the next attempt
    schemas: dict[str, str] = field(default_factory=dict)  # vertex -> schema of its rows (Spark's JSON), the same of all subtasks
    schemas_of: int = 0  # the subtask that told them first


@dataclass
class HeldSlot:
    """A slot that was offered and taken. `task`, `subtask`: whose attempt is in it; `task` None only within a handler."""

    task_manager: str  # the scope
    incarnation: int
    slot: int
    task: str | None = None
    subtask: int = 0


@dataclass
class Job:
    """One job and its ExecutionGraph. `life` names the generation in which this state began: attempt numbers count anew in each,
    so their names carry it [20]."""

    id: str
    acceptance: str
    life: str
    graph: dict[str, Any]
    accepted_ms: int
    status: JobStatus = JobStatus.CREATED
    since_ms: int = 0  # of this status
    tasks: dict[str, Task] = field(default_factory=dict)  # by id, and @plan, if the plan needs it
    failures: list[Failure] = field(default_factory=list)  # the last ones, oldest first
    kept_bytes: int = 0  # of what attempts reported and is kept: `planned`, `results`, the tasks' schemas
    planned: dict[str, Any] | None = None  # the plan attempt's report
    slots: dict[str, HeldSlot] = field(default_factory=dict)  # allocation -> slot; each is in State.allocations
    wanted: int = 0  # slots last asked of the ResourceManager
    restarts: int = 0  # failures retried so far
    queue_due_ms: int | None = None  # until the first slot; in State.due
    waiting: str | None = None
    position: int | None = None
    cause: dict[str, Any] | None = None  # why it is FAILING or FAILED
    sinks: dict[str, bool] = field(default_factory=dict)  # sinks being published -> published
    results: dict[int, dict[str, Any]] = field(default_factory=dict)  # subtask -> its part: rows, or a path
    counts: dict[str, int] = field(default_factory=dict)  # kind of public event -> how many were said [16]
    running_ms: int = 0  # when it was first given a slot
    ended_ms: int = 0


@dataclass
class State:
    settings: Settings = field(default_factory=Settings)
    # What timers go by: machine time, and since its last tick what the broker's clock went on, for no timer may end early.
    now_ms: int = 0
    ticked_ms: int = 0  # broker's stamp of the last tick
    jobs: dict[str, Job] = field(default_factory=dict)  # job id -> job; ended ones until JobRetired [21]
    allocations: dict[str, str] = field(default_factory=dict)  # allocation -> job; exactly the keys of all Job.slots
    due: dict[str, int] = field(default_factory=dict)  # job -> machine time of its next timer (queue time-out or retry)
    # TaskManager -> the last incarnation that was declared lost, until a later one is heard; the last LOST_KEPT, who was lost first first
    lost: dict[str, int] = field(default_factory=dict)
    declared_to: int = 0  # the life of the ResourceManager that was told which slots are held [11]


def check(state: State) -> None:
    """The invariants of the state; tests call it after every step."""
    held = {allocation: job.id for job in state.jobs.values() for allocation in job.slots}
    assert held == state.allocations, f"allocations {state.allocations} and held slots {held} differ"
    for job in state.jobs.values():
        in_slots = {}
        for name, task in job.tasks.items():
            _check_task(f"{job.id} {name}", task, job.status in (*ENDING_JOB, *ENDED_JOB))
            for index, subtask in task.rows.items():
                where = f"{job.id} {name}[{index}]"
                assert (subtask.allocation is not None) == (subtask.state in IN_SLOT), f"{where}: {subtask}"
                if subtask.allocation is not None:
                    assert subtask.allocation not in in_slots, f"{where}: two attempts in {subtask.allocation}"
                    in_slots[subtask.allocation] = (name, index)
                assert (subtask.outputs is not None) == (subtask.state is ExecutionState.FINISHED), where
        slots = {allocation: (slot.task, slot.subtask) for allocation, slot in job.slots.items()}
        assert slots == in_slots, f"{job.id}: slots hold {slots}, subtasks say {in_slots}"
        assert not (job.status in ENDED_JOB and job.slots), f"{job.id} has ended and holds slots"
        assert not (job.status in ENDED_JOB and job.id in state.due), f"{job.id} has ended and has a timer"


def _check_task(where: str, task: Task, over: bool) -> None:
    indexes: dict[ExecutionState, list[int]] = {}
    for index, subtask in task.rows.items():
        assert index < task.parallelism, f"{where} has no subtask {index}"
        indexes.setdefault(subtask.state, []).append(index)
    scheduled, created = indexes.get(ExecutionState.SCHEDULED, []), indexes.get(ExecutionState.CREATED, [])
    assert sorted(task.ready) == sorted(scheduled), f"{where}: {task.ready} are ready, {scheduled} are scheduled"
    assert sorted(task.retry) == sorted(created), f"{where}: {task.retry} wait for their retry, {created} are created"
    assert task.finished == len(indexes.get(ExecutionState.FINISHED, [])), f"{where}: {task.finished} finished"
    assert not (over and (task.ready or task.retry)), f"{where} of a job that is ending: {task.ready}, {task.retry}"
