"""Where order between topics is kept."""

from __future__ import annotations

import pytest

from millrace.core.fold import OutboxRecord
from millrace.core.replica import Speak
from millrace.runtime.sending import Sending
from tests.core.of_messages import WAITS


def spoken(seq: int, kind: str, topic: str = "dispatcher.commands", epoch: int = 7) -> Speak:
    return Speak(epoch, OutboxRecord(seq, topic, 0, "key", kind, "{}", WAITS.get(kind, "")))


class Sent:
    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.sending = Sending(lambda action: self.seqs.append(action.spoken.seq))

    def say(self, *actions: Speak) -> list[int]:
        """What was sent because of these."""
        before = len(self.seqs)
        for action in actions:
            self.sending.send(action)
        return self.seqs[before:]

    def acked(self, seq: int, epoch: int = 7) -> list[int]:
        """What was sent because of this acknowledgement."""
        before = len(self.seqs)
        self.sending.acked(epoch, seq)
        return self.seqs[before:]


def event(seq: int, epoch: int = 7) -> Speak:
    return spoken(seq, "AttemptStateChanged", "job.events", epoch)


def test_a_slot_is_given_when_all_shards_will_have_heard_of_what_was_lost_before() -> None:
    sent = Sent()
    lost = [spoken(seq, "TaskManagerLost", f"job-master.commands-{seq}") for seq in (1, 2)]
    assert sent.say(*lost, spoken(3, "AllocateSlot", "task-manager.commands"), event(4)) == [1, 2, 4]
    assert sent.acked(4) == []
    assert sent.acked(1) == []
    assert sent.sending.awaits == "job-master.commands-2"
    assert sent.acked(2) == [3]
    assert sent.say(spoken(5, "AllocateSlot", "task-manager.commands")) == [5]


def test_what_is_said_goes_at_once() -> None:
    sent = Sent()
    assert sent.say(event(1), spoken(2, "RequestSlots", "resource-manager.commands"), spoken(3, "JobMasterStarted")) == [1, 2, 3]
    assert not sent.sending.awaits


def test_an_end_waits_for_the_events_before_it_and_for_no_later_ones() -> None:
    sent = Sent()
    assert sent.say(event(1), event(2), spoken(3, "JobEnded"), event(4)) == [1, 2, 4]
    assert sent.sending.awaits == "job.events"
    assert sent.acked(2) == []
    assert sent.acked(1) == [3]
    assert not sent.sending.awaits


def test_an_end_without_events_on_their_way_goes_at_once() -> None:
    sent = Sent()
    sent.say(event(1))
    sent.acked(1)
    assert sent.say(spoken(2, "JobEnded")) == [2]


def test_a_partition_keeps_its_order_while_something_waits_and_others_go_on() -> None:
    sent = Sent()
    said = sent.say(
        event(1), spoken(2, "JobEnded"), spoken(3, "JobStatusChanged"), spoken(4, "FreeSlots", "task-manager.commands"),
        event(5), spoken(6, "JobEnded"), spoken(7, "JobStatusChanged"),
    )  # fmt: skip
    assert said == [1, 4, 5]
    assert sent.acked(4) == []
    assert sent.acked(1) == [2, 3]
    assert sent.acked(5) == [6, 7]


def test_one_that_cannot_be_sent_leaves_nothing_behind_that_is_waited_for() -> None:
    def send(action: Speak) -> None:
        if action.spoken.type == "JobEnded":
            raise ValueError("too large")

    sending = Sending(send)
    sending.send(event(1))
    sending.send(spoken(2, "JobEnded"))
    with pytest.raises(ValueError, match="too large"):
        sending.acked(7, 1)
    assert not sending.awaits


def test_a_new_term_begins_with_nothing_and_hears_its_own_acknowledgements_alone() -> None:
    sent = Sent()
    sent.say(event(1), spoken(2, "JobEnded"))
    assert sent.say(event(1, epoch=9), spoken(2, "JobEnded", epoch=9)) == [1]
    assert sent.acked(1, epoch=7) == []
    assert sent.acked(1, epoch=9) == [2]


def test_what_waits_at_the_end_of_a_term_is_not_sent_any_more() -> None:
    sent = Sent()
    sent.say(event(1), spoken(2, "JobEnded"))
    sent.sending.end(6)
    assert sent.sending.awaits
    sent.sending.end(7)
    assert not sent.sending.awaits
    assert sent.acked(1) == []
