"""Scopes are led by all the processes that host them: which one a process gives away, and how."""

from __future__ import annotations

import random

import pytest

from millrace.core.balance import Standing, given_away
from millrace.core.election import CAMPAIGN_MS, GIVEN_MS, Election, View
from millrace.core.states import Role

A, B, C = "a", "b", "c"


def standings(*leaders: str, standbys: tuple[str, ...]) -> list[Standing]:
    return [
        Standing(f"job-master/{shard}", leader, tuple(each for each in standbys if each != leader))
        for shard, leader in enumerate(leaders)
    ]


@pytest.mark.parametrize(
    ("leaders", "standbys", "given"),
    [
        ((A, A), (B,), "job-master/1"),
        ((A, A), (), None),  # nobody there to take it
        ((A,), (B,), None),  # one scope cannot be shared
        ((A, B, A), (A, B), None),  # it would only move the difference
        ((A, B, A, A), (A, B), "job-master/3"),
        ((A, B, B, A, A), (A, B, C), "job-master/4"),  # the one that leads none
        ((B, B, B), (A, B), None),  # what others lead is theirs to give
    ],
)
def test_what_is_given_away(leaders: tuple[str, ...], standbys: tuple[str, ...], given: str | None) -> None:
    assert given_away(A, standings(*leaders, standbys=standbys)) == given


@pytest.mark.parametrize("processes", [(A, B), (A, B, C), (A, B, C, "d")])
def test_all_lead_nearly_as_many_in_the_end(processes: tuple[str, ...]) -> None:
    leaders, chance = [A] * 7, random.Random(len(processes))
    for _ in range(len(leaders) * len(processes)):
        for me in processes:
            scope = given_away(me, standings(*leaders, standbys=processes))
            if scope is not None:  # the one that takes it is whoever is first
                leaders[int(scope.partition("/")[2])] = chance.choice([each for each in processes if each != me])
    led = [leaders.count(each) for each in processes]
    assert max(led) - min(led) <= 1
    assert all(given_away(me, standings(*leaders, standbys=processes)) is None for me in processes)


def test_a_standby_that_does_not_attend_is_given_nothing() -> None:
    election = Election()
    election.attended(B, 1_000)
    election.attended(C, 90_000)
    assert election.attended_by(91_000, 25_000) == [C]
    assert election._attendants == {C: 90_000}  # who was not heard for long is forgotten


def test_who_gives_away_does_not_ask_for_the_key_before_others_could() -> None:
    election, now_ms = Election(), 50_000
    election.won(7)
    election.elected(now_ms, 7, own=True)
    election.give_away(now_ms)
    assert election.role is Role.FOLLOWING
    assert election.campaigns(now_ms + GIVEN_MS - 1, View(0), 7, True, False) is None
    assert election.campaigns(now_ms + GIVEN_MS, View(0), 7, True, False) == 0
    assert GIVEN_MS < CAMPAIGN_MS


def test_a_replica_changes_its_role_as_the_table_says_and_not_otherwise() -> None:
    election = Election()
    assert not election.elected(1, 0, own=True)
    assert election.campaigns(CAMPAIGN_MS, View(0), 0, True, False) == 0
    election.won(7)
    with pytest.raises(AssertionError, match="a replica that is elect does not become elect"):
        election.won(8)
    assert not election.elected(2, 7, own=False)
    assert election.elected(2, 7, own=True)
    with pytest.raises(AssertionError, match="a replica that is leading does not become elect"):
        election.won(8)
    election.follow(3)
    assert (election.role, election.epoch, election.last_won) == (Role.FOLLOWING, 0, 7)
