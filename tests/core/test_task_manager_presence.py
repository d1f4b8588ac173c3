"""Rule [R28] as a table: what a TaskManager that may have been declared lost goes through before it launches anything again."""

from __future__ import annotations

import math

import pytest

from millrace.core.states import PresenceState
from services.task_manager.core.fencing import UNREAD_MS, patience_ms
from services.task_manager.core.presence import TRANSITIONS, Event, Presence, Reading, Sight

PRESENT, BEHIND, READ, CONFIRMED, LOST = PresenceState
LOST_AFTER_MS = 600
CUT_OFF_MS = 351  # of Kafka's silence: a tick later its patience would be over
NOW_MS = 100_000
AWAY_MS = patience_ms(LOST_AFTER_MS)


def sight(now_ms: int = NOW_MS, asked_ms: int = 0) -> Sight:
    return Sight(now_ms, LOST_AFTER_MS, asked_ms)


def presence(state: PresenceState, *, silent_ms: int = 0) -> Presence:
    """At work just before, with a slot that somebody holds; it was last absent a second ago."""
    made = Presence(NOW_MS, state, behind_ms=NOW_MS - 1_000, read_ms=NOW_MS, holds=True, awaits=True)
    made.silence.kafka_ms = silent_ms
    return made


def looks(now: Presence) -> None:
    now.look(sight())


def looks_after_an_absence(now: Presence) -> None:
    now.looked_ms = NOW_MS - AWAY_MS
    now.look(sight())


def looks_after_reading_stood_still(now: Presence) -> None:
    now.read_ms = NOW_MS - UNREAD_MS
    now.look(sight())


def listens(now: Presence) -> None:
    now.count_silence(sight(), holds=True, unacked=True)


def listens_while_cut_off(now: Presence) -> None:
    now.silence.kafka_ms = CUT_OFF_MS
    now.count_silence(sight(), holds=True, unacked=True)


def has_read(now: Presence) -> None:
    now.inbox_read(sight(asked_ms=NOW_MS - 1_000))


def has_read_what_was_there_before(now: Presence) -> None:
    now.inbox_read(sight(asked_ms=NOW_MS - 1_001))


def has_read_while_cut_off(now: Presence) -> None:
    now.silence.kafka_ms = CUT_OFF_MS
    now.inbox_read(sight(asked_ms=NOW_MS))


def etcd_has_it(now: Presence) -> None:
    now.etcd_answered(sight(), has_it=True)


def etcd_has_it_after_an_absence(now: Presence) -> None:
    now.looked_ms = NOW_MS - AWAY_MS
    now.etcd_answered(sight(), has_it=True)


def etcd_has_another(now: Presence) -> None:
    now.etcd_answered(sight(), has_it=False)


LEADS_TO = {
    #                                   PRESENT    BEHIND  READ       CONFIRMED
    looks:                             (PRESENT, BEHIND, READ, CONFIRMED),
    looks_after_an_absence:            (BEHIND, BEHIND, BEHIND, BEHIND),
    looks_after_reading_stood_still:   (BEHIND, BEHIND, BEHIND, BEHIND),
    listens:                           (PRESENT, BEHIND, READ, CONFIRMED),
    listens_while_cut_off:             (BEHIND, BEHIND, BEHIND, BEHIND),
    has_read:                          (PRESENT, READ, READ, CONFIRMED),
    has_read_what_was_there_before:    (PRESENT, BEHIND, READ, CONFIRMED),
    has_read_while_cut_off:            (PRESENT, BEHIND, READ, CONFIRMED),
    etcd_has_it:                       (PRESENT, BEHIND, CONFIRMED, PRESENT),
    etcd_has_it_after_an_absence:      (PRESENT, BEHIND, CONFIRMED, BEHIND),
    etcd_has_another:                  (LOST, LOST, LOST, LOST),
}  # fmt: skip


@pytest.mark.parametrize("what", LEADS_TO, ids=lambda what: what.__name__)
@pytest.mark.parametrize("number", range(4), ids=["present", "behind", "read", "confirmed"])
def test_each_state_by_what_happens(what, number: int) -> None:
    now = presence((PRESENT, BEHIND, READ, CONFIRMED)[number])
    what(now)
    assert now.state is LEADS_TO[what][number]
    assert now.behind is (now.state is not PRESENT)


@pytest.mark.parametrize("what", LEADS_TO, ids=lambda what: what.__name__)
def test_who_was_declared_lost_stays_so(what) -> None:
    now = presence(LOST)
    what(now)
    assert now.state is LOST


def test_every_state_is_reached_and_left_by_the_table() -> None:
    assert {row.target for row in TRANSITIONS} == set(PresenceState)
    assert {source for row in TRANSITIONS for source in row.sources} == set(PresenceState) - {LOST}
    assert {row.event for row in TRANSITIONS} == set(Event)


@pytest.mark.parametrize("what", [looks_after_an_absence, looks_after_reading_stood_still, listens_while_cut_off])
@pytest.mark.parametrize("state", [PRESENT, BEHIND, READ, CONFIRMED])
def test_each_absence_counts_from_its_own_moment(what, state: PresenceState) -> None:
    """What was read after an earlier one proves nothing."""
    now = presence(state)
    what(now)
    now.inbox_read(sight(asked_ms=NOW_MS - 1))
    assert now.state is BEHIND and now.behind_ms == NOW_MS


def test_an_absence_is_as_long_as_its_patience() -> None:
    now = presence(PRESENT)
    now.look(sight(NOW_MS + AWAY_MS - 1))
    assert now.state is PRESENT
    now.look(sight(NOW_MS + AWAY_MS))
    assert now.state is BEHIND


def test_a_rest_that_was_planned_is_no_absence() -> None:
    now = presence(PRESENT)
    now.holds = False
    now.rest(NOW_MS, NOW_MS + 2_000)
    now.look(sight(NOW_MS + 2_000))
    assert now.state is PRESENT
    now.look(sight(NOW_MS + 2_000 + AWAY_MS))
    assert now.state is BEHIND


def test_reading_that_stands_still_is_no_absence_where_nobody_holds_a_slot() -> None:
    now = presence(PRESENT)
    now.count_silence(sight(), holds=False, unacked=False)
    now.rest(NOW_MS + UNREAD_MS, 0)
    now.look(sight(NOW_MS + UNREAD_MS))
    assert now.state is PRESENT


def test_silence_counts_while_an_answer_is_awaited() -> None:
    now = Presence(NOW_MS)
    for each in range(1, 5):
        now.count_silence(sight(NOW_MS + 100 * each), holds=False, unacked=False)
    assert now.silence.kafka_ms == 0
    now.count_silence(sight(NOW_MS + 500), holds=True, unacked=False)
    assert now.silence.kafka_ms == 0, "from the look at which it was first awaited"
    now.count_silence(sight(NOW_MS + 600), holds=True, unacked=False)
    now.count_silence(sight(NOW_MS + 700), holds=True, unacked=False)
    assert (now.silence.kafka_ms, now.suspects(LOST_AFTER_MS), now.is_isolated(LOST_AFTER_MS)) == (200, True, False)
    now.count_silence(sight(NOW_MS + 900), holds=True, unacked=False)
    assert now.is_isolated(LOST_AFTER_MS)
    now.etcd_answered(sight(NOW_MS + 900), has_it=True)
    assert not now.is_isolated(LOST_AFTER_MS) and now.suspects(LOST_AFTER_MS)


def test_when_it_asks_where_its_inbox_ends() -> None:
    reading, now = Reading(next=7), presence(PRESENT)
    assert reading.asks_ms(now) == NOW_MS + UNREAD_MS // 2, "twice before its reading stands still for too long"
    now.holds = False
    assert reading.asks_ms(now) == math.inf, "nothing can be deployed"
    now.state = BEHIND
    reading.asked(NOW_MS, 9)
    assert reading.asks_ms(now) == math.inf and not reading.at_end
    reading.next = 9
    assert reading.at_end
    reading.end = None
    assert not reading.at_end and reading.asks_ms(now) == NOW_MS + 100
