"""Tenants share slots by their weights, and none has more than its quota [R35]."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Configured
from tests.core.of_resource_manager import TM_A, Driver, granted, queued


def driver(*memory_mb: int, **tenants: dict[str, int]) -> Driver:
    """A ResourceManager with a TaskManager of such slots, and settings for these tenants; `others` is each one that is not named."""
    made = Driver()
    if "others" in tenants:
        tenants["*"] = tenants.pop("others")
    made.core(Configured({"tenants": tenants}))
    made.declared()
    if memory_mb:
        made.register(memory_mb=memory_mb)
    return made


def holders(driver: Driver) -> list[str | None]:
    return [slot.job for _, slot in sorted(driver.state.task_managers["a"].slots.items())]


def flow(driver: Driver, times: int) -> list[str | None]:
    """Slot 0 is freed again and again, each time by a job that wants no more: who gets it."""
    found: list[str | None] = []
    for _ in range(times):
        job = driver.state.task_managers["a"].slots[0].job
        assert job is not None
        driver.ask(job, driver.state.jobs[job].held - 1, tenant=driver.state.jobs[job].tenant)
        driver.free()
        found.append(driver.state.task_managers["a"].slots[0].job)
    return found


def test_a_tenant_gets_no_more_than_its_quota_and_its_jobs_learn_why_they_wait() -> None:
    cluster = driver(*(1024,) * 4, x={"slots": 2})
    for number in range(3):
        cluster.ask(f"x{number}", tenant="x", since_ms=number)
    assert holders(cluster) == ["x0", "x1", None, None]
    assert cluster.tick() == [queued("x2", "its tenant x has 2 of the 2 slots of its quota", 1)]
    assert cluster.ask("y", tenant="y", since_ms=9) == [granted("y", "1.10.2", 2)], "who waits for its own tenant is in nobody's way"
    assert cluster.ask("x0", 0, tenant="x") == []
    assert cluster.free()[:1] == [granted("x2", "1.12.3", 3)]


def test_a_job_of_many_slots_gets_as_many_as_its_tenant_may_have() -> None:
    cluster = driver(*(1024,) * 4, x={"slots": 3})
    assert len(cluster.ask("wide", 8, tenant="x")) == 3
    assert cluster.tick() == [queued("wide", "3 of 8 slots: its tenant x has 3 of the 3 slots of its quota", 1)]


def test_a_tenant_that_may_have_none_is_told_so_and_has_no_place() -> None:
    cluster = driver(1024, x={"slots": 0})
    cluster.ask("j", tenant="x")
    assert cluster.tick() == [queued("j", "needs 1 slot, and its tenant x may have none", None)]


def test_what_holds_for_others_holds_for_each_of_them() -> None:
    cluster = driver(*(1024,) * 4, others={"slots": 1}, x={"weight": 1})
    for number, tenant in enumerate(("x", "x", "y", "y", "z")):
        cluster.ask(f"{tenant}{number}", tenant=tenant, since_ms=number)
    assert holders(cluster) == ["x0", "x1", "y2", "z4"]


def test_a_job_that_names_no_tenant_belongs_to_one_without_a_name() -> None:
    cluster = driver(1024, 1024, **{"": {"slots": 1}})
    cluster.ask("one")
    cluster.ask("two", since_ms=1)
    assert cluster.tick() == [queued("two", "its tenant (none) has 1 of the 1 slot of its quota", 1)]


def test_who_holds_least_for_its_weight_goes_first() -> None:
    cluster = driver(x={"weight": 1}, y={"weight": 3})
    for number in range(8):
        cluster.ask(f"x{number}", tenant="x", since_ms=number)
        cluster.ask(f"y{number}", tenant="y", since_ms=100 + number)
    cluster.register(memory_mb=(1024,) * 8)
    assert holders(cluster) == ["x0", "y0", "y1", "y2", "x1", "y3", "y4", "y5"]


def test_what_nobody_else_wants_goes_to_who_is_there() -> None:
    cluster = driver(x={"weight": 1}, y={"weight": 100})
    for number in range(4):
        cluster.ask(f"x{number}", tenant="x", since_ms=number)
    cluster.register(memory_mb=(1024,) * 4)
    assert holders(cluster) == ["x0", "x1", "x2", "x3"]


def test_a_flood_of_one_tenant_delays_another_by_a_slot_alone() -> None:
    cluster = driver(1024, 1024)
    for number in range(50):
        cluster.ask(f"flood{number}", tenant="x", since_ms=number, priority=10)
    cluster.ask("late", tenant="y", since_ms=9_000)
    assert flow(cluster, 2) == ["late", "flood2"]


def test_places_are_in_the_order_in_which_slots_go_to_tenants() -> None:
    cluster = driver(1024, y={"slots": 1})
    for number in range(3):
        cluster.ask(f"x{number}", tenant="x", since_ms=number)
        cluster.ask(f"y{number}", tenant="y", since_ms=100 + number)
    said = {each.body.job: each.body.position for each in cluster.tick()}
    assert said == {"y0": 1, "x1": 2, "x2": 3, "y1": 4, "y2": 5}, "y may have one slot: what is behind its first job waits for that one"


def test_who_holds_its_share_gets_a_slot_after_nine_that_went_past_it() -> None:
    """`stays` holds one slot for ever, so each of the others has less than its tenant."""
    cluster = driver(1024, 1024)
    for job, tenant, since_ms in (("begins", "y0", 0), ("stays", "x", 1), ("next", "x", 2)):
        cluster.ask(job, tenant=tenant, since_ms=since_ms)
    for number in range(1, 30):
        cluster.ask(f"y{number}", tenant=f"y{number}", since_ms=100 + number)
    assert flow(cluster, 12) == [*(f"y{number}" for number in range(1, 10)), "next", "y10", "y11"]


def test_settings_that_change_are_taken_at_once() -> None:
    cluster = driver(*(1024,) * 3, x={"slots": 1})
    for number in range(4):
        cluster.ask(f"x{number}", tenant="x", since_ms=number)
    assert holders(cluster) == ["x0", None, None]
    cluster.core(Configured({"tenants": {"x": {"slots": 2}}}))
    assert holders(cluster) == ["x0", "x1", None]
    cluster.core(Configured({"tenants": {}}))
    assert holders(cluster) == ["x0", "x1", "x2"]
    cluster.core(Configured({"tenants": {"x": {"slots": 1}}}))
    assert holders(cluster) == ["x0", "x1", "x2"], "nothing is taken away"
    cluster.ask("x0", 0, tenant="x")
    assert cluster.free(TM_A, 0) == []


def test_no_task_manager_is_started_for_what_a_quota_forbids() -> None:
    made = Driver()
    made.core(Configured({"provider": "p", "task_managers_max": 9, "worker_slots": 1, "tenants": {"x": {"slots": 2}}}))
    made.declared()
    made.state.workers.listed, made.state.workers.expected = True, None
    for number in range(5):
        made.ask(f"x{number}", tenant="x", since_ms=number)
    made.tick()
    assert list(made.state.workers.known) == ["task-manager-1", "task-manager-2"]


def test_ten_thousand_wait_and_the_next_is_found_without_a_search() -> None:
    """What is looked at for one grant does not grow with those that wait: lists are read at their heads."""

    class Counted(list[Any]):
        looked = 0

        def __getitem__(self, at: Any) -> Any:
            Counted.looked += 1
            return super().__getitem__(at)

    cluster = driver(1024)
    cluster.checks = False
    for number in range(2_000):
        cluster.ask(f"j{number}", tenant=f"t{number % 20}", since_ms=number)
    for line in cluster.state.waiting.lines.values():
        line.by_share, line.by_rank = Counted(line.by_share), Counted(line.by_rank)
        line.jobs = {tenant: Counted(queue) for tenant, queue in line.jobs.items()}
    cluster.ask("j0", 0, tenant="t0")
    Counted.looked = 0
    cluster.free()
    assert Counted.looked < 100
