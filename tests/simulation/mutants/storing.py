"""Mutants of what follows a failure of storage. Each is run in `simulation/storing.py`."""

from __future__ import annotations

from typing import Any

from millrace.core import faults
from services.job_master.core import failover
from tests.simulation.mutants.registry import around, mutant


@mutant(28, "job_master/core/failover.py:decide", "a job fails while storage is away, for its attempts have spent all moves")
def an_attempt_without_storage_costs_a_move() -> None:
    def decide(original: Any, restart: Any, job: Any, subtask: Any, error: Any, moves_most: int, *given: Any) -> Any:
        if faults.class_of(error) is faults.STORAGE:
            return failover._move(subtask, error, moves_most)
        return original(restart, job, subtask, error, moves_most, *given)

    around(failover, "decide", decide)


@mutant(28, "job_master/core/failover.py:decide", "storage that is away counts as a failure of the job's own")
def an_attempt_without_storage_costs_a_restart() -> None:
    def decide(original: Any, restart: Any, job: Any, subtask: Any, error: Any, *given: Any) -> Any:
        own = error.model_copy(update={"kind": "user", "condition": None}) if faults.class_of(error) is faults.STORAGE else error
        return original(restart, job, subtask, own, *given)

    around(failover, "decide", decide)
