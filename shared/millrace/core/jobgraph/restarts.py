"""The fields of each restart strategy, and what is wrong with a raw `restart`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .model import Restart
from .problems import Problem

MEMORY_ATTEMPTS = "out_of_memory_attempts"
"""A field of each strategy that restarts."""
FIELDS: dict[str, tuple[str, ...]] = {
    "fixed-delay": ("attempts", "delay_ms", MEMORY_ATTEMPTS),
    "failure-rate": ("max_failures_per_interval", "failure_rate_interval_ms", "delay_ms", MEMORY_ATTEMPTS),
    "exponential-delay": (
        "initial_backoff_ms", "max_backoff_ms", "backoff_multiplier", "jitter_factor", "reset_backoff_threshold_ms",
        "attempts_before_reset_backoff", MEMORY_ATTEMPTS,
    ),
    "none": (),
}  # fmt: skip


def restart_problems(restart: object) -> Iterator[Problem]:
    """What types alone do not say: a strategy takes its own fields, and its shortest delay is not above its longest."""
    if not isinstance(restart, Mapping):
        return
    strategy = restart.get("strategy", Restart().strategy)
    if not isinstance(strategy, str) or strategy not in FIELDS:
        return  # reported by the model
    for field in restart:
        others = [other for other, fields in FIELDS.items() if field in fields]
        if others and strategy not in others:
            has = f"{strategy} has {', '.join(FIELDS[strategy]) or 'no fields'}"
            yield Problem(("restart", field), f"is a field of {' and '.join(others)}, and the strategy is {strategy}", has)
    first, longest = (restart.get(name, getattr(Restart(), name)) for name in ("initial_backoff_ms", "max_backoff_ms"))
    if strategy == "exponential-delay" and type(first) is type(longest) is int and first > longest:
        field = "initial_backoff_ms" if "initial_backoff_ms" in restart else "max_backoff_ms"
        yield Problem(("restart", field), f"the first delay, {first} ms, is longer than the longest, {longest} ms")
