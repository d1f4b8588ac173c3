"""A cluster whose hosts are blocked and unblocked [R37]. What is looked at is in `blocking.py`, and every audit does so."""

from __future__ import annotations

from tests.simulation.blocking import BLOCKED
from tests.simulation.running import run_seed
from tests.simulation.seeds import each_seed


@each_seed(range(8), first=2)
def test_no_slot_of_a_blocked_host_is_granted_whatever_happens(seed: int) -> None:
    assert run_seed(seed, few=seed % 2 == 1, shape=BLOCKED).failure is None
