"""A job ends: its JobMaster reports that, the ending is stored in etcd, then everyone is notified and its data are deleted."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.jobgraph.rescale import with_parallelism
from millrace.core.machine import Do, Envelope, Output, Publish, Say
from millrace.core.messages import effects, events, jobs
from millrace.core.messages.base import parsed
from millrace.core.messages.effects import StoredJob
from millrace.core.topics import shard_scope
from millrace.core.trace_context import of_facts

from . import answers, questions, reports, retirement
from .state import Ending, State, job_key

Outputs = Iterator[Output]


def on_job_ended(state: State, body: jobs.JobEnded, envelope: Envelope) -> Outputs:
    live = state.live.get(body.job)
    if live is not None and live.acceptance == body.acceptance:
        if live.ending is not None:
            return  # sent again by a new life of the JobMaster: the first report is on its way to etcd
        spent = body.archive.spent if body.archive is not None else None
        # As it ran at last. What came too late for its JobMaster is no part of it.
        graph = with_parallelism(parsed(live.graph), body.archive.rescaled if body.archive is not None else {})
        live.ending = Ending(
            body.status, retirement.small_result(body.archive), spent, of_facts(graph, live.acceptance)
        )  # fmt: skip
        stored = retirement.ending(
            body,
            digest=live.digest,
            shard=live.shard,
            accepted_ms=live.accepted_ms,
            name=live.name,
            path=retirement.archive_path(body.job, body.acceptance, envelope.id),
            graph=graph,
            kept_until_ms=retirement.kept_until_ms(body, state.settings),
        ).model_copy(update={"scheduled": live.scheduled})
        archive = retirement.archive(body, name=live.name, accepted_ms=live.accepted_ms, graph=graph)
        yield Do(job_key(body.job), effects.EndJob(job=body.job, ending=stored, archive=archive))
    elif live or body.job in state.ended or reports.is_settled(state, body.job):
        yield Say(envelope.sender, jobs.JobRetired(job=body.job, acceptance=body.acceptance))
    else:
        # It is still to be recovered, or being looked up: its submission was read again, and the recovery left it out. If etcd has it as
        # accepted, StartJob follows, and the JobMaster answers with the end again. Else JobRetired is sent then [R21].
        state.unverified_reports[body.job] = body.acceptance


def on_job_result_stored(state: State, body: effects.JobResultStored, envelope: Envelope) -> Outputs:
    """The ending that counts is the one in etcd [R16]."""
    live = retirement.remove_live(state, body.job)
    assert live.ending is not None, "only a job that ended has this outcome"
    ours = body.stands.acceptance == live.acceptance and body.stands.status == live.ending.status
    yield from announce_ended(state, body.job, body.stands, envelope, live.ending if ours else None)
    ended = answers.remembered(body.stands)
    for request in live.awaiting:
        yield from questions.row_of(request).ended(state, request, envelope, ended, body.stands.cause)


def announce_ended(state: State, job: str, stored: StoredJob, envelope: Envelope, ending: Ending | None = None) -> Outputs:
    """The ending is in etcd: the event is published, the JobMaster is sent JobRetired, and what the job leaves is deleted."""
    answers.remember(state, job, stored)
    retirement.forget_oldest(state)
    state.unverified_reports.pop(job, None)
    trace = ending.trace if ending is not None else ""
    yield Publish("job.events", job, _event(job, stored, envelope, ending), trace, after="JobCancelling")
    yield Say(shard_scope(stored.shard), jobs.JobRetired(job=job, acceptance=stored.acceptance))
    if stored.state == "dirty":
        clean = effects.CleanJob(
            job=job,
            tombstone=retirement.tombstone(stored),
            exchange=retirement.exchange_path(stored.acceptance) if stored.kept_until_ms is None else "",
            staging=stored.staging,
        )
        yield Do(job_key(job), clean, after_said=True)  # while it is dirty, a new generation announces the ending again


def _event(job: str, stored: StoredJob, envelope: Envelope, ending: Ending | None) -> events.JobEvent:
    at_ms, archive = envelope.at_ms, stored.archive
    spent = ending.spent if ending is not None else None
    if stored.status == "FINISHED":
        value = parsed(ending.result) if ending is not None and ending.result is not None else None
        return events.JobFinished(job=job, at_ms=at_ms, archive=archive, result=value, spent=spent)
    if stored.status == "FAILED":
        return events.JobFailed(job=job, at_ms=at_ms, archive=archive, cause=stored.cause, spent=spent)
    return events.JobCanceled(job=job, at_ms=at_ms, archive=archive, spent=spent)


def on_job_cleaned(state: State, body: effects.JobCleaned, envelope: Envelope) -> Outputs:
    """Nothing is left to do for the job."""
    yield from ()


def on_job_kept(state: State, body: effects.JobKept, envelope: Envelope) -> Outputs:
    """Nothing is left to do for the job."""
    yield from ()
