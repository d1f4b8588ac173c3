"""A cluster whose jobs have tenants [R35]. What is looked at is in `sharing.py`, and every audit does so."""

from __future__ import annotations

import pytest

from tests.simulation.running import run_seed
from tests.simulation.sharing import SHARED


@pytest.mark.parametrize("seed", range(8))
def test_quotas_and_shares_hold_whatever_happens(seed: int) -> None:
    assert run_seed(seed, few=seed % 2 == 1, shape=SHARED).failure is None
