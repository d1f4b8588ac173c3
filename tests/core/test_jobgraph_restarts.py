"""A restart strategy takes its own fields alone; what is wrong is said at its place, with the strategy that has the field."""

from __future__ import annotations

import pytest

from millrace.core.jobgraph.model import JobGraph, dump
from tests.core.of_jobgraph import CSV, accepted, graph, problems

BAD: dict[str, tuple[object, list[str]]] = {
    "a field of another restart strategy": (
        graph({"a": CSV}, restart={"strategy": "failure-rate", "attempts": 3, "delay_ms": 5}),
        [
            "restart.attempts: is a field of fixed-delay, and the strategy is failure-rate"
            " (failure-rate has max_failures_per_interval, failure_rate_interval_ms, delay_ms, out_of_memory_attempts)"
        ],
    ),
    "a field of two other strategies": (
        graph({"a": CSV}, restart={"strategy": "none", "delay_ms": 5}),
        ["restart.delay_ms: is a field of fixed-delay and failure-rate, and the strategy is none (none has no fields)"],
    ),
    "a field of a restart strategy that is not named": (
        graph({"a": CSV}, restart={"jitter_factor": 0.5}),
        [
            "restart.jitter_factor: is a field of exponential-delay, and the strategy is fixed-delay"
            " (fixed-delay has attempts, delay_ms, out_of_memory_attempts)"
        ],
    ),
    "values of exponential-delay": (
        graph(
            {"a": CSV},
            restart={"strategy": "exponential-delay", "backoff_multiplier": 1, "jitter_factor": "half", "initial_backoff_ms": 0},
        ),
        [
            "restart.initial_backoff_ms: must be at least 1, not 0",
            "restart.backoff_multiplier: must be at least 1.01, not 1",
            "restart.jitter_factor: must be a number, not the text 'half'",
        ],
    ),
    "a first delay above the longest": (
        graph({"a": CSV}, restart={"strategy": "exponential-delay", "max_backoff_ms": 100}),
        ["restart.max_backoff_ms: the first delay, 1000 ms, is longer than the longest, 100 ms"],
    ),
}
GOOD = (
    {},
    {"strategy": "none"},
    {"attempts": 5, "delay_ms": 0, "out_of_memory_attempts": 0},
    {"strategy": "failure-rate", "max_failures_per_interval": 2, "failure_rate_interval_ms": 5_000, "delay_ms": 10},
    {"strategy": "exponential-delay", "initial_backoff_ms": 10, "max_backoff_ms": 20, "backoff_multiplier": 2, "jitter_factor": 0,
     "reset_backoff_threshold_ms": 5_000, "attempts_before_reset_backoff": 3},
)  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_restart_gets_exactly_its_problems(case: str) -> None:
    raw, expected = BAD[case]
    assert problems(raw) == expected


@pytest.mark.parametrize("restart", GOOD)
def test_a_good_one_is_stored_and_read_as_it_is(restart: dict[str, object]) -> None:
    found = accepted(graph({"a": CSV}, restart=restart))
    assert dump(found).get("restart", {}) == restart and JobGraph.model_validate(dump(found)) == found
