"""The checks of a chaos run find what they are for: each history here is wrong in one way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.chaos.ends import last_words
from tests.chaos.history import FLOOD, FLOOD_LETTERS, End, Event, History, Sent, judge


def attempt(number: int, state: str, count: int, **more: Any) -> Event:
    where = {"task": "one", "subtask": 0, "attempt": number, "error": None}
    return {"type": "AttemptStateChanged", "job": "a", "count": count, "state": state, **where, **more}


def letter(offset: int, **more: Any) -> dict[str, Any]:
    return {"topic": "client.commands", "offset": offset, "sha256": f"hash {offset}", "reason": "no JSON", **more}


def right() -> History:
    """One job that was moved once and finished; a fact of it was said again. Strangers sent what is parked, answered, refused by Kafka and
    a flood; three processes ended: two were killed or asked to, one lost its producer."""
    events = [
        {"type": "JobAccepted", "job": "a", "count": 1},
        attempt(1, "RUNNING", 1),
        attempt(1, "FAILED", 2, error={"kind": "lost"}),
        attempt(2, "RUNNING", 3),
        attempt(2, "FINISHED", 4),
        {"type": "JobFinished", "job": "a", "count": 1},
        attempt(2, "FINISHED", 4),
    ]
    flood = [Sent(FLOOD, f"hash {offset}", became="taken", offset=offset) for offset in range(10, 20)]
    hostile = [
        Sent("garbage", "hash 1", became="taken", offset=1),
        Sent("a question", "hash 2", "hostile-2", became="taken", offset=2),
        Sent("packed", "hash 3", became="refused"),
        Sent("garbage", "hash 4"),
        *flood,
    ]
    letters = [letter(1), letter(4), letter(10), letter(19, reason="no JSON; those from offset 11 on were of no use either")]
    return History(
        {"a": "accepted", "b": "refused"}, {"a": {"state": "clean", "status": "FINISHED"}}, events, {},
        dead_letters=letters, hostile=hostile, replied={"hostile-2": "RequestRefused"},
        ends=[End("dispatcher", -9), End("job-master-2", 0), End("Kafka", 0), End("dispatcher-2", 1, "the producer ended: fenced")],
        faults=[
            ("leader killed", "dispatcher"), ("leader asked to end", "job-master-2"), ("leader stopped", "resource-manager, for 1.0 s"),
            ("Kafka killed", "process 7, SIGKILL"),
        ],
    )  # fmt: skip


def test_a_right_history_passes() -> None:
    verdict = judge(right())
    assert verdict.violations == []
    assert (verdict.submitted, verdict.accepted, verdict.ended, verdict.moved) == (2, 1, 1, 1)


def _lives(history: History, **more: Any) -> None:
    history.two_at_once = [{"at_s": 10.0, "other_pid": 7, "job": "a", **more}]


WRONG: dict[str, tuple[str, Callable[[History], None]]] = {
    "not stored": ("lost", lambda h: h.stored.clear()),
    "not ended": ("lost", lambda h: h.stored["a"].update(state="accepted")),
    "refused and stored": ("wrong", lambda h: h.stored.update(b=dict(h.stored["a"]))),
    "another end": ("wrong", lambda h: h.stored["a"].update(status="CANCELED")),
    "nobody asked for it": ("wrong", lambda h: (h.stored["a"].update(status="FAILED"), h.events[5].update(type="JobFailed"))),
    "no end said": ("doubled", lambda h: h.events.pop(5)),
    "ended twice": ("doubled", lambda h: h.events.append({"type": "JobFinished", "job": "a", "count": 2})),
    "two ends": ("doubled", lambda h: h.events.append({"type": "JobFailed", "job": "a", "count": 1})),
    "accepted twice": ("doubled", lambda h: h.events.append({"type": "JobAccepted", "job": "a", "count": 2})),
    "finished twice": ("doubled", lambda h: h.events.append(attempt(2, "FINISHED", 5))),
    "two attempts finished": ("doubled", lambda h: h.events.insert(3, attempt(1, "FINISHED", 9))),
    "an old attempt heard": ("wrong", lambda h: h.events.append(attempt(1, "RUNNING", 5))),
    "an attempt left out": ("wrong", lambda h: h.events.append(attempt(4, "RUNNING", 5))),
    "finished without it": ("wrong", lambda h: (h.events.pop(4), h.events.pop(5))),
    "failed by itself": ("wrong", lambda h: h.events[2].update(error={"kind": "infrastructure"})),
    "events of nobody": ("wrong", lambda h: h.events.append({"type": "JobAccepted", "job": "c", "count": 1})),
    "a dead letter": ("wrong", lambda h: h.dead_letters.append(letter(5))),
    "a letter of another topic": ("wrong", lambda h: h.dead_letters.append(letter(1, topic="job-master.commands"))),
    "a flood of letters": ("wrong", lambda h: h.dead_letters.extend(map(letter, range(12, 12 + 10 // FLOOD_LETTERS)))),
    "an unanswered question": ("lost", lambda h: h.replied.clear()),
    "a hostile job is lost": ("lost", lambda h: h.replied.update({"hostile-2": "JobAcceptedReply"})),
    "garbage that nobody parked": ("lost", lambda h: h.dead_letters.pop(0)),
    "a flood half parked": ("lost", lambda h: h.dead_letters[-1].update(reason="no JSON; those from offset 15 on were of no use either")),
    "killed once more than by us": ("wrong", lambda h: h.ends.append(End("dispatcher", -9))),
    "killed though it was only stopped": ("wrong", lambda h: h.ends.append(End("resource-manager", -9))),
    "it ended by itself": ("wrong", lambda h: h.ends.append(End("dispatcher", 1, "client port: MemoryError: "))),
    "it ended well, unasked": ("wrong", lambda h: h.ends.append(End("dispatcher", 0))),
    "it crashed": ("wrong", lambda h: h.ends.append(End("dispatcher-2", -11))),
    "its broker ended by itself": ("wrong", lambda h: h.ends.append(End("Kafka", 0))),
    "two at once": ("doubled", _lives),
    "two at once long after waking": ("doubled", lambda h: (_lives(h), setattr(h, "woken", {7: 8.0}))),
}  # fmt: skip


def test_a_hostile_job_may_come_to_any_end_but_to_one() -> None:
    history = right()
    events = [{"type": kind, "job": "hostile-1", "count": 1} for kind in ("JobAccepted", "JobFailed")]
    history.events += events
    history.stored["hostile-1"] = {"state": "clean", "status": "FAILED"}
    assert judge(history).violations == []
    history.stored["hostile-1"] = {"state": "accepted"}
    assert judge(history).lost


def test_a_task_manager_that_was_declared_lost_begins_anew() -> None:
    history = right()
    history.ends.append(End("timed-1", 75, "ends: it was declared lost"))
    assert judge(history).violations == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_is_found(name: str) -> None:
    where, spoil = WRONG[name]
    history = copy.deepcopy(right())
    spoil(history)
    assert getattr(judge(history), where), name


def test_one_that_wakes_may_meet_another_for_an_instant() -> None:
    history = right()
    _lives(history)
    history.woken = {7: 9.8}
    assert judge(history).violations == []


@pytest.mark.parametrize(
    "log, words",
    [
        (
            '{"level": "critical", "event": "the process ends", "reason": "its log was cut"}\n{"level": "info", "event": "stopped"}\n',
            "the process ends: its log was cut",
        ),
        (
            '{"level": "error", "event": "ends", "reason": "it was declared lost"}\nnoise\n'
            '{"level": "critical", "event": "uncaught_exception", "exception": "Traceback:\\n  line 1\\nKeyError: 1"}\n',
            "uncaught_exception: KeyError: 1",
        ),
        (
            '{"level": "error", "event": "ends", "reason": "it was declared lost"}\n'
            '{"level": "error", "event": "FAIL", "logger": "millrace.kafka"}\n',
            "ends: it was declared lost",
        ),
        ("Killed\n", "Killed"),
        ("", "nothing"),
    ],
)  # fmt: skip
def test_the_report_says_why_a_service_ended(log: str, words: str) -> None:
    assert last_words(log) == words
