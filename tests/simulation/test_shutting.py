"""The cluster is shut down in order and started again [R34]."""

from __future__ import annotations

from tests.simulation.seeds import each_seed
from tests.simulation.shutting import shut_down_and_up
from tests.simulation.trial import quiet_logs


@each_seed(range(10), first=2)
def test_a_cluster_that_is_shut_down_runs_nothing_and_its_jobs_go_on_later(seed: int) -> None:
    quiet_logs()
    shut_down_and_up(seed)
