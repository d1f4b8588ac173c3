"""Mutants of schedules [R36]."""

from __future__ import annotations

from itertools import count
from typing import Any

from services.dispatcher.schedules import deciding, times
from services.dispatcher.schedules.firing import Firing
from tests.simulation.mutants import around, mutant


@mutant(36, "dispatcher/schedules/times.py:job_id", "who takes over runs a time again that was submitted already")
def each_leader_has_ids_of_its_own_for_runs() -> None:
    numbers = count()
    times.job_id = lambda schedule, ms: f"{schedule}-{next(numbers)}"

    def publish(original: Any, self: Any, name: str, known: Any, now_ms: int) -> None:
        run = known.progress.pending
        renamed = run.model_copy(update={"job": f"{run.job}-{self._fence.epoch}"})
        known.progress = known.progress.model_copy(update={"pending": renamed})
        original(self, name, known, now_ms)

    around(Firing, "_publish", publish)


@mutant(36, "dispatcher/schedules/firing.py:Firing._go_on", "a time counts as run once its submission is queued, and dies with the leader")
def a_run_is_over_when_it_is_published() -> None:
    def publish(original: Any, self: Any, name: str, known: Any, now_ms: int) -> None:
        original(self, name, known, now_ms)
        self._note(name, known, deciding.accepted(known.progress))

    around(Firing, "_publish", publish)
