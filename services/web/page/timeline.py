"""The timeline of a job's attempts, and its critical path. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millrace.core.jobgraph.compile import PLAN_TASK
from millrace.core.states import ENDED_EXECUTION, IN_SLOT, NOT_DEPLOYED, ExecutionState

from .words import ATTEMPTS, UNKNOWN, Shown, attempt_state, length, subtask_name

ROWS_MOST = 40
"""Subtasks that are drawn: of more, those that tell most."""
INSIDE_SHARE = 9.0
"""From this share of the width on, per cent, a bar has room for its text."""
PHONE_SHARE = 2.7
"""Of the width of a phone's picture, per cent, that a letter takes."""
TICKS = (1, 2, 5)
ABOVE: Mapping[str, Any] = {"y": 3, "high": 11}
BELOW: Mapping[str, Any] = {"y": 16, "high": 5, "text": ""}
"""Where two attempts of a subtask lived at the same time: the current one, and the other one, of which only its sentence tells."""
Row = Mapping[str, Any]
Subtask = tuple[str, int]
Reading = Mapping[str, Sequence[tuple[str, str]]]
"""Task -> the tasks that it reads, each with the kind of edge."""


@dataclass(frozen=True)
class Bar:
    """An attempt: from where to where, in per cent of the width."""

    attempt: int
    state: str
    x: float
    wide: float
    text: str
    """What stands in it, or beside it."""
    whole: str
    """The whole sentence, for who cannot see it."""
    y: int = 5
    high: int = 16

    @property
    def shown(self) -> Shown:
        return ATTEMPTS.get(self.state, UNKNOWN)

    @property
    def is_roomy(self) -> bool:
        """Whether its text has room in it."""
        return self.wide >= INSIDE_SHARE

    @property
    def is_tight(self) -> bool:
        """Whether its text, on a phone, begins in it and would not end in the picture: it has to end where the bar does."""
        return self.is_roomy and self.is_late and self.wide < PHONE_SHARE * (len(self.text) + 2)

    @property
    def is_late(self) -> bool:
        """Whether its text has to stand before it, for behind it the picture ends."""
        return self.x + self.wide > 82


@dataclass(frozen=True)
class Lane:
    """A subtask with its attempts."""

    task: str
    subtask: int
    state: str
    bars: tuple[Bar, ...]
    where: str
    critical: bool = False

    @property
    def name(self) -> str:
        return subtask_name(self.task, self.subtask)

    @property
    def shown(self) -> Shown:
        return ATTEMPTS.get(self.state, UNKNOWN)


@dataclass(frozen=True)
class Timeline:
    lanes: tuple[Lane, ...] = ()
    ticks: tuple[tuple[float, str], ...] = ()
    omitted: int = 0
    critical: tuple[Subtask, ...] = ()
    """From the first to the last."""
    is_running: bool = False
    path: str = field(default="", compare=False)
    """The critical path in words."""

    @property
    def has_second(self) -> bool:
        """Whether two attempts of a subtask lived at the same time."""
        return any(bar.high == BELOW["high"] for lane in self.lanes for bar in lane.bars)


def last_of(subtask: Row) -> Row | None:
    """The attempt of which the subtask's state is; None: it waits for its next one, as it does since its job was rescaled."""
    return subtask["attempts"][-1] if subtask["attempts"] and subtask["state"] not in NOT_DEPLOYED else None


def begun(attempt: Row) -> int | None:
    """When its slot took it."""
    since = attempt["since_ms"]
    return min((since[state] for state in (ExecutionState.DEPLOYING, ExecutionState.RUNNING) if state in since), default=None)


def ended(attempt: Row) -> int | None:
    since = attempt["since_ms"]
    return next((since[state] for state in ENDED_EXECUTION if state in since), None)


def took(attempt: Row, wall_ms: int) -> int | None:
    """How long it was, or has been, in its slot; None: that is not known."""
    first = begun(attempt)
    last = ended(attempt) or (wall_ms if attempt["state"] in IN_SLOT else None)
    return None if first is None or last is None else max(0, last - first)


def timeline(tasks: Sequence[Row], reading: Reading, first_ms: int | None, last_ms: int | None, wall_ms: int) -> Timeline:
    """`tasks`: as the table of jobs describes them. `first_ms`: acceptance; `last_ms`: the job's end, None while it lives."""
    attempts = {(task["task"], each["subtask"]): each["attempts"] for task in tasks for each in task["subtasks"] if each["attempts"]}
    starts = [start for some in attempts.values() for each in some if (start := begun(each)) is not None]
    if not starts:
        return Timeline()
    first = min([*starts, *([first_ms] if first_ms else [])])
    last = max(last_ms or wall_ms, first + 1)
    states = {(task["task"], each["subtask"]): each for task in tasks for each in task["subtasks"]}
    critical = critical_path({key: some for key, some in attempts.items() if last_of(states[key]) is not None}, reading, wall_ms)
    lanes = [_lane(key, states[key], some, first, last, wall_ms) for key, some in attempts.items()]
    lanes = [replace(lane, critical=(lane.task, lane.subtask) in critical) for lane in lanes]
    kept = lanes
    if len(lanes) > ROWS_MOST:
        ranked = sorted(range(len(lanes)), key=lambda n: (_rank(lanes[n]), -max((bar.wide for bar in lanes[n].bars), default=0)))
        kept = [lanes[n] for n in sorted(ranked[:ROWS_MOST])]
    words = ", ".join(f"{subtask_name(task, n)} {length(took(attempts[task, n][-1], wall_ms))}" for task, n in critical)
    return Timeline(tuple(kept), _ticks(last - first), len(lanes) - len(kept), critical, last_ms is None, words)


def critical_path(attempts: Mapping[Subtask, Sequence[Row]], reading: Reading, wall_ms: int) -> tuple[Subtask, ...]:
    """From the last end back: of each subtask the one that it read and that ended last. Nothing where edges are not known."""
    ends: dict[Subtask, int] = {}
    for key, some in attempts.items():
        end = ended(some[-1]) or (wall_ms if some[-1]["state"] in IN_SLOT else None)
        if end is not None:
            ends[key] = end
    if not reading or not ends:
        return ()
    found = [max(ends, key=lambda key: (ends[key], key))]
    while found[0][0] != PLAN_TASK and len(found) < len(ends):  # else tasks read each other in a circle, as only a stranger says
        edges = dict(reading.get(found[0][0], ()))
        read = [
            key for key in ends
            if (key[0] in edges and (edges[key[0]] != "forward" or key[1] == found[0][1])) or (not edges and key[0] == PLAN_TASK)
        ]  # fmt: skip
        if not read:
            break
        found.insert(0, max(read, key=lambda key: (ends[key], key)))
    return tuple(found)


def _rank(lane: Lane) -> int:
    return 0 if lane.critical or lane.state == "FAILED" or len(lane.bars) > 1 else 1 if lane.state != "FINISHED" else 2


def _lane(key: Subtask, subtask: Row, attempts: Sequence[Row], first: int, last: int, wall_ms: int) -> Lane:
    beside = {each["attempt"]: each["beside"] for each in attempts if each.get("beside")}
    bars = tuple(
        replace(bar, **ABOVE if bar.attempt in beside.values() else BELOW if bar.attempt in beside else {})
        for each in attempts if (bar := _bar(key, each, first, last, wall_ms)) is not None
    )  # fmt: skip
    end = attempts[-1]
    where = f"{end['task_manager']}/{end['slot']}" if end["slot"] is not None else end["task_manager"] or ""
    state = attempt_state(end) if subtask["state"] == "FAILED" else subtask["state"]
    return Lane(key[0], key[1], state, bars, where)


def _bar(key: Subtask, attempt: Row, first: int, last: int, wall_ms: int) -> Bar | None:
    start, lasted = begun(attempt), took(attempt, wall_ms)
    if start is None or lasted is None:
        return None
    state, number = attempt_state(attempt), attempt["attempt"]
    again = f"attempt {number}, " if number > 1 else ""
    so_far = " so far" if attempt["state"] in IN_SLOT else ""
    text = "lost" if state == "LOST" else f"{again}{length(lasted)}{so_far}"
    place = f" on {attempt['task_manager']}" if attempt["task_manager"] else ""
    beside = f", beside attempt {attempt['beside']}" if attempt.get("beside") else ""
    whole = (
        f"{subtask_name(*key)} attempt {number}{place}: {ATTEMPTS.get(state, UNKNOWN).word}, {length(lasted)}{so_far}, "
        f"from {length(start - first)} after acceptance{beside}"
    )
    span = last - first
    x = 100 * (start - first) / span
    return Bar(number, state, round(x, 3), round(max(0.25, min(100 - x, 100 * lasted / span)), 3), text, whole)


def _ticks(span_ms: int) -> tuple[tuple[float, str], ...]:
    """Round times, five to ten of them."""
    return tuple((round(100 * ms / span_ms, 3), length(ms).replace(".0", "") if ms else "accepted") for ms in _round_times(span_ms))


def _round_times(span_ms: int) -> Iterator[int]:
    steps = [n * 10**power for power in range(1, 5) for n in TICKS if n * 10**power < 30_000]
    steps += [30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 86_400_000]
    step = next((each for each in steps if span_ms / each <= 8), steps[-1])
    ms = 0
    while ms < span_ms * 0.98 and ms <= 50 * step:
        yield ms
        ms += step
