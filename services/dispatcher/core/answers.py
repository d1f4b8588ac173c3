"""What clients and public topics are sent, and what the state keeps for an answer."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from millrace.core.bounded import fitting
from millrace.core.clocks import AtMs
from millrace.core.jobgraph.compile import chains, copies_of, result_vertex, vertex_order
from millrace.core.jobgraph.model import Vertices
from millrace.core.machine import Publish
from millrace.core.messages import base, client, events
from millrace.core.messages.attempts import Fault
from millrace.core.messages.base import parsed
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.execution import TaskInput, TaskOutline
from millrace.core.messages.records import Client, Excerpt

from .state import EndedJob, JobRequest, Letter, LiveJob, State, Submission

CLIENT = "client.commands"

_OF_EVERY_REQUEST = frozenset(client.GetJobStatus.model_fields)
Replied = JobRequest | base.Request
_vertices = TypeAdapter(Vertices).validator.validate_python


def job_request(record: Client, request: client.SubmitJob | client.AboutJob, submitted: Submission | None = None) -> JobRequest:
    """What is kept of a request until it is answered."""
    parked = letter(record, record.excerpt) if record.excerpt is not None else None
    own = {} if submitted else {name: getattr(request, name) for name in type(request).model_fields if name not in _OF_EVERY_REQUEST}
    return JobRequest(
        request.type, request.job, request.reply_to, request.correlation, submitted, parked,
        log=record.log, offset=record.offset, arguments=own,
    )  # fmt: skip


def nobodys_request(job: str) -> JobRequest:
    """A request that leads to a lookup of the job in etcd, and that no client is answered for."""
    return JobRequest(client.GetJobStatus.__name__, job, reply_to="", correlation="")


def letter(record: Client, excerpt: Excerpt) -> Letter:
    return Letter(record.partition, record.offset, excerpt.size_bytes, excerpt.sha256, excerpt.head_base64)


def reply(request: Replied, body: type[base.Reply], **fields: Any) -> Iterator[Publish]:
    """The answer; nothing for a client that wants none."""
    if request.reply_to:
        yield Publish("client.replies", request.reply_to, body(correlation=request.correlation, **fields))


def refuse(request: Replied, kind: str, reason: str) -> Iterator[Publish]:
    return reply(request, client.RequestRefused, kind=kind, reason=reason)


def reject(request: JobRequest, at_ms: AtMs, kind: str, reason: str, **fields: Any) -> Iterator[Publish]:
    """Refuses a submission. One that wants no answer is parked as a dead letter, where it can be found and sent again [R26]."""
    yield from reply(request, client.JobRejected, job=request.job, kind=kind, reason=reason, **fields)
    if request.letter is not None:
        what = "SubmitJob" if request.letter.topic == CLIENT else "graph in etcd"
        yield park(request.letter, at_ms, f"{kind}: {what} of job {request.job}: {reason}")


def refuse_internal(request: Replied, at_ms: AtMs, reason: str) -> Iterator[Publish]:
    """Refuses any request for a reason that its client cannot help."""
    if isinstance(request, JobRequest) and request.is_submission:
        yield from reject(request, at_ms, "internal", reason)
    else:
        yield from refuse(request, "internal", reason)


def park(letter: Letter, at_ms: AtMs, reason: str) -> Publish:
    body = events.DeadLetter(reason=reason, at_ms=at_ms, **dataclasses.asdict(letter))
    return Publish("dead-letters", letter.topic, body)


def not_found(request: JobRequest) -> Iterator[Publish]:
    return refuse(request, "not_found", f"there is no job {request.job}")


def accepted(request: JobRequest, status: str, events_partition: int) -> Iterator[Publish]:
    assert request.submitted is not None
    warnings = parsed(request.submitted.warnings)
    return reply(
        request,
        client.JobAcceptedReply,
        job=request.job,
        status=status,
        events_partition=events_partition,
        warnings=[client.Problem(**each) for each in warnings],
    )


def result(request: JobRequest, ended: EndedJob, cause: Fault | None = None) -> Iterator[Publish]:
    return reply(
        request,
        client.JobResult,
        job=request.job,
        status=ended.status,
        ended_ms=ended.ended_ms,
        archive=ended.archive,
        cause=cause,
    )


def remembered(stored: StoredJob) -> EndedJob:
    """What is kept in state of an ending that is stored in etcd."""
    assert stored.status is not None, "an ended job has a status"
    return EndedJob(
        acceptance=stored.acceptance,
        digest=stored.digest,
        name=stored.name,
        status=stored.status,
        accepted_ms=stored.accepted_ms,
        ended_ms=stored.ended_ms or 0,
        archive=stored.archive,
        running_ms=stored.running_ms,
        scheduled=stored.scheduled,
    )


def remember(state: State, job: str, stored: StoredJob) -> None:
    ended = state.ended[job] = remembered(stored)
    state.ended_counts[ended.status] = state.ended_counts.get(ended.status, 0) + 1


def newest(state: State, request: client.ListJobs) -> tuple[list[client.JobSummary], int]:
    """(jobs, how many there are) of those that match: the ones accepted last, newest first, or the first ones in the queue. Fewer than
    `most` where they would not fit into one reply."""
    jobs: dict[str, LiveJob | EndedJob] = {**state.ended, **state.live}
    if request.in_queue:
        jobs = {job: live for job, live in state.live.items() if live.waiting is not None}
    if request.name or request.states or request.since_ms is not None or request.until_ms is not None:
        jobs = {job: known for job, known in jobs.items() if _matches(known, request)}
    if request.in_queue:
        picked = heapq.nsmallest(request.most, jobs.items(), key=lambda item: _standing(*item))
    else:
        picked = heapq.nlargest(request.most, jobs.items(), key=lambda item: (item[1].accepted_ms, item[0]))
    return fitting(known.summary(job) for job, known in picked), len(jobs)


def _standing(job: str, known: LiveJob | EndedJob) -> tuple[float, int, str]:
    """Where a job stands in the queue: who has a place, then who waits longest."""
    place = known.position if isinstance(known, LiveJob) else None
    return math.inf if place is None else place, known.accepted_ms, job


def _matches(known: LiveJob | EndedJob, request: client.ListJobs) -> bool:
    return allowed(request, known.name, known.state, known.accepted_ms)


def allowed(request: client.ListJobs | client.ListJobDetails, name: str, state: str, accepted_ms: int) -> bool:
    """Whether all given fields of the request allow such a job."""
    return (
        request.name in name
        and (not request.states or state in request.states)
        and (request.since_ms is None or accepted_ms >= request.since_ms)
        and (request.until_ms is None or accepted_ms < request.until_ms)
    )


def counts(state: State) -> dict[str, int]:
    """How many jobs are, or have ended, in each status."""
    found = dict(state.ended_counts)
    for job in state.live.values():
        found[job.shown] = found.get(job.shown, 0) + 1
    return dict(sorted(found.items()))


def tasks_of(graph: dict[str, Any]) -> list[TaskOutline]:
    """The tasks in JobAccepted. None where another build stored a graph that this one cannot read: its JobMaster fails it."""
    try:
        vertices = _vertices(graph.get("vertices"))
    except ValidationError:
        return []
    result = result_vertex(vertices, graph.get("result"))
    tasks = chains(vertices, vertex_order(vertices), result)
    task_of = {vertex: task for task, its in tasks.items() for vertex in its.own}
    found = []
    for task, its in tasks.items():
        edges = {
            (task_of[producer], edge.kind): None
            for vertex in its.own for producer, edge in vertices[vertex].inputs.items()
            if producer not in copies_of(vertices, vertex, result) and task_of[producer] != task
        }  # fmt: skip
        read = {"inputs": [TaskInput(task=other, edge=kind) for other, kind in edges]} if edges else {}
        parallelism = vertices[its.own[0]].parallelism
        found.append(TaskOutline(task=task, vertices=[*its.copies, *its.own], parallelism=parallelism, **read))
    return found
