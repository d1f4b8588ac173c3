"""A cluster whose jobs have tenants [R35]. What is looked at is in `sharing.py`, and every audit does so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.placing import PACKED, SPREAD
from tests.simulation.profiles import PROFILED
from tests.simulation.running import run_seed
from tests.simulation.seeds import each_seed
from tests.simulation.sharing import SHARED


@each_seed(range(8), first=2)
def test_quotas_and_shares_hold_whatever_happens(seed: int) -> None:
    assert run_seed(seed, few=seed % 2 == 1, shape=SHARED).failure is None


@each_seed(range(6), first=2)
def test_no_attempt_runs_in_a_slot_that_does_not_satisfy(seed: int) -> None:
    assert run_seed(seed, few=seed % 2 == 1, shape=PROFILED).failure is None


@pytest.mark.parametrize("shape", [PACKED, SPREAD], ids=["packed", "spread"])
def test_slots_are_granted_where_the_setting_says(shape: dict[str, Any]) -> None:
    assert run_seed(3, few=True, shape=shape).failure is None
