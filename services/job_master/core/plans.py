"""The plan of each job. It follows from the job's stored graph, so it is compiled once and is no part of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from millrace.core.jobgraph.compile import Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph

from .state import Job, State


def plan_of(state: State, job: Job) -> Plan | None:
    """The job's plan; None if this build cannot read its graph: such a job is failing or has ended."""
    if job.acceptance not in state.plans:
        state.plans[job.acceptance] = compile_stored(job.graph, forward_only=not job.one_plan)
    return state.plans[job.acceptance]


def running_plan(state: State, job: Job) -> Plan:
    """The plan of a job that runs."""
    plan = plan_of(state, job)
    assert plan is not None, f"{job.id} runs without a plan"
    return plan


def compile_stored(graph: Mapping[str, Any], *, forward_only: bool = False) -> Plan | None:
    """The plan of a stored graph; None if this build cannot read it. forward_only: as for `compile_graph`."""
    try:
        return compile_graph(JobGraph.model_validate(graph), forward_only=forward_only)
    except ValidationError:
        return None
