"""Accepted jobs are announced, and their shards are sent StartJob: at once, or a few at each tick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.machine import Output, Publish, Say
from millrace.core.messages import events, jobs
from millrace.core.messages.base import parsed, written
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.kept import Kept
from millrace.core.origins import origin_shown
from millrace.core.topics import shard_scope
from millrace.core.trace_context import of_facts

from . import admission, answers, requirements
from .state import LiveJob, State

STARTS_A_TICK = 500  # StartJobs that a shard is sent at a tick: more would hold the loop for too long
FLOOD_A_TICK = 32  # with so many submissions stored since the last tick ...
FLOOD_STARTS_A_TICK = 5  # ... no more jobs than these are started at a tick: what is not stored yet comes first


def announce_accepted(state: State, job: str, stored: StoredJob, put: str = "") -> Iterator[Output]:
    """A job whose graph is stored in etcd is live. `put`: the graph where `stored` leaves it out.

    JobAccepted comes before StartJob: else an event of its JobMaster could precede it on job.events."""
    graph = parsed(put) if stored.graph is None else stored.graph
    live = state.live[job] = LiveJob(
        acceptance=stored.acceptance,
        digest=stored.digest,
        shard=stored.shard,
        accepted_ms=stored.accepted_ms,
        name=stored.name,
        log=stored.asked_log,
        offset=stored.asked,
        graph=put if stored.graph is None else written(graph),
        subtasks=admission.subtasks_of(graph),
        scheduled=stored.scheduled,
        kept=written(stored.kept) if stored.kept is not None else "",
    )
    state.live_graphs += len(live.graph) + len(live.kept)
    state.live_subtasks += live.subtasks
    state.unverified_reports.pop(job, None)  # its JobMaster answers StartJob with the end again
    event = events.JobAccepted(
        job=job, at_ms=stored.accepted_ms, name=live.name, tasks=answers.tasks_of(graph), scheduled=stored.scheduled,
        origin=origin_shown(graph),
    )  # fmt: skip
    yield Publish("job.events", job, event, of_facts(graph, live.acceptance))
    scope = shard_scope(live.shard)
    if state.closing is not None:
        return  # it is started when the cluster is up again
    if scope in state.received_from and (scope in state.starts_to_send or state.put_since_tick >= FLOOD_A_TICK):
        state.starts_to_send.setdefault(scope, []).insert(0, job)  # the last of those that wait
    else:
        yield _start(job, live, graph)


def stored_of(live: LiveJob) -> StoredJob:
    """What its key holds, by the log."""
    kept = Kept.model_validate_json(live.kept) if live.kept else None
    return StoredJob(
        state="accepted", digest=live.digest, acceptance=live.acceptance, shard=live.shard,
        accepted_ms=live.accepted_ms, graph=parsed(live.graph), name=live.name, scheduled=live.scheduled,
        kept=kept, kept_of=kept.jobs if kept is not None else {}, asked_log=live.log, asked=live.offset,
    )  # fmt: skip


def start_all(state: State, scope: str) -> Iterator[Output]:
    """A shard is born anew: all its live jobs are started there, the first few at once [R10]."""
    mine = [job for job, live in state.live.items() if shard_scope(live.shard) == scope]
    state.starts_to_send[scope] = mine[::-1]
    yield from start_next(state, scope)


def start_next(state: State, scope: str) -> Iterator[Output]:
    """The next few jobs whose StartJob is still to be sent."""
    left = state.starts_to_send[scope]
    most = STARTS_A_TICK if state.put_since_tick < FLOOD_A_TICK else FLOOD_STARTS_A_TICK
    for _ in range(min(most, len(left))):
        job = left.pop()
        live = state.live.get(job)
        if live is not None and live.ending is None:  # what has ended must not be started again
            yield _start(job, live)
    if not left:
        del state.starts_to_send[scope]


def _start(job: str, live: LiveJob, graph: dict[str, Any] | None = None) -> Say:
    body = jobs.StartJob(
        job=job,
        acceptance=live.acceptance,
        graph=graph if graph is not None else parsed(live.graph),
        accepted_ms=live.accepted_ms,
        cancel=live.cancel,
        kept=Kept.model_validate_json(live.kept) if live.kept else None,
        rescale=requirements.at_start(live),
    )
    return Say(shard_scope(live.shard), body, after="job.events")  # events of the JobMaster follow JobAccepted
