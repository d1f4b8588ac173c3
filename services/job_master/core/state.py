"""What a JobMaster shard knows: its jobs, their ExecutionGraphs, their slots."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millrace.core.clocks import AtMs, NowMs
from millrace.core.jobgraph.compile import Plan
from millrace.core.jobgraph.specs import Pattern, Whole, whole
from millrace.core.machine import beside
from millrace.core.messages.attempts import AttemptReport, Fault, HeavyKey, ResultRows
from millrace.core.messages.execution import SkewedEdge
from millrace.core.messages.kept import Kept
from millrace.core.profile import ANY, Profile
from millrace.core.states import ENDED_JOB, ENDING_JOB, IN_SLOT, ExecutionState, JobStatus, check_execution, check_job
from millrace.core.topics import Scope

NEVER = AtMs(0)
"""Of what has not happened."""
LIVE = (ExecutionState.DEPLOYING, ExecutionState.RUNNING)
"""An attempt that may finish, and then counts."""


@dataclass
class Settings:
    """What decides, from the leader's configuration."""

    exchange_url: str = "exchange"  # folder or URL of exchange data, as attempts see it
    heartbeat_ms: int = 0  # between two heartbeats to the ResourceManager; 0: none, as of the leaders of builds before
    moves_most: int = 20  # attempts of one subtask that a lost TaskManager may cost before the job fails: it may be killing them
    traced: bool = False  # spans are made: the ResourceManager is sent where those of a job's slots belong


@dataclass(slots=True)
class Failure:
    """A failed attempt, for `show`: the last few of a subtask and of the job are kept."""

    task: str
    subtask: int
    attempt: int
    at_ms: AtMs
    task_manager: Scope
    error: Fault  # as `failover.shortened` leaves it: without its stack trace, bounded
    progress: str | None = None  # what its Spark had done, as JSON


@dataclass(slots=True)
class Rival:
    """The attempt beside a subtask's current one, on another TaskManager: both live, and the first to finish is the current one then. Or
    it is canceled, and in its slot until it has ended: nothing that it does counts [R38]. The fields are as those of Subtask."""

    state: ExecutionState
    attempt: int
    allocation: str
    task_manager: Scope
    created_ms: AtMs = NEVER
    scheduled_ms: AtMs = NEVER
    deployed_ms: AtMs = NEVER
    running_ms: AtMs = NEVER
    canceling_ms: AtMs = NEVER
    began_ms: NowMs = NowMs(0)


@dataclass(slots=True)
class Seconds:
    """Of a task of a job with second attempts [R38], by the subtask's index, in machine time."""

    began: dict[int, NowMs] = field(default_factory=dict)  # when its current attempt was deployed, while it may finish
    took: dict[int, int] = field(default_factory=dict)  # how long the attempt took that FINISHED
    slow: dict[int, None] = field(default_factory=dict)  # those that want a second attempt
    spared: dict[int, NowMs] = field(default_factory=dict)  # those that want none before this time: the last one was in vain
    rivals: dict[int, Rival] = field(default_factory=dict)
    numbered: dict[int, int] = field(default_factory=dict)  # the highest number of a second attempt: none is given twice


NO_SECONDS = Seconds()
"""Of a task of a job without second attempts: nothing is ever put into it."""


@dataclass(slots=True)
class Subtask:
    """One subtask: its current attempt, and what the counted attempt published."""

    state: ExecutionState = ExecutionState.SCHEDULED
    attempt: int = 0  # number of the current attempt; 0: none yet
    allocation: str | None = None  # while IN_SLOT: a key of Job.slots
    task_manager: Scope = Scope("")  # of the current or last attempt
    moves: int = 0  # attempts lost with their TaskManager or slot
    broken: int = 0  # attempts that the infrastructure ended otherwise
    created_ms: AtMs = NEVER  # when its current or next attempt was CREATED; NEVER: with its job
    scheduled_ms: AtMs = NEVER  # this one and the next ones: when its current attempt last came into that state
    deployed_ms: AtMs = NEVER
    running_ms: AtMs = NEVER
    canceling_ms: AtMs = NEVER
    ended_ms: AtMs = NEVER
    outputs: dict[str, tuple[int | None, int | None]] | None = None  # FINISHED: vertex -> its rows and bytes
    listed: tuple[str, ...] = ()  # FINISHED: the vertices of whose exchange files there is a note
    files: tuple[int, int, int] | None = None  # FINISHED: of what the attempt left: files kept, their bytes, files not kept
    progress: str | None = None  # FINISHED: what the attempt's Spark has done, as JSON: there may be 25,600 of these [R30]
    kept: str | None = None  # FINISHED in another job, which this one repairs: where in the exchange; its attempt is not counted here


@dataclass(slots=True)
class Shares:
    """What was handed on by a hash edge so far, by share."""

    share_rows: list[int]
    share_bytes: list[int]
    heaviest: list[HeavyKey] = field(default_factory=list)  # at most a few


@dataclass(slots=True)
class HashedRows:
    """Of a task: what its subtasks that have finished handed on by hash."""

    subtasks: int = 0  # those that are counted
    is_over: bool = False  # it was judged, or will not be
    outputs: dict[int, Shares] = field(default_factory=dict)  # number of the output -> of what was reported: of few rows nothing is


@dataclass(slots=True)
class Task:
    """The subtasks of a task. One has a row from when it may first run: a job costs what it has begun [R30]. Which subtasks may run is
    counted, never searched for: a job may have 25,600 of them, and each of their messages moves it on."""

    parallelism: int
    blocked: int = 0  # tasks of which this one reads every subtask, and that have not all finished
    finished: int = 0  # rows that are FINISHED
    rows: dict[int, Subtask] = field(default_factory=dict)  # index -> subtask; without a row: CREATED, and it has not run
    ready: list[int] = field(default_factory=list)  # the SCHEDULED ones, as a heap: the first goes first
    retry: dict[int, NowMs] = field(default_factory=dict)  # those CREATED after a failure -> when the next attempt is due
    held: dict[int, None] = field(default_factory=dict)  # those CREATED to run again: not before what they read has published
    schemas: dict[str, str] = field(default_factory=dict)  # vertex -> schema of its rows (Spark's JSON), the same of all subtasks
    schemas_of: int = 0  # the subtask that reported them first
    attempts: int = 0  # that its subtasks had before the job was rescaled: numbers go on, for names of attempts are never used twice [R20]


@dataclass
class HeldSlot:
    """A slot that was offered and taken. `task`, `subtask`: whose attempt is in it. `task` is None while the slot is idle, which it is
    within a handler only."""

    task_manager: Scope
    incarnation: int
    slot: int
    task: str | None = None
    subtask: int = 0
    progress: dict[str, int] | None = None  # what its attempt reported last
    profile: Profile = ANY  # of builds before, which knew of memory alone: ANY
    takes_runs: bool = False  # see SlotOffer


@dataclass(slots=True)
class Inspected:
    """A running attempt that was asked what it is doing."""

    task: str
    subtask: int
    attempt: int
    task_manager: Scope
    running_ms: AtMs
    status: dict[str, Any] | None = None
    no_answer: str | None = None


@dataclass(slots=True)
class Inspection:
    """A client's ReportNow whose attempts have not all answered."""

    job: str
    reply_to: str
    correlation: str
    number: int  # of the Dispatcher's question
    due_ms: NowMs
    running: int
    attempts: dict[str, Inspected] = field(default_factory=dict)  # by the attempt's name


@dataclass(slots=True)
class TimeSpent:
    """Where the job's time went: `time_spent` has the phases."""

    until_ms: AtMs  # what was before is in `ms`
    phase: str = "queue"  # of the time since then
    running: int = 0  # attempts that run, see `runs`
    ms: dict[str, int] = field(default_factory=dict)  # phase -> ms; the sum is `until_ms` less the job's `accepted_ms`
    ran: dict[str, int] = field(default_factory=dict)  # what attempts that are over did with their own time -> ms, all together


@dataclass(slots=True)
class Backoff:
    """What the job's restart strategy remembers of its failures: failure-rate when the last ones were, exponential-delay the rest."""

    failed_ms: list[NowMs] = field(default_factory=list)  # oldest first, at most one more than may be within the interval
    attempts: int = 0  # restarts since the delays began anew
    restart_ms: NowMs | None = None  # when the last restart was, or will be, due


@dataclass(slots=True)
class Rescaled:
    """What a job remembers that was asked for another parallelism. `log`, `offset`: of the last such request in client.commands."""

    log: str
    offset: int
    parallelism: dict[str, int] = field(default_factory=dict)  # vertex -> what it has by now, of those that it was asked for
    since_ms: AtMs = NEVER  # when its tasks were made anew, with subtasks that are CREATED since then
    folders: dict[str, int] = field(default_factory=dict)  # task -> number of its folder, which it keeps
    numbered: int = 0  # the highest such number so far
    attempts: dict[str, int] = field(default_factory=dict)  # task, also @plan -> the highest number of an attempt before
    tasks: dict[str, Task] = field(default_factory=dict)  # what had finished, until the sources begin again
    defined: dict[str, str] = field(default_factory=dict)  # of these: digest of all that makes them what they are
    planned: AttemptReport | None = None  # of these: what had been planned, by which whoever redacts a snapshot knows the digests


@dataclass
class Job:
    """One job and its ExecutionGraph. `life` names the generation in which this state began: attempt numbers count anew in each,
    so their names carry it [R20]."""

    id: str
    acceptance: str
    life: str
    graph: dict[str, Any]
    accepted_ms: AtMs
    status: JobStatus = JobStatus.CREATED
    since_ms: AtMs = NEVER  # of this status
    entered: dict[str, AtMs] = field(default_factory=dict)  # status -> when it last came into it
    planner: int = 0  # the number of the one that made its tasks; a build before 0.2 noted none
    tasks: dict[str, Task] = field(default_factory=dict)  # by id, and @plan, if the plan needs it
    failed: int = 0  # failures so far: the number of the last one
    root: int = 0  # the number of the last failure that was concurrent with none; 0: there was none
    failures: list[Failure] = field(default_factory=list)  # the last ones, oldest first
    kept_bytes: int = 0  # of what attempts reported and is kept: `planned`, `results`, the tasks' schemas
    planned: AttemptReport | None = None  # the plan attempt's report
    slots: dict[str, HeldSlot] = field(default_factory=dict)  # allocation -> slot; each is in State.allocations
    wanted: int = 0  # slots last requested of the ResourceManager
    wants: dict[Profile, int] = field(default_factory=dict)  # the same by profile, where those differ
    restarts: int = 0  # failures retried so far; what was merged into a restart that was due already does not count
    recomputed: int = 0  # how often rows that were gone from the exchange were made anew
    held_until_ms: NowMs | None = None  # before that, nothing of what is held is scheduled; in State.due
    slow_due_ms: NowMs | None = None  # when the next subtask is slow, if its attempt goes on until then; in State.due
    spare: list[str] = field(default_factory=list)  # TaskManagers of slow subtasks, as last sent to the ResourceManager
    seconds: dict[str, Seconds] = field(default_factory=dict)  # task -> of its second attempts; none of most jobs
    to_cancel: list[tuple[str, int, int]] = field(default_factory=list)  # CANCELING attempts; within a handler only
    memory_restarts: int = 0  # attempts that ran out of memory and were run again
    backoff: Backoff | None = None  # None: it has had no failure that a strategy must remember
    queue_due_ms: NowMs | None = None  # until the first attempt; in State.due
    part_due_ms: NowMs | None = None  # a gang of which a part has slots gives them back then [R35]; in State.due
    waiting: str | None = None
    position: int | None = None
    expected_ms: int | None = None  # when it has what it waits for, as the ResourceManager expects
    cause: Fault | None = None  # why it is FAILING or FAILED
    sinks: dict[str, bool] = field(default_factory=dict)  # sinks being published -> published
    results: dict[int, ResultRows] = field(default_factory=dict)  # subtask -> its part: rows, or a path
    counts: dict[str, int] = field(default_factory=dict)  # kind of public event -> how many were published [R16]
    running_ms: AtMs = NEVER  # when it was first given a slot
    ended_ms: AtMs = NEVER
    spent: TimeSpent | None = None  # None: of a snapshot of a build before
    hashed: dict[str, HashedRows] = field(default_factory=dict)  # task -> what is counted; none of most jobs
    skewed: list[SkewedEdge] = field(default_factory=list)  # at most a few
    kept: Kept | None = None  # what it begins with, until its sources begin
    kept_of: dict[str, str] = field(default_factory=dict)  # acceptance -> job: of whom its subtasks may be kept
    kept_untold: list[tuple[str, str, list[int]]] = field(default_factory=list)  # task, of whom, subtasks; within a handler only
    unpublished: dict[str, None] = field(default_factory=dict)  # sinks whose publication was refused
    rescaling: dict[str, int] | None = None  # vertex -> parallelism, once no attempt is in a slot any more; until then nothing is deployed
    rescaled: Rescaled | None = None  # None: nobody has asked for that

    def of_seconds(self, task: str) -> Seconds:
        """To be read; what is empty is kept by nobody."""
        return self.seconds.get(task, NO_SECONDS)

    @property
    def is_gang(self) -> bool:
        """Whether it wants its slots together [R35]."""
        return bool(self.graph.get("together", False))


@dataclass
class State:
    settings: Settings = field(default_factory=Settings)
    # What timers go by, set before each record: machine time, which stands still between two ticks, carried on by what the broker's
    # clock has gained since the last tick, at most one slow tick. So no timer ends early, and none is late by a clock that jumps.
    now_ms: NowMs = NowMs(0)
    ticked_ms: AtMs = NEVER  # of the last tick
    jobs: dict[str, Job] = field(default_factory=dict)  # job id -> job; ended ones until JobRetired [R21]
    allocations: dict[str, str] = field(default_factory=dict)  # allocation -> job; exactly the keys of all Job.slots
    due: dict[str, NowMs] = field(default_factory=dict)  # job -> its earliest timer (queue time-out or retry)
    # TaskManager -> the last incarnation that was declared lost, until a later one is born; the last LOST_KEPT, oldest first
    lost: dict[str, int] = field(default_factory=dict)
    # TaskManagers of blocked hosts -> whether they are evacuated, as the ResourceManager last sent them.
    blocked: dict[Scope, bool] = field(default_factory=dict)
    heartbeat_ms: NowMs = NowMs(0)  # when the next heartbeat to it is due
    heartbeats: int = 0  # to it so far
    declared_to: int = 0  # the life of the ResourceManager to which the held slots were declared [R11]
    inspections: dict[int, Inspection] = field(default_factory=dict)  # by the number of the question to the attempts, oldest first
    inspected: int = 0  # the last such number
    suspending: bool = False  # the cluster is being shut down
    suspension_told: bool = False  # the Dispatcher was sent JobsSuspended for it
    plans: dict[str, Plan | None] = beside()  # acceptance of a known job -> its plan, see `plans.plan_of`
    wholes: dict[tuple[str, str], Whole | None] = beside()  # acceptance, task -> what `plans.in_short` gives of it
    patterns: dict[tuple[str, str], tuple[tuple[Any, ...], Pattern]] = beside()  # acceptance, task -> see `patterns`


def move_job(job: Job, status: JobStatus, at_ms: AtMs) -> None:
    check_job(job.status, status)
    job.status, job.since_ms = status, at_ms
    job.entered[status.value] = at_ms


def move_subtask(subtask: Subtask, state: ExecutionState) -> None:
    check_execution(subtask.state, state)
    subtask.state = state
    if state is not ExecutionState.FINISHED:
        subtask.outputs = subtask.files = subtask.progress = subtask.kept = None
        subtask.listed = ()


def runs(attempt: Subtask | Rival) -> bool:
    """Whether it has begun, and has not ended: what is canceled may do something meanwhile."""
    return attempt.state is ExecutionState.RUNNING or (attempt.state is ExecutionState.CANCELING and attempt.running_ms != NEVER)


def place_job(kept: str) -> str:
    """The acceptance whose attempt left something there in the exchange."""
    return kept.partition("/")[0]


def check(state: State) -> None:  # [R5]
    """The invariants of the state; tests call it after every step."""
    _check_inspections(state)
    held = {allocation: job.id for job in state.jobs.values() for allocation in job.slots}
    assert held == state.allocations, f"allocations {state.allocations} and held slots {held} differ"
    gone = {*(state.plans or ()), *(acceptance for acceptance, _ in state.patterns or ())}
    gone -= {job.acceptance for job in state.jobs.values()}
    assert not gone, f"plans are kept of jobs that are not: {sorted(gone)}"
    _check_wholes(state)
    for job in state.jobs.values():
        _check_spent(job)
        assert not job.wants or sum(job.wants.values()) == job.wanted, f"{job.id} wants {job.wants}, {job.wanted} in all"
        assert not job.to_cancel, f"{job.id}: {job.to_cancel} are not told that they are canceled"
        assert not job.kept_untold, f"{job.id}: nobody is told that {job.kept_untold} are kept"
        in_slots = {}
        for name, task in job.tasks.items():
            at = f"{job.id} {name}"
            _check_task(at, task, job.status in (*ENDING_JOB, *ENDED_JOB))
            rivals: dict[int, Rival] = {}
            if (its := job.seconds.get(name)) is not None:
                _check_seconds(at, task, its)
                rivals = its.rivals
            counted = job.hashed.get(name)
            assert counted is None or counted.is_over or counted.subtasks <= task.finished < task.parallelism, f"{at}: {counted}"
            for index, subtask in task.rows.items():
                assert (subtask.allocation is not None) == (subtask.state in IN_SLOT), f"{at}[{index}]: {subtask}"
                if subtask.allocation is not None:
                    assert subtask.allocation not in in_slots, f"{at}[{index}]: two attempts in {subtask.allocation}"
                    in_slots[subtask.allocation] = (name, index)
                if (rival := rivals.get(index)) is not None:
                    _check_rival(f"{at}[{index}]", subtask, rival)
                    assert rival.allocation not in in_slots, f"{at}[{index}]: two attempts in {rival.allocation}"
                    in_slots[rival.allocation] = (name, index)
                assert (subtask.outputs is not None) == (subtask.state is ExecutionState.FINISHED), f"{at}[{index}]"
                kept = subtask.kept
                assert kept is None or subtask.outputs is not None and place_job(kept) in job.kept_of, f"{at}[{index}]"
        slots = {allocation: (slot.task, slot.subtask) for allocation, slot in job.slots.items()}
        assert slots == in_slots, f"{job.id}: slots hold {slots}, subtasks say {in_slots}"
        assert not (job.status in ENDED_JOB and job.slots), f"{job.id} has ended and holds slots"
        timers = [] if job.status in (*ENDING_JOB, *ENDED_JOB, JobStatus.SUSPENDED) else _timers(job)
        due = state.due.get(job.id)
        assert due == min(timers, default=None), f"{job.id} has the timers {timers}, and {due} is due"


def _check_rival(where: str, subtask: Subtask, rival: Rival) -> None:  # [R38]
    assert rival.state in IN_SLOT and rival.attempt != subtask.attempt, f"{where}: {rival} beside attempt {subtask.attempt}"
    if rival.state in LIVE:
        assert subtask.state in LIVE, f"{where}: {rival} lives, and its subtask is {subtask.state}"
        assert subtask.task_manager != rival.task_manager, f"{where}: both attempts are on {rival.task_manager}"


def _check_wholes(state: State) -> None:
    jobs = {job.acceptance: job for job in state.jobs.values()}
    for (acceptance, task), kept in (state.wholes or {}).items():
        assert acceptance in jobs, f"{task} is kept of {acceptance}, which is not here"
        its = jobs[acceptance].tasks[task]
        assert its.finished == its.parallelism and kept == whole(its), f"{acceptance} {task}: readers are told of {kept}"


def _check_inspections(state: State) -> None:
    for number, inspection in state.inspections.items():
        assert number <= state.inspected, f"question {number} was not asked"
        waits = [each for each in inspection.attempts.values() if each.status is None and each.no_answer is None]
        assert waits, f"question {number} has all its answers"


def _check_spent(job: Job) -> None:
    if (spent := job.spent) is None:
        return
    running = sum(runs(row) for task in job.tasks.values() for row in task.rows.values())
    running += sum(runs(rival) for its in job.seconds.values() for rival in its.rivals.values())
    assert spent.running == running, f"{job.id}: {spent.running} attempts are counted, {running} run"
    whole = spent.until_ms - job.accepted_ms
    assert sum(spent.ms.values()) == whole, f"{job.id}: {spent.ms} are not the {whole} ms since it was accepted"
    assert min([*spent.ms.values(), *spent.ran.values()], default=0) >= 0, f"{job.id}: {spent}"
    ended_ms = max(job.ended_ms, job.accepted_ms)
    assert job.status not in ENDED_JOB or spent.until_ms == ended_ms, f"{job.id} ended at {ended_ms}: {spent}"


def _timers(job: Job) -> list[NowMs]:
    queue = [] if job.queue_due_ms is None else [job.queue_due_ms]
    held = [] if job.held_until_ms is None else [job.held_until_ms]
    part = [] if job.part_due_ms is None else [job.part_due_ms]
    slow = [] if job.slow_due_ms is None else [job.slow_due_ms]
    return [*queue, *held, *part, *slow, *(due for task in job.tasks.values() for due in task.retry.values())]


def _check_task(where: str, task: Task, over: bool) -> None:
    indexes: dict[ExecutionState, list[int]] = {}
    for index, subtask in task.rows.items():
        assert index < task.parallelism, f"{where} has no subtask {index}"
        indexes.setdefault(subtask.state, []).append(index)
    scheduled, created = indexes.get(ExecutionState.SCHEDULED, []), indexes.get(ExecutionState.CREATED, [])
    assert sorted(task.ready) == sorted(scheduled), f"{where}: {task.ready} are ready, {scheduled} are scheduled"
    waiting = sorted([*task.retry, *task.held])
    assert waiting == sorted(created), f"{where}: {task.retry} wait for their retry, {task.held} are held, {created} are created"
    assert task.finished == len(indexes.get(ExecutionState.FINISHED, [])), f"{where}: {task.finished} finished"
    assert not (over and (task.ready or task.retry or task.held)), f"{where} of a job that is ending: {task}"


def _check_seconds(where: str, task: Task, its: Seconds) -> None:  # [R38]
    live = {index for index, row in task.rows.items() if row.state in LIVE}
    finished = {index for index, row in task.rows.items() if row.state is ExecutionState.FINISHED}
    assert {*its.slow} <= {*its.began} - {*its.rivals}, f"{where}: {its.slow} are slow, with {its.rivals} beside them"
    assert {*its.spared} <= {*its.began} <= live, f"{where}: attempts of {its.began} have begun, {live} live, {its.spared} wait"
    assert {*its.took} <= finished, f"{where}: {its.took} have finished"
    assert {*its.rivals} <= {*task.rows}, f"{where}: {its.rivals}"
