"""Effects of the machines on the outside world, and the facts that come back [R17].

An effect is named by an imperative and performed by a port of the leader. Its outcome is named by a past participle and is a fact,
whoever posts it: what happened at the place itself, never "refused" and never "perhaps".
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from ..states import StoredStateWritten
from ..topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER
from .attempts import AttemptSpec, Fault
from .base import Body, Part, empty, unless_set
from .blocklist import BlocklistRead, BlockStored, ReadBlocklist, StoreBlock
from .client import JobDetails, ListJobDetails, ShutDown
from .execution import Archive
from .kept import Kept
from .processes import AnyAsk
from .progress import Order
from .schedule_effects import (
    ChangeSchedule,
    FindSchedules,
    ScheduleChanged,
    SchedulesFound,
    ScheduleStored,
    StoreSchedule,
)
from .schedules import Scheduled
from .worker_effects import ListWorkers, StartWorker, StopWorker, WorkersListed, WorkerStarted, WorkerStopped


def type_of(effect: str) -> str:
    """The type of an effect's JSON, which begins with it; what follows can be large."""
    return effect[len('{"type":"') : effect.index('"', len('{"type":"'))]


class StoredJob(Part):
    """The value of `jobs/<id>` in etcd, through its whole life [R18]: accepted, then ended (dirty, clean), then a tombstone."""

    state: StoredStateWritten
    digest: str
    """SHA-256 of the submitted graph: tells the same submission from another one under the same id."""
    acceptance: str
    """Names this acceptance for ever: blobs, exchange and archives lie below it [R20]."""
    shard: int
    accepted_ms: int
    graph: dict[str, Any] | None = None
    """Present while accepted."""
    name: str = ""
    status: str | None = None
    """FINISHED, FAILED or CANCELED once ended: the ending that counts [R16]."""
    ended_ms: int | None = None
    running_ms: int | None = None
    """When it was first given a slot."""
    archive: str | None = None
    """Path in storage of what `show` and `result` answer from."""
    cause: Fault | None = None
    """Why it FAILED, without its stack trace, which is in the archive."""
    asked_log: str = ""
    asked: int = -1
    """While accepted: where its submission stands in client.commands. A cancel that stands before it was refused [R30]."""
    staging: list[str] = empty(list)
    """While dirty: folders of staged sink output, to be deleted."""
    scheduled: Annotated[Scheduled | None, Field(exclude_if=unless_set)] = None
    """Of a schedule's run: which one."""
    kept: Annotated[Kept | None, Field(exclude_if=unless_set)] = None
    """While accepted: what it begins with, of the job that it repairs."""
    kept_of: Annotated[dict[str, str], Field(exclude_if=lambda kept_of: not kept_of)] = empty(dict)
    """Acceptance -> job: whose exchange data it reads; of an ended one, while its own are kept."""
    kept_until_ms: Annotated[int | None, Field(exclude_if=unless_set)] = None
    """Once ended: its exchange data stay, so that it can be repaired. They go after this; null: they go, or are gone."""
    repaired_by: Annotated[list[str], Field(exclude_if=lambda repaired_by: not repaired_by)] = empty(list)
    """While they stay: the jobs that were given them. They stay for as long as one of those lives, or is kept itself."""


# Dispatcher -> etcd


class PutJobGraph(Body):
    """Puts an accepted job if its key is absent; answers with what stands there.

    Not after `accept_before_ms` (Unix time): the port compares it with the real clock, where the job is accepted. Machine time
    lags behind that after a pause, and would accept what was given up long ago.
    """

    type: Literal["PutJobGraph"] = "PutJobGraph"
    version: Literal[1] = 1
    job: str
    stored: StoredJob
    accept_before_ms: int | None = None
    replaces: Annotated[int, Field(exclude_if=lambda replaces: not replaces)] = 0
    """Revision of a graph that somebody else has put under the key: it is accepted now, if it stands there still."""


class RepairRefused(Part):
    """Why nothing was put: what stands in etcd of the job that is repaired, or of this one, whose graph somebody else has put."""

    kind: Literal["conflict", "busy"]
    reason: str


class JobGraphStored(Body):
    """`stands` is what the key holds: our own put (same acceptance), or what was there before. A put of just now has no graph here, because
    that is known. null: nothing was put, because it was too late, or `refused`. With `unreadable` the key holds what is no job."""

    type: Literal["JobGraphStored"] = "JobGraphStored"
    version: Literal[1] = 1
    job: str
    stands: StoredJob | None
    unreadable: str | None = None
    refused: RepairRefused | None = None


class KeepJobGraph(Body):
    """Puts back what the log knows of a job whose key somebody else has changed: its graph, or of an ended one its tombstone. An ending
    that stands there stays."""

    type: Literal["KeepJobGraph"] = "KeepJobGraph"
    version: Literal[1] = 1
    job: str
    stored: StoredJob


class JobGraphKept(Body):
    """The key holds what the log knows, or how the job has ended."""

    type: Literal["JobGraphKept"] = "JobGraphKept"
    version: Literal[1] = 1
    job: str


class FindJob(Body):
    """Reads the key of a job that the Dispatcher does not remember: an old one, or one still to be recovered."""

    type: Literal["FindJob"] = "FindJob"
    version: Literal[1] = 1
    job: str


class JobFound(Body):
    """`stands` is what the key holds; null: there is no such job, or, if `unreadable` says so, what is there is none."""

    type: Literal["JobFound"] = "JobFound"
    version: Literal[1] = 1
    job: str
    stands: StoredJob | None
    unreadable: str | None = None


class EndJob(Body):
    """Writes the archive at `ending.archive`, then turns the job's key into its result (dirty) unless it is ended already.

    In this order, and in one effect: whoever sees the ending can read the archive. An archive that no key names is lost room, no harm.
    """

    type: Literal["EndJob"] = "EndJob"
    version: Literal[1] = 1
    job: str
    ending: StoredJob
    archive: Archive


class JobResultStored(Body):
    """`stands`: the ending in etcd, which counts."""

    type: Literal["JobResultStored"] = "JobResultStored"
    version: Literal[1] = 1
    job: str
    stands: StoredJob


class CleanJob(Body):
    """Deletes the job's exchange data, unless these are kept, and staged files, then marks its ending clean: a small tombstone stays. What
    cannot be deleted now is found by a sweep."""

    type: Literal["CleanJob"] = "CleanJob"
    version: Literal[1] = 1
    job: str
    tombstone: StoredJob
    exchange: str
    """Folder of the job's exchange data, in storage; empty: they are kept."""
    staging: list[str] = empty(list)
    """Folders of staged sink output: paths as Spark takes them."""


class JobCleaned(Body):
    """Nothing is left to be decided about the job: its tombstone and its archive stay."""

    type: Literal["JobCleaned"] = "JobCleaned"
    version: Literal[1] = 1
    job: str


class KeepJob(Body):
    """The submission of an ended job stands in client.commands once more: its tombstone stays until that record is gone, too [R18]."""

    type: Literal["KeepJob"] = "KeepJob"
    version: Literal[1] = 1
    job: str
    at_ms: int
    """The broker's stamp of that record."""
    tombstone: StoredJob | None = None
    """What is put back if the key is gone: the job had ended so long ago that no submission of it stood there any more."""


class JobKept(Body):
    """The tombstone does not go before its repeats."""

    type: Literal["JobKept"] = "JobKept"
    version: Literal[1] = 1
    job: str


class RecoverJobs(Body):
    """Lists the jobs in etcd after the id `after`, a page of them: all that are not clean and the newest `retained` clean ones [R24].
    What a Dispatcher's new generation comes back with."""

    type: Literal["RecoverJobs"] = "RecoverJobs"
    version: Literal[1] = 1
    after: str = ""
    retained: int


class JobsRecovered(Body):
    """`through`: the last id of this page, from which the next page goes on; null: this was the last page."""

    type: Literal["JobsRecovered"] = "JobsRecovered"
    version: Literal[1] = 1
    jobs: dict[str, StoredJob]
    through: str | None = None
    left_out_ms: int = 0
    """When the newest job was accepted, of those on the way to this page's end that are too old to be listed here."""


class ListStoredJobs(Body):
    """Lists jobs that have ended, from etcd: the Dispatcher does not remember the oldest ones."""

    type: Literal["ListStoredJobs"] = "ListStoredJobs"
    version: Literal[1] = 1
    number: int
    """Of the request that waits for it."""
    asked: ListJobDetails


class StoredJobsListed(Body):
    """The newest ended jobs that were asked for, newest first: at most `limit`, and not more than fit into one record."""

    type: Literal["StoredJobsListed"] = "StoredJobsListed"
    version: Literal[1] = 1
    number: int
    jobs: list[JobDetails]
    more: bool
    """Etcd has others behind these."""


class EndCluster(Body):
    """Writes into etcd that the cluster is shut down. Every service that reads it ends; none begins before the cluster is opened again."""

    type: Literal["EndCluster"] = "EndCluster"
    version: Literal[1] = 1
    name: str
    """Of this end: the cluster is opened again by it."""
    shut_down: ShutDown


class ClusterEnded(Body):
    """It stands in etcd."""

    type: Literal["ClusterEnded"] = "ClusterEnded"
    version: Literal[1] = 1
    name: str


# JobMaster -> storage


class PublishSink(Body):
    """Moves what the counted attempts of a sink staged to its path, once: staged names are unique, a repeat finds them moved."""

    type: Literal["PublishSink"] = "PublishSink"
    version: Literal[1] = 1
    job: str
    vertex: str
    path: str
    mode: Literal["error", "overwrite", "append"]
    staged: list[str]
    """Folders of the attempts that count, in order of the subtasks."""
    name: str
    """What the names of published files begin with: (acceptance, vertex), which no other sink has."""
    life: str
    """Goes on in their names: what an earlier life of the JobMaster's state published for the same acceptance is replaced."""


class SinkPublished(Body):
    """`problem`: why it cannot be published, such as a path that is there already (mode error): the job fails with it."""

    type: Literal["SinkPublished"] = "SinkPublished"
    version: Literal[1] = 1
    job: str
    vertex: str
    problem: str | None = None


# TaskManager -> its slots


class LaunchAttempt(Body):
    """Runs an attempt in a slot's spare process."""

    type: Literal["LaunchAttempt"] = "LaunchAttempt"
    version: Literal[1] = 1
    slot: int
    attempt: str
    acceptance: str
    folder: str
    """Below `logs/` and `results/` in storage: this attempt's own."""
    spec: AttemptSpec


class AttemptLaunched(Body):
    """The slot has been asked; what becomes of the attempt follows as local facts."""

    type: Literal["AttemptLaunched"] = "AttemptLaunched"
    version: Literal[1] = 1
    attempt: str


class KillAttempt(Body):
    """Ends an attempt and everything it started. `within_ms`: it is asked to end by itself first, and has so long; 0: it is not."""

    type: Literal["KillAttempt"] = "KillAttempt"
    version: Literal[1] = 1
    slot: int
    attempt: str
    why: str
    within_ms: Annotated[int, Field(exclude_if=lambda ms: not ms)] = 0


class AttemptKillSent(Body):
    """The slot has the order; that the attempt is over follows as a local fact."""

    type: Literal["AttemptKillSent"] = "AttemptKillSent"
    version: Literal[1] = 1
    attempt: str


class OrderAttempt(Body):
    """Passes an order on to a running attempt. What it answers follows as a local fact, OrderAnswered."""

    type: Literal["OrderAttempt"] = "OrderAttempt"
    version: Literal[1] = 1
    slot: int
    attempt: str
    order: Order
    shard: int
    question: int


class AttemptOrderSent(Body):
    """The order is on its way."""

    type: Literal["AttemptOrderSent"] = "AttemptOrderSent"
    version: Literal[1] = 1
    attempt: str


class FindAnswer(Body):
    """Looks at the process, its slots or its logs for a client's question. What is found follows as a local fact, AnswerFound."""

    type: Literal["FindAnswer"] = "FindAnswer"
    version: Literal[1] = 1
    ask: AnyAsk
    question: int
    reply_to: str
    correlation: str


class AnswerSought(Body):
    """It is looked for."""

    type: Literal["AnswerSought"] = "AnswerSought"
    version: Literal[1] = 1
    question: int


class FenceTaskManager(Body):
    """Deletes the key of a TaskManager that was declared lost: one that is cut off from Kafka alone reads in etcd that it must end."""

    type: Literal["FenceTaskManager"] = "FenceTaskManager"
    version: Literal[1] = 1
    task_manager: str
    incarnation: int


class TaskManagerFenced(Body):
    """The key is not that of the lost incarnation any more."""

    type: Literal["TaskManagerFenced"] = "TaskManagerFenced"
    version: Literal[1] = 1
    task_manager: str


class EndProcess(Body):
    """The TaskManager ends itself: stopped, fenced, released or replaced. Its slots and their attempts end with it."""

    type: Literal["EndProcess"] = "EndProcess"
    version: Literal[1] = 1
    reason: str
    again: bool
    """Whoever watches the process should start it again: as a new incarnation it is welcome."""


EFFECTS_OF: dict[str, dict[type[Body], type[Body] | None]] = {
    DISPATCHER: {
        PutJobGraph: JobGraphStored,
        KeepJobGraph: JobGraphKept,
        FindJob: JobFound,
        EndJob: JobResultStored,
        CleanJob: JobCleaned,
        KeepJob: JobKept,
        RecoverJobs: JobsRecovered,
        ListStoredJobs: StoredJobsListed,
        EndCluster: ClusterEnded,
        StoreSchedule: ScheduleStored,
        ChangeSchedule: ScheduleChanged,
        FindSchedules: SchedulesFound,
    },
    RESOURCE_MANAGER: {
        FenceTaskManager: TaskManagerFenced,
        StartWorker: WorkerStarted,
        StopWorker: WorkerStopped,
        ListWorkers: WorkersListed,
        StoreBlock: BlockStored,
        ReadBlocklist: BlocklistRead,
    },
    JOB_MASTER: {PublishSink: SinkPublished},
    TASK_MANAGER: {
        LaunchAttempt: AttemptLaunched,
        KillAttempt: AttemptKillSent,
        OrderAttempt: AttemptOrderSent,
        FindAnswer: AnswerSought,
        EndProcess: None,
    },
}
"""Service -> its effects, each with its outcome; None: nothing comes after it."""
EFFECTS: tuple[type[Body], ...] = tuple(effect for pairs in EFFECTS_OF.values() for effect in pairs)
OUTCOMES: tuple[type[Body], ...] = tuple(
    outcome for pairs in EFFECTS_OF.values() for outcome in pairs.values() if outcome is not None
)
