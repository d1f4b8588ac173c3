"""An idle slot is led through what jobs do."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.common import training
from services.task_manager.slot.common.procs import HERE
from services.task_manager.slot.common.training import steps
from services.task_manager.slot.control.warming import Warming, machine_idles

LIMIT_S = 30


def test_it_works_while_it_may_and_passes_over_what_fails(tmp_path: Path) -> None:
    folder = tmp_path / "warming"
    folder.mkdir()
    done: list[str] = []
    said: list[bool] = []
    begun, goes_on, paused, over = (threading.Event() for _ in range(4))

    def long() -> None:
        begun.set()
        assert goes_on.wait(LIMIT_S)
        done.append("long")

    def failing() -> None:
        raise ValueError("a Spark that lacks what the step uses")

    def last() -> None:
        done.append("last")
        over.set()

    looks = iter([False, False, *[True] * 9])
    warming = Warming([lambda: done.append("first"), long, failing, last], str(folder), lambda: next(looks))
    assert (warming.left, done, begun.is_set()) == (3, ["first"], False), "only the first is done before it may"
    warming.go_on()
    assert begun.wait(LIMIT_S)
    pausing = threading.Thread(target=lambda: (said.append(warming.pause()), paused.set()))
    pausing.start()
    assert not paused.wait(0.2), "a step runs still"
    goes_on.set()
    assert paused.wait(LIMIT_S)
    assert said == [True] and not warming.pause(), "it is paused already, and nothing was done since"
    assert (warming.left, done) == (2, ["first", "long"])
    warming.go_on()
    assert over.wait(LIMIT_S)
    for thread in threading.enumerate():
        if thread.name == "warming":
            thread.join(LIMIT_S)
    assert len(list(looks)) < 9, "it looked before each step, until the machine idled"
    assert (warming.left, done, folder.exists()) == (0, ["first", "long", "last"], False)


def test_the_time_of_a_machine_with_nothing_to_do_is_a_part_of_all_its_time() -> None:
    times = HERE.processor_times()
    assert times is None or 0 < times[0] < times[1]


@pytest.mark.parametrize(("after", "idles"), [((150, 1100), True), ((149, 1100), False), (None, True)])
def test_half_of_a_machine_must_have_nothing_to_do(after: tuple[int, int] | None, idles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([(100, 1000), after])
    monkeypatch.setattr(type(HERE), "processor_times", lambda self: next(looks))
    assert machine_idles() is idles


@pytest.mark.long
def test_every_step_works_on_this_spark_and_leaves_no_view_to_others(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "ROWS", 200)  # what a step computes is not looked at here
    for step in steps(spark.newSession(), str(tmp_path / "warming")) * 2:
        step()
    assert spark.newSession().catalog.listTables() == []
