"""What a job requests of the ResourceManager, and what it passes on of the queue."""

from __future__ import annotations

from millrace.core.messages import jobs
from tests.core.of_job_master import ONE, RM, Shard, kinds


def test_what_a_waiting_job_expects_is_passed_on_and_is_news_by_itself() -> None:
    shard = Shard()
    shard.start()
    queued = jobs.JobQueued(job="j", reason="all 2 slots are busy", position=3, expected_ms=9_000)
    assert [each.body.expected_ms for each in shard(queued, RM)] == [9_000, 9_000]
    assert shard(queued, RM) == []
    assert [each.body.expected_ms for each in shard(queued.model_copy(update={"expected_ms": 5_000}), RM)] == [5_000, 5_000]


def test_a_job_fails_that_wants_what_the_cluster_cannot_have() -> None:
    shard = Shard()
    shard.start({**ONE, "restart": {"attempts": 9}})
    said = shard(jobs.NotEnoughResources(job="j", reason="needs 9 MB a slot, the largest has 1 MB"), RM)
    assert kinds(said)[0] == "resource-manager RequestSlots 0" and kinds(said)[-1] == "dispatcher JobEnded FAILED"
    assert said[-1].body.cause.message == "not enough resources: needs 9 MB a slot, the largest has 1 MB"
    assert shard(jobs.NotEnoughResources(job="j", reason="again"), RM) == []


def test_a_job_requests_slots_for_its_tenant() -> None:
    shard = Shard()
    [request] = [each.body for each in shard.start({**ONE, "tenant": "research"}) if isinstance(each.body, jobs.RequestSlots)]
    assert (request.tenant, request.together) == ("research", False)


def test_a_job_whose_subtasks_start_together_requests_its_slots_so() -> None:
    shard = Shard()
    [request] = [each.body for each in shard.start({**ONE, "together": True}) if isinstance(each.body, jobs.RequestSlots)]
    assert request.together
