"""Mutants of rescales: a job that runs gets other tasks, while attempts of the ones before may still end."""

from __future__ import annotations

from typing import Any

from services.dispatcher.core import requirements
from services.job_master.core import rescaling, scheduling
from tests.simulation.mutants.registry import around, mutant


@mutant(20, "job_master/core/carrying.py:leave", "attempts of a rescaled job have names that others had before")
def attempts_of_a_rescaled_job_count_anew() -> None:
    def left(original: Any, job: Any, *told: Any) -> None:
        original(job, *told)
        job.rescaled.attempts = {}

    around(rescaling, "leave", left)


@mutant(20, "job_master/core/rescaling.py:rescale", "a job gets other tasks while attempts of those before still run")
def a_rescale_waits_for_no_attempt() -> None:
    def asked(original: Any, state: Any, job: Any, what: Any) -> bool:
        done: bool = original(state, job, what)
        if done:
            for slot in job.slots.values():
                if slot.task is not None:
                    job.tasks[slot.task].rows[slot.subtask].allocation = None
                    slot.task = None
        return done

    around(rescaling, "ask", asked)


@mutant(20, "job_master/core/rescaling.py:rescale", "a rescale is a restart, and a job has fewer of them left")
def a_rescale_spends_a_restart() -> None:
    def rescale(original: Any, state: Any, job: Any, at_ms: Any) -> Any:
        before = job.rescaling
        yield from original(state, job, at_ms)
        job.restarts += before is not None and job.rescaling is None

    around(scheduling, "rescale", rescale)


@mutant(31, "dispatcher/core/requirements.py:answer_decided", "a job that has just ended is said to get another parallelism")
def a_late_rescale_is_answered_as_taken() -> None:
    def answered(original: Any, request: Any, live: Any, news: Any, refused: Any) -> Any:
        return original(request, live, request.arguments["changed"] if refused else news, None)

    around(requirements, "answer_decided", answered)
