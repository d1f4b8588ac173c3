"""How attempts behave on simulated slots, and how long things take there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Timing:
    """How long things take, in ms: (at least, at most)."""

    start: tuple[int, int] = (200, 900)  # of a slot's JVM
    launch: tuple[int, int] = (5, 40)  # until the user's code runs
    run: tuple[int, int] = (10, 400)
    kill: tuple[int, int] = (2, 60)
    asked: tuple[int, int] = (1, 2_600)  # from when it is asked to end until it has; it is killed where that is longer than it is given
    reset: tuple[int, int] = (10, 150)
    repair: tuple[int, int] = (1_000, 4_000)  # of a broken slot
    answer: tuple[int, int] = (1, 80)  # to an order to a running attempt
    progress: tuple[int, int] = (1_000, 1_500)  # until the first report of a running attempt, and between two
    unanswered: float = 0.1  # of questions about the TaskManager
    replaced: float = 0.1  # of ended attempts: the JVM is replaced after them


@dataclass(frozen=True)
class Behaviour:
    """What becomes of one attempt, unless it is killed before. hang: never ends; stuck: never even runs; break: its slot breaks.
    `error`: of one that fails. `mates`: it ends only after so many attempts of its job have run at the same time, itself among them."""

    ends: Literal["finish", "fail", "hang", "stuck", "break"] = "finish"
    error: dict[str, Any] | None = None
    report: dict[str, Any] | None = None
    run_ms: int | None = None
    mates: int = 0


Script = Callable[[dict[str, Any]], Behaviour]
"""How the attempt with this spec behaves."""


def all_finish(spec: dict[str, Any]) -> Behaviour:
    return Behaviour()
