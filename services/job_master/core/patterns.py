"""Of each task the spec of one attempt, from which those of its other attempts are made: to make 1,000 anew costs three times as much.

A pattern follows from a job's state, and is no part of a snapshot. It counts as long as all that it was made of is the very same.
"""

from __future__ import annotations

from typing import Any

from millrace.core.jobgraph.compile import Plan
from millrace.core.jobgraph.specs import Pattern

from .plans import in_short
from .state import Job, State

Follows = tuple[Any, ...]


def follows_from(state: State, job: Job, plan: Plan, task: str) -> Follows | None:
    """What the specs of a task follow from besides its plan task and the numbers of subtask and attempt; None: each has folders of its own
    to read, or there is one alone."""
    its = plan.tasks.get(task)
    if its is None or its.parallelism == 1 or its.aligned:
        return None
    return plan, job.planned, state.settings, *(in_short(state, job, name) for name in its.upstream)


def find(state: State, job: Job, task: str, follows: Follows) -> Pattern | None:
    known = state.patterns.get((job.acceptance, task))
    same = known is not None and len(known[0]) == len(follows) and all(one is other for one, other in zip(known[0], follows, strict=True))
    return known[1] if known is not None and same else None


def keep(state: State, job: Job, task: str, follows: Follows, made: Pattern) -> None:
    state.patterns[job.acceptance, task] = follows, made
