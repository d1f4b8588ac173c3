"""Two clusters over one storage and the same sinks [R29]."""

from __future__ import annotations

import pytest

from tests.simulation.beside import beside
from tests.simulation.trial import quiet_logs


@pytest.mark.parametrize("seed", range(4))
def test_no_file_of_a_cluster_is_taken_or_deleted_by_another_one_of_the_same_storage(seed: int) -> None:
    quiet_logs()
    beside(seed)
