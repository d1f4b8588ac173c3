"""The restart strategies of a graph, with Flink's semantics: pure policy over machine time.

Each counts the failure that it is asked about in its job, and says what follows. They count for the whole job, as in Flink.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from millrace.core.clocks import NowMs, after
from millrace.core.jobgraph.model import Restart

from .state import Backoff, Job


class Decision(NamedTuple):
    """What follows a failed attempt."""

    delay_ms: int | None  # until its subtask's next attempt; None: the job fails
    why: str  # for people: which budget decided, and how much of it is used


def out_of_memory(restart: Restart, job: Job) -> Decision:
    """What follows an attempt that ran out of memory: a budget of its own, with the strategy's first delay."""
    if restart.strategy == "none" or job.memory_restarts >= restart.out_of_memory_attempts:
        most = 0 if restart.strategy == "none" else restart.out_of_memory_attempts
        return Decision(None, f"out of memory: {job.memory_restarts} of {most} restarts used")
    job.memory_restarts += 1
    delay_ms = restart.initial_backoff_ms if restart.strategy == "exponential-delay" else restart.delay_ms
    return Decision(delay_ms, f"out of memory: restart {job.memory_restarts} of {restart.out_of_memory_attempts}")


def _none(restart: Restart, job: Job, now_ms: NowMs) -> Decision:
    return Decision(None, "none: nothing is tried again")


def _fixed_delay(restart: Restart, job: Job, now_ms: NowMs) -> Decision:
    if job.restarts >= restart.attempts:
        return Decision(None, f"fixed-delay: {job.restarts} of {restart.attempts} restarts used")
    job.restarts += 1
    return Decision(restart.delay_ms, f"fixed-delay: restart {job.restarts} of {restart.attempts}")


def _failure_rate(restart: Restart, job: Job, now_ms: NowMs) -> Decision:
    """Allows exactly so many failures within an interval; the next one fails the job."""
    job.backoff = job.backoff or Backoff()
    most, within_ms, failed_ms = restart.max_failures_per_interval, restart.failure_rate_interval_ms, job.backoff.failed_ms
    failed_ms.append(now_ms)
    del failed_ms[: -most - 1]
    if len(failed_ms) > most and now_ms - failed_ms[0] <= within_ms:
        return Decision(None, f"failure-rate: {len(failed_ms)} failures within {within_ms} ms, and {most} may be")
    job.restarts += 1
    recent = sum(now_ms - each <= within_ms for each in failed_ms)
    return Decision(restart.delay_ms, f"failure-rate: failure {recent} of {most} within {within_ms} ms")


def _exponential_delay(restart: Restart, job: Job, now_ms: NowMs) -> Decision:
    """A failure while a restart waits is merged into that one: it is tried again with it, and does not count."""
    kept = job.backoff = job.backoff or Backoff()
    if kept.restart_ms is not None:
        quiet_ms = now_ms - kept.restart_ms
        if quiet_ms <= 0:
            return Decision(-quiet_ms, f"exponential-delay: with restart {kept.attempts}, which is due")
        if quiet_ms >= restart.reset_backoff_threshold_ms:
            kept.attempts = 0
    most = restart.attempts_before_reset_backoff
    if most is not None and kept.attempts >= most:
        return Decision(None, f"exponential-delay: {kept.attempts} of {most} restarts used")
    delay_ms = _backoff_ms(restart, job, kept.attempts)
    kept.attempts += 1
    job.restarts += 1
    kept.restart_ms = after(now_ms, delay_ms)
    return Decision(delay_ms, f"exponential-delay: restart {kept.attempts}" + (f" of {most}" if most is not None else ""))


def _backoff_ms(restart: Restart, job: Job, before: int) -> int:
    """The delay after so many restarts. Multiplied step by step: the last bits of a power differ between machines."""
    grown = float(restart.initial_backoff_ms)
    for _ in range(before):
        if grown >= restart.max_backoff_ms:
            break
        grown *= restart.backoff_multiplier
    delay_ms = int(min(grown, restart.max_backoff_ms))
    jittered_ms = delay_ms + _jitter_ms(job, int(delay_ms * restart.jitter_factor))
    return max(restart.initial_backoff_ms, min(jittered_ms, restart.max_backoff_ms))


def _jitter_ms(job: Job, most_ms: int) -> int:  # [R1]
    """Between -most_ms and most_ms. The seed is in the job's state, so every fold of its log draws the same."""
    seed = f"{job.acceptance}/{job.life}/{job.restarts}"
    drawn = int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest(), "big")
    return drawn % (2 * most_ms + 1) - most_ms


STRATEGIES: dict[str, Callable[[Restart, Job, NowMs], Decision]] = {
    "none": _none,
    "fixed-delay": _fixed_delay,
    "failure-rate": _failure_rate,
    "exponential-delay": _exponential_delay,
}
