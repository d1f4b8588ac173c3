"""What clients and the world are told, from plain values."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from millrace.core.bounded import fitting
from millrace.core.jobgraph.compile import chains, vertex_order
from millrace.core.jobgraph.model import Vertices
from millrace.core.machine import Publish
from millrace.core.messages import client, events
from millrace.core.messages.base import parsed
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.records import Client, Excerpt

from .state import Asking, EndedJob, Letter, LiveJob, State, Submitted

CLIENT = "client.commands"

AboutJob = client.SubmitJob | client.CancelJob | client.DescribeJob | client.AwaitJobResult | client.GetJobStatus
Asked = Asking | client.Request
_vertices = TypeAdapter(Vertices).validator.validate_python


def asking_of(record: Client, request: AboutJob, submitted: Submitted | None = None) -> Asking:
    parked = letter(record, record.excerpt) if record.excerpt is not None else None
    return Asking(request.type, request.job, request.reply_to, request.correlation, submitted, parked, log=record.log, offset=record.offset)


def letter(record: Client, excerpt: Excerpt) -> Letter:
    return Letter(record.partition, record.offset, excerpt.size_bytes, excerpt.sha256, excerpt.head_base64)


def reply(asked: Asked, body: type[client.Reply], **fields: Any) -> Iterator[Publish]:
    """The answer; nothing for a client that wants none."""
    if asked.reply_to:
        yield Publish("client.replies", asked.reply_to, body(correlation=asked.correlation, **fields))


def refuse(asked: Asked, kind: str, reason: str) -> Iterator[Publish]:
    return reply(asked, client.RequestRefused, kind=kind, reason=reason)


def reject(asking: Asking, at_ms: int, kind: str, reason: str, **fields: Any) -> Iterator[Publish]:
    """A submission is refused: its client hears of it, or it is parked where it can be found and sent again [26]."""
    yield from reply(asking, client.JobRejected, job=asking.job, kind=kind, reason=reason, **fields)
    if asking.letter is not None:
        yield park(asking.letter, at_ms, f"{kind}: SubmitJob of job {asking.job}: {reason}")


def park(letter: Letter, at_ms: int, reason: str) -> Publish:
    body = events.DeadLetter(topic=CLIENT, reason=reason, at_ms=at_ms, **dataclasses.asdict(letter))
    return Publish("dead-letters", CLIENT, body)


def not_found(asking: Asking) -> Iterator[Publish]:
    return refuse(asking, "not_found", f"there is no job {asking.job}")


def accepted(asking: Asking, status: str, events_partition: int) -> Iterator[Publish]:
    assert asking.submitted is not None
    warnings = parsed(asking.submitted.warnings)
    return reply(
        asking,
        client.JobAcceptedReply,
        job=asking.job,
        status=status,
        events_partition=events_partition,
        warnings=[client.Problem(**each) for each in warnings],
    )


def result(asking: Asking, ended: EndedJob, cause: dict[str, Any] | None = None) -> Iterator[Publish]:
    return reply(
        asking,
        client.JobResult,
        job=asking.job,
        status=ended.status,
        ended_ms=ended.ended_ms,
        archive=ended.archive,
        cause=cause,
    )


def remembered(stands: StoredJob) -> EndedJob:
    """What is kept in state of an ending that stands in etcd."""
    assert stands.status is not None, "an ended job has a status"
    return EndedJob(
        acceptance=stands.acceptance,
        digest=stands.digest,
        name=stands.name,
        status=stands.status,
        accepted_ms=stands.accepted_ms,
        ended_ms=stands.ended_ms or 0,
        archive=stands.archive,
        running_ms=stands.running_ms,
    )


def remember(state: State, job: str, stands: StoredJob) -> None:
    ended = state.ended[job] = remembered(stands)
    state.ended_counts[ended.status] = state.ended_counts.get(ended.status, 0) + 1


def newest(state: State, asked: client.ListJobs) -> tuple[list[client.JobSummary], int]:
    """(jobs, how many there are): of those asked for the ones accepted last, newest first; fewer than `most` where they would not fit
    into one reply."""
    jobs: dict[str, LiveJob | EndedJob] = {**state.ended, **state.live}
    if asked.name or asked.states or asked.since_ms is not None or asked.until_ms is not None:
        jobs = {job: known for job, known in jobs.items() if _is_asked_for(known, asked)}
    picked = heapq.nlargest(asked.most, jobs.items(), key=lambda item: (item[1].accepted_ms, item[0]))
    return fitting(known.summary(job) for job, known in picked), len(jobs)


def _is_asked_for(known: LiveJob | EndedJob, asked: client.ListJobs) -> bool:
    return (
        asked.name in known.name
        and (not asked.states or known.state in asked.states)
        and (asked.since_ms is None or known.accepted_ms >= asked.since_ms)
        and (asked.until_ms is None or known.accepted_ms < asked.until_ms)
    )


def counts(state: State) -> dict[str, int]:
    """How many jobs are, or have ended, in each status."""
    found = dict(state.ended_counts)
    for job in state.live.values():
        found[job.shown] = found.get(job.shown, 0) + 1
    return dict(sorted(found.items()))


def tasks_of(graph: dict) -> list[dict]:
    """As JobAccepted tells them; none if another build stored a graph that this one cannot read: its JobMaster fails it."""
    try:
        vertices = _vertices(graph.get("vertices"))
    except ValidationError:
        return []
    tasks = chains(vertices, vertex_order(vertices))
    return [{"task": task, "vertices": its, "parallelism": vertices[its[0]].parallelism} for task, its in tasks.items()]
