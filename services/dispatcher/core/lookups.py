"""What etcd holds of one job: the outcome of storing its submission, or of looking it up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millrace.core.clocks import AtMs
from millrace.core.machine import Envelope, Output
from millrace.core.messages import effects
from millrace.core.messages.effects import StoredJob
from millrace.core.states import INITIALIZING

from . import answers, changed_graphs, ending, questions, reports, retirement, starting
from .admission import RETRY_AFTER_MS
from .answers import reject
from .state import EtcdLookup, JobRequest, State
from .waiting import end_lookup

FOREIGN = "somebody has put a graph under this id into etcd, and it is looked at now; try again"

Outputs = Iterator[Output]


def on_job_graph_stored(state: State, body: effects.JobGraphStored, envelope: Envelope) -> Outputs:  # [R21]
    lookup = end_lookup(state, body.job)
    request = lookup.putting
    assert request is not None and request.submitted is not None, "only a submission that was put has this outcome"
    if body.unreadable is not None:
        yield from _refuse_unreadable(state, [request, *lookup.behind], envelope.at_ms, body.unreadable)
        return
    if body.refused is not None:
        busy = {"retry_after_ms": RETRY_AFTER_MS} if body.refused.kind == "busy" else {}
        yield from reject(request, envelope.at_ms, body.refused.kind, body.refused.reason, **busy)
    elif body.stands is None:
        reason = "it came too late: accept_before_ms had passed by the Dispatcher's clock; submit again"
        yield from reject(request, envelope.at_ms, "late", reason)
    elif body.stands.acceptance == lookup.acceptance and body.stands.state == "accepted":  # a cut log may give a name again
        yield from starting.announce_accepted(state, body.job, body.stands, request.submitted.graph)
        yield from answers.accepted(request, INITIALIZING, state.topology.events_partition(body.job))
    elif _is_copied(state, body.job, body.stands):
        yield from reject(request, envelope.at_ms, "busy", FOREIGN, retry_after_ms=RETRY_AFTER_MS)
    else:
        yield from adopt(state, body.job, body.stands, envelope)
        yield from questions.answer_stored(state, request, envelope, body.stands)
    yield from _answer_others(state, lookup, body, envelope)


def on_job_found(state: State, body: effects.JobFound, envelope: Envelope) -> Outputs:
    lookup = end_lookup(state, body.job)
    if body.unreadable is not None:
        yield from _refuse_unreadable(state, lookup.behind, envelope.at_ms, body.unreadable)
        return
    if body.stands is not None and not _is_copied(state, body.job, body.stands):
        yield from adopt(state, body.job, body.stands, envelope)
    yield from _answer_others(state, lookup, body, envelope)


def _is_copied(state: State, job: str, stands: StoredJob) -> bool:
    return stands.state == "accepted" and job not in state.live and changed_graphs.is_copied(state, job, stands.acceptance)


def _answer_others(state: State, lookup: EtcdLookup, body: effects.JobGraphStored | effects.JobFound, envelope: Envelope) -> Outputs:
    """Of what somebody else has put there it is not known yet whether a job comes of it: there is none so far."""
    stands = body.stands
    if stands is not None and _is_copied(state, body.job, stands):
        stands = None
    absent = isinstance(body, effects.JobFound) and body.stands is None
    yield from reports.answer_unverified(state, body.job, stands, absent=absent)
    yield from questions.answer_waiting(state, envelope, lookup, stands)


def adopt(state: State, job: str, stored: StoredJob, envelope: Envelope) -> Outputs:
    """A job that was in no table is in etcd: what is not done for it yet is done now. A clean one needs nothing, and stays out of the
    state: it is an old one."""
    if stored.state == "accepted":
        yield from starting.announce_accepted(state, job, stored)
    elif stored.state == "dirty":
        yield from ending.announce_ended(state, job, stored, envelope)
    else:
        retirement.note_unlisted(state, stored.accepted_ms)


def _refuse_unreadable(state: State, requests: Iterable[JobRequest], at_ms: AtMs, reason: str) -> Outputs:
    """The key of a job holds something else. Its shard, if it has the job, reports it again to our next life."""
    for request in requests:
        state.unverified_reports.pop(request.job, None)
        yield from answers.refuse_internal(request, at_ms, f"{request.job}: {reason}; `millrace doctor` says what to do")
