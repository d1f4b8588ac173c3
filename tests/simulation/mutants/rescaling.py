"""Mutants of rescales: a job that runs gets other tasks, while attempts of the ones before may still end."""

from __future__ import annotations

from typing import Any

from services.job_master.core import carrying, lifecycle, rescaling
from tests.simulation.mutants import around, mutant


@mutant(20, "job_master/core/carrying.py:leave", "attempts of a rescaled job count from one again")
def numbers_are_used_twice() -> None:
    def left(original: Any, job: Any, before: Any, after: Any) -> None:
        original(job, before, after)
        job.rescaled.attempts = {}

    around(carrying, "leave", left)
    around(rescaling, "leave", left)


@mutant(20, "job_master/core/carrying.py:leave", "a task of a rescaled job has the folder that another one had before")
def folders_are_used_twice() -> None:
    def left(original: Any, job: Any, before: Any, after: Any) -> None:
        original(job, before, after)
        job.rescaled.folders = {}

    around(rescaling, "leave", left)


@mutant(20, "job_master/core/lifecycle.py:_rescale", "a job gets other tasks while attempts of those before still run")
def attempts_are_not_canceled() -> None:
    def asked(original: Any, state: Any, job: Any, asked: Any) -> bool:
        done: bool = original(state, job, asked)
        if done:
            for slot in job.slots.values():
                slot.task = None
        return done

    around(rescaling, "ask", asked)
    assert lifecycle.rescaling is rescaling
