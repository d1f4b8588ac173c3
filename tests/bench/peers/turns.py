"""Figures: lanes that do the same work by turns, and what becomes of their seconds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .compare import Rows, difference
from .environments import CannotTakePart
from .worker import Answer

DIFFERS = "its result differs: "


@dataclass(frozen=True)
class Lane:
    """One way to do a work. Lanes of one `group` must have the same rows."""

    name: str
    label: str
    run: Callable[[], Answer]
    group: str = ""
    warms: bool = True
    """Whether a first run, which is not counted, makes the next ones faster."""


@dataclass(frozen=True)
class Bar:
    name: str
    label: str
    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class LeftOut:
    label: str
    reason: str
    wrong: bool
    """It should have taken part: the run fails."""


@dataclass
class Figure:
    """What was measured of one work."""

    name: str
    what: str
    bars: list[Bar] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def bar(self, name: str) -> Bar | None:
        return next((bar for bar in self.bars if bar.name == name), None)

    def leave_out(self, label: str, reason: str, wrong: bool = False) -> None:
        self.left_out.append(LeftOut(label, reason, wrong))

    def written(self) -> dict[str, Any]:
        bars = [{**vars(bar), "median": bar.median} for bar in self.bars]
        return {"name": self.name, "what": self.what, "bars": bars, "left_out": [vars(each) for each in self.left_out]}


def figure_of(written: dict[str, Any]) -> Figure:
    """Of the JSON that a run left."""
    bars = [Bar(each["name"], each["label"], each["seconds"]) for each in written["bars"]]
    return Figure(written["name"], written["what"], bars, [LeftOut(**each) for each in written["left_out"]])


def by_turns(figure: Figure, lanes: Sequence[Lane], rounds: int, say: Callable[[str], None], warm: bool = True) -> None:
    """Each round runs every lane once, and begins with another one. Round 0 warms. A lane that fails or differs is left out."""
    samples: dict[str, list[float]] = {lane.name: [] for lane in lanes}
    expected: dict[str, tuple[Rows, str]] = {}
    out: set[str] = set()
    for number in range(0 if warm else 1, rounds + 1):
        first = number % len(lanes)
        for lane in [*lanes[first:], *lanes[:first]]:
            if lane.name in out or (number == 0 and not lane.warms):
                continue
            try:
                answer = lane.run()
                if not answer.rows:
                    raise CannotTakePart(f"{DIFFERS}it is empty")
                rows, by = expected.setdefault(lane.group, (answer.rows, lane.label))
                if found := difference(rows, answer.rows):
                    raise CannotTakePart(f"{DIFFERS}{found}, as {by} has it")
            except CannotTakePart as reason:
                say(f"{figure.name}: {lane.label}: {reason}")
                figure.leave_out(lane.label, str(reason), wrong=True)
                out.add(lane.name)
                continue
            turn = f"round {number} of {rounds}" if number else "to warm up"
            say(f"{figure.name}: {lane.label}, {turn}: {answer.seconds:.2f} s")
            if number:
                samples[lane.name].append(answer.seconds)
    figure.bars += [Bar(lane.name, lane.label, samples[lane.name]) for lane in lanes if lane.name not in out and samples[lane.name]]
