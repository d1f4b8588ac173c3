"""A job that wants what the cluster cannot have fails after a while, if the settings say so."""

from __future__ import annotations

from millrace.core.machine import Configured, Say
from millrace.core.messages.jobs import NotEnoughResources
from millrace.core.messages.slots import DisconnectTaskManager, TaskManagerHeartbeat
from tests.core.of_resource_manager import JM0, TM_A, TM_B, Driver


def driver(limit_ms: int | None) -> Driver:
    made = Driver()
    made.core(Configured({"not_enough_resources_ms": limit_ms, "tenants": {"x": {"slots": 0}}}))
    made.declared()
    made.register(memory_mb=(1024,))
    return made


def given_up(cluster: Driver, seconds: int) -> list[object]:
    said = []
    for _ in range(10 * seconds):
        for scope in [TM_A, TM_B][: len(cluster.state.task_managers)]:
            cluster.say(scope, TaskManagerHeartbeat())
        said += [each for each in cluster.tick() if isinstance(each, Say) and isinstance(each.body, NotEnoughResources)]
    return said


def test_a_job_that_wants_what_there_is_not_fails_after_the_time_that_is_set() -> None:
    cluster = driver(5_000)
    cluster.ask("large", memory_mb=4096)
    cluster.ask("fits")
    cluster.ask("waits", since_ms=1)
    assert given_up(cluster, 5) == []
    reason = "needs 4096 MB a slot, the largest has 1024 MB"
    assert given_up(cluster, 2) == [Say(JM0, NotEnoughResources(job="large", reason=reason))]
    cluster.ask("large", 0)
    assert given_up(cluster, 9) == [] and set(cluster.state.jobs) == {"fits", "waits"}


def test_it_is_said_again_where_the_shard_does_not_know_it() -> None:
    cluster = driver(2_000)
    cluster.ask("large", memory_mb=4096)
    assert len(given_up(cluster, 9)) == 4


def test_the_time_counts_for_all_of_many() -> None:
    """Of those that no slot can serve the first hundred are sent why they wait; the others had no time of their own."""
    cluster = driver(5_000)
    names = [f"large-{number:03}" for number in range(250)]
    for name in names:
        cluster.ask(name, memory_mb=4096)
    assert given_up(cluster, 5) == []
    first = given_up(cluster, 4)
    assert [each.body.job for each in first] == names, "in their order, and none of them twice"
    assert {each.body.reason for each in first} == {"needs 4096 MB a slot, the largest has 1024 MB"}


def test_who_could_be_served_meanwhile_has_its_time_anew() -> None:
    cluster = driver(5_000)
    cluster.ask("large", memory_mb=4096, slots=2)
    assert given_up(cluster, 4) == []
    cluster.register(TM_B, memory_mb=(4096,))
    assert given_up(cluster, 9) == [], "it waits for a slot that is busy"
    assert cluster.state.jobs["large"].held == 1


def test_a_gang_and_a_tenant_that_may_have_none_fail_as_well() -> None:
    cluster = driver(1_000)
    cluster.ask("gang", 3, together=True)
    cluster.ask("none", tenant="x", since_ms=1)
    assert {each.body.job for each in given_up(cluster, 3)} == {"gang", "none"}


def test_without_the_setting_it_waits() -> None:
    cluster = driver(None)
    cluster.ask("large", memory_mb=4096)
    assert given_up(cluster, 60) == []


def test_the_time_does_not_go_on_while_it_has_what_it_wants() -> None:
    cluster = driver(5_000)
    cluster.register(TM_B, memory_mb=(4096,))
    cluster.ask("large", memory_mb=4096)
    assert cluster.state.jobs["large"].held == 1
    for _ in range(2):
        cluster.core(Configured({"not_enough_resources_ms": 5_000}))
        cluster.say(TM_B, DisconnectTaskManager(reason="it ends"))
        assert given_up(cluster, 4) == []
        cluster.register(TM_B, memory_mb=(4096,))
        assert cluster.state.jobs["large"].held == 1 and cluster.state.jobs["large"].never_ms is None
