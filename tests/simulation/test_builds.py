"""Clusters that go over to another build and back while jobs run [R27]."""

from __future__ import annotations

from tests.simulation.handover import over_and_back
from tests.simulation.seeds import each_seed
from tests.simulation.trial import quiet_logs


@each_seed(range(4), first=2)
def test_over_and_back_with_jobs_running(seed: int) -> None:
    quiet_logs()
    over_and_back(seed)
