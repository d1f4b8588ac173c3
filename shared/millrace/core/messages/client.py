"""What strangers ask for on `client.commands`, and what is answered on `client.replies`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..states import ClosingStepShown, JobState, JobStatus
from .attempts import Fault
from .base import JOB_ID_PATTERN, Part, Reply, Request, empty, unless_set
from .blocklist import (
    BlockedHost,
)
from .execution import JobDetail
from .profiles import Cores, Extras, WithProfile
from .progress import AttemptStatus
from .requirements import (
    DescribeRequirements,
    UpdateRequirements,
)
from .schedules import (
    Scheduled,
)

CURSOR_PATTERN = r"[0-9]{1,15}\.[A-Za-z0-9][A-Za-z0-9_.-]{0,99}|"
"""Of a cursor of ListJobDetails, as a whole: when the last job was accepted, and its id; or empty."""
JobId = Annotated[str, Field(pattern=JOB_ID_PATTERN)]


class SubmitJob(Request):
    """Submits a job. The same id and graph again is the same job; the same id with another graph is refused."""

    type: Literal["SubmitJob"] = "SubmitJob"
    version: Literal[1] = 1
    job: JobId
    """Chosen by the client, so that a repeat is known as one."""
    graph: dict[str, Any]
    """The JobGraph."""
    parameters: dict[str, str] = empty(dict)
    """Values that override the graph's parameters."""
    accept_before_ms: int | None = None
    """Unix time in milliseconds after which the job must not be accepted any more (it was given up behind a broken connection)."""
    scheduled: Annotated[Scheduled | None, Field(exclude_if=unless_set)] = None
    """Of a schedule's run: which one."""


class CancelJob(Request):
    """Cancels a job; a repeat is harmless. Refused for a FINISHED or FAILED job."""

    type: Literal["CancelJob"] = "CancelJob"
    version: Literal[1] = 1
    job: JobId


class DescribeJob(Request):
    """The job's ExecutionGraph: vertices, tasks, subtasks, attempts. An ended job is answered with where its archive lies."""

    type: Literal["DescribeJob"] = "DescribeJob"
    version: Literal[1] = 1
    job: JobId


class ReportNow(Request):
    """What the running attempts of a job are doing at this moment: each is asked. Answered within seconds, whoever is silent."""

    type: Literal["ReportNow"] = "ReportNow"
    version: Literal[1] = 1
    job: JobId
    task: Annotated[str, Field(max_length=1000)] = ""
    """Of this task alone. Empty: of all."""
    subtask: Annotated[int, Field(ge=0)] | None = None
    """Of this subtask alone."""


class ListJobs(Request):
    """The jobs that the Dispatcher knows, newest first; only those that all given fields allow."""

    type: Literal["ListJobs"] = "ListJobs"
    version: Literal[1] = 1
    most: Annotated[int, Field(ge=1, le=1000)] = 100
    name: Annotated[str, Field(max_length=255)] = ""
    """Part of the job's name."""
    states: Annotated[list[JobState], Field(max_length=10)] = empty(list)
    """Any of these; QUEUED: it waits for its first slot. Empty: all."""
    since_ms: int | None = None
    """Accepted at this time or later."""
    until_ms: int | None = None
    """Accepted before this time."""
    in_queue: bool = False
    """Those that wait for slots, in the order of the queue."""


class ListJobDetails(Request):
    """A page of all jobs, newest first: those that live, and those that have ended, for as long as etcd keeps them. Only those that all
    given fields allow."""

    type: Literal["ListJobDetails"] = "ListJobDetails"
    version: Literal[1] = 1
    limit: Annotated[int, Field(ge=1, le=1000)] = 100
    cursor: Annotated[str, Field(max_length=200)] = ""
    """`next` of the page before, with all else as it was. Jobs that come meanwhile move no page. Empty: the first page."""
    name: Annotated[str, Field(max_length=255)] = ""
    """Part of the job's name."""
    states: Annotated[list[JobState], Field(max_length=10)] = empty(list)
    """Any of these; QUEUED: it waits for its first slot. Empty: all."""
    since_ms: int | None = None
    """Accepted at this time or later."""
    until_ms: int | None = None
    """Accepted before this time."""


class AwaitJobResult(Request):
    """Answered when the job has ended (at once if it has)."""

    type: Literal["AwaitJobResult"] = "AwaitJobResult"
    version: Literal[1] = 1
    job: JobId


class GetJobStatus(Request):
    """One job as ListJobs has it: its state, and why it waits."""

    type: Literal["GetJobStatus"] = "GetJobStatus"
    version: Literal[1] = 1
    job: JobId


class GetClusterOverview(Request):
    """Counts of jobs by state, and of TaskManagers and slots."""

    type: Literal["GetClusterOverview"] = "GetClusterOverview"
    version: Literal[1] = 1


class ListTaskManagers(Request):
    """The TaskManagers with their slots."""

    type: Literal["ListTaskManagers"] = "ListTaskManagers"
    version: Literal[1] = 1


class DeregisterCluster(Request):
    """All TaskManagers that a provider has started are stopped, and none is started any more until the same comes with `undo`. What ran on
    them runs again once there are others. TaskManagers that were started by hand stay."""

    type: Literal["DeregisterCluster"] = "DeregisterCluster"
    version: Literal[1] = 1
    undo: bool = False


class ShutDownCluster(Request):
    """Ends the cluster in order, and keeps its jobs: none is accepted any more, those that run are SUSPENDED, TaskManagers that a provider
    has started are stopped, then the services end. Jobs go on when the cluster is started again. A repeat asks how far it is."""

    type: Literal["ShutDownCluster"] = "ShutDownCluster"
    version: Literal[1] = 1
    wait: bool = False
    """Answer when all is done that can be, right before the services end."""
    accept_before_ms: int | None = None
    """Unix time in milliseconds after which it must not begin any more: nobody took it, and the cluster may have been started again."""


class DescribeBlobServer(Request):
    """Where blobs are put and got."""

    type: Literal["DescribeBlobServer"] = "DescribeBlobServer"
    version: Literal[1] = 1


class Problem(Part):
    """One thing wrong with a submission: where, what, and what may help."""

    place: list[str | int]
    message: str
    hint: str | None = None


class JobAcceptedReply(Reply):
    """The job's graph is committed in etcd [R21]; `status` is its state now, for a repeat."""

    type: Literal["JobAcceptedReply"] = "JobAcceptedReply"
    version: Literal[1] = 1
    job: str
    status: str
    events_partition: int
    """The partition of job.events that carries this job."""
    warnings: list[Problem] = empty(list)


class JobRejected(Reply):
    """Not accepted, and nothing was kept. kind: invalid | conflict | late | busy (try again after `retry_after_ms`) | internal."""

    type: Literal["JobRejected"] = "JobRejected"
    version: Literal[1] = 1
    job: str
    kind: Literal["invalid", "conflict", "late", "busy", "internal"]
    reason: str
    problems: list[Problem] = empty(list)
    retry_after_ms: int | None = None


class CancelAccepted(Reply):
    """Answers CancelJob: the job is being canceled, or is CANCELED already. `status` is its state now."""

    type: Literal["CancelAccepted"] = "CancelAccepted"
    version: Literal[1] = 1
    job: str
    status: str


RefusalKind = Literal["not_found", "conflict", "invalid", "busy", "internal"]


class RequestRefused(Reply):
    """A request that is not answered otherwise. kind: not_found | conflict | invalid | busy (try again) | internal. `silent`: the part that
    would know more and has not answered in time."""

    type: Literal["RequestRefused"] = "RequestRefused"
    version: Literal[1] = 1
    kind: RefusalKind
    reason: str
    silent: str | None = None
    problems: Annotated[list[Problem], Field(exclude_if=lambda problems: not problems)] = empty(list)
    """Of a SetSchedule: all that is wrong with it."""


class JobSummary(Part):
    """A job in one line."""

    job: str
    name: str
    status: str
    accepted_ms: int
    ended_ms: int | None = None
    waiting: str | None = None
    """Why it waits, if it does."""
    position: int | None = None
    """Its place in the queue for slots, from 1."""
    expected_ms: int | None = None
    """When it has what it waits for, by how often slots were freed lately; null: that cannot be told."""
    running_ms: int | None = None
    """When it was first given a slot; of a job that has not ended known only if it had to wait."""
    scheduled: Annotated[Scheduled | None, Field(exclude_if=unless_set)] = None
    """Of a schedule's run: which one."""

    @property
    def state(self) -> str:
        """Its status as people are shown it."""
        return state_of(self.status, self.waiting, self.running_ms)


def state_of(status: str, waiting: str | None, running_ms: int | None) -> str:
    """One of JobState."""
    return "QUEUED" if status == JobStatus.RUNNING and waiting is not None and running_ms is None else status


class JobsListed(Reply):
    """Answers ListJobs. `total` counts all that it asked for, also those not listed."""

    type: Literal["JobsListed"] = "JobsListed"
    version: Literal[1] = 1
    jobs: list[JobSummary]
    total: int


class JobDetails(JobSummary):
    """A job in one line, as ListJobDetails answers."""

    archive: str | None = None
    """Of a job that has ended: the path of its archive on the blob server."""
    silent: str | None = None
    """The job's JobMaster, where it has not answered in time: the Dispatcher may not have its newest state."""


class JobDetailsListed(Reply):
    """Answers ListJobDetails. There may be fewer than `limit`, where more would not fit into one record."""

    type: Literal["JobDetailsListed"] = "JobDetailsListed"
    version: Literal[1] = 1
    jobs: list[JobDetails]
    next: str | None
    """The cursor of the next page; null: this is the last one."""
    total: int | None = None
    """How many there are on all pages; null: that is not known, because some of them are in etcd alone."""


class JobDescribed(Reply):
    """`detail` is the ExecutionGraph of a live job; for an ended one it is null and `archive` is its path on the blob server.
    `silent`: the JobMaster that would know more and has not answered in time."""

    type: Literal["JobDescribed"] = "JobDescribed"
    version: Literal[1] = 1
    summary: JobSummary
    detail: JobDetail | None = None
    archive: str | None = None
    silent: str | None = None


class InspectedAttempt(Part):
    """A running attempt, and what it is doing at this moment."""

    task: str
    subtask: int
    attempt: int
    task_manager: str
    running_ms: int
    """Unix time in milliseconds at which it began."""
    status: AttemptStatus | None = None
    no_answer: str | None = None
    """Why there is no status."""


class JobReported(Reply):
    """Answers ReportNow. `silent`: the JobMaster that would know more and has not answered in time."""

    type: Literal["JobReported"] = "JobReported"
    version: Literal[1] = 1
    job: str
    attempts: list[InspectedAttempt] = empty(list)
    running: int = 0
    """How many attempts run that were asked for; of very many, the first are asked."""
    reason: str | None = None
    """Why none runs."""
    silent: str | None = None


class JobResult(Reply):
    """How a job ended; `archive` is the path of its archive on the blob server."""

    type: Literal["JobResult"] = "JobResult"
    version: Literal[1] = 1
    job: str
    status: str
    ended_ms: int | None
    archive: str | None
    cause: Fault | None = None


class JobStatusAnswered(Reply):
    """Answers GetJobStatus."""

    type: Literal["JobStatusAnswered"] = "JobStatusAnswered"
    version: Literal[1] = 1
    summary: JobSummary


class Provided(Part):
    """TaskManagers that a provider starts and stops: how many it was asked to start that have not registered, and how many TaskManagers
    there are at least and at most."""

    starting: int
    least: int
    most: int


class ClusterOverview(Reply):
    """Answers GetClusterOverview. `silent`: the ResourceManager, where it has not answered in time; then only `jobs` is known, and the
    other counts are 0."""

    type: Literal["ClusterOverview"] = "ClusterOverview"
    version: Literal[1] = 1
    jobs: dict[str, int]
    """Count by status."""
    task_managers: int
    slots: int
    free_slots: int
    waiting_jobs: int
    silent: str | None = None
    provided: Provided | None = Field(None, exclude_if=lambda provided: provided is None)
    """Left out where no provider starts and stops TaskManagers."""


class SlotInfo(WithProfile):
    """A slot as the ResourceManager sees it."""

    slot: int
    state: str
    job: str | None = None
    memory_mb: int
    broken: str | None = Field(None, description="Why it cannot be started, and what to do; of a BROKEN one.")
    cores: Cores = 0
    extras: Extras = empty(dict)


class TaskManagerInfo(Part):
    """A registered TaskManager. Times are by the clock of the cluster's Kafka."""

    task_manager: str
    incarnation: int
    host: str
    slots: list[SlotInfo]
    since_ms: int
    last_beat_ms: int
    blocked: Annotated[BlockedHost | None, Field(exclude_if=unless_set)] = None
    """Of one whose host is blocked."""


class TaskManagersListed(Reply):
    """Answers ListTaskManagers. `silent`: the ResourceManager, where it has not answered in time; then none is known."""

    type: Literal["TaskManagersListed"] = "TaskManagersListed"
    version: Literal[1] = 1
    task_managers: list[TaskManagerInfo]
    """By id; the first ones only where the answer would be too large."""
    total: int = 0
    silent: str | None = None


class ClusterDeregistered(Reply):
    """Answers DeregisterCluster. `silent`: the ResourceManager, which was asked and has not answered in time."""

    type: Literal["ClusterDeregistered"] = "ClusterDeregistered"
    version: Literal[1] = 1
    workers: int
    """TaskManagers that the provider has started, and that are to be stopped; with `undo`, that are not."""
    silent: str | None = None


class ShutDown(Part):
    """How far the cluster's end is."""

    step: ClosingStepShown
    """Jobs are suspended; then TaskManagers are stopped; then the services end."""
    since_ms: int
    live: int
    """Jobs that have not ended: they are kept."""
    suspended: int
    """Those of them that are SUSPENDED, or were not begun."""
    workers: int
    """TaskManagers that the provider has not stopped yet, as far as that is known."""
    silent: list[str] = empty(list)
    """Who has not answered in time: the attempts of such a JobMaster may still run."""


class ClusterShutDown(Reply):
    """Answers ShutDownCluster."""

    type: Literal["ClusterShutDown"] = "ClusterShutDown"
    version: Literal[1] = 1
    shut_down: ShutDown


class BlobServerDescribed(Reply):
    """Answers DescribeBlobServer: where blobs are put and got, and how large one may be."""

    type: Literal["BlobServerDescribed"] = "BlobServerDescribed"
    version: Literal[1] = 1
    url: str
    max_bytes: int


AboutJob = CancelJob | DescribeJob | ReportNow | AwaitJobResult | GetJobStatus | UpdateRequirements | DescribeRequirements
"""The requests about a job that was submitted."""
