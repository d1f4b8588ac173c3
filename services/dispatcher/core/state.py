"""What the Dispatcher knows: live jobs, ended ones that it remembers, and jobs that it is looking up in etcd.

Snapshots and recordings hold these classes by the names of their fields, so a renamed one is marked as `formerly` the other."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated, Any

from millrace.core.clocks import AtMs, NowMs
from millrace.core.machine import beside, formerly
from millrace.core.messages.blocklist import UNANSWERED_MOST, AskBlocklist
from millrace.core.messages.client import JobSummary, ListJobDetails, SubmitJob, state_of
from millrace.core.messages.execution import TimeSpent
from millrace.core.messages.jobs import Query
from millrace.core.messages.schedules import RunSchedule, Scheduled
from millrace.core.states import ENDED_JOB, INITIALIZING, ClosingStep, JobStatus, Recovery
from millrace.core.topics import RESOURCE_MANAGER, Topology


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
    keep_for_repair_ms: int = 24 * 3_600_000
    """How long exchange data of jobs that FAILED or were CANCELED stay; 0: not at all."""
    keep_for_repair_mb: int = 20_000
    """Of all of them together, about."""
    reopened: str = ""
    """Name of the end of the cluster after which it was last opened again."""
    cluster: str = ""
    """Its uuid; every acceptance carries its beginning [R29]."""


@dataclass(slots=True)
class JobRequest:
    """A client's request about one job: what is kept of it until it is answered."""

    type: str
    """The name of the request's class."""
    job: str
    reply_to: str
    correlation: str
    submitted: Submission | None = None
    """Of a SubmitJob."""
    letter: Letter | None = None
    """Of a SubmitJob that wants no answer: where its dead letter points to."""
    asked_ms: NowMs = NowMs(0)
    log: str = ""
    offset: int = -1
    """Its place in client.commands."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """The fields that its class has beside those of every request about a job. Of a SubmitJob: none."""

    @property
    def is_submission(self) -> bool:
        return self.type == SubmitJob.__name__


@dataclass(slots=True)
class Letter:
    """A record of client.commands, or a graph in etcd, as its dead letter describes it: about 1 KB while a submission waits."""

    partition: int
    offset: int
    size_bytes: int
    sha256: str
    head_base64: str
    topic: str = "client.commands"


@dataclass(slots=True)
class Submission:
    """A valid SubmitJob."""

    digest: str
    graph: str
    """JSON."""
    warnings: str
    """JSON, a list of problems."""
    accept_before_ms: int | None
    decided: bool = False
    """A Dispatcher whose log is lost has decided on it before."""
    scheduled: Scheduled | None = None
    """Of a schedule's run: which one."""
    replaces: int = 0
    """Of a graph that somebody else has put into etcd: its revision there."""


@dataclass(slots=True)
class EtcdLookup:
    """A job with a PutJobGraph (`putting`) or a FindJob in flight. Requests about it wait for the outcome."""

    acceptance: str
    """The acceptance that the PutJobGraph would create; "" for a FindJob."""
    putting: JobRequest | None
    """The submission that is being stored."""
    subtasks: int = 0
    """Of the graph that is being stored."""
    size: int = 0
    """Of that graph in `live_graphs`."""
    behind: list[JobRequest] = field(default_factory=list)
    """The requests that wait, in the order in which they came."""


@dataclass(slots=True)
class ForwardedRequest:
    """A client's request that another scope was asked to answer, and has not answered yet."""

    scope: str
    asked_ms: NowMs
    asking: JobRequest


@dataclass(slots=True)
class Listing:
    """A ListJobDetails that waits for what etcd has of it."""

    request: ListJobDetails
    asked_ms: NowMs


@dataclass(slots=True)
class ScheduleRequest:
    """A request about schedules that waits for etcd: what is kept of it."""

    type: str
    """The name of the request's class."""
    schedule: str
    reply_to: str
    correlation: str
    asked_ms: NowMs
    run: RunSchedule | None = None
    """Of a RunSchedule: itself."""


@dataclass(slots=True)
class Silence:
    """Of a scope that has not answered in time, and has not been received from since."""

    since_ms: NowMs
    asked_ms: NowMs
    """When it was asked last."""


@dataclass(slots=True)
class Closing:
    """The cluster is being shut down."""

    name: str
    since_ms: AtMs
    due_ms: NowMs
    """When it goes on without those who have not answered."""
    step: ClosingStep = ClosingStep.SUSPENDING
    shards: dict[str, None] = field(default_factory=dict)
    """Scopes whose attempts may still run."""
    number: int = 0
    """Of the last question to the ResourceManager; 0: none was asked."""
    asked_ms: NowMs = NowMs(0)
    workers: int | None = None
    """TaskManagers that the provider has not stopped; None: the ResourceManager has not answered."""
    silent: list[str] = field(default_factory=list)
    awaiting: list[JobRequest] = field(default_factory=list)
    """Answered when the services end."""


@dataclass(slots=True)
class Ending:
    """A live job's end as its JobMaster reported it, on its way to etcd."""

    status: str
    result: str | None  # the result's rows as JSON, if they are small
    spent: TimeSpent | None = None  # where its time went, for its last event
    trace: str = ""  # of its last event: `Publish.trace`


@dataclass(slots=True)
class Rescaled:
    """What clients have asked for since the job was submitted: vertex -> parallelism. `log`, `offset`: of the newest such request in
    client.commands."""

    parallelism: dict[str, int]
    log: str
    offset: int


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
    expected_ms: int | None = None
    running_ms: int | None = None  # when it was first given a slot, if its JobMaster reported that
    log: str = ""
    offset: int = -1  # the place of its submission in client.commands
    cancel: bool = False  # a client requested it
    ending: Ending | None = None  # its EndJob is in flight
    awaiting: list[JobRequest] = field(default_factory=list)  # answered when its ending is stored
    subtasks: int = 0  # of its vertices
    rescaled: Rescaled | None = None  # it has another parallelism than its graph
    # Number -> what its JobMaster was asked, and has not decided yet, in the order of the requests. At most requirements.UNDECIDED_MOST.
    undecided: dict[int, Rescaled] = field(default_factory=dict)
    publishing: bool = False  # its JobMaster moves its sinks to their paths
    scheduled: Scheduled | None = None
    kept: str = ""  # what it begins with, of the job that it repairs, as JSON

    def summary(self, job: str) -> JobSummary:
        return JobSummary(
            job=job,
            name=self.name,
            status=self.shown,
            accepted_ms=self.accepted_ms,
            waiting=self.waiting,
            position=self.position,
            expected_ms=self.expected_ms,
            running_ms=self.running_ms,
            scheduled=self.scheduled,
        )

    @property
    def state(self) -> str:
        """As JobSummary has it."""
        return state_of(self.shown, self.waiting, self.running_ms)

    @property
    def shown(self) -> str:
        """Its status. CANCELLING from the accepted cancel on, whether or not its JobMaster has reported it yet."""
        return JobStatus.CANCELLING.value if self.cancel else self.status


@dataclass(slots=True)
class EndedJob:
    """A job whose ending is stored in etcd: about 200 bytes. Its archive has the rest."""

    acceptance: str
    digest: str
    name: str
    status: str
    accepted_ms: int
    ended_ms: int
    archive: str | None
    running_ms: int | None = None
    scheduled: Scheduled | None = None

    def summary(self, job: str) -> JobSummary:
        return JobSummary(
            job=job,
            name=self.name,
            status=self.status,
            accepted_ms=self.accepted_ms,
            ended_ms=self.ended_ms,
            running_ms=self.running_ms,
            scheduled=self.scheduled,
        )

    @property
    def state(self) -> str:
        """As JobSummary has it."""
        return self.status


@dataclass
class State:
    topology: Topology = beside()
    settings: Settings = field(default_factory=Settings)
    recovery: Recovery = Recovery.NONE
    # job id -> job. Disjoint with `ended` and `lookups`. In order of acceptance, except for recovered ones.
    live: dict[str, LiveJob] = field(default_factory=dict)
    # job id -> job. At most settings.retained_jobs once recovery is done; the one that ended first is dropped first.
    # An OrderedDict, because the first key of a dict lies behind the gaps of those dropped before it: 4 us among 10,000.
    ended: OrderedDict[str, EndedJob] = field(default_factory=OrderedDict)
    # job id -> its lookup. Exactly one effect on the job's key is in flight for it.
    lookups: Annotated[dict[str, EtcdLookup], formerly("lookups", "fates")] = field(default_factory=dict)
    # Sum of len(job.graph) and len(job.kept) over live jobs, and of `size` over submissions that are being stored.
    live_graphs: int = 0
    # Sum of `subtasks` over live jobs and over submissions that are being stored.
    live_subtasks: int = 0
    # Submissions that are being stored: lookups with `putting`.
    putting: int = 0
    # Submissions sent to etcd since the last tick: many of them are a flood.
    put_since_tick: int = 0
    # Requests that wait: all `awaiting` of live jobs and all `behind` of lookups.
    waiting: int = 0
    # Live jobs whose end is being stored, and about which somebody wants something that this end decides: for their `awaiting`.
    late: dict[str, None] = field(default_factory=dict)
    # Status -> how many jobs have ended with it in this generation or were recovered so, also those dropped since.
    ended_counts: dict[str, int] = field(default_factory=dict)
    # Peers from which something was received in some life. Nothing can be sent to others.
    received_from: Annotated[dict[str, None], formerly("received_from", "heard")] = field(default_factory=dict)
    # Shard's scope -> ids of live jobs whose StartJob is still to be sent to it, the last one first.
    # Filled when the shard is born anew, and during a flood of submissions.
    starts_to_send: Annotated[dict[str, list[str]], formerly("starts_to_send", "declaring")] = field(default_factory=dict)
    # Number -> forwarded request, in the order in which they were forwarded.
    asked: dict[int, ForwardedRequest] = field(default_factory=dict)
    # Requests forwarded in this generation.
    questions: int = 0
    # Host, or "" -> the newest such change, for a ResourceManager that was not heard yet. At most UNANSWERED_MOST.
    unsent: dict[str, Query | AskBlocklist] = field(default_factory=dict)
    # Scope -> since when one that was asked has not answered.
    silent: dict[str, Silence] = field(default_factory=dict)
    # Job id -> acceptance that a shard reported before we had looked the job up in etcd.
    # "" where the report was no JobEnded, which alone names the acceptance.
    unverified_reports: Annotated[dict[str, str], formerly("unverified_reports", "early")] = field(default_factory=dict)
    # When the newest job was accepted that only etcd has; 0: there is none. None: the snapshot is of a build that did not note it.
    unlisted_ms: int | None = None
    closing: Closing | None = None
    # Jobs whose graph in etcd is of a record that was passed over: it is not taken for somebody else's. At most changed_graphs.SPOILT_MOST.
    spoilt: dict[str, None] = field(default_factory=dict)
    # Number -> request, in the order in which they came. At most listing.MOST.
    listings: dict[int, Listing] = field(default_factory=dict)
    # Requests in this generation that waited for what etcd has of them.
    listed: int = 0
    # Number -> request about schedules, until its effect has its outcome. At most schedules.MOST.
    schedule_requests: dict[int, ScheduleRequest] = field(default_factory=dict)
    # Of those in this generation.
    schedules_asked: int = 0


def job_key(job: str) -> str:
    """The job's key in etcd. Effects on one job are performed one after the other."""
    return f"jobs/{job}"


def check(state: State) -> None:
    """The invariants of the state."""
    for one, other in ((state.live, state.ended), (state.live, state.lookups), (state.ended, state.lookups)):
        both = [job for job in one if job in other]
        assert not both, f"{both} in two places"
    graphs = sum(len(job.graph) + len(job.kept) for job in state.live.values()) + sum(lookup.size for lookup in state.lookups.values())
    assert state.live_graphs == graphs, f"{state.live_graphs} counted, {graphs} are"
    subtasks = sum(job.subtasks for job in state.live.values()) + sum(lookup.subtasks for lookup in state.lookups.values())
    assert state.live_subtasks == subtasks, f"{state.live_subtasks} counted, {subtasks} are"
    assert state.putting == sum(lookup.putting is not None for lookup in state.lookups.values())
    waiting = sum(len(job.awaiting) for job in state.live.values())
    waiting += sum(len(lookup.behind) for lookup in state.lookups.values())
    assert state.waiting == waiting, f"{state.waiting} counted, {waiting} wait"
    assert all(state.live[job].ending is not None for job in state.late)
    for job, lookup in state.lookups.items():
        assert lookup.putting or lookup.behind, f"nobody asked for {job}"
        assert (lookup.putting is None) == (lookup.acceptance == ""), f"{job}: a put has an acceptance, a search none"
    for job, ended in state.ended.items():
        assert ended.status in ENDED_JOB, f"{job} ended as {ended.status}"
    if state.recovery is Recovery.DONE:
        assert len(state.ended) <= state.settings.retained_jobs
        assert sum(state.ended_counts.values()) >= len(state.ended)
    for job in state.unverified_reports:
        waits = job in state.lookups or state.recovery is not Recovery.DONE
        assert job not in state.live and waits, f"the report about {job} is never answered"
    assert all(number <= state.questions for number in state.asked)
    assert all(number <= state.questions for live in state.live.values() for number in live.undecided)
    assert all(number <= state.listed for number in state.listings)
    assert all(number <= state.schedules_asked for number in state.schedule_requests)
    for scope in state.starts_to_send:
        assert scope in state.received_from
    assert len(state.unsent) <= UNANSWERED_MOST and not (state.unsent and RESOURCE_MANAGER in state.received_from)
