"""Schedules, whoever dies, and what each policy runs [R36]."""

from __future__ import annotations

from tests.simulation.missing import missed_times, one_at_a_time
from tests.simulation.scheduling import schedules_run
from tests.simulation.seeds import each_seed
from tests.simulation.trial import quiet_logs


@each_seed(range(6), first=2)
def test_each_time_of_a_schedule_is_run_once_whoever_dies(seed: int) -> None:
    quiet_logs()
    schedules_run(seed)


@each_seed(range(2), first=1)
def test_what_was_missed_is_made_up_for_as_its_schedule_says(seed: int) -> None:
    quiet_logs()
    missed_times(seed)


@each_seed(range(2), first=1)
def test_runs_of_a_schedule_follow_each_other_or_are_left_out(seed: int) -> None:
    quiet_logs()
    one_at_a_time(seed)
