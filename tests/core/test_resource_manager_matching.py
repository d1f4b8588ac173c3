"""The policies of the ResourceManager."""

from __future__ import annotations

from services.resource_manager.core import liveness, matching
from services.resource_manager.core.matching import Match
from services.resource_manager.core.state import Settings
from services.resource_manager.core.waiting import Waiting, Wanted


def test_rank_weighs_priority_against_waiting():
    assert matching.rank(0, 1_000, 60_000) == 1_000
    assert matching.rank(2, 1_000, 60_000) == -119_000
    assert matching.rank(-1, 1_000, 60_000) == 61_000


def waiting(*jobs: tuple[str, int, int], slots: dict[int, int] | None = None, **needs: int) -> Waiting:
    """jobs: (job, rank, memory_mb), each its own tenant's. needs: job -> slots at once."""
    made = Waiting({})
    for job, rank, memory_mb in jobs:
        made.add(job, Wanted(memory_mb, needs.get(job, 1)), job, rank)
    for size, number in (slots or {}).items():
        made.count_slot(size, number)
    return made


def test_nobody_waits_or_nothing_is_free():
    assert matching.match_slots(waiting(), {1: "a"}) == Match()
    assert matching.match_slots(waiting(("j", 1, 0)), {}) == Match()


def test_the_first_that_fits_anywhere_gets_the_smallest_slot_that_fits():
    wait = waiting(("any", 5, 0), ("last", 9, 0), ("first", 1, 2000), ("too large", 0, 9000))
    free = {1024: "a", 4096: "bb", 8192: "c"}
    assert matching.match_slots(wait, free) == Match("first", [4096])
    wait.remove("first")
    assert matching.match_slots(wait, free) == Match("any", [1024])
    assert matching.match_slots(waiting(("too large", 0, 9000)), free) == Match()


def test_among_equals_the_smaller_id_goes_first():
    assert matching.match_slots(waiting(("b", 1, 0), ("a", 1, 1)), {1: "t"}) == Match("a", [1])


def test_who_holds_least_goes_first_and_it_is_noted_who_was_passed():
    wait = waiting(("has", 1, 0), ("has not", 2, 0))
    wait.hold("has", 1)
    assert matching.match_slots(wait, {1: "t"}) == Match("has not", [1], passed=[1])
    assert matching.match_slots(wait, {1: "t"}, [1]) == Match("has", [1]), "it is its turn"
    assert matching.match_slots(wait, {1: "t"}, [2]) == Match("has not", [1], passed=[1]), "of slots of another size"


def test_a_gang_gets_all_its_slots_or_none():
    wait = waiting(("gang", 1, 1000), ("single", 2, 0), slots={1024: 2, 4096: 2}, gang=3)
    assert matching.match_slots(wait, {1024: "ab"}) == Match("single", [1024], passed=[1024])
    assert matching.match_slots(wait, {1024: "ab", 4096: "c"}) == Match("gang", [1024, 1024, 4096])
    assert matching.match_slots(wait, {512: "abc", 1024: "a"}) == Match("single", [512]), "too small ones are no slots for it"


def test_slots_are_kept_for_a_gang_whose_turn_it_is():
    wait = waiting(("gang", 1, 1000), ("single", 2, 0), slots={512: 1, 1024: 2, 4096: 2}, gang=3)
    assert matching.match_slots(wait, {1024: "ab"}, [1024]) == Match(kept={1024: "gang"})
    assert matching.match_slots(wait, {512: "s", 1024: "ab"}, [1024]) == Match("single", [512], kept={1024: "gang"})
    assert matching.match_slots(wait, {1024: "ab", 4096: "c"}, [1024]) == Match("gang", [1024, 1024, 4096])


def test_nothing_is_kept_for_a_gang_that_wants_more_than_there_is():
    wait = waiting(("gang", 1, 1000), ("single", 2, 0), slots={1024: 2}, gang=3)
    assert matching.match_slots(wait, {1024: "ab"}, [1024]) == Match("single", [1024])


def test_of_two_gangs_the_first_gets_what_is_kept():
    wait = waiting(("first", 1, 0), ("second", 2, 0), slots={1024: 4}, first=3, second=2)
    assert matching.match_slots(wait, {1024: "ab"}) == Match("second", [1024, 1024], passed=[1024])
    assert matching.match_slots(wait, {1024: "ab"}, [1024]) == Match(kept={1024: "first"})
    assert matching.match_slots(wait, {1024: "abc"}, [1024]) == Match("first", [1024] * 3)


def test_heartbeats_slow_down_in_steps_and_do_not_flap():
    limits = Settings(heartbeat_interval_ms=100, beats_per_s_max=1000)
    assert [liveness.interval_ms(limits, n, 100) for n in (1, 100, 101, 200, 201, 1000)] == [
        100,
        100,
        200,
        200,
        400,
        1600,
    ]
    assert [liveness.interval_ms(limits, n, 200) for n in (101, 100, 51, 50)] == [200, 200, 200, 100]
