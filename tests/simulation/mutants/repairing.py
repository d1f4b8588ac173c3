"""Mutants of repairs: what a job that failed had finished is kept, and read where it lies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millrace.core.jobgraph.definitions import Definition
from millrace.core.machine import Do
from millrace.core.messages.effects import CleanJob
from services.dispatcher.core import ending
from services.job_master.core import deployment, keeping
from tests.simulation.mutants.registry import around, mutant


@mutant(20, "dispatcher/core/ending.py:announce_ended", "what a failed job had finished is deleted, though its key says that it stays")
def kept_data_are_deleted() -> None:
    def announced(original: Any, *told: Any) -> Any:
        for output in original(*told):
            if isinstance(output, Do) and isinstance(output.effect, CleanJob):
                exchange = f"exchange/{output.effect.tombstone.acceptance}"
                yield output._replace(effect=output.effect.model_copy(update={"exchange": exchange}))
            else:
                yield output

    around(ending, "announce_ended", announced)


@mutant(20, "job_master/core/deployment.py:_spec", "what is kept is looked for among what the job has made itself")
def kept_rows_are_looked_for_in_vain() -> None:
    def spec(original: Any, plan: Any, published: Any, **given: Any) -> Any:
        own = {name: {number: replace(row, kept=None) for number, row in task.rows.items()} for name, task in published.items()}
        return original(plan, published={name: replace(task, rows=own[name]) for name, task in published.items()}, **given)

    around(deployment, "attempt_spec", spec)


@mutant(20, "job_master/core/keeping.py:restore", "a task is kept by its name, whatever it is")
def a_task_is_kept_by_its_name() -> None:
    class Any_(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

    def definitions(original: Any, plan: Any, planned: Any) -> Any:
        return {name: Definition(Any_(each.what), Any_(each.files)) for name, each in original(plan, planned).items()}

    around(keeping, "definitions", definitions)
