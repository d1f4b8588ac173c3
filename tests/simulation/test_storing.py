"""Storage that cannot be written for a while [R28]."""

from __future__ import annotations

from tests.simulation.seeds import each_seed
from tests.simulation.storing import storage_is_away


@each_seed(range(6), first=2)
def test_jobs_wait_for_their_storage_and_spend_no_move(seed: int) -> None:
    storage_is_away(seed)
