"""What running attempts report through their slots, and the orders to them, between the slot's host and the machine."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any

import pytest

from millrace.core.messages import progress as parts
from millrace.core.messages.effects import OrderAttempt
from millrace.core.messages.progress import ReportOrder
from millrace.core.messages.slots import AttemptEnded, AttemptRunning, OrderAnswered, SlotProgress, SlotsProgressed
from millrace.core.timing import FORWARDED_ANSWER_MS, INSPECTION_ANSWER_MS
from services.task_manager.metrics import of_spark
from services.task_manager.ports.progress import INTERVAL_S, ProgressReports
from services.task_manager.slot import wire
from tests.core.of_progress import progress, status
from tests.task_manager.test_task_manager_ports import ATTEMPT, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """With a running attempt."""
    world = World(tmp_path)
    world.slot.ready()
    world.launch()
    world.slot.start()
    assert isinstance(world.told()[-1], AttemptRunning)
    return world


def order(world: World, question: int = 4, attempt: str = ATTEMPT) -> None:
    world.slots.order(OrderAttempt(slot=0, attempt=attempt, order=ReportOrder(), shard=2, question=question))


def replied(question: int = 4, attempt: str = ATTEMPT, **more: Any) -> OrderAnswered:
    return OrderAnswered(attempt=attempt, shard=2, question=question, **more)


def answer(world: World, status: Any, no_answer: str | None = None, question: str = "2.4") -> None:
    world.slot._send("status", attempt=ATTEMPT, question=question, status=status, no_answer=no_answer)


def test_who_is_asked_answers_before_who_asks_gives_up() -> None:
    assert wire.LOOK_S * 1000 < wire.ANSWER_S * 1000 < INSPECTION_ANSWER_MS < FORWARDED_ANSWER_MS


def test_the_slots_wire_has_the_shapes_of_the_messages() -> None:
    pairs = [(wire.Progress, parts.AttemptProgress), (wire.StageStatus, parts.StageStatus), (wire.AttemptStatus, parts.AttemptStatus)]
    for shape, model in pairs:
        assert list(typing.get_type_hints(shape)) == list(model.model_fields)
    assert (wire.STAGES_MAX, wire.STACK_MAX, wire.TEXT_MAX, wire.COUNT_MAX) == (parts.STAGES_MAX, parts.STACK_MAX, 160, 1 << 53)
    assert wire.status_is_sound(status().model_dump())


def test_an_order_to_a_running_attempt_is_answered_once(world: World) -> None:
    order(world)
    assert world.slot.passed_on == [{"do": "order", "attempt": ATTEMPT, "order": {"do": "report", "question": "2.4"}}]
    answer(world, status().model_dump())
    answer(world, status().model_dump())
    answer(world, status().model_dump(), question="9.9")
    assert world.told() == [replied(status=status())]


@pytest.mark.parametrize(
    "wrong",
    [3, {}, {**status().model_dump(), "stack": ["x" * 161]}, {**status().model_dump(), "elapsed_ms": -1},
     {**status().model_dump(), "elapsed_ms": True}],
)  # fmt: skip
def test_an_answer_that_no_attempt_of_ours_gives_is_none(world: World, wrong: Any) -> None:
    order(world)
    answer(world, wrong)
    assert world.told() == [replied(no_answer="it answers what cannot be read")]


def test_every_order_has_an_answer(world: World) -> None:
    order(world, attempt="another")
    order(world, 5)
    world.slot.gone(-9)
    told = world.told()
    assert told[:2] == [
        replied(attempt="another", no_answer="it has just ended"),
        replied(5, no_answer="the slot's process ended with -9"),
    ]
    order(world, 6)
    assert world.told() == [replied(6, no_answer="it has just ended")]


def test_progress_becomes_a_fact_at_most_once_a_second(world: World) -> None:
    def say(tasks_done: int, **more: Any) -> None:
        world.slot._send("progress", attempt=more.get("attempt", ATTEMPT), progress=progress(tasks_done).model_dump())

    def fact(tasks_done: int) -> SlotsProgressed:
        return SlotsProgressed(attempts=[SlotProgress(slot=0, attempt=ATTEMPT, progress=progress(tasks_done))])

    say(1)
    assert world.told() == [fact(1)]
    for number in (2, 3, 4):
        say(number)
    assert world.told() == []
    [(wait_s, report)] = world.timers
    assert 0 < wait_s <= INTERVAL_S
    report()
    assert world.told() == [fact(4)]
    world.timers.clear()
    say(5, attempt="another")
    assert world.told() == world.timers == []
    say(5)
    world.slot.end("finished", report={"outputs": {}, "result": None})
    world.told()
    world.timers[0][1]()
    assert world.told() == [], "nothing is reported of an attempt after its end"


def test_progress_that_no_attempt_of_ours_reports_is_lost_alone(world: World) -> None:
    world.slot._send("progress", attempt=ATTEMPT, progress={"tasks_done": 1})
    assert world.told() == []
    world.slot.end("finished", report={"outputs": {}, "result": None})
    assert [type(each).__name__ for each in world.told()] == ["AttemptEnded"]


def spark_shown(world: World) -> dict[tuple[str, ...], float]:
    return {(each.metric.name, *each.labels): each.value for each in of_spark(world.slots.work)}


def test_what_spark_has_done_is_added_up_as_attempts_report_it_and_when_they_end(world: World) -> None:
    def say(**counts: int) -> None:
        world.slot._send("progress", attempt=ATTEMPT, progress=progress(**counts).model_dump())

    say(tasks_done=3, gc_ms=1500, bytes_memory_peak=70)
    say(tasks_done=2, gc_ms=1500)  # what was counted stays counted
    shown = spark_shown(world)
    assert shown["millrace_spark_tasks_total", "done"] == 3 and shown["millrace_spark_task_seconds_total", "gc"] == 1.5
    assert shown["millrace_spark_memory_peak_bytes",] == 70
    done = progress(5, bytes_spilled_disk=9).model_dump()
    world.slot.end("finished", report={"outputs": {}, "result": None, "progress": done})
    [ended] = [each for each in world.told() if isinstance(each, AttemptEnded)]
    assert ended.report is not None and ended.report.progress == progress(5, bytes_spilled_disk=9)
    shown = spark_shown(world)
    assert shown["millrace_spark_tasks_total", "done"] == 5 and shown["millrace_spark_task_seconds_total", "gc"] == 1.5
    assert shown["millrace_spark_bytes_total", "spilled_disk"] == 9 and shown["millrace_spark_memory_peak_bytes",] == 0


@pytest.mark.parametrize("wrong", [3, None, {"tasks_done": 1}, {**progress().model_dump(), "gc_ms": -1}])
@pytest.mark.parametrize("status", ["finished", "failed"])
def test_figures_that_no_attempt_of_ours_reports_are_left_out_alone(world: World, wrong: Any, status: Any) -> None:
    error = {"kind": "user", "retryable": False, "message": "boom", "progress": wrong}
    report = {"outputs": {}, "result": None, "progress": wrong}
    world.slot.end(status, **({"report": report} if status == "finished" else {"error": error}))
    [ended] = [each for each in world.told() if isinstance(each, AttemptEnded)]
    told = ended.report or ended.error
    assert ended.status == status and told is not None and told.progress is None
    assert status == "finished" or ended.error is not None and ended.error.message == "boom"


def test_the_progress_of_all_slots_is_one_fact() -> None:
    facts: list[Any] = []
    timers: list[Any] = []
    reports = ProgressReports(facts.append, lambda s, do: timers.append(do))
    for slot in (0, 2, 1):
        reports.note(slot, f"a{slot}", progress(slot))
    timers.pop()()
    assert [[each.slot for each in fact.attempts] for fact in facts] == [[0], [1, 2]]
    assert timers == []
