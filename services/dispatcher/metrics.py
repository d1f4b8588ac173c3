"""What the metrics show of a leading Dispatcher, and what it counts of what it sends."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.core.fold import OutboxRecord
from millrace.core.messages.events import SUBMISSION
from millrace.core.states import ENDED_BY
from millrace.runtime import metrics
from millrace.runtime.exposition import gently
from millrace.runtime.hosting import Count
from millrace.runtime.metrics import Sample

from .core.state import State

STAMPS_MOST = 1024
INVALID = "invalid"


class Measures:
    """Of one process. What a term before this one has sent, and Kafka is not known to have, is sent again, and counted again."""

    def __init__(self) -> None:
        self._stamps: OrderedDict[int, int] = OrderedDict()  # offset in client.commands -> Kafka's stamp, of the last that came

    @property
    def counts(self) -> Mapping[str, Count]:
        """Type of an output -> what counts it."""
        return {
            "JobAccepted": self._accepted, "JobRejected": _rejected, "RequestRefused": _refused, "DeadLetter": _dead_letter,
            **dict.fromkeys(ENDED_BY, _ended),
        }  # fmt: skip

    def came(self, offset: int, stamp_ms: int) -> None:
        """A request was read from client.commands. Another thread than the others."""
        self._stamps[offset] = stamp_ms
        if len(self._stamps) > STAMPS_MOST:
            self._stamps.popitem(last=False)

    def _accepted(self, output: OutboxRecord, state: State) -> None:
        metrics.JOBS_ACCEPTED.add()
        metrics.JOBS_ORIGINS.add(_origin(json.loads(output.value)))
        live = state.live.get(output.key)
        stamp_ms = self._stamps.pop(live.offset, None) if live is not None else None
        if live is not None and stamp_ms is not None:
            metrics.JOB_SECONDS.observe((live.accepted_ms - stamp_ms) / 1000, metrics.STORE)


def shows(state: State) -> Iterator[Sample]:
    """The gauges of its state."""
    states: dict[str, int] = {}
    for job in gently(state.live.values()):
        shown = job.state
        states[shown] = states.get(shown, 0) + 1
    yield from metrics.JOBS.counts(states)
    yield metrics.GRAPH_BYTES.of(state.live_graphs)
    yield metrics.SUBTASKS.of(state.live_subtasks)
    yield metrics.WAITING.of(state.waiting)


def _origin(accepted: Mapping[str, Any]) -> str:
    """Of a JobAccepted."""
    if accepted.get("scheduled"):
        return metrics.SCHEDULE
    origin = accepted.get("origin")
    return metrics.NEW if not origin else metrics.REPAIR if origin.get("repair") else metrics.AGAIN


def _ended(output: OutboxRecord, state: State) -> None:
    metrics.JOBS_ENDED.add(ENDED_BY[output.type])
    for phase, ms in (json.loads(output.value).get("spent") or {}).items():
        metrics.JOB_SECONDS.observe(ms / 1000, phase.removesuffix("_ms"))


def _rejected(output: OutboxRecord, state: State) -> None:
    metrics.JOBS_REJECTED.add(json.loads(output.value)["kind"])


def _refused(output: OutboxRecord, state: State) -> None:
    metrics.REFUSED.add(json.loads(output.value)["kind"])


def _dead_letter(output: OutboxRecord, state: State) -> None:
    submission = SUBMISSION.match(json.loads(output.value)["reason"])
    metrics.DEAD_LETTERS.add(submission["kind"] or INVALID if submission else metrics.UNUSABLE)
