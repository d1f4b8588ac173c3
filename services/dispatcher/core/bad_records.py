"""A record that is passed over because it ended processes [R26]: those who wait for it are refused, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millrace.core.clocks import AtMs
from millrace.core.faults import fault
from millrace.core.machine import Envelope, Output, PassedOver, Say
from millrace.core.messages import base, client, effects, graphs, jobs, schedule_effects
from millrace.core.messages.records import Client
from millrace.core.topics import shard_scope

from . import answers, changed_graphs, ending, recovery, retirement
from .answers import refuse_internal
from .state import JobRequest, State
from .waiting import begin_lookup, end_lookup

Outputs = Iterator[Output]


def on_passed_over(state: State, body: PassedOver, envelope: Envelope) -> Outputs:  # [R26]
    """Of other records nothing is done, and nobody waits for them."""
    handler = _INSTEAD.get(type(body.body))
    if handler is not None:
        yield from handler(state, body.body, body.error, envelope)


def _client(state: State, record: Client, error: str, envelope: Envelope) -> Outputs:
    request = record.request
    if isinstance(request, client.SubmitJob):
        yield from _refuse([answers.job_request(record, request)], envelope.at_ms, error)
    elif request is not None:
        yield from _refuse([request], envelope.at_ms, error)


def _lookup(state: State, body: effects.JobGraphStored | effects.JobFound, error: str, envelope: Envelope) -> Outputs:
    lookup = end_lookup(state, body.job)
    changed_graphs.note_spoilt(state, body.job)
    state.unverified_reports.pop(body.job, None)  # its shard reports it again to our next life
    yield from _refuse([*([lookup.putting] if lookup.putting else []), *lookup.behind], envelope.at_ms, error)


def _graph_added(state: State, body: graphs.JobGraphAdded, error: str, envelope: Envelope) -> Outputs:
    changed_graphs.note_spoilt(state, body.job)
    yield from changed_graphs.park_internal(body, envelope, error)


def _job_ended(state: State, body: jobs.JobEnded, error: str, envelope: Envelope) -> Outputs:
    """The job fails. Nothing of the report is used: that may be what ended the processes."""
    message = f"a fault of Millrace in handling the end of this job: {error}"
    cause = fault("infrastructure", message)
    failed = body.model_copy(update={"status": "FAILED", "cause": cause, "archive": None})
    return ending.on_job_ended(state, failed, envelope)


def _job_result_stored(state: State, body: effects.JobResultStored, error: str, envelope: Envelope) -> Outputs:
    """The end is known here. The job stays dirty in etcd: a new generation announces the ending, and cleans up."""
    live = retirement.remove_live(state, body.job)
    answers.remember(state, body.job, body.stands)
    retirement.forget_oldest(state)
    yield Say(shard_scope(live.shard), jobs.JobRetired(job=body.job, acceptance=live.acceptance))
    yield from _refuse(live.awaiting, envelope.at_ms, error)


def _jobs_recovered(state: State, body: effects.JobsRecovered, error: str, envelope: Envelope) -> Outputs:
    """Each job of the page is looked up by itself, however many requests wait: one of them may be the bad one. Clean ones need nothing."""
    for job, stored in body.jobs.items():
        if stored.state != "clean" and not (job in state.live or job in state.ended or job in state.lookups):
            yield from begin_lookup(state, answers.nobodys_request(job))
        elif stored.state == "clean":
            retirement.note_unlisted(state, stored.accepted_ms)
    retirement.note_unlisted(state, body.left_out_ms)
    yield from recovery.recover_next(state, envelope, body.through)


def _stored_jobs_listed(state: State, body: effects.StoredJobsListed, error: str, envelope: Envelope) -> Outputs:
    listing = state.listings.pop(body.number, None)
    yield from _refuse([listing.request] if listing is not None else [], envelope.at_ms, error)


def _schedules(state: State, body: Any, error: str, envelope: Envelope) -> Outputs:
    waiting = state.schedule_requests.pop(body.number, None)
    asking = [JobRequest(waiting.type, "", waiting.reply_to, waiting.correlation)] if waiting is not None else []
    yield from _refuse(asking, envelope.at_ms, error)


def _refuse(requests: Iterable[JobRequest | base.Request], at_ms: AtMs, error: str) -> Outputs:
    for request in requests:
        yield from refuse_internal(request, at_ms, f"a fault of Millrace in handling this request: {error}")


_INSTEAD: dict[type, Callable[[State, Any, str, Envelope], Outputs]] = {
    Client: _client,
    graphs.JobGraphAdded: _graph_added,
    effects.JobGraphStored: _lookup,
    effects.JobFound: _lookup,
    effects.JobResultStored: _job_result_stored,
    effects.JobsRecovered: _jobs_recovered,
    effects.StoredJobsListed: _stored_jobs_listed,
    **dict.fromkeys((schedule_effects.ScheduleStored, schedule_effects.ScheduleChanged, schedule_effects.SchedulesFound), _schedules),
    jobs.JobEnded: _job_ended,
}
"""Class of a record's body -> what is done instead of its handler."""
