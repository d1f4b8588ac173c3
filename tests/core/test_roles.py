"""A replica's role as a table: what each event leads to from each role, and which guard keeps it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millrace.core.election import CAMPAIGN_MS, ELECTED_BACK_MS, READ_BACK_MS, TRANSITIONS, Election, Event, View
from millrace.core.states import Role

FOLLOWING, CAMPAIGNING, ELECT, LEADING = Role
NOW_MS = 1_000_000
EPOCH = 7


def election(role: Role) -> Election:
    """Whose role began at NOW_MS; its epoch is EPOCH, and the first tick of a leader is sent."""
    it = Election()
    it.follow(NOW_MS - CAMPAIGN_MS)
    if role is CAMPAIGNING:
        assert it.campaigns(NOW_MS, View(0), 0, True, False) == 0
    elif role is not FOLLOWING:
        it.won(EPOCH)
        it.gives_up(NOW_MS, 0)
    if role is LEADING:
        assert it.elected(NOW_MS, EPOCH, own=True)
        it.ticked(NOW_MS, 1)
    assert it.role is role
    return it


def campaigns(view: View, caught_up: bool = True, heir: bool = False, silent: bool = False) -> Callable[[Election], object]:
    def what(it: Election) -> object:
        it._silent = silent
        return it.loses_key(NOW_MS + CAMPAIGN_MS, view) or it.campaigns(NOW_MS + CAMPAIGN_MS, view, EPOCH, caught_up, heir)

    return what


KEY = View(EPOCH)
LEADS_TO = {
    "the key is absent": (campaigns(View(0)), (CAMPAIGNING, CAMPAIGNING, FOLLOWING, FOLLOWING)),
    "etcd has not answered": (campaigns(View(None)), (FOLLOWING, CAMPAIGNING, ELECT, LEADING)),
    "the log is not read": (campaigns(View(0), caught_up=False), (FOLLOWING, CAMPAIGNING, FOLLOWING, FOLLOWING)),
    "the key is somebody's": (campaigns(KEY), (FOLLOWING, CAMPAIGNING, ELECT, LEADING)),
    "its holder is silent": (campaigns(KEY, silent=True), (CAMPAIGNING, CAMPAIGNING, ELECT, LEADING)),
    "its holder was this one": (campaigns(KEY, heir=True), (CAMPAIGNING, CAMPAIGNING, ELECT, LEADING)),
    "its holder is about to write": (campaigns(View(EPOCH + 1), silent=True), (FOLLOWING, CAMPAIGNING, FOLLOWING, FOLLOWING)),
    "its own": (campaigns(View(EPOCH, mine=True)), (CAMPAIGNING, CAMPAIGNING, ELECT, LEADING)),
    "foreign": (campaigns(View(EPOCH, foreign=True)), (CAMPAIGNING, CAMPAIGNING, ELECT, LEADING)),
    "folds its own": (lambda it: it.elected(NOW_MS, EPOCH, own=True), (FOLLOWING, CAMPAIGNING, LEADING, LEADING)),
    "folds another's": (lambda it: it.elected(NOW_MS, EPOCH, own=False), (FOLLOWING, CAMPAIGNING, ELECT, LEADING)),
    "folds a later one": (lambda it: it.elected(NOW_MS, EPOCH + 1, own=False), (FOLLOWING, CAMPAIGNING, FOLLOWING, FOLLOWING)),
    "its election is late": (lambda it: it.gives_up(NOW_MS + ELECTED_BACK_MS, 0), (FOLLOWING, CAMPAIGNING, FOLLOWING, LEADING)),
    "its tick is late": (lambda it: it.gives_up(NOW_MS + READ_BACK_MS, 0), (FOLLOWING, CAMPAIGNING, FOLLOWING, FOLLOWING)),
    "its tick came back": (lambda it: it.gives_up(NOW_MS + READ_BACK_MS, 1), (FOLLOWING, CAMPAIGNING, FOLLOWING, LEADING)),
    "is to follow": (lambda it: it.follow(NOW_MS), (FOLLOWING, FOLLOWING, FOLLOWING, FOLLOWING)),
}


@pytest.mark.parametrize("what", LEADS_TO)
@pytest.mark.parametrize("number", range(4), ids=[role.value for role in Role])
def test_each_role_by_what_happens(what: str, number: int) -> None:
    it = election(list(Role)[number])
    happens, then = LEADS_TO[what]
    happens(it)
    assert it.role is then[number]
    assert it.epoch == (EPOCH if it.has_key else 0)


@pytest.mark.parametrize("role", Role)
def test_a_key_is_given_to_who_has_none(role: Role) -> None:
    it = election(role)
    if it.has_key:
        with pytest.raises(AssertionError, match=f"a replica that is {role.value} does not become elect"):
            it.won(EPOCH + 1)
    else:
        it.won(EPOCH + 1)
        assert (it.role, it.epoch) == (ELECT, EPOCH + 1)


def test_who_lost_a_campaign_or_gave_up_waits_before_it_asks_again() -> None:
    it = election(CAMPAIGNING)
    it.follow(NOW_MS)
    assert it.campaigns(NOW_MS + CAMPAIGN_MS - 1, View(0), EPOCH, True, False) is None
    assert it.campaigns(NOW_MS + CAMPAIGN_MS, View(0), EPOCH, True, False) == 0
    it = election(ELECT)
    assert it.gives_up(NOW_MS + ELECTED_BACK_MS - 1, 0) == 0
    assert it.gives_up(NOW_MS + ELECTED_BACK_MS, 0) == EPOCH
    again_ms = NOW_MS + 2 * ELECTED_BACK_MS + CAMPAIGN_MS
    assert it.campaigns(again_ms - 1, View(0), EPOCH, True, False) is None
    assert it.campaigns(again_ms, View(0), EPOCH, True, False) == 0


def test_every_role_is_reached_and_left_by_the_table() -> None:
    assert {row.target for row in TRANSITIONS} == {source for row in TRANSITIONS for source in row.sources} == set(Role)
    assert {row.event for row in TRANSITIONS} == set(Event)
