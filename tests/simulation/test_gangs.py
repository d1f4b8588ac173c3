"""Gangs that lose a part of what they were granted [R35]."""

from __future__ import annotations

from tests.simulation.gangs import two_halves
from tests.simulation.seeds import each_seed
from tests.simulation.trial import quiet_logs


@each_seed(range(6), first=3)
def test_two_gangs_that_have_a_part_each_end_one_after_the_other(seed: int) -> None:
    quiet_logs()
    two_halves(seed)
