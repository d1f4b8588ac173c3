"""What is kept of a job that has ended: its archive, its ending in etcd, its tombstone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from millrace.core.jobgraph.specs import staging_beside
from millrace.core.messages.attempts import Fault, ResultRows
from millrace.core.messages.base import written
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.execution import Archive, JobDetail
from millrace.core.messages.jobs import JobEnded
from millrace.core.states import Recovery, StoredState, check_stored

from .state import EndedJob, LiveJob, Settings, State

KEPT_AFTER_MS = 12 * 3_600_000
"""A repeat so long after a job's end leads to KeepJob, for those who delete tombstones. They take an earlier one for a part of the job."""
SMALL_RESULT_BYTES = 16 * 1024
CAUSE_MESSAGE_MOST = 2_000
CAUSE_FIELDS = ("kind", "condition", "message", "vertex", "line", "column", "file", "subtask", "attempt", "exit_code", "decided")


def archive_path(job: str, acceptance: str, record: str) -> str:
    """In storage, for one report of the end (`record`: its id): never written twice with other content [R20]."""
    return f"archives/{job}/{acceptance}/{record}.json"


def exchange_path(acceptance: str) -> str:
    """In storage: everything that the attempts of this acceptance hand to each other lies below it."""
    return f"exchange/{acceptance}"


def brief(cause: Fault | None) -> Fault | None:
    """A cause without its stack trace, and never long: what etcd and an event carry."""
    if cause is None:
        return None
    given = cause.json_value()
    kept = {name: given[name] for name in CAUSE_FIELDS if given.get(name) is not None}
    return Fault.model_validate({name: _short(value) if isinstance(value, str) else value for name, value in kept.items()})


def staging(graph: Mapping[str, Any], acceptance: str) -> list[str]:
    """The folders in which attempts of a job stage sink output: of its acceptance alone, for jobs share a sink's neighbour."""
    sinks = [vertex["sink"] for vertex in graph.get("vertices", {}).values() if vertex.get("sink")]
    return [f"{staging_beside(sink['path'])}/{acceptance}" for sink in sinks]


def ending(
    ended: JobEnded, *, digest: str, shard: int, accepted_ms: int, name: str, path: str, graph: Mapping[str, Any],
    kept_until_ms: int | None = None,
) -> StoredJob:  # fmt: skip
    """What the job's key becomes."""
    return StoredJob(
        state="dirty",
        digest=digest,
        acceptance=ended.acceptance,
        shard=shard,
        accepted_ms=accepted_ms,
        name=name,
        status=ended.status,
        ended_ms=ended.ended_ms,
        running_ms=ended.running_ms,
        archive=path,
        cause=brief(ended.cause),
        staging=staging(graph, ended.acceptance),
        kept_until_ms=kept_until_ms,
        kept_of={**ended.kept.jobs} if kept_until_ms is not None and ended.kept is not None else {},
    )


def kept_until_ms(ended: JobEnded, settings: Settings) -> int | None:
    """How long the exchange data of a job stay; None: they are deleted at once. One that has more than all may have together keeps none."""
    kept = ended.kept
    if kept is None or kept.why or not settings.keep_for_repair_ms or kept.bytes > settings.keep_for_repair_mb << 20:
        return None
    return ended.ended_ms + settings.keep_for_repair_ms


def tombstone(stored: StoredJob) -> StoredJob:  # [R18]
    """What stays when all is cleaned up: enough to answer from, and to recognize a late repeat."""
    check_stored(StoredState(stored.state), StoredState.CLEAN)
    return stored.model_copy(update={"state": "clean", "staging": [], "graph": None})


def tombstone_of(ended: EndedJob, shard: int) -> StoredJob:
    """The same, made of what the state has of the job."""
    return StoredJob(
        state="clean", digest=ended.digest, acceptance=ended.acceptance, shard=shard, accepted_ms=ended.accepted_ms,
        name=ended.name, status=ended.status, ended_ms=ended.ended_ms, archive=ended.archive, scheduled=ended.scheduled,
    )  # fmt: skip


def archive(ended: JobEnded, *, name: str, accepted_ms: int, graph: Mapping[str, Any]) -> Archive:
    """What `show` and `result` answer from: the job, why it ended, its graph, the ExecutionGraph as it was left."""
    return Archive(
        job=ended.job, name=name, status=ended.status, accepted_ms=accepted_ms, ended_ms=ended.ended_ms, cause=ended.cause,
        graph=dict(graph), detail=ended.archive, **({} if ended.kept is None else {"kept": ended.kept}),
    )  # fmt: skip


def small_result(detail: JobDetail | None) -> str | None:
    """The result's rows as JSON if an event can carry them; else they are read from the archive."""
    result = detail.result if detail is not None else None
    if not isinstance(result, ResultRows) or result.rows is None:
        return None
    text = written(result.json_value())
    return text if len(text.encode()) <= SMALL_RESULT_BYTES else None


def _short(text: str) -> str:
    return text if len(text) <= CAUSE_MESSAGE_MOST else f"{text[:CAUSE_MESSAGE_MOST]}..."


def remove_live(state: State, job: str) -> LiveJob:
    """The job's ending is stored: it takes no room any more. The caller answers the requests that await it."""
    live = state.live.pop(job)
    state.live_graphs -= len(live.graph) + len(live.kept)
    state.live_subtasks -= live.subtasks
    state.waiting -= len(live.awaiting)
    state.late.pop(job, None)
    return live


def forget_oldest(state: State) -> None:
    """Once all is recovered: before, the order of `ended` is not that of the endings."""
    excess = len(state.ended) - state.settings.retained_jobs
    if excess > 0 and state.recovery is Recovery.DONE:
        for job in list(islice(state.ended, excess)):
            note_unlisted(state, state.ended.pop(job).accepted_ms)


def note_unlisted(state: State, accepted_ms: int) -> None:
    """A job that was accepted then, and has ended, is in etcd alone."""
    if state.unlisted_ms is not None:
        state.unlisted_ms = max(state.unlisted_ms, accepted_ms)
