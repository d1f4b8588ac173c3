"""What the page of one job shows, from the tables, the job's detail and its graph. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millrace.core.faults import decision_text
from millrace.core.jobgraph.compile import PLAN_TASK, Plan
from millrace.core.messages.attempts import Decided
from millrace.core.messages.execution import JobDetail, SkewedEdge, SubtaskDetail
from millrace.core.skew import skew_advice, skew_line
from millrace.core.states import ENDED_JOB, IN_SLOT, INITIALIZING, NOT_DEPLOYED, ExecutionState, JobStatus

from ..core.plans import inputs_of
from . import layout
from .folding import folded
from .timeline import Reading, Timeline, last_of, timeline, took
from .words import (
    ATTEMPTS,
    JOBS,
    LOST,
    NEVER,
    UNKNOWN,
    Shown,
    attempt_state,
    count,
    label,
    length,
    number,
    printable,
    size,
)

MAY_WAIT = (INITIALIZING, JobStatus.CREATED, JobStatus.RUNNING)
_E = ExecutionState
NOTABLE = (_E.FAILED.value, LOST, _E.RUNNING.value, _E.DEPLOYING.value)
"""The states of a task that is shown unless another is asked for, the most telling first."""
LOUDEST = (*NOTABLE, _E.CANCELING.value, _E.SCHEDULED.value, _E.CREATED.value, _E.CANCELED.value, NEVER)
"""The state of several subtasks together is the first of these that one of them has."""
PIECES_MOST = 24
"""Subtasks that have a piece of the bar each; of more, each state has its share."""
BOXES_MOST = 60
"""Of more tasks, most are drawn together (`folding.py`)."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Piece:
    """Part of a bar of progress: from where to where in per cent, and how much of it is done."""

    tone: str
    x: float
    wide: float
    done: float = 1.0


@dataclass(frozen=True)
class AttemptLine:
    """An attempt in the list of its task."""

    subtask: int
    attempt: int
    shown: Shown
    where: str
    rows: str
    took: str
    note: str = ""


@dataclass(frozen=True)
class TaskBox:
    """A task: a box of the graph, and what is told of it beside."""

    id: str
    name: str
    vertices: tuple[tuple[str, str], ...]
    """Each with its kind."""
    parallelism: int
    state: str
    pieces: tuple[Piece, ...]
    done: int
    says: str
    took: str
    reads: tuple[str, ...] = ()
    attempts: tuple[AttemptLine, ...] = ()
    failed_vertex: str = ""
    spread: str = ""
    """How far its subtasks are apart."""
    members: tuple[TaskBox, ...] = ()
    """Of a group, its tasks."""

    @property
    def shown(self) -> Shown:
        return ATTEMPTS.get(self.state, UNKNOWN)

    @property
    def progress(self) -> str:
        """For who cannot see the bar."""
        return f"{self.done} of {self.parallelism} subtasks finished"


@dataclass(frozen=True)
class EdgeLine:
    """What one task hands on to another."""

    producer: str
    reader: str
    rows: str
    how: str
    is_critical: bool = False
    is_flowing: bool = False
    is_idle: bool = False


@dataclass(frozen=True)
class JobShown:
    """All that is told of a job."""

    job: str
    name: str
    status: str
    state: str
    accepted_ms: int | None
    ended_ms: int | None
    facts: tuple[tuple[str, str, str], ...]
    tasks: tuple[TaskBox, ...]
    edges: tuple[EdgeLine, ...]
    picture: layout.Picture | None
    timeline: Timeline
    waiting: str | None = None
    position: int | None = None
    expected_ms: int | None = None
    places: tuple[int, ...] = ()
    spent: tuple[tuple[str, int, str], ...] = ()
    has_edges: bool = True
    drawn: tuple[TaskBox, ...] = ()
    """The boxes of the picture: the tasks, or groups of them."""
    lines: tuple[EdgeLine, ...] = ()
    """Its edges."""
    skewed: tuple[tuple[str, str], ...] = ()
    """Each edge that is skewed, and what helps."""

    @property
    def shown(self) -> Shown:
        return JOBS.get(self.state, UNKNOWN)

    @property
    def is_live(self) -> bool:
        return self.status not in ENDED_JOB

    @property
    def can_be_repaired(self) -> bool:
        """Whether something of it had finished that would be kept; else it can be run again alone."""
        return self.status in (JobStatus.FAILED, JobStatus.CANCELED) and any(task.done for task in self.tasks)

    def task(self, id: str | None) -> TaskBox | None:
        """The one that is asked for; else the one that tells most."""
        found = next((task for task in (*self.tasks, *self.drawn) if task.id == id), None)
        notable = [task for state in NOTABLE for task in self.tasks if task.state == state]
        return found or (notable[0] if notable else self.tasks[-1] if self.tasks else None)


def state_shown(status: str, waiting: str | None, in_slots: int) -> str:
    """WAITING is no status: it is a live job of which nothing is in a slot, and that waits for one."""
    return "WAITING" if waiting and not in_slots and status in MAY_WAIT else status


def in_slots(described: Row) -> int:
    return sum(each["state"] in IN_SLOT for task in described["tasks"] for each in task["subtasks"])


def reading_of(tasks: Sequence[Row], plan: Plan | None) -> Reading:
    """Which tasks read which: as the job's acceptance has it, else by its plan. Empty: neither is known."""
    inputs = {each["task"]: [(read["task"], read["edge"]) for read in each.get("inputs") or ()] for each in tasks}
    if any(inputs.values()) or len(inputs) == 1:
        return inputs
    if plan is None:
        return {}
    return inputs_of(plan)


def job_shown(row: Row, described: Row, detail: JobDetail | None, plan: Plan | None, wall_ms: int, asked: str | None = None) -> JobShown:
    """`row`: of the table of jobs; `described`: as that table does. `asked`: the task that is looked at."""
    accepted_ms, ended_ms = described["accepted_ms"], described["ended_ms"]
    tasks = [task for task in described["tasks"] if task["task"] != PLAN_TASK]
    details = {task.task: {each.subtask: each for each in task.subtasks} for task in detail.tasks} if detail is not None else {}
    reading = reading_of(row["tasks"], plan)
    time = timeline(described["tasks"], reading, accepted_ms, ended_ms, wall_ms)
    boxes = tuple(_box(task, details.get(task["task"], {}), plan, reading, wall_ms) for task in tasks)
    if is_ended := described["status"] in ENDED_JOB:
        boxes = tuple(_left(box, row["cause"] or {}) if box.state == "CREATED" else box for box in boxes)
    edges = tuple(_edges(boxes, details, plan, reading, time, {task["task"]: _flow(task) for task in tasks}, is_ended))
    upstream = {box.id: [producer for producer, _ in reading.get(box.id, ())] for box in boxes}
    drawn, lines = boxes, edges
    if len(boxes) > BOXES_MOST:
        drawn, lines, upstream = _folded(boxes, edges, upstream, asked)
    has_picture = drawn and (reading or len(boxes) <= BOXES_MOST)
    picture = layout.drawn(upstream, {box.id: len(box.vertices) for box in drawn}) if has_picture else None
    used = in_slots(described)
    return JobShown(
        described["job"], printable(described["name"]), described["status"], state_shown(described["status"], described["waiting"], used),
        accepted_ms, ended_ms, tuple(_facts(described, detail, plan, used, wall_ms)), boxes, edges, picture, time, described["waiting"],
        described["position"], described.get("expected_ms"), places_of(row.get("past", ())), _spent(described.get("spent")), bool(reading),
        drawn, lines, tuple(_skewed(described.get("skewed", ()))),
    )  # fmt: skip


def progress(task: Row, done: Mapping[int, float] | None = None, is_live: bool = False) -> tuple[Piece, ...]:
    """The bar of a task. `done`: the share of a running subtask that is done, where it is known. What failed in a live job is tried
    again."""
    states = ["SCHEDULED" if is_live and state == "FAILED" else state for state in map(_state, task["subtasks"])]
    if len(states) > PIECES_MOST:
        return tuple(_shares(states))
    wide = 100 / max(1, len(states))
    return tuple(
        Piece(_tone(state), round(n * wide, 3), round(wide, 3), (done or {}).get(n, 0.5) if state == "RUNNING" else 1.0)
        for n, state in enumerate(states)
    )


def _shares(states: Sequence[str]) -> Iterator[Piece]:
    x = 0.0
    for tone in ("ok", "run", "again", "bad", "off", "wait", ""):
        wide = 100 * sum(_tone(state) == tone for state in states) / len(states)
        if wide:
            yield Piece(tone, round(x, 3), round(wide, 3), 0.5 if tone == "run" else 1.0)
        x += wide


def _tone(state: str) -> str:
    return "" if state in ("CREATED", "LOST") else "again" if state == "SCHEDULED" else ATTEMPTS.get(state, UNKNOWN).tone


def _state(subtask: Row) -> str:
    return attempt_state(subtask["attempts"][-1]) if subtask["attempts"] and subtask["state"] == "FAILED" else str(subtask["state"])


def _box(task: Row, details: Mapping[int, SubtaskDetail], plan: Plan | None, reading: Reading, wall_ms: int) -> TaskBox:
    states = [_state(each) for each in task["subtasks"]]
    kinds = plan.graph.vertices if plan is not None else {}
    known = plan.tasks.get(task["task"]) if plan is not None else None  # it names the sources, too, that each subtask reads itself
    names = known.vertices if known is not None else task["task"].split("+")
    vertices = tuple((name, kinds[name].kind if name in kinds else "") for name in names)
    state = next((each for each in LOUDEST if each in states), ExecutionState.FINISHED.value)
    done = states.count("FINISHED")
    if state == "CREATED" and done:
        state = "SCHEDULED"
    running = {each["subtask"]: last["progress"] for each in task["subtasks"] if each["state"] == "RUNNING"
               and (last := each["attempts"][-1]).get("progress")}  # fmt: skip
    share = {n: each["tasks_done"] / each["tasks_total"] for n, each in running.items() if each.get("tasks_total")}
    lengths = [lasted for lasted, _ in _lengths(task, wall_ms)]
    failed = next((error for each in task["subtasks"] if (error := _error(each)) is not None and state == "FAILED"), None)
    return TaskBox(
        task["task"], _name(vertices), vertices, len(states), state, progress(task, share), done,
        _caption(task, details, reading, running, state, failed), length(max(lengths, default=None)),
        tuple(_reads(task["task"], plan, reading)),
        tuple(_attempts(task, details, wall_ms)), str((failed or {}).get("vertex") or ""), _spread(task, details, wall_ms),
    )  # fmt: skip


def _lengths(task: Row, wall_ms: int) -> Iterator[tuple[int, int]]:
    """(how long its last attempt took, subtask) of those that have one."""
    for subtask in task["subtasks"]:
        last = last_of(subtask)
        lasted = took(last, wall_ms) if last is not None else None
        if lasted is not None:
            yield lasted, subtask["subtask"]


def _left(box: TaskBox, cause: Row) -> TaskBox:
    """A task of an ended job of which nothing was in a slot. One that could not be planned is what failed."""
    if cause.get("vertex") not in [name for name, _ in box.vertices]:
        return replace(box, state=NEVER, says="")
    return replace(box, state="FAILED", says=_place(cause), failed_vertex=str(cause["vertex"]))


def _place(error: Row) -> str:
    place = f"{error['file']}:{error['line']}" if error.get("file") and error.get("line") else error.get("condition")
    return str(place or error.get("kind") or "")


def _name(vertices: Sequence[tuple[str, str]]) -> str:
    return vertices[0][0] if len(vertices) == 1 else f"{len(vertices)} in one plan"


def _error(subtask: Row) -> Row | None:
    return subtask["attempts"][-1]["error"] if subtask["attempts"] else None


def _caption(
    task: Row, details: Mapping[int, SubtaskDetail], reading: Reading, running: Mapping[int, Row], state: str, failed: Row | None
) -> str:
    """What stands below the bar of a box."""
    if failed is not None:
        return _place(failed)
    if (total := sum(each.get("tasks_total", 0) for each in running.values())) and state == "RUNNING":
        return f"{sum(each.get('tasks_done', 0) for each in running.values()):,} of {count(total, 'Spark task')}"
    outputs = [out for each in details.values() for out in each.outputs.values()]
    if outputs and state == "FINISHED" and None not in (rows := [_rows(each) for each in details.values()]):
        return count(sum(each or 0 for each in rows), "row")
    if state == "FINISHED" and (of := next((each["kept_from"] for each in task["subtasks"] if each.get("kept_from")), None)):
        return f"kept from {printable(of)}"
    before = [producer for producer, _ in reading.get(task["task"], ())]
    if state in NOT_DEPLOYED and before:
        return f"starts after {label(before[0])}" if len(before) == 1 else f"starts after {len(before)} tasks"
    return ""


def _reads(task: str, plan: Plan | None, reading: Reading) -> Iterator[str]:
    if plan is None:
        yield from (f"{label(producer)} by {edge}" for producer, edge in reading.get(task, ()))
        return
    for inputs in plan.tasks[task].inputs.values():
        for each in inputs:
            if each.task is not None:
                keys = f"({', '.join(each.keys)})" if each.keys else ""
                yield f"{each.vertex} by {each.edge}{keys}"


def _attempts(task: Row, details: Mapping[int, SubtaskDetail], wall_ms: int) -> Iterator[AttemptLine]:
    for subtask in task["subtasks"]:
        for each in reversed(subtask["attempts"]):
            error = each["error"] or {}
            where = "" if not each["task_manager"] else each["task_manager"] + (f"/{each['slot']}" if each["slot"] is not None else "")
            detail = details.get(subtask["subtask"])
            whole = number(_rows(detail)) if detail is not None and each is subtask["attempts"][-1] else ""
            note = printable(str(error.get("message") or "")).strip().partition("\n")[0]
            if each.get("beside"):
                beside = f"attempt {each['attempt']} beside attempt {each['beside']}, of which the first to finish counts"
                note = "; ".join(filter(None, (beside, note)))
            if error.get("decided"):
                note = f"{note.rstrip('.')}: {printable(decision_text(Decided.model_validate(error['decided'])))}"
            shown = ATTEMPTS.get(attempt_state(each), UNKNOWN)
            yield AttemptLine(subtask["subtask"], each["attempt"], shown, where, whole, length(took(each, wall_ms)), note)
        if of := subtask.get("kept_from"):
            yield AttemptLine(subtask["subtask"], 0, ATTEMPTS[ExecutionState.FINISHED.value], "", "", "", f"kept from {printable(of)}")


def _rows(detail: SubtaskDetail) -> int | None:
    """How many rows a subtask has made: of several outputs, which may be the same rows for several readers, the largest has."""
    rows = [out.rows for out in detail.outputs.values()]
    return None if not rows or None in rows else max(each or 0 for each in rows)


def _spread(task: Row, details: Mapping[int, SubtaskDetail], wall_ms: int) -> str:
    """Which of several subtasks took longest and which made most rows, beside those in the middle."""
    lasted = sorted(each for each in _lengths(task, wall_ms) if each[0])
    rows = sorted((made, n) for n, each in details.items() if (made := _rows(each)) is not None)
    parts = []
    if len(lasted) > 1 and lasted[-1][0] > lasted[(len(lasted) - 1) // 2][0]:
        parts.append(f"longest [{lasted[-1][1]}] {length(lasted[-1][0])}, median {length(lasted[(len(lasted) - 1) // 2][0])}")
    if len(rows) > 1 and rows[-1][0] > rows[(len(rows) - 1) // 2][0]:
        parts.append(f"most rows [{rows[-1][1]}] {number(rows[-1][0])}, median {number(rows[(len(rows) - 1) // 2][0])}")
    return "; ".join(parts)


def _flow(task: Row) -> tuple[int, int]:
    """Rows that its running attempts have written so far, and write a second."""
    last = [each["attempts"][-1].get("progress") or {} for each in task["subtasks"] if each["state"] == "RUNNING"]
    return sum(each.get("rows_written") or 0 for each in last), sum(each.get("rows_per_s") or 0 for each in last)


def _folded(
    boxes: Sequence[TaskBox], edges: Sequence[EdgeLine], upstream: Mapping[str, Sequence[str]], asked: str | None
) -> tuple[tuple[TaskBox, ...], tuple[EdgeLine, ...], dict[str, list[str]]]:
    """The boxes and edges that are drawn of very many, and which box reads which."""
    notable = [box.id for state in NOTABLE for box in boxes if box.state == state]
    critical = [name for each in edges if each.is_critical for name in (each.producer, each.reader)]
    asked_for = [box.id for box in boxes if box.id == asked]
    found = folded(upstream, list(dict.fromkeys([*asked_for, *notable, *critical])))
    known = {box.id: box for box in boxes}
    together: dict[str, list[TaskBox]] = {}
    for name, box in found.of.items():
        together.setdefault(box, []).append(known[name])
    drawn = tuple(known.get(name) or _group(name, together[name]) for name in found.upstream)
    joined: dict[tuple[str, str], list[EdgeLine]] = {}
    for each in edges:
        if (key := (found.of[each.producer], found.of[each.reader]))[0] != key[1]:
            joined.setdefault(key, []).append(each)
    lines = tuple(_line(*key, some) for key, some in joined.items())
    return drawn, lines, found.upstream


def _group(name: str, tasks: Sequence[TaskBox]) -> TaskBox:
    states = [task.state for task in tasks]
    state = next((each for each in LOUDEST if each in states), ExecutionState.FINISHED.value)
    counts = {each: states.count(each) for each in (*LOUDEST, ExecutionState.FINISHED.value) if each in states}
    says = ", ".join(f"{n} {ATTEMPTS.get(each, UNKNOWN).word.lower()}" for each, n in counts.items())
    return TaskBox(
        name, count(len(tasks), "task"), (("drawn together", "drawn together"),), sum(task.parallelism for task in tasks), state,
        tuple(_shares(states)), sum(task.done for task in tasks), says, "", members=tuple(tasks),
    )  # fmt: skip


def _line(producer: str, reader: str, some: Sequence[EdgeLine]) -> EdgeLine:
    if len(some) == 1:
        return replace(some[0], producer=producer, reader=reader)
    return EdgeLine(
        producer, reader, "", count(len(some), "edge"), any(each.is_critical for each in some), any(each.is_flowing for each in some),
        all(each.is_idle for each in some),
    )  # fmt: skip


def _edges(
    boxes: Sequence[TaskBox], details: Mapping[str, Mapping[int, SubtaskDetail]], plan: Plan | None, reading: Reading, time: Timeline,
    flows: Mapping[str, tuple[int, int]], is_ended: bool,
) -> Iterator[EdgeLine]:  # fmt: skip
    """`flows`: of each task, what its running attempts write. It counts where all of that goes one way."""
    states = {box.id: box.state for box in boxes}
    steps = {(one[0], two[0]) for one, two in zip(time.critical, time.critical[1:], strict=False)}
    for box in boxes:
        inputs = [each for some in plan.tasks[box.id].inputs.values() for each in some] if plan is not None else []
        for producer, edge in reading.get(box.id, ()):
            vertices = {each.vertex for each in inputs if each.task == producer} or {producer.split("+")[-1]}
            made = [out for each in details.get(producer, {}).values() for name, out in each.outputs.items() if name in vertices]
            rows = sum(out.rows or 0 for out in made) if made and all(out.rows is not None for out in made) else None
            whole = sum(out.bytes or 0 for out in made) if made and all(out.bytes is not None for out in made) else None
            is_done = states.get(producer) == "FINISHED"
            written, rate = flows.get(producer, (0, 0)) if _hands_on_one(producer, plan) else (0, 0)
            rows = (rows or 0) + written if written else rows
            more = [f"{rate:,}/s"] if written and rate else [size(whole)] if whole is not None and is_done else []
            yield EdgeLine(
                producer, box.id, count(rows, "row") if rows is not None else "" if is_done else "no rows" if is_ended else "no rows yet",
                " · ".join([edge, *more] if is_done or rows is None else ["so far", *more]),
                (producer, box.id) in steps, box.state == "RUNNING", states.get(producer) in (*NOT_DEPLOYED, NEVER),
            )  # fmt: skip


def _hands_on_one(task: str, plan: Plan | None) -> bool:
    """Whether a task writes the rows of one vertex alone, and to no sink: then Spark's count is of these."""
    if plan is None:
        return False
    read = {each.vertex for other in plan.tasks.values() for some in other.inputs.values() for each in some if each.task == task}
    return len(read) == 1 and not any(plan.graph.vertices[name].kind == "sink" for name in plan.tasks[task].vertices)


def _facts(described: Row, detail: JobDetail | None, plan: Plan | None, used: int, wall_ms: int) -> Iterator[tuple[str, str, str]]:
    subtasks = [each for task in described["tasks"] if task["task"] != PLAN_TASK for each in task["subtasks"]]
    attempts = [each for task in described["tasks"] for sub in task["subtasks"] for each in sub["attempts"]]
    accepted_ms, ended_ms = described["accepted_ms"], described["ended_ms"]
    if origin := described.get("origin"):
        yield "Repairs" if origin.get("repair") else "Run again from", str(origin["job"]), "the job whose graph this is"
    if accepted_ms:
        yield "Took" if ended_ms else "For", length((ended_ms or wall_ms) - accepted_ms), "from its acceptance"
    done = sum(each["state"] == "FINISHED" for each in subtasks)
    runs = sum(each["state"] == "RUNNING" for each in subtasks)
    yield "Subtasks", f"{done} of {len(subtasks)} finished" + (f", {runs} {'run' if runs > 1 else 'runs'}" if runs else ""), ""
    if not ended_ms:
        yield "Slots", f"{used} in use", ""
    if plan is not None and (asked := {each.text for name, each in plan.profiles.items() if each.text and name != PLAN_TASK}):
        yield "A slot must have", "; or ".join(sorted(asked)), "resources that the graph asks for"
    failed = sum(attempt_state(each) == "FAILED" for each in attempts)
    lost = sum(attempt_state(each) == "LOST" for each in attempts)
    beside = sum(bool(each.get("beside")) for each in attempts)
    counts = [f"{n} {word}" for n, word in ((failed, "failed"), (lost, "moved"), (beside, "beside another")) if n]
    yield "Attempts", f"{len(attempts)}" + (f", of them {' and '.join(counts)}" if counts else ", none failed" if attempts else ""), ""
    if detail is not None and detail.restarts:
        yield "Restarts", number(detail.restarts), "attempts that failed and were run again"
    yield "Status", described["status"] + (", no attempt yet" if described["waiting"] and not used else ""), "as the API says it"


def places_of(past: Sequence[Row]) -> tuple[int, ...]:
    """The places in the queue that it has had, one after the other."""
    found: list[int] = []
    for each in past:
        place = each.get("position")
        if each["kind"] == "JobWaiting" and place and (not found or found[-1] != place):
            found.append(place)
    return tuple(found)


def _skewed(edges: Sequence[Row]) -> Iterator[tuple[str, str]]:
    for edge in map(SkewedEdge.model_validate, edges):
        yield printable(skew_line(edge)), printable(skew_advice(edge))


def _spent(spent: Row | None) -> tuple[tuple[str, int, str], ...]:
    """Where its time went: the phase, its ms, its share of the whole in per cent."""
    phases = ("queue", "start", "plan", "compute", "exchange", "publish")
    parts = [(phase, int((spent or {}).get(f"{phase}_ms") or 0)) for phase in phases]
    whole = sum(ms for _, ms in parts)
    return tuple((phase, ms, f"{100 * ms / whole:.0f}") for phase, ms in parts if ms) if whole else ()
