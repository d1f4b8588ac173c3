"""The policies of the ResourceManager."""

from __future__ import annotations

from millrace.core.profile import Profile
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
        made.add(job, (Wanted(Profile(memory_mb), needs.get(job, 1)),), job, rank)
    for size, number in (slots or {}).items():
        made.count_slot(Profile(size), number)
    return made


def match(wait: Waiting, free: dict[int, str], due: list[int] | None = None) -> Match:
    return matching.match_slots(wait, {Profile(size): slots for size, slots in free.items()}, [Profile(size) for size in due or ()])


def found(
    job: str | None = None, sizes: list[int] | None = None, passed: list[int] | None = None, kept: dict[int, str] | None = None
) -> Match:
    its = [Profile(size) for size in sizes or ()]
    return Match(job, its, [Profile(size) for size in passed or ()], {Profile(size): name for size, name in (kept or {}).items()})


def test_nobody_waits_or_nothing_is_free():
    assert match(waiting(), {1: "a"}) == found()
    assert match(waiting(("j", 1, 0)), {}) == found()


def test_the_first_that_fits_anywhere_gets_the_smallest_slot_that_fits():
    wait = waiting(("any", 5, 0), ("last", 9, 0), ("first", 1, 2000), ("too large", 0, 9000))
    free = {1024: "a", 4096: "bb", 8192: "c"}
    assert match(wait, free) == found("first", [4096])
    wait.remove("first")
    assert match(wait, free) == found("any", [1024])
    assert match(waiting(("too large", 0, 9000)), free) == found()


def test_among_equals_the_smaller_id_goes_first():
    assert match(waiting(("b", 1, 0), ("a", 1, 1)), {1: "t"}) == found("a", [1])


def test_who_holds_least_goes_first_and_it_is_noted_who_was_passed():
    wait = waiting(("has", 1, 0), ("has not", 2, 0))
    wait.hold("has", 1)
    assert match(wait, {1: "t"}) == found("has not", [1], passed=[1])
    assert match(wait, {1: "t"}, [1]) == found("has", [1]), "it is its turn"
    assert match(wait, {1: "t"}, [2]) == found("has not", [1], passed=[1]), "of slots of another size"


def test_a_gang_gets_all_its_slots_or_none():
    wait = waiting(("gang", 1, 1000), ("single", 2, 0), slots={1024: 2, 4096: 2}, gang=3)
    assert match(wait, {1024: "ab"}) == found("single", [1024], passed=[1024])
    assert match(wait, {1024: "ab", 4096: "c"}) == found("gang", [1024, 1024, 4096])
    assert match(wait, {512: "abc", 1024: "a"}) == found("single", [512]), "too small ones are no slots for it"


def test_slots_are_kept_for_a_gang_whose_turn_it_is():
    wait = waiting(("gang", 1, 1000), ("single", 2, 0), slots={512: 1, 1024: 2, 4096: 2}, gang=3)
    assert match(wait, {1024: "ab"}, [1024]) == found(kept={1024: "gang"})
    assert match(wait, {512: "s", 1024: "ab"}, [1024]) == found("single", [512], kept={1024: "gang"})
    assert match(wait, {1024: "ab", 4096: "c"}, [1024]) == found("gang", [1024, 1024, 4096])


def test_nothing_is_kept_for_a_gang_that_wants_more_than_there_is():
    wait = waiting(("gang", 1, 1000), ("single", 2, 0), slots={1024: 2}, gang=3)
    assert match(wait, {1024: "ab"}, [1024]) == found("single", [1024])


def test_of_two_gangs_the_first_gets_what_is_kept():
    wait = waiting(("first", 1, 0), ("second", 2, 0), slots={1024: 4}, first=3, second=2)
    assert match(wait, {1024: "ab"}) == found("second", [1024, 1024], passed=[1024])
    assert match(wait, {1024: "ab"}, [1024]) == found(kept={1024: "first"})
    assert match(wait, {1024: "abc"}, [1024]) == found("first", [1024] * 3)


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
