"""What a TaskManager finds of itself: its slots are asked, and one that is silent or forges its answer costs nothing but its part."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from millrace.core.messages import processes
from millrace.core.messages.effects import FindAnswer
from millrace.core.messages.processes import Ask, DescribeAsk, LogsAsk, NoAnswer, SlotJvm, ThreadsAsk, UploadAsk
from millrace.core.messages.slots import AnswerFound
from services.task_manager.ports import inspecting, lane
from services.task_manager.slot import wire
from tests.core.of_processes import jvm_status
from tests.core.of_progress import status
from tests.task_manager.of_ports import ATTEMPT, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(inspecting, "SEEN_S", 0.0)
    return World(tmp_path)


@pytest.mark.parametrize("name", ["MemoryUse", "Buffers", "Collector", "JvmStatus"])
def test_a_slot_and_a_message_have_the_same_of_a_jvm(name: str) -> None:
    typed, model = getattr(wire, name), getattr(processes, name)
    assert list(typed.__annotations__) == list(model.model_fields)
    bounds = {"collectors": wire.COLLECTORS_MAX, "version": wire.TEXT_MAX, "name": wire.TEXT_MAX}
    limits = [(field, getattr(each, "max_length", None)) for field, info in model.model_fields.items() for each in info.metadata]
    found = {field: most for field, most in limits if most is not None}
    assert found == {field: bounds[field] for field in found}


def ask(world: World, ask: Ask) -> None:
    world.slots.answer(FindAnswer(ask=ask, question=5, reply_to="c", correlation="9"))


def found(world: World) -> Any:
    """What was found, when it has come."""
    until(lambda: any(isinstance(each, AnswerFound) for each in world.facts))
    [fact] = [each for each in world.told() if isinstance(each, AnswerFound)]
    assert (fact.question, fact.reply_to, fact.correlation, fact.task_manager) == (5, "c", "9", "tm")
    return fact.answer


def until(holds: Any) -> None:
    waiting = threading.Event()
    for _ in range(3_000):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("it does not come")


def looked(world: World) -> Any:
    until(lambda: world.slot.looks)
    return world.slot.looks.pop()


def test_a_description_has_the_jvm_of_each_slot(world: World) -> None:
    ask(world, DescribeAsk())
    order = looked(world)
    assert (order["do"], order["threads"]) == ("look", False)
    world.slot.seen(order, jvm_status().model_dump())
    world.slot.seen(order, None, None, "twice")
    answer = found(world)
    assert answer.slots == [SlotJvm(slot=0, jvm=jvm_status())] and answer.status.service == "task-manager"


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"jvm": None, "no_answer": "its JVM hangs"}, "its JVM hangs"),
        ({"jvm": {**jvm_status().model_dump(), "threads": -1}}, "its JVM answers what cannot be read"),
        ({"jvm": {**jvm_status().model_dump(), "version": "x" * 1_000}}, "its JVM answers what cannot be read"),
        ({"jvm": {"version": "17"}}, "its JVM answers what cannot be read"),
    ],
)
def test_a_slot_that_cannot_tell_says_why(world: World, told: dict[str, Any], why: str) -> None:
    ask(world, DescribeAsk())
    world.slot.seen(looked(world), **told)
    assert found(world).slots == [SlotJvm(slot=0, no_answer=why)]


def test_a_slot_that_is_silent_is_described_without_its_jvm(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "ANSWER_S", 0.05)
    ask(world, DescribeAsk())
    assert found(world).slots == [SlotJvm(slot=0, no_answer="its slot has not answered in time")]
    world.slot.seen(looked(world), jvm_status().model_dump())
    assert world.told() == [], "too late"


def test_a_slot_whose_process_hangs_is_not_sent_one_look_after_the_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "ANSWER_S", 0.0)
    for _ in range(lane.LOOKS_MOST):
        ask(world, DescribeAsk())
        assert found(world).slots[0].no_answer == "its slot has not answered in time"
    ask(world, DescribeAsk())
    assert found(world).slots[0].no_answer == f"its slot's process has not answered {lane.LOOKS_MOST} looks"
    assert len(world.slot.looks) == lane.LOOKS_MOST
    world.slot.seen(world.slot.looks[0], jvm_status().model_dump())
    monkeypatch.undo()
    monkeypatch.setattr(inspecting, "SEEN_S", 0.0)
    del world.slot.looks[:]
    ask(world, DescribeAsk())
    world.slot.seen(looked(world), jvm_status().model_dump())
    assert found(world).slots == [SlotJvm(slot=0, jvm=jvm_status())], "it is asked again when it goes on"


def test_orders_without_an_answer_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "UNANSWERED_MOST", 2)
    world.slot.ready()
    world.launch()
    world.go()
    world.slot.start()
    told: list[Any] = []
    for number in range(4):
        world.slots._lanes[0].ask_attempt(ATTEMPT, lambda _, why, number=number: told.append((number, why)))
    assert told == [(0, "its slot's process has not answered"), (1, "its slot's process has not answered")]


def test_what_was_seen_a_moment_ago_is_seen_still(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "SEEN_S", 1_000.0)
    ask(world, DescribeAsk())
    world.slot.seen(looked(world), jvm_status().model_dump())
    first = found(world)
    ask(world, DescribeAsk())
    assert found(world) == first and world.slot.looks == []


def test_a_slot_whose_process_ends_is_answered_for(world: World) -> None:
    ask(world, DescribeAsk())
    looked(world)
    world.slot.gone(-9)
    assert found(world).slots == [SlotJvm(slot=0, no_answer="the slot's process ended with -9")]
    ask(world, DescribeAsk())
    assert found(world).slots == [SlotJvm(slot=0, no_answer="the slot's process is being started again")]


def test_threads_are_those_of_the_process_of_the_jvm_and_of_a_running_attempt(world: World) -> None:
    world.slot.ready()
    world.launch()
    world.go()
    world.slot.start()
    ask(world, ThreadsAsk())
    order = looked(world)
    assert order["threads"]
    world.slot.seen(order, jvm_status().model_dump(), '"main" id=1\n    at A.b(A.java:3)\n')
    until(lambda: world.slot.passed_on)
    question = world.slot.passed_on.pop()
    assert question["attempt"] == ATTEMPT and question["order"]["do"] == "report"
    world.slot._send("status", attempt=ATTEMPT, question=question["order"]["question"], status=status().model_dump(), no_answer=None)
    dumps = found(world).dumps
    assert [each.of for each in dumps] == ["the process", "the JVM of slot 0", f"attempt {ATTEMPT} in slot 0"]
    assert '"MainThread" id=' in dumps[0].text and dumps[1].text == '"main" id=1\n    at A.b(A.java:3)\n'
    assert dumps[2].text == '"MainThread"\n    at job.py:4 main\n'


def test_threads_of_one_slot_alone(world: World) -> None:
    ask(world, ThreadsAsk(slot=0))
    world.slot.seen(looked(world), None, None, "it hangs")
    assert [(each.of, each.no_answer) for each in found(world).dumps] == [("the JVM of slot 0", "it hangs")]
    ask(world, ThreadsAsk(slot=1))
    assert found(world) == NoAnswer(kind="not_found", reason="there is no slot 1: there are 1, counted from 0")


def test_logs_are_its_own_and_those_of_its_slots(world: World) -> None:
    folder = world.folder / "tm/slots/0"
    folder.mkdir(parents=True)
    for name, text in (("host.log", "host"), ("jvm.log", "jvm"), ("jvm.log.1", "before"), ("spark.properties", "secret")):
        (folder / name).write_text(text)
    (folder / "host.log.1").symlink_to(folder / "spark.properties")
    ask(world, LogsAsk())
    listed = {each.log: each.bytes for each in found(world).logs}
    assert listed.pop("log") >= 0
    listed.pop("stdout", None)  # where the tests' own goes to a file
    assert {name: size for name, size in listed.items() if name.startswith("slot")} == {
        "slot-0.host.log": 4, "slot-0.jvm.log": 3, "slot-0.jvm.log.1": 6
    }  # fmt: skip
    ask(world, UploadAsk(log="slot-0.jvm.log", start=1))
    piece = found(world).piece
    assert world.storage.get(piece.path) == b"vm" and (piece.start, piece.size) == (1, 3)


@pytest.mark.parametrize("log", ["slot-0.spark.properties", "slot-1.jvm.log", "slot-0.host.log.1", "slots/0/jvm.log", "../slots/0/jvm.log"])
def test_nothing_else_can_be_read(world: World, log: str) -> None:
    folder = world.folder / "tm/slots/0"
    folder.mkdir(parents=True)
    for name in ("jvm.log", "spark.properties"):
        (folder / name).write_text("secret")
    (folder / "host.log.1").symlink_to(folder / "spark.properties")
    ask(world, UploadAsk(log=log))
    answer = found(world)
    assert isinstance(answer, NoAnswer) and "secret" not in answer.reason


def test_what_a_storage_refuses_is_answered_without_its_address(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.folder / "tm/slots/0"
    folder.mkdir(parents=True)
    (folder / "jvm.log").write_text("jvm")
    (world.folder / "storage/logs").mkdir(parents=True, exist_ok=True)
    (world.folder / "storage/logs/asked").write_text("in the way")
    ask(world, UploadAsk(log="slot-0.jvm.log"))
    answer = found(world)
    assert answer.kind == "internal" and str(world.folder) not in answer.reason
