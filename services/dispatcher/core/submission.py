"""SubmitJob: what is refused at once, what is stored in etcd, and what is answered to a repeat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.cluster import acceptance_of
from millrace.core.machine import Do, Envelope, Output
from millrace.core.messages import client, effects
from millrace.core.messages.attempts import Fault
from millrace.core.messages.base import parsed, written
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.kept import KEPT_BYTES_MOST
from millrace.core.messages.records import Client
from millrace.core.origins import repairs_of

from . import admission, answers, retirement, waiting
from .answers import reject
from .state import EndedJob, EtcdLookup, JobRequest, LiveJob, State, Submission, job_key

UNDONE = "it was decided on before the Dispatcher lost its log, and no job came of it; submit again"

CLOSED = "the cluster is being shut down: submit again when it was started again"


def job_request(record: Client, request: client.SubmitJob) -> JobRequest:
    """What is kept of a submission; `submitted` only where the client port found it valid."""
    if record.graph is None:
        return answers.job_request(record, request)
    submission = Submission(
        digest=record.digest or "",
        graph=written(record.graph),
        warnings=written(record.warnings),
        accept_before_ms=request.accept_before_ms,
        decided=record.decided,
        scheduled=request.scheduled,
    )
    return answers.job_request(record, request, submission)


def refusal(state: State, record: Client, request: JobRequest) -> dict[str, Any] | None:
    """Why the submission is refused by what the client port found, as arguments of `reject`; None: it is not."""
    if request.submitted is None:
        count = len(record.problems)
        reason = record.problems[0].message if count == 1 else f"{count} things are wrong"
        return {"kind": "invalid", "reason": reason, "problems": record.problems}
    known = request.job in state.live or request.job in state.ended or request.job in state.lookups
    if record.lack and not record.decided and not known:
        return {"kind": "busy", "reason": record.lack, "retry_after_ms": admission.RETRY_AFTER_MS}
    return None


def store_or_look_up(state: State, request: JobRequest, envelope: Envelope) -> Iterator[Output]:
    """A submission of an id that is in no table. One that was decided on before is looked up first: it may be stored."""
    assert request.submitted is not None
    if request.submitted.decided:
        yield from waiting.look_up(state, request, envelope)
    else:
        yield from store_submission(state, request, envelope)


def store_submission(state: State, request: JobRequest, envelope: Envelope) -> Iterator[Output]:
    """Stores a submission in etcd, where create-if-absent decides [R18]."""
    submission, settings = request.submitted, state.settings
    assert submission is not None
    if state.closing is not None:
        yield from reject(request, envelope.at_ms, "busy", CLOSED, retry_after_ms=admission.RETRY_AFTER_MS)
        return
    graph = parsed(submission.graph)
    subtasks = admission.subtasks_of(graph)
    wide = admission.too_wide(subtasks=subtasks, max_subtasks=settings.max_live_subtasks)
    if wide is not None:
        problems = [client.Problem(place=["vertices"], message=wide)]
        yield from reject(request, envelope.at_ms, "invalid", wide, problems=problems)
        return
    size = size_of(graph, len(submission.graph))
    reason = no_room(state, graph, size)
    if reason is not None:
        yield from reject(request, envelope.at_ms, "busy", reason, retry_after_ms=admission.RETRY_AFTER_MS)
        return
    acceptance = acceptance_of(settings.cluster, envelope.id)
    stored = StoredJob(
        state="accepted",
        digest=submission.digest,
        acceptance=acceptance,
        shard=state.topology.shard_of(request.job),
        accepted_ms=envelope.at_ms,
        graph=graph,
        name=graph["name"],
        asked_log=request.log,
        asked=request.offset,
        scheduled=submission.scheduled,
    )
    state.lookups[request.job] = EtcdLookup(acceptance=acceptance, putting=request, size=size, subtasks=subtasks)
    state.putting += 1
    state.live_graphs += size
    state.live_subtasks += subtasks
    state.put_since_tick += 1
    put = effects.PutJobGraph(
        job=request.job, stored=stored, accept_before_ms=submission.accept_before_ms, replaces=submission.replaces
    )  # fmt: skip
    yield Do(job_key(request.job), put)


def size_of(graph: dict[str, Any], written_size: int) -> int:
    """What a submission counts in `live_graphs` while it is stored. What a repair begins with is known only then."""
    return written_size + (KEPT_BYTES_MOST if repairs_of(graph) is not None else 0)


def no_room(state: State, graph: dict[str, Any], size: int | None = None) -> str | None:  # [R30]
    """Why there is no room for a job of this graph; None: there is. `size`: as of `size_of`, if that is known."""
    return admission.no_room(
        live=len(state.live),
        putting=state.putting,
        graphs_bytes=state.live_graphs,
        graph_bytes=size_of(graph, len(written(graph))) if size is None else size,
        live_subtasks=state.live_subtasks,
        subtasks=admission.subtasks_of(graph),
        max_live=state.settings.max_live_jobs,
        max_graphs_mb=state.settings.max_live_graphs_mb,
        max_subtasks=state.settings.max_live_subtasks,
    )


def store_absent(state: State, request: JobRequest, envelope: Envelope) -> Iterator[Output]:
    """A submission that waited for a lookup, which found nothing. The first of them is stored, the others wait for that."""
    assert request.submitted is not None
    lookup = state.lookups.get(request.job)
    if request.submitted.decided:
        yield from reject(request, envelope.at_ms, "late", UNDONE)
    elif lookup is None:
        yield from store_submission(state, request, envelope)
    else:
        yield from waiting.wait(state, request, envelope, lookup.behind)


def repeat_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output]:
    return _same_or_conflict(state, request, envelope, live.digest, live.shown)


def repeat_ended(
    state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None
) -> Iterator[Output]:
    yield from _same_or_conflict(state, request, envelope, ended.digest, ended.status)
    if envelope.at_ms - ended.ended_ms > retirement.KEPT_AFTER_MS:
        stone = retirement.tombstone_of(ended, state.topology.shard_of(request.job))
        yield Do(job_key(request.job), effects.KeepJob(job=request.job, at_ms=envelope.at_ms, tombstone=stone))


def _same_or_conflict(state: State, request: JobRequest, envelope: Envelope, digest: str, status: str) -> Iterator[Output]:
    """The same id and graph again is the same job; another graph is refused."""
    assert request.submitted is not None
    reason = admission.conflict(request.job, request.submitted.digest, digest)
    if reason is not None:
        yield from reject(request, envelope.at_ms, "conflict", reason)
    else:
        yield from answers.accepted(request, status, state.topology.events_partition(request.job))
