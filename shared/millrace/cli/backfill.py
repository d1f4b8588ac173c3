"""`millrace backfill`: a graph for each value of a parameter, a few at a time."""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.core.states import ENDED_JOB, JobStatus

from .connection import StackOption, connected, is_named
from .environment import EnvFileOption, EnvOption, variables
from .exits import Exit
from .options import pairs
from .submit import GRAPH_SUFFIXES, check_loaded

if TYPE_CHECKING:
    from millrace.client import Millrace
    from millrace.edge.graph_file import Loaded

RUNS_MOST = 10_000
PARALLEL_MOST = 100
ATTEMPTS_MOST = 1000
LOOK_S = 0.5
RANGES = "a list (a,b,c), days (2026-01-01..2026-01-31), months (2026-01..2026-12) or numbers (0..23)"
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])")
INVALID = "INVALID"


def backfill(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH.yaml", help="The graph's file.", show_default=False)],
    over: Annotated[str, typer.Option(metavar="NAME=RANGE", help=f"The parameter and its values: {RANGES}.", show_default=False)],
    parallel: Annotated[int, typer.Option("--parallel", "-n", min=1, max=PARALLEL_MOST, help="Runs at once, at most.")] = 1,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A value for another ${NAME}; may be repeated.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop-at-failure", help="Begin no further run once one has not FINISHED.")] = False,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    stack: StackOption = "default",
) -> None:
    """Run a graph once for each value of a parameter, a few at a time.

    Each run is a job of its own, whose id follows from the graph and the value. So the same command again goes on where it was: what
    FINISHED or runs is left alone, what FAILED is run again. Another graph, another parameter or another variable makes other runs.

    A line for each run that ended goes to stdout: value, job, status. What happens meanwhile is told on stderr. Ctrl-C begins no further
    run, and leaves those alone that run.

    Exit codes: 0 all FINISHED, 1 some did not, 2 the command line or the graph is wrong, 3 unavailable, 4 no answer came, 130 Ctrl-C. After
    3, 4 and 130 the same command goes on.

    millrace backfill nightly.yaml --over date=2026-01-01..2026-01-31 --parallel 2
    """
    if graph.suffix not in GRAPH_SUFFIXES:
        raise typer.BadParameter(f"{graph} is no graph's file ({', '.join(GRAPH_SUFFIXES)})")
    name, _, text = over.partition("=")
    if not name or not text:
        raise typer.BadParameter(f"--over takes NAME=RANGE, and a range is {RANGES}")
    values, others, given = values_of(text), pairs(parameter, "-p"), variables(env, env_file)
    if name in others:
        raise typer.BadParameter(f"{name} has its values from --over; leave out -p {name}=...")

    def load(value: str) -> Loaded:
        from millrace.edge.graph_file import load_graph

        return load_graph(graph, {**others, name: value}, same_machine=not is_named(), sent=True, env=given)

    check_loaded(load(values[0]))
    with connected(stack) as millrace:
        runs = Runs(millrace, name, load, {**others}, parallel, stop, values)
        raise typer.Exit(runs.go())


def values_of(text: str) -> list[str]:
    """The values of a range, in their order. Raises BadParameter."""
    first, dots, last = text.partition("..")
    values = list(_between(first.strip(), last.strip())) if dots else [each.strip() for each in text.split(",")]
    if not values or "" in values or len(set(values)) < len(values):
        raise typer.BadParameter(f"{text!r} has an empty value, or one twice; a range is {RANGES}")
    return values


def _between(first: str, last: str) -> Iterator[str]:
    for numbered in (_days, _months, _numbers):
        found = numbered(first, last)
        if found is not None:
            low, high, named = found
            if high < low:
                raise typer.BadParameter(f"{first}..{last} ends before it begins")
            if high - low >= RUNS_MOST:
                raise typer.BadParameter(f"{first}..{last} has {high - low + 1:,} values, and {RUNS_MOST:,} may be given at once")
            return map(named, range(low, high + 1))
    raise typer.BadParameter(f"{first!r}..{last!r} is no range: that is {RANGES}")


Numbered = tuple[int, int, Callable[[int], str]]
"""The first, the last, and how one between them is written."""


def _days(first: str, last: str) -> Numbered | None:
    if not _DAY.fullmatch(first) or not _DAY.fullmatch(last):
        return None  # fromisoformat also reads 20260131, which is a number here
    try:
        low, high = date.fromisoformat(first), date.fromisoformat(last)
    except ValueError:
        return None
    return 0, (high - low).days, lambda number: (low + timedelta(days=number)).isoformat()


def _months(first: str, last: str) -> Numbered | None:
    low, high = _MONTH.fullmatch(first), _MONTH.fullmatch(last)
    if low is None or high is None:
        return None
    begin, end = (int(each[1]) * 12 + int(each[2]) - 1 for each in (low, high))
    return begin, end, lambda number: f"{number // 12:04}-{number % 12 + 1:02}"


def _numbers(first: str, last: str) -> Numbered | None:
    if not re.fullmatch(r"\d{1,12}", first) or not re.fullmatch(r"\d{1,12}", last):
        return None
    return int(first), int(last), lambda number: f"{number:0{len(first)}}"


def id_of(loaded: Loaded, value: str, parameters: dict[str, str], number: int, env: str = "", sources: bool = False) -> str:
    """The id of a run: another one for another graph, other parameters or variables, and each further try (`number`, from 1 on). `env`: a
    hash of the variables that tells nothing of them, for anybody may read an id. `sources`: as builds before made it, whose ids also
    told where in its file the graph's text stands."""
    graph = {name: part for name, part in loaded.raw.items() if sources or name != "sources"}
    whole = [graph, parameters, *([env] if env else [])]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:8]
    head = re.sub(r"[^A-Za-z0-9]+", "-", f"{loaded.raw.get('name', '')}-{value}").strip("-").lower()[:60].strip("-")
    return f"{head or 'job'}-{digest}{f'.{number}' if number > 1 else ''}"


@dataclass
class Runs:
    """What is run, waits and failed."""

    millrace: Millrace
    name: str
    load: Callable[[str], Loaded]
    parameters: dict[str, str]
    parallel: int
    stop: bool
    values: list[str]
    running: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Job -> its value, and the state that was shown."""
    finished: int = 0
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    """Value, job, and what became of it."""
    no_room: str = ""
    """Why the cluster takes no job now, as it was told last."""

    def __post_init__(self) -> None:
        self.waiting = deque(self.values)
        self.started_s = time.monotonic()

    def go(self) -> int:
        """Runs them to their ends; the exit code."""
        from millrace.client import MillraceError

        try:
            while self.running or self._may_begin():
                busy = False
                while self._may_begin() and len(self.running) < self.parallel and not busy:
                    busy = not self._begin(self.waiting[0])
                    if not busy:
                        self.waiting.popleft()  # not before: what fails otherwise than by its graph has not begun
                for job in list(self.running):
                    self._look(job)
                if self.running or busy:
                    time.sleep(LOOK_S)
        except KeyboardInterrupt:
            self._tell_rest()
            return Exit.INTERRUPTED
        except MillraceError:
            self._tell_rest()
            raise
        return self._tell_end()

    def _may_begin(self) -> bool:
        return bool(self.waiting) and not (self.stop and self.failed)

    def _begin(self, value: str) -> bool:
        """Submits a run, unless it runs or has FINISHED. One that FAILED before has a next try. False: the cluster has no room now."""
        from millrace.client import Busy, NotFound, Rejected, TooLate

        loaded, parameters = self.load(value), {**self.parameters, self.name: value}
        if loaded.errors:
            self._fail(value, "", INVALID, "\n".join(loaded.rendered()))
            return True
        env = self.millrace.environment_hash(loaded.env) if loaded.env else ""
        for sources in (True, False) if "sources" in loaded.raw else (False,):  # what a build before has run counts, too
            for number in range(1, ATTEMPTS_MOST):
                job = id_of(loaded, value, parameters, number, env, sources)
                try:
                    state = self.millrace.status(job).status
                except NotFound:
                    break
                if state not in (JobStatus.FAILED, JobStatus.CANCELED):
                    self.running[job] = (value, "")
                    return True
        try:
            self.millrace.submit(loaded.raw, job, parameters, loaded.uploads, False, loaded.env)
        except Busy as busy:
            if self.no_room != str(busy):
                self.no_room = str(busy)
                self._tell(value, job, f"waits: {busy}")
            return False
        except TooLate:
            raise
        except Rejected as rejected:
            self._fail(value, job, INVALID, str(rejected))
            return True
        self.running[job], self.no_room = (value, ""), ""
        return True

    def _look(self, job: str) -> None:
        value, shown = self.running[job]
        summary = self.millrace.status(job)
        if summary.status not in ENDED_JOB:
            if summary.state != shown:
                self.running[job] = (value, summary.state)
                self._tell(value, job, summary.state)
            return
        del self.running[job]
        if summary.status == JobStatus.FINISHED:
            self.finished += 1
            self._tell(value, job, summary.status)
            print(f"{value}\t{job}\t{summary.status}", flush=True)
            return
        cause = self.millrace.wait(job).cause
        self._fail(value, job, summary.status, cause.message if cause is not None and cause.message else "")

    def _fail(self, value: str, job: str, status: str, why: str) -> None:
        self.failed.append((value, job, status))
        self._tell(value, job, f"{status}{': ' if why else ''}{why}")
        print(f"{value}\t{job}\t{status}", flush=True)

    def _tell(self, value: str, job: str, what: str) -> None:
        from .words import printable

        ended = self.finished + len(self.failed)
        at = f"{time.monotonic() - self.started_s:7.2f} s  {ended}/{len(self.values)}"
        print("  ".join(each for each in (at, f"{self.name}={value}", job, printable(what)) if each), file=sys.stderr, flush=True)

    def _tell_rest(self) -> None:
        begun, rest = len(self.running), len(self.waiting)
        print(f"\nruns that go on: {begun}; not begun: {rest}. The same command goes on with them.", file=sys.stderr)

    def _tell_end(self) -> int:
        left = f", {len(self.waiting)} not begun" if self.waiting else ""
        wrong = f", {len(self.failed)} not" if self.failed else ""
        print(f"{len(self.values)} runs: {self.finished} FINISHED{wrong}{left}", file=sys.stderr)
        for value, job, status in self.failed:
            print(f"  {self.name}={value}  {status}{f'  millrace show {job}' if job else ''}", file=sys.stderr)
        if self.failed:
            print("the same command runs these again", file=sys.stderr)
        return Exit.FAILED if self.failed else Exit.FINISHED
