"""A cluster whose TaskManagers come and go [R33]."""

from __future__ import annotations

from tests.simulation.providing import workers_come_and_go
from tests.simulation.seeds import each_seed
from tests.simulation.trial import quiet_logs


@each_seed(range(12), first=3)
def test_task_managers_come_when_slots_are_short_and_go_when_they_are_idle(seed: int) -> None:
    quiet_logs()
    workers_come_and_go(seed)
