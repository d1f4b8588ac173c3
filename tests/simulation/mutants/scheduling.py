"""Mutants of what is run of a schedule's times [R36]. Each is run in `simulation/missing.py`."""

from __future__ import annotations

from typing import Any

from services.dispatcher.schedules import deciding
from services.dispatcher.schedules.firing import Firing
from tests.simulation.mutants.registry import around, mutant


def _as_if(missed: str, taken_for: str) -> None:
    def chosen(original: Any, schedule: Any, found: list[int], now_ms: int) -> Any:
        its = schedule.model_copy(update={"missed": taken_for}) if schedule.missed == missed else schedule
        return original(its, found, now_ms)

    around(deciding, "_chosen", chosen)


@mutant(36, "dispatcher/schedules/deciding.py:_chosen", "a schedule that is to skip what was missed runs the last of it, however late")
def what_was_missed_is_not_skipped() -> None:
    _as_if("skip", "latest")


@mutant(36, "dispatcher/schedules/deciding.py:_chosen", "of the times that were missed none is run, and the latest one was wanted")
def the_latest_missed_time_is_skipped() -> None:
    _as_if("latest", "skip")


@mutant(36, "dispatcher/schedules/deciding.py:_chosen", "each missed time is run, one after the other, where the latest one was wanted")
def more_than_the_latest_is_made_up_for() -> None:
    _as_if("latest", "all")


@mutant(36, "dispatcher/schedules/deciding.py:_chosen", "of the times that were missed one is run, and all were wanted")
def of_all_missed_times_one_is_run() -> None:
    _as_if("all", "latest")


@mutant(36, "dispatcher/schedules/firing.py:Firing._go_on", "a run that is to wait for the one before begins beside it")
def a_run_does_not_wait_for_the_one_before() -> None:
    def go_on(original: Any, self: Any, name: str, known: Any, *given: Any) -> None:
        known.progress = known.progress.model_copy(update={"last_job": ""})
        original(self, name, known, *given)

    around(Firing, "_go_on", go_on)


@mutant(36, "dispatcher/schedules/deciding.py:decided", "a time that is to be left out while a job runs is run after it")
def nothing_is_left_out_while_a_job_runs() -> None:
    def decided(original: Any, name: str, schedule: Any, progress: Any, now_ms: int, before_lives: bool) -> Any:
        return original(name, schedule, progress, now_ms, False)

    around(deciding, "decided", decided)
