"""What the metrics show of a shard that this process leads, and what it counts of what it sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from millrace.core.fold import OutboxRecord
from millrace.core.messages.base import parsed
from millrace.core.states import ExecutionState
from millrace.runtime import metrics
from millrace.runtime.hosting import Count
from millrace.runtime.metrics import Sample

from .core.state import State


def shown(scope: str) -> Callable[[State], Iterator[Sample]]:
    """What reads the gauges of this shard's state."""

    def shows(state: State) -> Iterator[Sample]:
        yield metrics.SHARD_JOBS.of(len(state.jobs), scope)
        yield metrics.SHARD_SLOTS.of(len(state.allocations), scope)

    return shows


def _attempt(output: OutboxRecord, state: State) -> None:
    if '"beside":' not in output.value:  # no text has quotes that are not escaped
        for shown, count in _ALONE.items():
            if shown in output.value:
                count()
                return
    event = parsed(output.value)
    beside = event.get("beside")
    if beside is not None and event["state"] == ExecutionState.DEPLOYING.value:
        metrics.SECOND_ATTEMPTS_STARTED.add()
    elif beside is not None and event["state"] == ExecutionState.CANCELED.value and beside > event["attempt"]:
        metrics.SECOND_ATTEMPTS_WON.add()  # told with the end of the one that has lost, and once
    if event["state"] == ExecutionState.RUNNING.value:
        metrics.ATTEMPTS_STARTED.add()
    elif event["state"] == ExecutionState.FAILED.value:
        metrics.ATTEMPTS_ENDED.add((event.get("error") or {}).get("kind", metrics.OTHER))
    elif event["state"] in (ExecutionState.FINISHED.value, ExecutionState.CANCELED.value):
        metrics.ATTEMPTS_ENDED.add(event["state"].lower())


_ALONE: Mapping[str, Callable[[], None]] = {
    '"state":"DEPLOYING"': lambda: None,
    '"state":"RUNNING"': metrics.ATTEMPTS_STARTED.add,
    '"state":"FINISHED"': lambda: metrics.ATTEMPTS_ENDED.add("finished"),
}
"""Nearly all events about attempts, by what each has in its text: jobs wait while one is read."""


def _rescaled(output: OutboxRecord, state: State) -> None:
    metrics.RESCALED.add()


COUNTS: Mapping[str, Count] = {"AttemptStateChanged": _attempt, "JobRescaled": _rescaled}
"""Type of an output -> what counts it."""
