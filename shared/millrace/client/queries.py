"""What can be asked of the cluster and its jobs."""

from __future__ import annotations

import builtins
import re
from typing import Any, NamedTuple

from millrace.core.messages import blocklist, client
from millrace.core.messages.attempts import Fault
from millrace.core.messages.client import JobDescribed, JobSummary, TaskManagerInfo
from millrace.core.messages.execution import JobDetail
from millrace.core.messages.requirements import DescribeRequirements, JobRequirements, VertexRequirement
from millrace.core.origins import again
from millrace.core.states import ENDED_JOB, INITIALIZING

from . import errors
from .session import Session, about, checked

PAGE_MOST = 1_000
"""Jobs on a page."""
NOTHING_KEPT = "nothing is kept of it"
AGAIN_WHEN = "it can be run again once it has ended"
REPAIR_WHEN = "it can be repaired once it has FAILED or was CANCELED"


class _Shown(NamedTuple):
    summary: JobSummary
    detail: JobDetail | None
    cause: Fault | None


class Shown(_Shown):
    """A job in all detail. `detail`: its ExecutionGraph with tasks, subtasks and attempts; None where the JobMaster is silent. `cause`: why
    it FAILED. Unpacks into these three."""

    silent: str | None = None
    """The JobMaster that would know more and has not answered in time."""


def _timed(detail: JobDetail | None) -> JobDetail | None:
    """With the time of its first state, in which no JobMaster had it yet."""
    return detail and detail.model_copy(update={"entered": {INITIALIZING: detail.accepted_ms, **detail.entered}})


class Queries(Session):
    """The calls that change nothing."""

    def status(self, job: str) -> JobSummary:
        """Raises NotFound."""
        return self._ask(about(client.GetJobStatus, job), client.JobStatusAnswered).summary

    def requirements(self, job: str) -> list[VertexRequirement]:
        """The parallelism of each vertex of a job that has not ended, and what it may be. Raises NotFound; Refused once it has ended."""
        return self._ask(about(DescribeRequirements, job), JobRequirements).vertices

    def show(self, job: str) -> Shown:  # [R31]
        """The job with its tasks, subtasks and attempts; of an ended job from its archive. Raises NotFound."""
        described = self._describe(job)
        if described.archive is None:
            detail = _timed(described.detail)
            shown = Shown(described.summary, detail, detail.cause if detail is not None else None)
            shown.silent = described.silent
            return shown if described.silent is not None else self._scheduled(shown)
        archive = self.archive(described.archive)
        return Shown(described.summary, _timed(archive.detail), archive.cause)

    def _scheduled(self, shown: Shown) -> Shown:
        """A live job is described by its JobMaster, and which schedule it is of the Dispatcher alone knows."""
        scheduled = self.status(shown.summary.job).scheduled
        return Shown(shown.summary.model_copy(update={"scheduled": scheduled}), shown.detail, shown.cause)

    def graph_of(self, job: str, *, repair: bool = False) -> dict[str, Any]:
        """The graph of an ended job, as it was stored: `submit` runs it again, under a new id, and the new job says so. repair: what had
        finished of it is kept. Raises NotFound, and Refused where the job has not ended or nothing is kept of it."""
        described = self._describe(job)
        if described.archive is None:
            status = described.summary.status
            raise errors.Refused(f"job {job} is {status}: {NOTHING_KEPT if status in ENDED_JOB else REPAIR_WHEN if repair else AGAIN_WHEN}")
        graph = self.archive(described.archive).graph
        if not graph:
            raise errors.Refused(f"the archive of job {job} has no graph")
        return again(graph, job, repair=repair)

    def report_now(self, job: str, task: str = "", subtask: int | None = None) -> client.JobReported:
        """What the running attempts of a job are doing at this moment; each is asked, and the answer comes within seconds. `task`: one of
        its tasks, or a vertex. Where the JobMaster is `silent`, nothing is known. Raises NotFound."""
        request = about(client.ReportNow, job)
        request = request.model_copy(update={"task": task, "subtask": subtask})
        try:
            return self._ask(request, client.JobReported)
        except errors.NotFound:  # as for `show`
            return self._ask(request, client.JobReported)

    def list(self, most: int = 100, **only: Any) -> client.JobsListed:
        """The newest jobs, newest first. `only`: fields of ListJobs, such as name="nightly", states=["QUEUED"], since_ms=... Raises
        Malformed."""
        return self._ask(checked(client.ListJobs, most=most, **only), client.JobsListed)

    def list_details(self, limit: int = 100, cursor: str = "", **only: Any) -> client.JobDetailsListed:
        """A page of all jobs, newest first, also of those that only etcd has. `cursor`: `next` of the page before. `only`: fields of
        ListJobDetails, such as name="nightly", states=["FAILED"], since_ms=... Raises Malformed, as for what is no cursor."""
        if not re.fullmatch(client.CURSOR_PATTERN, cursor):
            raise errors.Malformed(f"{cursor[:200]!r} is no cursor of a list of jobs: give the one that the page before ended with")
        return self._ask(checked(client.ListJobDetails, limit=limit, cursor=cursor, **only), client.JobDetailsListed)

    def overview(self) -> client.ClusterOverview:
        """Where the ResourceManager is `silent`, only the jobs are counted."""
        return self._ask(client.GetClusterOverview(), client.ClusterOverview)

    def task_managers(self) -> builtins.list[TaskManagerInfo]:
        """Raises Unavailable where the ResourceManager is silent, for nobody else knows them."""
        listed = self._ask(client.ListTaskManagers(), client.TaskManagersListed)
        if listed.silent is not None:
            message = f"{listed.silent} does not answer, and nobody else knows the TaskManagers; running attempts go on meanwhile"
            raise errors.Unavailable(message, listed.silent)
        return listed.task_managers

    def blocked_hosts(self) -> builtins.list[blocklist.BlockedHostInfo]:
        """The hosts of which no slot is granted, by name. Raises Unavailable where the ResourceManager is silent."""
        return self._ask(blocklist.ListBlockedHosts(), blocklist.BlockedHostsListed).hosts

    def check_dispatcher(self) -> None:
        """Returns when a Dispatcher has taken all requests that were published before this call. Raises Unavailable."""
        self._ask(client.DescribeBlobServer(), client.BlobServerDescribed)

    def _describe(self, job: str) -> JobDescribed:
        try:
            return self._ask(about(client.DescribeJob, job), JobDescribed)
        except errors.NotFound:
            # A JobMaster that has just forgotten an ended job: the Dispatcher knows by now.
            return self._ask(about(client.DescribeJob, job), JobDescribed)
