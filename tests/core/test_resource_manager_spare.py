"""Slots for second attempts: what is left, on another TaskManager, and nothing that a waiting job could use [R38]."""

from __future__ import annotations

from millrace.core.machine import PeerBorn
from millrace.core.messages.jobs import JobMasterDeclared
from tests.core.of_resource_manager import JM0, TM_B, Driver, granted
from tests.core.test_resource_manager_tenants import driver


def two(slots: int = 1) -> Driver:
    """TaskManager a is busy with the job `slow`; b has as many slots, free."""
    cluster = driver(*(1024,) * slots)
    assert len(cluster.ask("slow", slots)) == slots
    cluster.register(TM_B, memory_mb=(1024,) * slots)
    return cluster


def test_a_free_slot_of_another_task_manager_is_granted_once() -> None:
    cluster = two()
    assert cluster.ask("slow", 1, spare=["a"]) == [granted("slow", "1.8.1", scope=TM_B)]
    assert cluster.tick() == [] and cluster.ask("slow", 1, spare=["a"]) == [], "that one is on its way"
    assert cluster.ask("slow", 2) == [] and cluster.state.spare == {}, "its shard has it"


def test_the_task_manager_of_the_first_attempt_is_not_used() -> None:
    cluster = two()
    assert cluster.ask("slow", 1, spare=["b"]) == [], "what is free is where the first attempt runs"
    assert cluster.ask("slow", 1, spare=["b", "a"]) == [granted("slow", "1.9.1", scope=TM_B)]


def test_no_queue_and_no_reason_for_who_gets_none() -> None:
    cluster = driver(1024)
    cluster.ask("slow", 1)
    assert cluster.ask("slow", 1, spare=["a"]) == [] and cluster.tick(2_000) == [] and len(cluster.state.waiting) == 0


def test_waiting_jobs_go_first_and_what_they_cannot_use_is_left() -> None:
    cluster = two(2)
    cluster.ask("other", 2)
    cluster.ask("waits", 1)
    assert cluster.ask("slow", 2, spare=["a"]) == []
    cluster.ask("other", 1)
    freed = cluster.free(TM_B)
    assert [each.body.job for each in freed if hasattr(each.body, "allocation")] == ["waits"]
    cluster = two(2)
    cluster.ask("huge", 1, memory_mb=4096)
    assert len([each for each in cluster.ask("slow", 2, spare=["a"]) if each.to == TM_B]) == 1, "that one cannot use it"


def test_nothing_that_a_gang_gathers_is_taken() -> None:
    cluster = two(2)
    cluster.ask("other", 1)
    cluster.ask("gang", 2, together=True)
    assert cluster.ask("slow", 2, spare=["a"]) == []
    given = cluster.ask("gang", 0, together=True)
    assert [(each.to, each.body.job) for each in given if hasattr(each.body, "allocation")] == [(TM_B, "slow")]


def test_the_quota_of_the_tenant_holds() -> None:
    cluster = driver(1024, x={"slots": 1})
    cluster.ask("slow", 1, tenant="x")
    cluster.register(TM_B, memory_mb=(1024,))
    assert cluster.ask("slow", 1, tenant="x", spare=["a"]) == []


def test_a_slot_that_is_lost_before_it_is_offered_is_granted_again() -> None:
    cluster = two()
    cluster.ask("slow", 1, spare=["a"])
    again = cluster.free(TM_B)
    assert [each.body.job for each in again if each.to == TM_B] == ["slow"]


def test_a_reborn_shard_asks_anew() -> None:
    cluster = two()
    cluster.ask("slow", 1, spare=["b"])
    cluster.core(PeerBorn(JM0, 2))
    assert (cluster.state.spare, cluster.state.jobs["slow"].spare, cluster.state.jobs["slow"].held) == ({}, [], 1)
    cluster.say(JM0, JobMasterDeclared(), 2)
    assert cluster.state.spare == {}
