"""When a waiting job may expect its slots."""

from __future__ import annotations

from millrace.core.clocks import AtMs
from millrace.core.machine import Say
from millrace.core.messages.jobs import JobQueued
from millrace.core.messages.slots import TaskManagerHeartbeat
from services.resource_manager.core import pace
from services.resource_manager.core.state import FREED_KEPT, State
from tests.core.of_resource_manager import JM0, TM_A, Driver
from tests.core.test_resource_manager_tenants import driver


def of(*freed: int) -> State:
    return State(1, freed=[AtMs(each) for each in freed])


def expected(state: State, slots: int, at_ms: int) -> AtMs | None:
    return pace.expected_ms(state, pace.pace_ms(state, AtMs(at_ms)), slots, AtMs(at_ms))


def test_the_time_between_two_freed_slots() -> None:
    assert pace.pace_ms(of(), AtMs(9)) is None
    assert pace.pace_ms(of(1_000, 2_000), AtMs(2_000)) is None, "two are too few"
    assert pace.pace_ms(of(1_000, 2_000, 5_000), AtMs(5_000)) == 2_000
    assert pace.pace_ms(of(1_000, 2_000, 5_000), AtMs(61_000)) == 20_000, "none was freed for long"


def test_what_is_expected_is_told_to_the_second() -> None:
    assert expected(of(), 3, 1_000) is None
    assert expected(of(1_000, 3_100, 5_200), 3, 6_000) == 12_000
    assert expected(of(1_000, 1_100, 1_200), 1, 1_200) == 1_000


def test_what_is_expected_is_news_where_it_is_far_off() -> None:
    now = AtMs(1_000_000)
    assert not pace.is_news(None, None, now)
    assert pace.is_news(None, 1, now) and pace.is_news(1, None, now)
    assert not pace.is_news(1_060_000, 1_075_000, now) and pace.is_news(1_060_000, 1_075_001, now)
    assert not pace.is_news(1_400_000, 1_500_000, now) and pace.is_news(1_400_000, 1_500_001, now), "a quarter of what is left"


def test_who_has_slots_in_a_moment_is_near() -> None:
    fast, slow = of(1_000, 1_100, 1_200), of(1_000, 4_000, 7_000)

    def near(state: State, slots: int, at_ms: int) -> bool:
        return pace.is_near(state, pace.pace_ms(state, AtMs(at_ms)), slots, AtMs(at_ms))

    assert near(fast, 20, 1_200) and not near(fast, 21, 1_200)
    assert near(fast, 1, 1_700) and not near(fast, 1, 1_701), "none was freed for a moment"
    assert not near(slow, 1, 7_000) and not near(of(), 1, 7_000)


def test_who_has_slots_in_a_moment_is_sent_no_place() -> None:
    """In a burst of short jobs six of ten records were about places that were wrong when they were read."""
    cluster = driver(1024)
    for number in range(7):
        cluster.ask(f"j{number}", since_ms=number)
    for _ in range(3):
        ended(cluster, 300)
    cluster.ask("late", since_ms=99)
    assert [each for each in ended(cluster, 300) if each.reason is not None] == []
    told = {each.job: each.position for _ in range(2) for each in second(cluster)}
    assert told == {"j5": 1, "j6": 2, "late": 3}, "no slot was freed for a moment"


def ended(cluster: Driver, ms: int) -> list[JobQueued]:
    """So long later the job in slot 0 wants no more, and gives it back; what was sent about the queue up to the next tick."""
    said = []
    for _ in range(ms // 100):
        cluster.say(TM_A, TaskManagerHeartbeat())
        said += cluster.tick()
    job = cluster.state.task_managers["a"].slots[0].job
    assert job is not None
    cluster.ask(job, 0)
    said += cluster.free()
    cluster.say(TM_A, TaskManagerHeartbeat())
    said += cluster.tick()
    return [each.body for each in said if isinstance(each, Say) and each.to == JM0]


def second(cluster: Driver) -> list[JobQueued]:
    """A second in which nothing happens: what was sent about the queue."""
    said = []
    for _ in range(10):
        cluster.say(TM_A, TaskManagerHeartbeat())
        said += cluster.tick()
    return [each.body for each in said]


def test_who_waits_learns_when_it_may_expect_its_slots() -> None:
    cluster = driver(1024)
    for number in range(9):
        cluster.ask(f"j{number}", since_ms=number)
    for _ in range(2):
        assert all(each.expected_ms is None for each in ended(cluster, 2_000))
    told = {each.job: each for each in ended(cluster, 2_000)}
    assert cluster.state.freed == [1_002_000, 1_004_100, 1_006_200]
    told |= {each.job: each for each in second(cluster)}
    busy = "the 1 slot of 1 TaskManager is busy"
    assert told["j4"] == JobQueued(job="j4", reason=busy, position=1, expected_ms=1_008_000)
    assert told["j8"] == JobQueued(job="j8", reason=busy, position=5, expected_ms=1_017_000)


def test_nothing_is_expected_of_slots_that_are_freed_while_nobody_waits() -> None:
    cluster = driver(1024)
    for number in range(FREED_KEPT):
        cluster.ask(f"j{number}", since_ms=number)
    for _ in range(3):
        ended(cluster, 100)
    assert len(cluster.state.freed) == 3
    for _ in range(3, FREED_KEPT):
        ended(cluster, 100)
    assert cluster.state.freed == []


def test_no_more_times_are_kept_than_are_needed() -> None:
    cluster = driver(1024)
    for number in range(3 * FREED_KEPT):
        cluster.ask(f"j{number}", since_ms=number)
    for _ in range(2 * FREED_KEPT):
        ended(cluster, 100)
    assert len(cluster.state.freed) == FREED_KEPT


def test_who_waits_for_its_own_tenants_slots_expects_nothing() -> None:
    cluster = driver(1024, 1024, x={"slots": 1})
    cluster.ask("begins", since_ms=0)
    cluster.ask("stays", tenant="x", since_ms=1)
    cluster.ask("limited", tenant="x", since_ms=2)
    for number in range(9):
        cluster.ask(f"j{number}", since_ms=10 + number)
    told = {each.job: each for _ in range(5) for each in ended(cluster, 1_000)} | {each.job: each for each in second(cluster)}
    assert told["j8"].expected_ms is not None
    assert (told["limited"].position, told["limited"].expected_ms) == (5, None)
