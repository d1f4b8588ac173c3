"""Slots that are offered to a JobMaster shard: which it takes, and which it gives back."""

from __future__ import annotations

import pytest

from millrace.core.machine import PeerBorn, Say
from millrace.core.messages import jobs, slots
from millrace.core.states import JobStatus
from tests.core.of_job_master import RM, TM, TWO, USER, Shard, kinds


def test_an_offer_of_what_a_life_before_was_granted_is_given_back() -> None:
    """Another of those may run an attempt still, and this shard has not heard of it [R11]."""
    shard = Shard(generation=3)
    shard.start()
    for before in ("1.7.0", "1.8.0/2"):
        assert shard.offer(before) == [Say(TM, slots.FreeSlots(allocations=[before]))]
    assert kinds(shard.offer("1.9.0/3"))[0] == "task-manager DeployTasks"


def test_an_offer_of_what_a_resource_manager_before_the_one_declared_to_has_granted_is_given_back() -> None:
    """That one was told that this shard holds nothing there, and may never hear of the TaskManager [R11]."""
    shard = Shard()
    shard.start(TWO)
    assert kinds(shard.offer("1.7.0"))[0] == "task-manager DeployTasks"
    shard(PeerBorn(RM, 2), RM, 2)
    assert shard.offer("1.7.0", "1.8.1") == [Say(TM, slots.FreeSlots(allocations=["1.8.1"]))]
    shard.told("1.7.0", "FINISHED", report={"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}})
    assert kinds(shard.offer("2.3.0"))[0] == "task-manager DeployTasks"


@pytest.mark.parametrize("ends", ("FAILING", "CANCELLING"))
def test_a_job_that_is_coming_to_its_end_takes_no_slot(ends: str) -> None:
    """One was on its way to it: kept, it would be nobody's when the job has ended."""
    shard = Shard()
    shard.start({**TWO, "restart": {"strategy": "none"}})
    shard.offer("a1")
    shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{a}"}}})
    shard.offer("a2")
    if ends == "FAILING":
        shard.told("a1", "FAILED", error=USER)
    else:
        shard(jobs.CancelStartedJob(job="j"))
    assert shard.job.status is JobStatus(ends)
    assert shard.offer("a3") == [Say(TM, slots.FreeSlots(allocations=["a3"]))]
    assert "a3" not in shard.state.allocations
