"""Effects of the machines on the outside world, and the facts that come back [17].

An effect is named by an imperative and performed by a port of the speaking replica; its outcome is named by a past participle and is
a fact whoever posts it: what happened at the place itself, never "refused" and never "perhaps".
"""

from __future__ import annotations

from typing import Any, Literal

from .base import Body, Part


class StoredJob(Part):
    """The value of `jobs/<id>` in etcd, through its whole life [18]: accepted, then ended (dirty, clean), then a tombstone."""

    state: Literal["accepted", "dirty", "clean"]
    digest: str
    """SHA-256 of the submitted graph: tells the same submission from another one under the same id."""
    acceptance: str
    """Names this acceptance for ever: blobs, exchange and archives lie below it [20]."""
    shard: int
    accepted_ms: int
    graph: dict[str, Any] | None = None
    """Present while accepted."""
    name: str = ""
    status: str | None = None
    """FINISHED, FAILED or CANCELED once ended: the ending that counts [16]."""
    ended_ms: int | None = None
    archive: str | None = None
    """Path in storage of what `show` and `result` answer from."""
    cause: dict[str, Any] | None = None


# Dispatcher -> etcd


class PutJobGraph(Body):
    """Puts an accepted job if its key is absent; answers with what stands there."""

    type: Literal["PutJobGraph"] = "PutJobGraph"
    version: Literal[1] = 1
    job: str
    stored: StoredJob


class JobGraphStored(Body):
    """`stands` is what the key holds: our own put (same acceptance), or what was there before."""

    type: Literal["JobGraphStored"] = "JobGraphStored"
    version: Literal[1] = 1
    job: str
    stands: StoredJob


class EndJob(Body):
    """Turns the job's key into its result (dirty) unless it is ended already."""

    type: Literal["EndJob"] = "EndJob"
    version: Literal[1] = 1
    job: str
    ending: StoredJob


class JobResultStored(Body):
    """`stands`: the ending in etcd, which counts."""

    type: Literal["JobResultStored"] = "JobResultStored"
    version: Literal[1] = 1
    job: str
    stands: StoredJob


class ArchiveJob(Body):
    """Writes the archive (`show` answers from it), then deletes the job's exchange data and staged files."""

    type: Literal["ArchiveJob"] = "ArchiveJob"
    version: Literal[1] = 1
    job: str
    path: str
    archive: dict[str, Any]
    exchange: str
    """Folder of the job's exchange data, below the storage's `exchange/`."""
    staging: list[str] = []


class JobArchived(Body):
    type: Literal["JobArchived"] = "JobArchived"
    version: Literal[1] = 1
    job: str


class CleanJob(Body):
    """Marks the ending clean: a small tombstone stays."""

    type: Literal["CleanJob"] = "CleanJob"
    version: Literal[1] = 1
    job: str
    tombstone: StoredJob


class JobCleaned(Body):
    type: Literal["JobCleaned"] = "JobCleaned"
    version: Literal[1] = 1
    job: str


class RecoverJobs(Body):
    """Lists all jobs in etcd: what a Dispatcher's new generation comes back with [24]."""

    type: Literal["RecoverJobs"] = "RecoverJobs"
    version: Literal[1] = 1


class JobsRecovered(Body):
    type: Literal["JobsRecovered"] = "JobsRecovered"
    version: Literal[1] = 1
    jobs: dict[str, StoredJob]
    last: bool = True
    """False: more of them follow in further outcomes of effects that the port chose to split; the last one ends the recovery."""


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
    """A prefix for published files, unique to (job, acceptance, vertex)."""


class SinkPublished(Body):
    """`problem`: why it cannot be published (mode error and the path is there): the job fails with it."""

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
    spec: dict[str, Any]


class AttemptLaunched(Body):
    """The slot has been asked; what becomes of the attempt follows as local facts."""

    type: Literal["AttemptLaunched"] = "AttemptLaunched"
    version: Literal[1] = 1
    attempt: str


class KillAttempt(Body):
    """Ends an attempt and everything it started."""

    type: Literal["KillAttempt"] = "KillAttempt"
    version: Literal[1] = 1
    slot: int
    attempt: str
    why: str


class AttemptKillSent(Body):
    type: Literal["AttemptKillSent"] = "AttemptKillSent"
    version: Literal[1] = 1
    attempt: str


class EndProcess(Body):
    """The TaskManager ends itself: fenced, released or replaced."""

    type: Literal["EndProcess"] = "EndProcess"
    version: Literal[1] = 1
    reason: str


EFFECTS: tuple[type[Body], ...] = (
    PutJobGraph, EndJob, ArchiveJob, CleanJob, RecoverJobs, PublishSink, LaunchAttempt, KillAttempt, EndProcess,
)  # fmt: skip
OUTCOMES: tuple[type[Body], ...] = (
    JobGraphStored, JobResultStored, JobArchived, JobCleaned, JobsRecovered, SinkPublished, AttemptLaunched, AttemptKillSent,
)  # fmt: skip
