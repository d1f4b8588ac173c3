"""What the metrics show of a leading ResourceManager, and what it counts of what it sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millrace.core.fold import OutboxRecord
from millrace.core.messages.events import WorkerChanged
from millrace.core.states import PENDING_WORKER
from millrace.runtime import metrics
from millrace.runtime.exposition import gently
from millrace.runtime.hosting import Count
from millrace.runtime.metrics import Sample

from .core.state import State


def shows(state: State) -> Iterator[Sample]:
    """The gauges of its state."""
    states: dict[str, int] = {}
    for task_manager in gently(state.task_managers.values()):
        for slot in list(task_manager.slots.values()):
            states[slot.state.value] = states.get(slot.state.value, 0) + 1
    waiting = [job for job in gently(state.jobs.values()) if job.waits]
    since_ms = min((job.since_ms for job in waiting), default=state.stamp_ms)
    yield metrics.TASK_MANAGERS.of(len(state.task_managers))
    yield metrics.HOSTS_BLOCKED.of(len(state.blocklist.hosts))
    yield metrics.PROVIDER_LEFT_OUT.of(len(state.workers.left_out))
    yield metrics.TASK_MANAGERS_STARTING.of(sum(each.state in PENDING_WORKER for each in gently(state.workers.known.values())))
    yield from metrics.SLOTS.counts(states)
    yield metrics.QUEUE_JOBS.of(len(waiting))
    yield metrics.QUEUE_NEVER.of(sum(job.never_ms is not None for job in waiting))
    yield metrics.QUEUE_SECONDS.of(max(0, state.stamp_ms - since_ms) / 1000)


def _gone(output: OutboxRecord, state: State) -> None:
    metrics.TASK_MANAGERS_GONE.add()


def _worker_changed(said: OutboxRecord, state: State) -> None:
    event = WorkerChanged.model_validate_json(said.value)
    if event.state == "REQUESTED":
        metrics.TASK_MANAGERS_STARTED.add()
    elif event.failed:
        metrics.TASK_MANAGERS_FAILED.add()


COUNTS: Mapping[str, Count] = {"TaskManagerGone": _gone, "WorkerChanged": _worker_changed}
"""Type of an output -> what counts it."""
