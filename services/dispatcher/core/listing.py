"""ListJobDetails: all jobs, page by page, newest first. What lives is in the state, and of what has ended the newest; older ones are in
etcd alone.

A page's place is the key of its last job, so jobs that come meanwhile move no page. The state knows until when it knows all: a page of
jobs that were accepted later is answered at once. For any other etcd is asked, and both are merged, live over ended.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator

from millrace.core.bounded import fitting
from millrace.core.machine import Do, Envelope, Output
from millrace.core.messages import client, effects
from millrace.core.states import ENDED_JOB, Recovery
from millrace.core.timing import FORWARDED_ANSWER_MS
from millrace.core.topics import shard_scope

from .answers import allowed, refuse, reply
from .state import EndedJob, Listing, LiveJob, State

MOST = 16
"""Requests that wait for what etcd has of them: each may have all of it read."""

Key = tuple[int, str]
Outputs = Iterator[Output]


def key_of(job: client.JobDetails) -> Key:
    """Its place in the order; the greatest comes first."""
    return job.accepted_ms, job.job


def before(request: client.ListJobDetails) -> Key | None:
    """The key that all of the page are below; None: it is the first one."""
    accepted_ms, _, job = request.cursor.partition(".")
    return (int(accepted_ms), job) if accepted_ms else None


def list_job_details(state: State, request: client.ListJobDetails, envelope: Envelope) -> Outputs:
    """Answers from the state, where it has the whole page, or asks etcd."""
    if not re.fullmatch(client.CURSOR_PATTERN, request.cursor):
        yield from refuse(request, "invalid", "the cursor is none of a list of jobs: give `next` of the page before")
    elif state.recovery is not Recovery.DONE:
        yield from refuse(request, "busy", "the jobs of an earlier life are still being read from etcd; try again")
    elif _is_known(state, request, found := _remembered(state, request)):
        yield from _answer(state, request, found, len(found) > request.limit or _may_be_older(state, request))
    elif len(state.listings) >= MOST:
        yield from refuse(request, "busy", f"{MOST} lists of jobs wait for etcd already; try again")
    elif request.reply_to:
        state.listed += 1
        state.listings[state.listed] = Listing(request, envelope.now_ms)
        yield Do("listing", effects.ListStoredJobs(number=state.listed, asked=request))


def on_stored_jobs_listed(state: State, body: effects.StoredJobsListed, envelope: Envelope) -> Outputs:
    """What the state has counts: a job may have ended, or ended another way, since etcd was read."""
    listing = state.listings.pop(body.number, None)
    if listing is None:
        return  # it was refused: etcd took too long
    found = _remembered(state, listing.request) + [each for each in body.jobs if each.job not in state.live and each.job not in state.ended]
    if body.more:  # what etcd has below these is not here
        found = [each for each in found if key_of(each) >= key_of(body.jobs[-1])]
    yield from _answer(state, listing.request, sorted(found, key=key_of, reverse=True), body.more)


def refuse_overdue(state: State, envelope: Envelope) -> Outputs:
    """Answers those that wait for an etcd that is silent [R31]."""
    for number, listing in list(state.listings.items()):
        if envelope.now_ms - listing.asked_ms >= FORWARDED_ANSWER_MS:
            del state.listings[number]
            reason = f"etcd has not answered within {FORWARDED_ANSWER_MS // 1000} s, and it alone has these jobs; try again"
            yield from reply(listing.request, client.RequestRefused, kind="busy", reason=reason, silent="etcd")


def _is_known(state: State, request: client.ListJobDetails, found: list[client.JobDetails]) -> bool:
    """Whether no job that is in etcd alone belongs on the page. `found`: what the state has, one more than the page has."""
    oldest_ms = found[request.limit - 1].accepted_ms if len(found) >= request.limit else 0
    return not _may_be_older(state, request) or (state.unlisted_ms is not None and oldest_ms > state.unlisted_ms)


def _may_be_older(state: State, request: client.ListJobDetails) -> bool:
    """Whether jobs that are asked for may be in etcd alone. Those have ended."""
    if state.unlisted_ms == 0 or (request.states and not any(each in ENDED_JOB for each in request.states)):
        return False
    return state.unlisted_ms is None or request.since_ms is None or request.since_ms <= state.unlisted_ms


def _answer(state: State, request: client.ListJobDetails, found: list[client.JobDetails], more: bool) -> Outputs:
    """`found`: newest first. `more`: jobs that come behind them may be there."""
    page = fitting(found[: request.limit])
    more = bool(page) and (more or len(found) > len(page))
    total = None if _may_be_older(state, request) else sum(1 for _ in _allowed(state, request))
    place = f"{page[-1].accepted_ms}.{page[-1].job}" if more else None
    return reply(request, client.JobDetailsListed, jobs=page, next=place, total=total)


def _remembered(state: State, request: client.ListJobDetails) -> list[client.JobDetails]:
    """What the state has of the page, newest first, and one more."""
    after = before(request)
    left = ((known.accepted_ms, job, known) for job, known in _allowed(state, request) if after is None or (known.accepted_ms, job) < after)
    return [_details(state, job, known) for _, job, known in heapq.nlargest(request.limit + 1, left, key=lambda each: each[:2])]


def _allowed(state: State, request: client.ListJobDetails) -> Iterable[tuple[str, LiveJob | EndedJob]]:
    jobs: dict[str, LiveJob | EndedJob] = {**state.ended, **state.live}
    return ((job, known) for job, known in jobs.items() if allowed(request, known.name, known.state, known.accepted_ms))


def _details(state: State, job: str, known: LiveJob | EndedJob) -> client.JobDetails:
    summary = known.summary(job).model_dump()
    if isinstance(known, EndedJob):
        return client.JobDetails(**summary, archive=known.archive)
    scope = shard_scope(known.shard)
    silent = scope if scope in state.silent or scope not in state.received_from else None
    return client.JobDetails(**summary, silent=silent)
