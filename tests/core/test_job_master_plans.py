"""The plans of a JobMaster's jobs: compiled once, of the jobs that it knows alone, and in no snapshot."""

from __future__ import annotations

from millrace.core.fold import ScopeState
from millrace.core.messages import jobs
from millrace.runtime.snapshots import freeze, thaw
from services.job_master.core import plans
from services.job_master.core.plans import plan_of
from services.replay.core.trees import tree
from tests.core.of_job_master import ONE, TWO, Shard


def test_plans_are_kept_of_the_jobs_that_are_known_and_of_no_others() -> None:
    shard = Shard()
    for number in range(20):
        shard.start(job=f"j{number}")
        shard(jobs.JobRetired(job=f"j{number}", acceptance=f"acc-j{number}"))
    assert shard.state.plans == {}
    shard.start(ONE)
    shard(jobs.StartJob(job="j", acceptance="another", graph=TWO, accepted_ms=9))
    assert list(shard.state.plans) == ["another"]


def test_a_state_that_is_given_up_takes_its_plans_with_it() -> None:
    """A machine folds one generation after another."""
    shard = Shard()
    shard.start()
    plan = plan_of(shard.state, shard.job)
    assert plan is not None and not any(plan in each.values() for each in vars(shard.machine).values() if isinstance(each, dict))
    assert shard.machine.blank().plans is None


def test_a_plan_is_compiled_once_for_a_state_and_anew_after_a_snapshot() -> None:
    shard = Shard()
    shard.start(TWO)
    folded = ScopeState(1, 9, state=shard.state)
    assert plan_of(shard.state, shard.job) is plan_of(shard.state, shard.job)
    again = thaw(shard.machine, freeze(shard.machine, folded))
    assert again.state == shard.state and again.state.plans is None
    assert "plans" not in tree(shard.machine, folded)["state"]
    shard.state = again.state
    shard.offer("a1")
    assert plan_of(shard.state, shard.job) == plans.compile_stored(TWO)


def test_a_graph_that_this_build_cannot_read_has_no_plan() -> None:
    assert plans.compile_stored({"name": "x", "unheard_of": 1}) is None
    assert plans.compile_stored(TWO, plans.PLANNER + 1) is None, "a later build's"
