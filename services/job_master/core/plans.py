"""The plan of each job. It follows from the job's stored graph, so it is compiled once and is no part of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millrace.core.jobgraph.compile import PLANNER, Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.specs import Whole, whole

from .state import Job, State


def plan_of(state: State, job: Job) -> Plan | None:
    """The job's plan; None if this build cannot read its graph: such a job is failing or has ended."""
    if job.acceptance not in state.plans:
        plan = compile_stored(job.graph, job.planner)
        state.plans[job.acceptance] = numbered(plan, job.rescaled.folders) if plan and job.rescaled and job.rescaled.folders else plan
    return state.plans[job.acceptance]


def running_plan(state: State, job: Job) -> Plan:
    """The plan of a job that runs."""
    plan = plan_of(state, job)
    assert plan is not None, f"{job.id} runs without a plan"
    return plan


def in_short(state: State, job: Job, task: str) -> Whole | None:
    """What all readers of a task that has finished are told of it. Found once: to look at 1,000 subtasks for each of 1,000 readers costs
    as much as all the rest."""
    key = job.acceptance, task
    if key not in state.wholes:
        state.wholes[key] = whole(job.tasks[task])
    return state.wholes[key]


def forget_plan(state: State, job: Job) -> None:
    """The job is forgotten, or its tasks are others from now on."""
    state.plans.pop(job.acceptance, None)
    for name in job.tasks:
        state.wholes.pop((job.acceptance, name), None)
        state.patterns.pop((job.acceptance, name), None)


def numbered(plan: Plan, folders: Mapping[str, int]) -> Plan:
    """The plan with these numbers of its tasks' folders."""
    return replace(plan, tasks={name: replace(task, index=folders[name]) for name, task in plan.tasks.items()})


def compile_stored(graph: Mapping[str, Any], planner: int = PLANNER) -> Plan | None:
    """The plan of a stored graph; None if this build cannot read it, or has not this planner."""
    try:
        return compile_graph(JobGraph.model_validate(graph), planner)
    except ValueError:  # pydantic's is one
        return None
