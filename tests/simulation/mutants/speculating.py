"""Mutants of second attempts [R38]. Each is run in `simulation/speculating.py`."""

from __future__ import annotations

from services.job_master.core import deployment, scheduling, speculation
from services.job_master.core.state import Job
from services.resource_manager.core import spare
from tests.simulation.mutants.registry import mutant


@mutant(38, "job_master/core/speculation.py:lose", "the attempt that is slower finishes, too, and counts beside the one that was read")
def both_attempts_publish() -> None:
    speculation.lose = lambda job, name, index, at_ms: None


@mutant(38, "job_master/core/speculation.py:_slow_elsewhere", "the second attempt runs where the first one is slow, and is slow as well")
def a_second_attempt_runs_beside_the_first() -> None:
    speculation._slow_elsewhere = lambda job, slot: next(((name, n) for name, its in job.seconds.items() for n in its.slow), None)
    spare._elsewhere = lambda free, taken: next(iter(free.values()), None)


@mutant(38, "job_master/core/speculation.py:is_one_of_two", "an attempt fails, and its subtask with it, though the other one goes on")
def one_of_two_fails_for_both() -> None:
    speculation.is_one_of_two = lambda job, allocation: False


@mutant(38, "job_master/core/deployment.py:next_number", "a retry has the name of the second attempt before it, whose files lie there")
def a_second_attempt_has_no_number_of_its_own() -> None:
    def next_number(job: Job, task: str, index: int) -> int:
        return job.tasks[task].rows[index].attempt + 1

    deployment.next_number = scheduling.next_number = speculation.next_number = next_number
