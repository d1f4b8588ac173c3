"""A new generation reads all jobs from etcd, page by page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from millrace.core.machine import Born, Do, Envelope, Output
from millrace.core.messages import effects
from millrace.core.states import Recovery, check_recovery

from . import answers, changed_graphs, lookups, reports, retirement
from .state import State

Outputs = Iterator[Output]


def on_born(state: State, body: Born, envelope: Envelope) -> Outputs:  # [R24]
    """A new generation knows nothing: accepted jobs come back from etcd."""
    _move(state, Recovery.RUNNING)
    state.unlisted_ms = 0
    yield Do("jobs", effects.RecoverJobs(retained=state.settings.retained_jobs))


def on_jobs_recovered(state: State, body: effects.JobsRecovered, envelope: Envelope) -> Outputs:  # [R24]
    """A page of what etcd holds. Jobs that are known, or that an effect in flight is about, are left out."""
    for job, stored in body.jobs.items():
        if job in state.live or job in state.ended or job in state.lookups:
            continue
        if stored.state == "accepted" and changed_graphs.is_of_another_cluster(state, stored.acceptance):
            continue  # it is noticed once all is recovered
        if stored.state == "clean":
            answers.remember(state, job, stored)
        else:
            yield from lookups.adopt(state, job, stored, envelope)
    retirement.note_unlisted(state, body.left_out_ms)
    yield from recover_next(state, envelope, body.through)


def _move(state: State, recovery: Recovery) -> None:
    check_recovery(state.recovery, recovery)
    state.recovery = recovery


def recover_next(state: State, envelope: Envelope, through: str | None) -> Outputs:
    """Asks for the next page. None: that was the last one."""
    if through is not None:
        yield Do("jobs", effects.RecoverJobs(after=through, retained=state.settings.retained_jobs))
        return
    _move(state, Recovery.DONE)
    state.ended = OrderedDict(sorted(state.ended.items(), key=lambda item: (item[1].ended_ms, item[0])))
    retirement.forget_oldest(state)
    for job in [job for job in state.unverified_reports if job not in state.lookups]:
        unnamed = state.unverified_reports[job] == "" and job not in state.ended
        yield from reports.answer_unverified(state, job)
        if unnamed:
            yield from reports.note_unverified(state, job, envelope)
