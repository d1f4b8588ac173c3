"""The replica core with two small machines over the in-memory bus: outbox, effects, generations, peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from millrace.core.chain import Offer, Peer, offer
from millrace.core.fold import Diverged, Fold, Parked, ScopeState
from millrace.core.machine import Born, Configured, Do, Envelope, Forget, Output, PeerBorn, Publish, Say, Ticked
from millrace.core.messages.effects import JobFound
from millrace.core.messages.jobs import JobMasterStarted
from millrace.core.messages.records import Elected, Forked, Hello, Message, Outcome, Tick, decode
from millrace.core.replica import Append, BeReborn, Cede, End, Perform, Reopen, Speak
from tests.core.of_replica import ME, OTHER, TOPOLOGY, Log, heard, names


def test_nothing_counts_before_the_first_elected_of_the_generation() -> None:
    log = Log()
    assert log.append(heard(1, None)) == []
    assert log.append(Elected(generation=2, epoch=9, build="b1", who="r9")) == []
    assert log.replicas[0].folded.epoch == 0
    log.elect()
    assert log.replicas[0].folded.state.names == ["Configured", "Born"]


def test_the_elected_leader_says_hello_to_its_peers_and_ticks_at_once() -> None:
    log = Log()
    assert names(log.elect()) == ["Speak 1 Hello", "Speak 2 LeaderElected", "Append"]
    assert isinstance(log.actions[0][-1], Append) and isinstance(log.actions[0][-1].record, Tick)
    assert log.replicas[0].leads


def test_a_peer_that_was_not_heard_is_told_nothing_but_hello_and_is_declared_to_when_it_is() -> None:
    log = Log()
    log.elect()
    machine = log.replicas[0].fold.machine
    envelope = Envelope("", 0, 0, "1.0", JobMasterStarted(job="a", status="x"))
    folded = log.replicas[0].folded
    assert [type(output) for output in machine.handle(folded.state, envelope)] == [Say, Do, Publish]
    before = folded.said
    assert log.replicas[0].fold._say(folded, (9, 9), Say(OTHER, JobMasterStarted(job="a", status="x"))) is None
    assert folded.said == before
    assert names(log.append(heard(1, None))) == ["Speak 3 Hello"]
    assert folded.state.names[-1] == "PeerBorn"


def test_a_message_leads_to_outputs_with_keys_of_its_offset() -> None:
    log = Log()
    log.elect()
    log.append(heard(1, None))
    actions = log.append(heard(2, 1))
    assert names(actions) == ["Speak 4 JobMasterStarted", "Speak 5 JobMasterStarted", "Perform"]
    perform = actions[-1]
    assert isinstance(perform, Perform)
    assert (perform.effect, perform.key, perform.epoch) == ("1.2.1", "jobs/j2", 10)
    assert '"key":[2,0],"prev":[1,0]' in actions[0].spoken.value


def test_a_standby_folds_the_same_and_says_nothing() -> None:
    log = Log(2)
    log.elect()
    log.append(heard(1, None))
    log.append(heard(2, 1))
    first, second = (replica.folded for replica in log.replicas)
    assert first == second
    assert log.actions[1] == []


def test_a_new_leader_says_the_outbox_again_the_same_words_and_performs_again_what_has_no_outcome() -> None:
    log = Log(2)
    log.elect()
    log.append(heard(1, None))
    log.append(heard(2, 1))
    said = [a.spoken for a in log.actions[0] if isinstance(a, Speak)]
    performed = [(a.effect, a.key, a.value) for a in log.actions[0] if isinstance(a, Perform)]
    log.elect(11, which=1)
    said_again = [a.spoken for a in log.actions[1] if isinstance(a, Speak)]
    assert said_again[:-1] == said and "epoch\":11" in said_again[-1].value, "and that it leads"
    assert [(a.effect, a.key, a.value) for a in log.actions[1] if isinstance(a, Perform)] == performed
    assert not log.replicas[0].leads and log.replicas[1].leads


def test_published_through_is_one_below_the_oldest_unacknowledged_output_and_trims_the_outbox() -> None:
    log = Log()
    log.elect()
    replica = log.replicas[0]
    log.append(heard(1, None))
    log.append(heard(2, 1))
    assert sorted(replica.folded.outbox) == [1, 2, 3, 4, 5]
    assert replica.speaking.published_through() == 0
    for seq in (2, 1, 4):
        replica.acked(10, seq)
    assert replica.speaking.published_through() == 2
    log.tick(published_through=2)
    assert sorted(replica.folded.outbox) == [3, 4, 5]
    replica.acked(9, 3)  # of another term: says nothing about this one
    assert replica.speaking.published_through() == 2


def test_only_the_next_tick_of_the_current_epoch_is_taken() -> None:
    log = Log()
    log.elect()
    folded = log.replicas[0].folded
    now = folded.now_ms
    for wrong in ({"epoch": 9}, {"epoch": 11}, {"n": 2}, {"n": 0}):
        log.tick(**wrong)
    assert (folded.tick, folded.now_ms) == (0, now)
    log.tick()
    assert (folded.tick, folded.state.ticks) == (1, 1)


@pytest.mark.parametrize(("passed", "counted"), [(100, 100), (60_000, 200), (-5_000, 0)])
def test_machine_time_neither_jumps_nor_goes_back(passed: int, counted: int) -> None:
    log = Log()
    log.elect()
    log.tick()
    folded = log.replicas[0].folded
    now = folded.now_ms
    log.stamp += passed - 100
    log.tick()
    assert folded.now_ms - now == counted


def test_a_replica_whose_outputs_differ_ends_itself() -> None:
    log = Log()
    log.elect()
    log.tick()
    with pytest.raises(Diverged, match="r0 has sent 0badf00d"):
        log.tick(digest="0badf00d")


def test_an_outcome_counts_once() -> None:
    log = Log()
    log.elect()
    log.append(heard(1, None))
    log.append(heard(2, 1))
    outcome = Outcome(effect="1.2.1", result=JobFound(job="j2", stands=None))
    log.append(outcome)
    log.append(outcome)
    assert log.replicas[0].folded.state.names.count("JobFound") == 1
    assert log.replicas[0].folded.effects == {}


def test_effects_on_one_key_go_one_after_the_other() -> None:
    log = Log()
    log.elect()
    log.append(heard(1, None))
    first = log.append(heard(2, 1, body=JobMasterStarted(job="a", status="1")))
    second = log.append(heard(3, 2, body=JobMasterStarted(job="a", status="2")))
    assert [a.effect for a in first + second if isinstance(a, Perform)] == ["1.2.1"]
    after = log.append(Outcome(effect="1.2.1", result=JobFound(job="a", stands=None)))
    assert [a.effect for a in after if isinstance(a, Perform)] == ["1.3.1"]


def test_a_gap_makes_the_leader_raise_its_generation_and_a_standby_wait() -> None:
    log = Log(2)
    log.elect()
    log.append(heard(1, None))
    log.append(heard(9, 8))
    assert [type(a) for a in log.actions[0]][-1] is BeReborn
    assert log.actions[1] == []


def test_records_missing_between_two_offsets_are_folded_over_by_nobody() -> None:
    """A hole of 4,999 offsets was folded over in silence: outcomes that lay in it are never told again. A follower raised the generation
    for it, though the leader had read those records and went on."""
    log = Log(3)
    log.elect()
    log.replicas[2].election._silent = True
    for replica, action in zip(log.replicas, (BeReborn, Reopen, BeReborn), strict=True):
        (reborn,) = replica.record(5_000, log.stamp, log.records[0][1], log.stamp)
        assert reborn == action("the records from offset 1 to 4999 are missing")
        assert replica.folded.next_offset == 1, "nothing behind it was folded"
        (again,) = replica.record(5_000, log.stamp, None, log.stamp, parked=Parked("bad"))
        assert again == reborn, "nor passed over"


def test_a_fork_is_answered_and_the_answer_makes_the_peer_raise_its_own() -> None:
    log = Log()
    log.elect()
    log.append(heard(1, None))
    log.append(heard(5, 1))
    assert names(log.append(heard(9, 1)))[0].endswith("Forked")
    damaged = log.append(heard(6, 5, body=Forked(life=1, mark=(77, 0))))
    assert [type(a) for a in damaged] == [BeReborn]


def test_what_a_peer_whose_log_was_cut_says_behind_the_fork_is_no_hole_in_this_log() -> None:
    """Its leader has said some more before it hears of the fork: each follows a word that was not taken."""
    log = Log()
    log.elect()
    log.append(heard(1, None))
    log.append(heard(5, 1))
    assert [names(log.append(heard(*said)))[0][-6:] for said in ((9, 1), (10, 9), (11, 10))] == ["Forked"] * 3


def test_what_was_said_to_another_generation_changes_nothing_but_makes_its_sender_hear_of_this_one() -> None:
    log = Log()
    core = log.replicas[0].fold
    folded = log.replicas[0].folded = core.blank(2, 0)
    log.append(Elected(generation=2, epoch=10, build="b1", who="r0"))
    late = heard(4, 3, to_life=1).model_copy(update={"sender": "task-manager/x"})
    log.append(late)
    log.append(late.model_copy(update={"key": (5, 0), "prev": (4, 0)}))
    assert folded.state.names == ["Configured", "Born"]
    assert [spoken.key for spoken in folded.outbox.values()] == [OTHER, ME, "task-manager/x"]


def test_who_is_known_by_a_late_word_of_a_life_before_hears_of_this_generation_all_the_same() -> None:
    """A reborn scope reads a Hello of a TaskManager's earlier life, played again; the living one speaks to the generation before."""
    log = Log()
    core = log.replicas[0].fold
    folded = log.replicas[0].folded = core.blank(2, 0)
    log.append(Elected(generation=2, epoch=10, build="b1", who="r0"))
    first = heard(4, None, to_life=0).model_copy(update={"sender": "task-manager/x", "life": 3, "body": Hello()})
    log.append(first)
    living = heard(7, 6, to_life=1).model_copy(update={"sender": "task-manager/x", "life": 9})
    log.append(living)
    hello = decode(list(folded.outbox.values())[-1].value.encode())
    assert isinstance(hello, Message) and isinstance(hello.body, Hello)
    assert (hello.to, hello.to_life, hello.prev) == ("task-manager/x", 0, None)
    assert log.append(first) == [], "the earlier life is over"
    log.append(heard(8, None, to_life=2).model_copy(update={"sender": "task-manager/x", "life": 9, "body": Hello()}))
    assert folded.state.names == ["Configured", "Born", "PeerBorn", "PeerBorn"]
    assert folded.peers["task-manager/x"].life == 9 and not folded.peers["task-manager/x"].parted


def test_a_message_to_a_later_life_ends_this_one() -> None:
    log = Log()
    log.elect()
    assert [type(a) for a in log.append(heard(1, None, to_life=2))] == [End]


def test_a_replica_does_not_fold_as_another_build() -> None:
    log = Log()
    log.elect(epoch=9)
    actions = log.append(Elected(generation=1, epoch=10, build="b2", who="r9"))
    assert actions == [Cede("b2", 1)]
    assert log.append(Elected(generation=1, epoch=8, build="b3", who="r8")) == [], "a zombie's, void"


def test_every_tenth_tick_says_hello_on_each_chain() -> None:
    log = Log()
    log.elect()
    log.append(heard(1, None))
    for _ in range(10):
        log.tick()
    hellos = [a.spoken.seq for a in log.actions[0] if isinstance(a, Speak) and a.spoken.type == "Hello"]
    assert hellos == [1, 3, 4]


def test_machine_time_follows_a_slow_leader() -> None:
    log = Log()
    log.elect()
    log.tick(next_ms=500)
    now = log.replicas[0].folded.now_ms
    log.stamp += 400
    log.tick()
    assert log.replicas[0].folded.now_ms - now == 500


def test_a_snapshot_and_the_rest_is_the_same_as_the_whole() -> None:
    from millrace.runtime.snapshots import freeze, thaw

    log = Log()
    log.elect()
    log.append(heard(1, None))
    log.append(heard(2, 1))
    machine = log.replicas[0].fold.machine
    copy: ScopeState = thaw(machine, freeze(machine, log.replicas[0].folded))
    assert copy == log.replicas[0].folded
    fold = Fold(machine, TOPOLOGY)
    record = heard(3, 2)
    assert fold.fold(copy, 3, 1, record) == fold.fold(log.replicas[0].folded, 3, 1, record)
    assert copy == log.replicas[0].folded


def test_core_born_bodies_are_those_of_the_contract() -> None:
    log = Log()
    log.elect()
    log.append(heard(1, None))
    log.tick()
    kinds = {Configured, Born, PeerBorn, Ticked}
    assert set(log.replicas[0].folded.state.names) == {kind.__name__ for kind in kinds}


def test_what_people_read_is_stamped_by_the_broker_and_timers_go_by_machine_time() -> None:
    log = Log()
    log.elect()
    seen: list[Envelope] = []
    machine = log.replicas[0].fold.machine
    handle = machine.handle
    machine.handle = lambda state, envelope: (seen.append(envelope), handle(state, envelope))[1]
    log.stamp += 3_600_000  # the stack was down for an hour
    log.tick()
    assert seen[-1].at_ms == log.stamp
    assert log.stamp - seen[-1].now_ms > 3_500_000


def test_a_replica_of_another_cluster_ends_with_a_sentence_that_says_so() -> None:
    """Two names of a cluster on one Kafka: each has leaders that its own etcd has chosen."""
    log = Log()
    log.replicas[0].settings["cluster"] = "mine"
    log.elect()
    [end] = log.append(Elected(generation=1, epoch=11, build="b1", who="r9", settings={"cluster": "theirs"}))
    assert end == End(
        "dispatcher's log is also led by r9 of cluster theirs, and this is cluster mine: give each cluster a Kafka of its own"
    )


def test_peers_that_came_and_went_are_forgotten_at_last_and_a_late_word_of_one_is_no_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stayed in folded state, in snapshots and in the loop of every tenth tick, for as long as the cluster lived."""
    monkeypatch.setattr("millrace.core.fold.PARTED_KEPT", 3)
    log = Log()
    log.elect()
    folded, machine = log.replicas[0].folded, log.replicas[0].fold.machine
    handle = machine.handle

    def handling(state: Any, envelope: Envelope) -> Iterator[Output]:
        yield from handle(state, envelope)
        if envelope.sender.startswith("task-manager/") and isinstance(envelope.body, PeerBorn):
            yield Forget(envelope.sender, envelope.life)

    monkeypatch.setattr(machine, "handle", handling)
    for number in range(9):
        log.append(heard(1, None, life=number + 1).model_copy(update={"sender": f"task-manager/{number}"}))
    assert [name for name, peer in folded.peers.items() if peer.parted] == ["task-manager/6", "task-manager/7", "task-manager/8"]
    actions = log.append(heard(2, 1, life=1).model_copy(update={"sender": "task-manager/0"}))
    assert not any(isinstance(each, BeReborn) for each in actions) and folded.peers["task-manager/0"].parted
    assert sum(peer.parted for peer in folded.peers.values()) == 3
    later = heard(2, 1, life=99).model_copy(update={"sender": "task-manager/9"})
    assert any(isinstance(each, BeReborn) for each in log.append(later)), "one that lives later has said what is not here"


def test_a_long_lived_peer_whose_birth_was_lost_with_a_cut_log_is_heard_again() -> None:
    """Later ones had parted since: each word of it was dropped as a zombie's, for ever."""
    log = Log()
    log.elect()
    folded, name = log.replicas[0].folded, "task-manager/0"
    folded.parted_through = 50
    late = heard(2, 1, life=1).model_copy(update={"sender": name})
    greeted = [each.spoken for each in log.append(late) if isinstance(each, Speak)]
    assert [(each.type, each.key) for each in greeted] == [("Hello", name)]
    hello = decode(greeted[0].value.encode())
    assert isinstance(hello, Message)
    knows_me = Peer(life=1, start=(0, 1), mark=(0, 9), knew=True)  # as it has heard the words that this log has lost
    assert offer(knows_me, 1, hello) is Offer.FORK
    answer = heard(3, 2, life=1, body=Forked(life=1, mark=(0, 9))).model_copy(update={"sender": name})
    [reborn] = log.append(answer)
    assert isinstance(reborn, BeReborn) and reborn.reason.startswith(f"{name} has heard this scope say (0, 9), which is not in")
