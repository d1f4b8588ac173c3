"""How a job's graph is planned, as far as the tables and the page need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millrace.core.jobgraph.compile import PLAN_TASK, PLANNER, Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.rescale import with_parallelism


def plan_of(graph: Mapping[str, Any] | None, tasks: Sequence[str]) -> Plan | None:
    """The plan that a job runs by; None where its graph is not known, or is planned otherwise by this build."""
    if not graph:
        return None
    for planner in range(PLANNER, -1, -1):
        try:
            plan = compile_graph(JobGraph.model_validate(graph), planner)
        except (ValueError, KeyError, AssertionError):
            return None
        if set(plan.tasks) == {task for task in tasks if task != PLAN_TASK}:
            return plan
    return None


def as_it_runs(graph: Mapping[str, Any] | None, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The stored graph of a job with the parallelism that it has by now. etcd has a live job's graph as it was submitted, and vertices of
    parallelism 1 that were one task are several with another one: that graph would lead to tasks that the job has not."""
    return with_parallelism(graph, row.get("rescaled", {})) if graph is not None else None


def inputs_of(plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """Task -> the tasks that it reads, each with the kind of the edge."""
    return {
        task.id: list({each.task: (each.task, str(each.edge)) for inputs in task.inputs.values() for each in inputs if each.task}.values())
        for task in plan.tasks.values()
    }
