"""Second attempts of slow subtasks [R38]."""

from __future__ import annotations

from tests.simulation.seeds import each_seed
from tests.simulation.speculating import beside, second_attempts


@each_seed(range(8), first=2)
def test_of_two_attempts_one_counts_whoever_dies(seed: int) -> None:
    assert beside(second_attempts(seed)), "no subtask had two"
