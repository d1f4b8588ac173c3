"""Graphs that others put into etcd or delete there, whoever dies [R24]. What is looked at is in `strangers.py`, and by every audit."""

from __future__ import annotations

from tests.simulation.running import run_seed
from tests.simulation.seeds import each_seed
from tests.simulation.strangers import KINDS, STRANGERS


@each_seed(range(8), first=2)
def test_what_others_put_there_is_taken_up_once_and_what_the_log_knows_is_not_lost(seed: int) -> None:
    assert run_seed(seed, few=seed % 2 == 1, kinds=KINDS, shape=STRANGERS).failure is None
