"""Schedules, whoever dies [R36]."""

from __future__ import annotations

import pytest

from tests.simulation.scheduling import schedules_run
from tests.simulation.trial import quiet_logs


@pytest.mark.parametrize("seed", range(6))
def test_each_time_of_a_schedule_is_run_once_whoever_dies(seed: int) -> None:
    quiet_logs()
    schedules_run(seed)
