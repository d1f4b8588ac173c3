"""How a job goes on, from its events: a table that renews itself on a terminal, one line an event elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from millrace.core.states import ENDED_BY, ExecutionState, JobStatus

from .words import COLORS, label, one_line, place, printable, progress_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from millrace.client import Ending
    from millrace.core.messages.attempts import Fault, ResultRows

    from .output import LiveOutput

Event = dict[str, Any]
SUBTASKS_SHOWN = 8  # of a task, with their progress
PROGRESS_S = 10.0  # between two lines of progress, where lines are not taken back


class End(NamedTuple):
    """How a job ended: by its last event, or by the answer to a question where its events were cut off."""

    status: str
    cause: Fault | None = None
    archive: str | None = None
    result: ResultRows | None = None
    """Few rows come with the event."""


@dataclass
class View:
    """A job as its events tell it, in whatever order they come."""

    job: str
    status: str = "ACCEPTED"
    waiting: str | None = None
    cancelling: bool = False
    parallelism: dict[str, int] = field(default_factory=dict)  # task -> subtasks, producers first
    states: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)  # subtask -> (attempt, state)
    progress: dict[tuple[str, int], str] = field(default_factory=dict)  # running subtask -> how far it is
    failures: int = 0
    uneven: str | None = None  # the edge that was told of last

    def add(self, event: Event) -> str | None:
        """Takes an event in; the line that tells it. None: nothing worth a line, as of what is none: strangers write what they like."""
        try:
            return self._add(event)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _add(self, event: Event) -> str | None:
        kind = event["type"]
        if kind == "JobAccepted":
            self.parallelism = {task["task"]: task["parallelism"] for task in event["tasks"]} | self.parallelism
            return f"accepted, {len(self.parallelism)} task{'s' * (len(self.parallelism) != 1)}"
        if kind == "JobWaiting":
            stands = place(event.get("position"), event.get("expected_ms"), event.get("at_ms", 0), " in the queue")
            self.waiting = printable(event["reason"]) + stands
            return f"waits: {self.waiting}"
        if kind == "JobCancelling":
            self.status, self.cancelling = JobStatus.CANCELLING.value, True
            return f"is canceled: {printable(event['reason'])}" if event.get("reason") else "cancel accepted"
        if kind == "JobStateChanged":
            self.status = self.status if self.cancelling else event["status"]
            return str(event["status"]) + _because(event, "cause")
        if kind == "AttemptStateChanged":
            return self._attempt(event)
        if kind == "JobRescaled":
            self.parallelism = {task["task"]: task["parallelism"] for task in event["tasks"]}
            self.states, self.progress, self.uneven = {}, {}, None
            return "rescaled: " + ", ".join(f"{vertex} has {number}" for vertex, number in event["parallelism"].items())
        if kind == "EdgeSkewed":
            from millrace.core.messages.execution import SkewedEdge
            from millrace.core.skew import skew_line

            self.uneven = f"uneven: {one_line(skew_line(SkewedEdge.model_validate(event['edge'])))}"
            return self.uneven
        if kind == "SubtasksKept":
            self.states |= {(event["task"], subtask): (0, ExecutionState.FINISHED.value) for subtask in event["subtasks"]}
            count = len(event["subtasks"])
            source = "" if event["kept_from"] == self.job else f" from {printable(event['kept_from'])}"
            return f"{label(event['task'])}: {count} subtask{'s' * (count != 1)} kept{source}"
        if kind == "AttemptsProgressing":
            lines = []
            for each in event["attempts"]:
                line = self.progress[each["task"], each["subtask"]] = progress_line(each["progress"])
                if line:
                    lines.append(f"{label(each['task'])}[{each['subtask']}] {line}")
            return "; ".join(lines[:3]) or None
        if kind in ENDED_BY:
            self.progress.clear()
            self.status, self.waiting = ENDED_BY[kind], None
            return self.status
        return None

    def _attempt(self, event: Event) -> str:
        task, subtask, state = event["task"], event["subtask"], event["state"]
        beside = event.get("beside")
        if beside is None:
            self.states[task, subtask] = (event["attempt"], state)
            self.progress.pop((task, subtask), None)
        self.parallelism.setdefault(task, 1)
        self.waiting = None
        self.failures += state == ExecutionState.FAILED
        again = f" attempt {event['attempt']}" if event["attempt"] > 1 else ""
        place = f" on {event['task_manager']}" if event.get("task_manager") else ""
        other = f", beside attempt {beside}" if beside is not None else ""
        return f"{label(task)}[{subtask}]{again} {state}{place}{other}" + _because(event, "error")

    def counts(self, task: str) -> dict[str, int]:
        """State -> number of subtasks of a task."""
        found: dict[str, int] = {}
        for subtask in range(self.parallelism[task]):
            state = self.states.get((task, subtask), (0, ExecutionState.CREATED.value))[1]
            found[state] = found.get(state, 0) + 1
        return found

    def render(self, elapsed_s: float) -> RenderableType:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        head = Text.assemble(
            ("job ", ""), (self.job, "bold"), "  ", (self.status, COLORS.get(self.status, "")), f"  {elapsed_s:.1f} s"
        )
        table = Table(box=None, pad_edge=False, show_header=False)
        for task in self.parallelism:
            states = [Text(f"{n} {state}", COLORS.get(state, "dim")) for state, n in self.counts(task).items()]
            table.add_row("  " + label(task), Text("  ").join(states))
            for subtask in sorted(each for name, each in self.progress if name == task)[:SUBTASKS_SHOWN]:
                table.add_row(f"    [{subtask}]", Text(self.progress[task, subtask], "dim"))
        parts: list[RenderableType] = [head, table]
        if self.waiting:
            parts.append(Text(f"waits: {self.waiting}", "yellow"))
        if self.uneven:
            parts.append(Text(self.uneven, "yellow"))
        return Group(*parts)


def show_progress(
    job: str, events: Iterator[Event], check: Callable[[], Ending], output: LiveOutput | None = None, quiet: bool = False
) -> End:
    """Shows a job's events on stderr until its end, which is returned; between them its `output`. `check`: how it ended, if its events
    are cut off. quiet: nothing is shown."""
    if quiet:
        return next((_end_of(event) for event in events if event["type"] in ENDED_BY), None) or _asked(check)
    from rich.console import Console

    console = Console(stderr=True)
    view, started = View(job), time.monotonic()
    if output is None:
        return _show(view, events, started, check, console)
    with closing(output.during(events, console)) as both:  # by Ctrl-C, too
        return _show(view, both, started, check, console)


def _show(view: View, events: Iterator[Event], started: float, check: Callable[[], Ending], console: Console) -> End:
    if not console.is_terminal:
        return _lines(view, events, started, check)
    from rich.live import Live

    with Live(
        get_renderable=lambda: view.render(time.monotonic() - started),
        console=console,
        refresh_per_second=8,
        transient=False,
        redirect_stdout=False,  # which may be a pipe
    ):
        for event in events:
            view.add(event)
            if event["type"] in ENDED_BY:
                return _end_of(event)
    return _asked(check)


def _lines(view: View, events: Iterator[Event], started: float, check: Callable[[], Ending]) -> End:
    progress_s = started
    for event in events:
        line, now_s = view.add(event), time.monotonic()
        if event["type"] == "AttemptsProgressing" and line is not None:
            if now_s < progress_s + PROGRESS_S:
                continue
            progress_s = now_s
        if line is not None:
            print(f"{now_s - started:7.2f} s  {view.job}  {line}", file=sys.stderr, flush=True)
        if event["type"] in ENDED_BY:
            return _end_of(event)
    return _asked(check)


def _end_of(event: Event) -> End:
    from millrace.client.events import fault_in, rows_in

    return End(ENDED_BY[event["type"]], fault_in(event), event.get("archive"), rows_in(event))


def _asked(check: Callable[[], Ending]) -> End:
    """The end as the cluster tells it, where the events ended without it."""
    ending = check()
    return End(ending.status, ending.cause, ending.archive)


def _because(event: Event, name: str) -> str:
    """The first line of the fault that an event may carry in this field."""
    if event.get(name) is None:
        return ""
    from millrace.client.events import fault_in

    found = fault_in(event, name)
    return f": {printable(found.message.splitlines()[0])}" if found is not None and found.message else ""
