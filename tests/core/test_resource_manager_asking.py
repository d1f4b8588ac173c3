"""Clients' questions to TaskManagers: each is answered once, by the TaskManager or in its place."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.machine import PassedOver, PeerBorn, Publish, Say
from millrace.core.messages.client import RequestRefused
from millrace.core.messages.jobs import AskTaskManager, QuestionAnswered
from millrace.core.messages.processes import DescribeAsk, UploadAsk
from millrace.core.messages.slots import AnswerClient, ClientAnswered, DisconnectTaskManager, RegisterTaskManager
from millrace.core.timing import INSPECTION_ANSWER_MS
from services.resource_manager.core import asking
from tests.core.of_resource_manager import TM_A, TM_B, Driver

DISPATCHER = "dispatcher"


@pytest.fixture
def driver() -> Driver:
    made = Driver().declared()
    registered(made)
    return made


def registered(driver: Driver, scope: str = TM_A, build: str = "0.2.0") -> None:
    driver.say(scope, RegisterTaskManager(host="h", slots=[], states=[], build=build))


def question(number: int = 5, task_manager: str = "a", **more: Any) -> AskTaskManager:
    return AskTaskManager(**{
        "task_manager": task_manager, "ask": DescribeAsk(), "reply_to": "c", "correlation": str(number), "number": number, **more
    })  # fmt: skip


def passed_on(number: int = 1, correlation: str = "5") -> Say:
    return Say(TM_A, AnswerClient(ask=DescribeAsk(), question=number, reply_to="c", correlation=correlation))


def refused(kind: str, reason: str, silent: str | None = None, number: int = 5) -> list[Any]:
    refusal = RequestRefused(correlation=str(number), kind=kind, reason=reason, silent=silent)
    return [Publish("client.replies", "c", refusal), Say(DISPATCHER, QuestionAnswered(number=number))]


def test_a_question_goes_to_the_task_manager_and_the_dispatcher_learns_when_it_is_answered(driver: Driver) -> None:
    ask = UploadAsk(log="log", start=-10)
    assert driver.say(DISPATCHER, question(ask=ask)) == [
        Say(TM_A, AnswerClient(ask=ask, question=1, reply_to="c", correlation="5"))
    ]
    assert driver.say(TM_A, ClientAnswered(question=1)) == [Say(DISPATCHER, QuestionAnswered(number=5))]
    assert driver.say(TM_A, ClientAnswered(question=1)) == [], "once"
    assert driver.tick(10_000) == [] and driver.state.asked == {}


def test_who_wants_no_answer_asks_nobody(driver: Driver) -> None:
    assert driver.say(DISPATCHER, question(reply_to="")) == []


def test_an_unknown_task_manager_is_answered_for_at_once(driver: Driver) -> None:
    assert driver.say(DISPATCHER, question(task_manager="z")) == refused("not_found", "no TaskManager z is registered")


def test_one_of_0_1_0_is_not_asked(driver: Driver) -> None:
    registered(driver, TM_B, build="")
    reason = "TaskManager b is of version 0.1.0, which answers no questions: replace it"
    assert driver.say(DISPATCHER, question(task_manager="b")) == refused("conflict", reason)


def test_a_silent_task_manager_is_answered_for_in_time_and_once(driver: Driver) -> None:
    driver.say(DISPATCHER, question())
    keep(driver, INSPECTION_ANSWER_MS - 1)
    overdue = refused("busy", "TaskManager a has not answered within 2.5 s", TM_A)
    assert keep(driver, 1) == overdue and keep(driver, 60_000) == []
    assert driver.say(TM_A, ClientAnswered(question=1)) == [], "too late"


def keep(driver: Driver, ms: int) -> list[Any]:
    """Time goes on, in one step, and the TaskManager is not lost meanwhile."""
    for known in driver.state.task_managers.values():
        known.heard_ms = driver.state.clock_ms + 10 * ms
    return driver.tick(ms)


def test_in_a_cluster_at_rest_the_time_begins_with_the_question(driver: Driver) -> None:
    """Machine time stood at the last tick, two seconds ago: the TaskManager had half a second."""
    driver.away_ms += 2_000
    driver.say(DISPATCHER, question())
    assert keep(driver, INSPECTION_ANSWER_MS + 1_999) == [] and len(keep(driver, 1)) == 2


def test_a_task_manager_that_leaves_is_answered_for_at_once(driver: Driver) -> None:
    driver.say(DISPATCHER, question())
    outputs = driver.say(TM_A, DisconnectTaskManager(reason="it was stopped"))
    answers = [each for each in outputs if isinstance(each, Publish) and each.topic == "client.replies"]
    assert answers == refused("not_found", "TaskManager a is not registered any more: it was stopped", TM_A)[:1]
    assert driver.state.asked == {}


def test_what_an_incarnation_before_was_asked_is_answered_for(driver: Driver) -> None:
    driver.say(DISPATCHER, question())
    [answer] = [each for each in driver.say(TM_A, PeerBorn(TM_A, 8), 8) if isinstance(each, Publish) and each.key == "c"]
    assert answer.body.kind == "not_found" and answer.body.silent == TM_A
    registered(driver)
    assert driver.say(TM_A, ClientAnswered(question=1), 8) == []


def test_another_task_managers_word_does_not_count(driver: Driver) -> None:
    registered(driver, TM_B)
    driver.say(DISPATCHER, question())
    assert driver.say(TM_B, ClientAnswered(question=1)) == [] and list(driver.state.asked) == [1]


def test_questions_that_wait_are_bounded(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FORWARDED_MOST", 2)
    assert [driver.say(DISPATCHER, question(number)) for number in (6, 7)] == [[passed_on(1, "6")], [passed_on(2, "7")]]
    reason = "2 questions wait for answers of TaskManagers already; try again"
    assert driver.say(DISPATCHER, question(8)) == refused("busy", reason, number=8)


def test_while_one_waits_time_goes_on(driver: Driver) -> None:
    assert driver.machine.is_idle(driver.state)
    driver.say(DISPATCHER, question())
    assert not driver.machine.is_idle(driver.state)


def test_a_question_whose_handling_ended_processes_is_refused(driver: Driver) -> None:
    outputs = driver.core(PassedOver(question(), "KeyError"))
    assert outputs == refused("internal", "a fault of Millrace in handling this request: KeyError")
