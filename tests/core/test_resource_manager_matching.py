"""The policies of the ResourceManager."""

from __future__ import annotations

from services.resource_manager.core import liveness, matching
from services.resource_manager.core.state import Settings


def test_rank_weighs_priority_against_waiting():
    assert matching.rank(0, 1_000, 60_000) == 1_000
    assert matching.rank(2, 1_000, 60_000) == -119_000
    assert matching.rank(-1, 1_000, 60_000) == 61_000


def test_nobody_waits_or_nothing_is_free():
    assert matching.match_slots({}, {1: {"a#0": ("a", 0)}}) is None
    assert matching.match_slots({0: [(1, "j")]}, {}) is None


def test_the_first_that_fits_anywhere_gets_the_smallest_slot_that_fits():
    queues = {0: [(5, "any"), (9, "last")], 2000: [(1, "first")], 9000: [(0, "too large")]}
    free = {1024: {"a#0": ("a", 0)}, 4096: {"b#1": ("b", 1), "b#0": ("b", 0)}, 8192: {"c#0": ("c", 0)}}
    assert matching.match_slots(queues, free) == ("first", ("b", 1))
    del queues[2000]
    assert matching.match_slots(queues, free) == ("any", ("a", 0))
    assert matching.match_slots({9000: queues[9000]}, free) is None


def test_among_equals_the_smaller_id_goes_first():
    assert matching.match_slots({0: [(1, "b")], 1: [(1, "a")]}, {1: {"t#0": ("t", 0)}}) == ("a", ("t", 0))


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
