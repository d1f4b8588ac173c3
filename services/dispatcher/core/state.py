"""What the Dispatcher knows: live jobs, ended ones that it remembers, ids whose fate etcd is being asked for."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from millrace.core.messages.client import JobSummary, state_of
from millrace.core.states import ENDED_JOB, INITIALIZING, JobStatus


@dataclass(slots=True)
class Settings:
    """The settings that decide, as the leader was configured."""

    max_live_jobs: int = 20_000
    max_live_graphs_mb: int = 256
    """Of the graphs of live jobs, as JSON."""
    max_live_subtasks: int = 100_000
    """Of the vertices of live jobs."""
    retained_jobs: int = 10_000
    """Ended jobs kept in state; older ones are looked up in etcd."""
    blob_url: str = ""
    blob_max_bytes: int = 0
    cluster: str = ""
    """Its uuid; every acceptance carries its beginning [29]."""


@dataclass(slots=True)
class Asking:
    """A client's request about one job, as far as it matters for the answer."""

    type: str
    job: str
    reply_to: str
    correlation: str
    submitted: Submitted | None = None  # of a SubmitJob
    letter: Letter | None = None  # of a SubmitJob that wants no answer
    asked_ms: int = 0  # machine time
    log: str = ""
    offset: int = -1  # where it stands in client.commands


@dataclass(slots=True)
class Letter:
    """What a dead letter tells of a record of client.commands: about 1 KB while a submission waits."""

    partition: int
    offset: int
    size_bytes: int
    sha256: str
    head_base64: str


@dataclass(slots=True)
class Submitted:
    """A valid submission."""

    digest: str
    graph: str  # JSON
    warnings: str  # JSON, a list of problems
    accept_before_ms: int | None
    decided: bool = False  # before, by a Dispatcher whose log is lost


@dataclass(slots=True)
class Fate:
    """An id with a PutJobGraph (`putting`) or a FindJob in flight; requests about it wait for the outcome."""

    acceptance: str  # what this effect would make the job's, or "" for a FindJob
    putting: Asking | None  # the submission that is being stored
    subtasks: int = 0  # of the graph that is being stored
    behind: list[Asking] = field(default_factory=list)  # in the order they came


@dataclass(slots=True)
class Question:
    """What another part was asked for a client, and has not answered."""

    scope: str
    asked_ms: int  # machine time
    asking: Asking


@dataclass(slots=True)
class Silence:
    """Of a part that has not answered in time, and not since. Machine time."""

    since_ms: int
    asked_ms: int  # when it was asked last


@dataclass(slots=True)
class Ending:
    """A live job's end as its JobMaster told it, on its way to etcd."""

    status: str
    result: str | None  # the result's rows as JSON, if they are small


@dataclass(slots=True)
class LiveJob:
    """An accepted job that has no ending in etcd yet."""

    acceptance: str
    digest: str
    shard: int
    accepted_ms: int
    name: str
    graph: str  # JSON, as it is stored
    status: str = INITIALIZING
    waiting: str | None = None
    position: int | None = None
    running_ms: int | None = None  # when it was first given a slot, if that was told
    log: str = ""
    offset: int = -1  # where its submission stands in client.commands
    cancel: bool = False  # a client asked for it
    ending: Ending | None = None  # its EndJob is in flight
    awaiting: list[Asking] = field(default_factory=list)  # asked again when its ending is stored
    subtasks: int = 0  # of its vertices

    def summary(self, job: str) -> JobSummary:
        return JobSummary(
            job=job,
            name=self.name,
            status=self.shown,
            accepted_ms=self.accepted_ms,
            waiting=self.waiting,
            position=self.position,
            running_ms=self.running_ms,
        )

    @property
    def state(self) -> str:
        """As JobSummary has it."""
        return state_of(self.shown, self.waiting, self.running_ms)

    @property
    def shown(self) -> str:
        """Its status; from the accepted cancel on, whether or not its JobMaster has spoken yet."""
        return JobStatus.CANCELLING.value if self.cancel else self.status


@dataclass(slots=True)
class EndedJob:
    """A job whose ending stands in etcd: about 200 bytes; its archive answers for the rest."""

    acceptance: str
    digest: str
    name: str
    status: str
    accepted_ms: int
    ended_ms: int
    archive: str | None
    running_ms: int | None = None

    def summary(self, job: str) -> JobSummary:
        return JobSummary(
            job=job,
            name=self.name,
            status=self.status,
            accepted_ms=self.accepted_ms,
            ended_ms=self.ended_ms,
            running_ms=self.running_ms,
        )

    @property
    def state(self) -> str:
        """As JobSummary has it."""
        return self.status


class Recovery(str, Enum):
    """Whether the jobs of earlier generations are known. NONE -> RUNNING at Born -> DONE with the last page."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"


RECOVERY_TRANSITIONS = {
    Recovery.NONE: (Recovery.RUNNING,),
    Recovery.RUNNING: (Recovery.RUNNING, Recovery.DONE),
    Recovery.DONE: (),
}


@dataclass
class State:
    settings: Settings = field(default_factory=Settings)
    recovery: Recovery = Recovery.NONE
    # id -> job; disjoint with `ended` and `fates`; in order of acceptance, except for recovered ones
    live: dict[str, LiveJob] = field(default_factory=dict)
    # id -> job; at most settings.retained_jobs once recovery is done; the one that ended first is forgotten first. Ordered: the
    # first of a dict lies behind the gaps that those forgotten before it left, 4 us away among 10,000
    ended: OrderedDict[str, EndedJob] = field(default_factory=OrderedDict)
    # id -> what etcd is asked; exactly one effect of the id is in flight for it
    fates: dict[str, Fate] = field(default_factory=dict)
    # sum of len(job.graph) over live jobs
    live_graphs: int = 0
    # sum of `subtasks` over live jobs and over submissions being stored
    live_subtasks: int = 0
    # submissions being stored: fates with `putting`
    putting: int = 0
    # submissions that went to etcd since the last tick: how many tells a flood
    put_since_tick: int = 0
    # requests that wait: all `awaiting` of live jobs and all `behind` of fates
    waiting: int = 0
    # status -> how many jobs have ended with it in this generation or were recovered so, also those forgotten
    ended_counts: dict[str, int] = field(default_factory=dict)
    # peers that were heard in some life: to others nothing can be said
    heard: dict[str, None] = field(default_factory=dict)
    # shard's scope -> ids of live jobs that it is still to be told of, last first: in its new life, or during a flood of submissions
    declaring: dict[str, list[str]] = field(default_factory=dict)
    # number -> question; in the order in which they were asked
    asked: dict[int, Question] = field(default_factory=dict)
    questions: int = 0  # asked in this generation
    # scope -> since when a part that was asked is silent
    silent: dict[str, Silence] = field(default_factory=dict)
    # id -> acceptance: jobs that shards told of before it was known what etcd has of them; "": not of an end, which alone names it
    early: dict[str, str] = field(default_factory=dict)


def check(state: State) -> None:
    """The invariants of the state."""
    for one, other in ((state.live, state.ended), (state.live, state.fates), (state.ended, state.fates)):
        both = [job for job in one if job in other]
        assert not both, f"{both} in two places"
    assert state.live_graphs == sum(len(job.graph) for job in state.live.values())
    subtasks = sum(job.subtasks for job in (*state.live.values(), *state.fates.values()))
    assert state.live_subtasks == subtasks, f"{state.live_subtasks} counted, {subtasks} are"
    assert state.putting == sum(fate.putting is not None for fate in state.fates.values())
    waiting = sum(len(job.awaiting) for job in state.live.values())
    waiting += sum(len(fate.behind) for fate in state.fates.values())
    assert state.waiting == waiting, f"{state.waiting} counted, {waiting} wait"
    for job, fate in state.fates.items():
        assert fate.putting or fate.behind, f"nobody asked for {job}"
        assert (fate.putting is None) == (fate.acceptance == ""), f"{job}: a put has an acceptance, a search none"
    for job, ended in state.ended.items():
        assert ended.status in ENDED_JOB, f"{job} ended as {ended.status}"
    if state.recovery is Recovery.DONE:
        assert len(state.ended) <= state.settings.retained_jobs
        assert sum(state.ended_counts.values()) >= len(state.ended)
    for job in state.early:
        assert job not in state.live and (job in state.fates or state.recovery is not Recovery.DONE), f"{job} stays untold"
    assert all(number <= state.questions for number in state.asked)
    for scope in state.declaring:
        assert scope in state.heard
