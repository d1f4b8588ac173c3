"""What JobMasters report of jobs while they run, and reports about jobs that are not known here yet.

A report about a job in no table is kept as unverified until it is known what etcd holds: during the recovery, and while the job is
looked up.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages import jobs
from millrace.core.messages.effects import StoredJob
from millrace.core.states import Recovery
from millrace.core.topics import shard_scope

from . import answers, questions, requirements
from .state import State

Outputs = Iterator[Output]


def on_job_master_started(state: State, body: jobs.JobMasterStarted, envelope: Envelope) -> Outputs:
    """The JobMaster has taken the job over. If the job waits, JobStatusChanged follows."""
    live = state.live.get(body.job)
    if live is not None:
        live.status, live.waiting, live.position, live.expected_ms = body.status, None, None, None
        if body.rescale is not None and body.acceptance == live.acceptance:
            requirements.take_back(state, live, body.rescale)
    else:
        yield from _report_of_no_live_job(state, body.job, envelope)


def on_job_status_changed(state: State, body: jobs.JobStatusChanged, envelope: Envelope) -> Outputs:
    live = state.live.get(body.job)
    if live is not None:
        live.status, live.waiting, live.running_ms = body.status, body.waiting, body.running_ms
        live.position, live.expected_ms, live.publishing = body.position, body.expected_ms, body.publishing
    else:
        yield from _report_of_no_live_job(state, body.job, envelope)


def _report_of_no_live_job(state: State, job: str, envelope: Envelope) -> Outputs:
    """A JobMaster that still works for an ended job is sent JobRetired."""
    ended = state.ended.get(job)
    if ended is not None:
        yield Say(envelope.sender, jobs.JobRetired(job=job, acceptance=ended.acceptance))
    else:
        yield from note_unverified(state, job, envelope)


def note_unverified(state: State, job: str, envelope: Envelope) -> Outputs:
    """A job in no table runs at a shard. Once all is recovered, it may have ended too long ago for the state: it is looked up."""
    if is_settled(state, job):
        yield from questions.answer(state, answers.nobodys_request(job), envelope)
    if not is_settled(state, job):
        state.unverified_reports.setdefault(job, "")


def is_settled(state: State, job: str) -> bool:
    """Whether the tables tell all that is to know of the job. Of one that is in none of them, etcd has nothing, or an end too old for the
    state."""
    return state.recovery is Recovery.DONE and job not in state.lookups


def answer_unverified(state: State, job: str, stored: StoredJob | None = None, *, absent: bool = False) -> Outputs:
    """It is known now what etcd has of a job that a shard has reported: JobRetired is sent if the job has ended. `stored`: what etcd has.
    `absent`: etcd was asked, and has nothing of it.

    The ending may be clean, with nobody left to send JobRetired: a generation sends it before it cleans up, but nothing can be sent
    to a shard from which it has received nothing yet."""
    acceptance, ended = state.unverified_reports.pop(job, None), state.ended.get(job) or stored
    if acceptance == "" and absent and ended is None and job not in state.live:
        # A job is in etcd before any shard has it, and its tombstone is there after its end. So somebody deleted its key, and the log that
        # was told of it is lost. No client could cancel it, and its attempts might go on for ever. JobRetired follows its end.
        yield Say(shard_scope(state.topology.shard_of(job)), jobs.CancelStartedJob(job=job))
    if acceptance == "" and ended is not None:  # it runs there still, though it has ended
        acceptance = ended.acceptance
    if acceptance:
        yield Say(shard_scope(state.topology.shard_of(job)), jobs.JobRetired(job=job, acceptance=acceptance))
