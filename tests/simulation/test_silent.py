"""Parts that stay away hold up nobody but their own [R31], and what is large is told in part [R15]."""

from __future__ import annotations

from tests.simulation.seeds import each_seed
from tests.simulation.silent import (
    a_shard_is_given_up,
    a_shard_stays_away,
    an_end_is_passed_over,
    lists_go_on,
    names_are_long,
)
from tests.simulation.trial import quiet_logs


@each_seed(range(8), first=2)
def test_a_shard_that_stays_away_starves_nobody_else(seed: int) -> None:
    quiet_logs()
    a_shard_stays_away(seed)


@each_seed(range(4), first=2)
def test_a_shard_that_is_given_up_holds_no_slot_that_is_not_used(seed: int) -> None:
    quiet_logs()
    a_shard_is_given_up(seed)


def test_a_slot_whose_end_nobody_took_is_missed_by_the_resource_manager() -> None:
    quiet_logs()
    an_end_is_passed_over(0)


def test_who_asks_for_the_longest_names_ends_nobody() -> None:
    quiet_logs()
    names_are_long(0)


@each_seed(range(6), first=2)
def test_who_reads_all_jobs_page_by_page_has_each_once(seed: int) -> None:
    quiet_logs()
    lists_go_on(seed)
