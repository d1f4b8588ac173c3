"""Who leads, how long it does, and when it ticks: the replica core over the in-memory bus."""

from __future__ import annotations

from millrace.core.election import ELECTED_BACK_MS, READ_BACK_MS, View
from millrace.core.messages.records import Elected, Probe, Tick
from millrace.core.replica import Append, Campaign, Resign
from millrace.core.states import Role
from millrace.core.timing import BROKER_RETURN_MS
from tests.core.of_replica import Log, heard


def test_an_absent_key_is_campaigned_for_only_when_caught_up() -> None:
    replica = Log().replicas[0]
    assert replica.beat(5_000, View(0), caught_up=False) == []
    assert replica.beat(5_000, View(None), caught_up=True) == []
    assert replica.beat(5_000, View(0), caught_up=True) == [Campaign(0)]
    assert replica.beat(5_000, View(0), caught_up=True) == []
    replica.lost(5_000)
    assert replica.beat(5_500, View(0), caught_up=True) == []
    assert replica.beat(6_001, View(0), caught_up=True) == [Campaign(0)]


def test_a_leader_that_ticks_is_never_preempted() -> None:
    log = Log(2)
    log.elect()
    for n in range(20):
        log.tick()
        assert log.replicas[1].beat(log.stamp, View(10), caught_up=True) == (
            [] if n else [Append(Probe(who="r1", n=1))]
        )


def test_a_process_started_again_takes_over_from_its_earlier_life_at_once() -> None:
    log = Log(2)
    log.elect()
    again = log.replica("r0")
    for offset, (stamp, record) in enumerate(log.records):
        again.record(offset, stamp, record, 0)
    assert again.beat(9_000, View(10), caught_up=False) == []
    assert again.beat(9_000, View(10), caught_up=True) == [Campaign(10)]
    assert not any(isinstance(a, Campaign) for a in log.replicas[1].beat(log.stamp, View(10), caught_up=True))


def test_silence_between_two_own_probes_preempts_exactly_the_silent_epoch() -> None:
    log = Log(2)
    log.elect()
    standby = log.replicas[1]
    now = log.stamp
    assert standby.beat(now, View(10), caught_up=True) == [Append(Probe(who="r1", n=1))]  # it says that it watches
    log.append(Probe(who="r1", n=1), ms=0)
    log.tick()
    now = log.stamp
    assert standby.beat(now + 149, View(10), caught_up=True) == []
    (probe,) = standby.beat(now + 150, View(10), caught_up=True)
    assert probe == Append(Probe(who="r1", n=2))
    log.append(probe.record, ms=150)
    log.append(Probe(who="r1", n=2), ms=499)
    assert not any(isinstance(a, Campaign) for a in standby.beat(now + 900, View(10), caught_up=True))
    log.append(Probe(who="r1", n=3), ms=1)
    assert standby.beat(now + 2_000, View(10), caught_up=True) == [Campaign(10)]


def test_a_pause_of_the_log_is_no_silence_of_its_leader() -> None:
    """1. The broker is paused for a minute; 2. it goes on with the probes that waited, one before and one after; 3. the leader's tick comes
    a little later, for its connection had to be made anew."""
    log = Log(2)
    log.elect()
    standby, now = log.replicas[1], log.stamp
    assert standby.beat(now + 150, View(10), caught_up=True) == [Append(Probe(who="r1", n=1))]
    log.append(Probe(who="r1", n=1), ms=150)
    (probe,) = standby.beat(now + 200, View(10), caught_up=True)
    assert standby.beat(now + 60_000, View(10), caught_up=True) == [], "one that is not read back is not asked again"
    log.append(probe.record, ms=60_000)
    steps = BROKER_RETURN_MS // 500
    for number in range(3, 3 + steps):
        log.append(Probe(who="r1", n=number), ms=499)
    assert not any(isinstance(a, Campaign) for a in standby.beat(log.stamp, View(10), caught_up=True))
    log.append(Probe(who="r1", n=20), ms=steps)
    log.append(Probe(who="r1", n=21), ms=499)
    assert not standby.election.silent
    log.append(Probe(who="r1", n=22), ms=1)
    assert standby.election.silent, "but it ends"


def test_a_follower_looks_at_the_time_when_something_is_due() -> None:
    log = Log(2)
    log.elect()
    election, now = log.replicas[1].election, log.stamp
    election._probed_ms = now
    assert election.next_look_ms(now, 100) == now + 50, "no longer than an idle poll"
    assert election.next_look_ms(now + 140, 100) == now + 150, "when it suspects"
    election._probed_ms = now + 150
    assert election.next_look_ms(now + 160, 100) == now + 200, "when it probes again"
    assert election.next_look_ms(now + 200, 100) == now + 250, "what is due and cannot be done is no reason to turn faster"
    election._silent = True
    assert election.next_look_ms(now + 200, 100) == now + 205


def test_a_tick_between_probes_is_a_sign_of_life() -> None:
    log = Log(2)
    log.elect()
    standby = log.replicas[1]
    log.append(Probe(who="r1", n=1), ms=300)
    log.tick()
    log.append(Probe(who="r1", n=2), ms=600)
    assert not standby.election.silent


def test_an_epoch_without_a_record_in_the_log_is_left_to_its_lease() -> None:
    log = Log(2)
    log.elect()
    standby = log.replicas[1]
    standby.election._silent = True
    assert not any(isinstance(a, Campaign) for a in standby.beat(log.stamp + 9_000, View(12), caught_up=True))


def test_an_output_stuck_above_the_mark_is_silence_too() -> None:
    log = Log(2)
    log.elect()
    log.append(heard(1, None))
    for _ in range(60):
        log.tick()
    assert log.replicas[1].election.silent


def test_a_leader_steps_down_when_its_key_is_anothers_or_gone_and_when_a_higher_epoch_is_folded() -> None:
    for view in (View(0), View(11)):
        log = Log()
        log.elect()
        assert log.replicas[0].beat(log.stamp, view, caught_up=True) == []
        assert log.replicas[0].election.role is Role.FOLLOWING
    log = Log()
    log.elect()
    log.append(Elected(generation=1, epoch=11, build="b1", who="r9"))
    assert log.replicas[0].election.role is Role.FOLLOWING


def test_a_leader_that_cannot_read_back_its_tick_resigns() -> None:
    log = Log()
    log.elect()
    replica = log.replicas[0]
    assert replica.beat(log.stamp + READ_BACK_MS - 1, View(10), caught_up=True) == []
    (resign,) = replica.beat(log.stamp + READ_BACK_MS, View(10), caught_up=True)
    assert isinstance(resign, Resign) and resign.epoch == 10
    assert not replica.leads


def test_who_cannot_read_back_its_election_resigns_and_no_sooner() -> None:
    """However it won: with a new generation it has the key, and never asked for it."""
    log = Log()
    replica = log.replicas[0]
    replica.won(10)
    for ms in (0, ELECTED_BACK_MS - 1):
        assert replica.beat(log.stamp + ms, View(10, mine=True), caught_up=True) == []
    (resign,) = replica.beat(log.stamp + ELECTED_BACK_MS, View(10, mine=True), caught_up=True)
    assert isinstance(resign, Resign) and resign.epoch == 10


def test_a_broker_that_is_paused_for_a_minute_makes_no_leader_resign() -> None:
    log = Log()
    log.elect()
    assert log.replicas[0].beat(log.stamp + 60_000, View(10), caught_up=True) == []
    assert log.replicas[0].leads


def test_the_next_tick_is_made_only_after_the_last_was_read_back() -> None:
    log = Log()
    append = next(a for a in log.elect() if isinstance(a, Append))
    replica = log.replicas[0]
    assert replica.beat(log.stamp + 500, View(10), caught_up=True) == []
    log.append(append.record, ms=1)
    (following,) = replica.beat(log.stamp + 500, View(10), caught_up=True)
    assert isinstance(following, Append) and following.record.n == 2


def test_a_leader_with_nothing_to_do_and_nobody_watching_ticks_slowly_and_says_so() -> None:
    log = Log()
    tick = next(a.record for a in log.elect() if isinstance(a, Append))
    replica = log.replicas[0]
    assert isinstance(tick, Tick) and tick.next_ms == 100  # its Hello and its election are not in Kafka yet
    log.append(tick)
    replica.acked(10, 1)
    replica.acked(10, 2)
    sent = log.stamp - 100  # when that tick was sent
    assert replica.beat(sent + 99, View(10), caught_up=True) == []
    (last,) = replica.beat(sent + 100, View(10), caught_up=True)  # as it was promised
    assert isinstance(last, Append) and isinstance(last.record, Tick)
    assert (last.record.next_ms, last.record.published_through) == (2_000, 2)
    log.append(last.record, ms=0)
    assert replica.beat(sent + 2_099, View(10), caught_up=True) == []
    (slow,) = replica.beat(sent + 2_100, View(10), caught_up=True)
    assert isinstance(slow, Append) and slow.record.next_ms == 2_000
    log.append(slow.record)
    log.append(Probe(who="r7", n=1))
    assert replica.beat(sent + 3_000, View(10), caught_up=True) == []  # it is woken: what woke it goes its way before a tick does
    assert replica.beat(sent + 3_049, View(10), caught_up=True) == []
    (fast,) = replica.beat(sent + 3_050, View(10), caught_up=True)
    assert isinstance(fast, Append) and fast.record.next_ms == 100
    log.append(fast.record)
    assert replica.beat(sent + 3_149, View(10), caught_up=True) == []
    replica.election._attendants.clear()
    (slow,) = replica.beat(sent + 3_150, View(10), caught_up=True)
    log.append(slow.record)
    log.append(Probe(who="r7", n=2))
    assert replica.beat(sent + 3_300, View(10), caught_up=True) == []
    replica.election._attendants.clear()  # at rest again: who is woken now and then, and never for long, ticks all the same
    assert replica.beat(sent + 3_349, View(10), caught_up=True) == []
    assert len(replica.beat(sent + 3_350, View(10), caught_up=True)) == 1


def test_a_leader_that_is_woken_shortly_before_its_slow_tick_is_due_ticks_as_it_promised() -> None:
    log = Log()
    log.elect()
    replica = log.replicas[0]
    for seq in (1, 2):
        replica.acked(10, seq)
    replica.election.ticked(log.stamp, 1)
    log.tick(next_ms=2_000, published_through=2)
    sent = replica.election.ticked_ms
    assert replica.beat(sent + 1_900, View(10), caught_up=True) == []
    log.append(Probe(who="r7", n=1))
    assert replica.beat(sent + 1_999, View(10), caught_up=True) == []
    (tick,) = replica.beat(sent + 2_000, View(10), caught_up=True)
    assert isinstance(tick, Append) and tick.record.next_ms == 100


def test_a_standby_allows_a_slow_leader_what_it_promised() -> None:
    log = Log(2)
    log.elect()
    log.tick(next_ms=500)
    standby = log.replicas[1]
    standby.election._probed_ms = log.stamp
    assert standby.beat(log.stamp + 749, View(10), caught_up=True) == []
    assert standby.beat(log.stamp + 750, View(10), caught_up=True) == [Append(Probe(who="r1", n=1))]
    log.append(Probe(who="r1", n=1), ms=750)
    log.append(Probe(who="r1", n=2), ms=2_499)
    assert not standby.election.silent
    log.append(Probe(who="r1", n=3), ms=1)
    assert standby.election.silent
