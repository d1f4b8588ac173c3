"""Requests that wait: for the end of a job, or for a lookup in etcd. Their number is bounded, in all and for each job."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Do, Envelope, Output
from millrace.core.messages import client, effects
from millrace.core.timing import FORWARDED_ANSWER_MS

from .admission import RETRY_AFTER_MS
from .answers import nobodys_request, not_found, refuse, reject, reply
from .state import EtcdLookup, JobRequest, LiveJob, State, job_key

WAITING_A_JOB = 100
WAITING_MOST = 50_000
ETCD = "etcd"
SUBMISSION_ANSWER_MS = 60_000
"""After so long without etcd a submission that has no time of its own is answered."""
SINCE = f"within {FORWARDED_ANSWER_MS // 1000} s"


def wait(state: State, request: JobRequest, envelope: Envelope, queue: list[JobRequest], *, once: bool = False) -> Iterator[Output]:
    """Lets a request wait in `queue`, if there is room. `once`: it replaces an earlier one of the same client."""
    same = [one for one in queue if request.reply_to and (one.reply_to, one.type) == (request.reply_to, request.type)]
    if same and once:
        queue.remove(same[0])
        state.waiting -= 1
    if len(queue) < WAITING_A_JOB and state.waiting < WAITING_MOST:
        queue.append(request)
        state.waiting += 1
    elif request.submitted is not None:
        reason = f"too many requests wait for job {request.job}"
        yield from reject(request, envelope.at_ms, "busy", reason, retry_after_ms=RETRY_AFTER_MS)
    else:
        yield from refuse(request, "busy", f"too many requests wait for job {request.job}; try again")


def late(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output] | None:
    """What comes of a request to change a job that may be too late: None if it is in time. While the job ends, the answer waits for its
    end. A request from before the job was there, read again in a new generation, was refused then and is refused again."""
    if live.ending is not None:
        state.late[request.job] = None
        return wait(state, request, envelope, live.awaiting)
    if request.log == live.log and request.offset < live.offset:
        return not_found(request)
    return None


def look_up(state: State, request: JobRequest, envelope: Envelope) -> Iterator[Output]:
    """Looks a job up in etcd that is in no table, if not too many requests wait already."""
    if state.waiting < WAITING_MOST:
        yield from begin_lookup(state, request)
        return
    reason = f"{state.waiting} requests wait already; try again"
    if request.submitted is not None:
        yield from reject(request, envelope.at_ms, "busy", reason, retry_after_ms=RETRY_AFTER_MS)
    else:
        yield from refuse(request, "busy", reason)


def begin_lookup(state: State, request: JobRequest) -> Iterator[Output]:
    state.lookups[request.job] = EtcdLookup(acceptance="", putting=None, behind=[request])
    state.waiting += 1
    yield Do(job_key(request.job), effects.FindJob(job=request.job))


def end_lookup(state: State, job: str) -> EtcdLookup:
    """The job's effect has its outcome. The caller answers the requests that waited."""
    lookup = state.lookups.pop(job)
    state.waiting -= len(lookup.behind)
    state.putting -= lookup.putting is not None
    state.live_graphs -= lookup.size
    state.live_subtasks -= lookup.subtasks
    return lookup


def refuse_overdue(state: State, envelope: Envelope) -> Iterator[Output]:
    """Answers those that wait for an etcd that is silent [R31]. Each keeps its place, and has no effect any more: but the submission that
    is being stored, which may be accepted yet."""
    for job, lookup in state.lookups.items():
        if lookup.putting is not None and _is_overdue(lookup.putting, envelope):
            yield from _refuse_submission(lookup.putting)
            lookup.putting.reply_to = ""
        reason = f"etcd has not answered {SINCE}, and what it has of job {job} is not known; try again"
        yield from _refuse_waiting(lookup.behind, envelope, reason)
    for job in state.late:
        reason = f"job {job} has ended, and that was not stored {SINCE} (are etcd and storage there?); try again"
        yield from _refuse_waiting(state.live[job].awaiting, envelope, reason, but=client.AwaitJobResult.__name__)


def _refuse_waiting(queue: list[JobRequest], envelope: Envelope, reason: str, but: str = "") -> Iterator[Output]:
    """`but`: a type of request that may wait."""
    for index, request in enumerate(queue):
        if request.type == but or not _is_overdue(request, envelope):
            continue
        queue[index] = nobodys_request(request.job)
        if request.submitted is not None:
            yield from _refuse_submission(request)
        else:
            yield from reply(request, client.RequestRefused, kind="busy", reason=reason, silent=ETCD)


def _is_overdue(request: JobRequest, envelope: Envelope) -> bool:
    """A submission has a time of its own, or a minute: an etcd that is back until then takes it, and nobody has to send it again. One that
    came late is answered by etcd, if that is there: it was not accepted."""
    if not request.reply_to or envelope.now_ms - request.asked_ms < FORWARDED_ANSWER_MS:
        return False
    if request.submitted is None:
        return True
    until_ms = request.submitted.accept_before_ms
    if until_ms is None:
        return envelope.now_ms - request.asked_ms >= SUBMISSION_ANSWER_MS
    return envelope.at_ms >= until_ms


def _refuse_submission(request: JobRequest) -> Iterator[Output]:
    """Not by JobRejected, which says that nothing was kept."""
    unknown = f"it is not known whether job {request.job} is accepted: submit it again, with the same id"
    assert request.submitted is not None
    within = f"within {SUBMISSION_ANSWER_MS // 1000} s" if request.submitted.accept_before_ms is None else "in its time"
    reason = f"it was not stored {within} (are etcd and storage there?); {unknown}"
    return reply(request, client.RequestRefused, kind="busy", reason=reason, silent=ETCD)
