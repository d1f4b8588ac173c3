"""What commands print: tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from millrace.core.faults import decision_text
from millrace.core.skew import skew_advice, skew_line
from millrace.core.states import NOT_DEPLOYED, ExecutionState, JobStatus
from millrace.core.stragglers import stragglers

from .words import COLORS, FIGURES, figures, label, left, minute, one_line, place, printable, progress_line, took

if TYPE_CHECKING:
    from millrace.client import Result
    from millrace.core.messages.attempts import Fault
    from millrace.core.messages.client import JobSummary
    from millrace.core.messages.execution import JobDetail, TimeSpent
    from millrace.core.messages.schedules import Scheduled

HEAD_ROWS = 20
STOPPED = "its TaskManager was stopped"
"""What is said of an attempt whose TaskManager was asked to stop."""
WIDE = 10_000  # characters in a line where the output is no terminal
NARROW = 8  # characters that a column has at least: without, those that do not fit would not be shown at all


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> bool:
    """Prints a table; a status is coloured on a terminal. False: not all of it fits into the width, so cells are cut."""
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    console = Console()
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        shown.add_column(Text(printable(head)))  # a string would be read as markup, and a column may be called m[key]
    for row in rows:
        cells = ["" if cell is None else printable(str(cell)) for cell in row]
        shown.add_row(*(Text(cell, COLORS.get(cell, "")) for cell in cells))
    whole = Measurement.get(console, console.options.update(width=sys.maxsize), shown).maximum
    console.width = min(whole, max(console.width if sys.stdout.isatty() else WIDE, NARROW * len(heads)))
    console.print(shown)
    return whole <= console.width


def print_json(value: object) -> None:
    """What is no printable character is escaped as JSON has it: programs read the same, and a terminal is told nothing."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    print("".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text))


def when(ms: int | None) -> str:
    """A moment, in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000)) if ms else ""


def summary_row(summary: JobSummary) -> tuple[str, str, str, str, str, str, str]:
    """Job, name, state, when it was accepted, how long it waited and ran, what it waits for."""
    waiting = (summary.waiting or "") + place(summary.position, summary.expected_ms, time.time_ns() // 1_000_000)
    name = " ".join(printable(summary.name).split())  # a name of two lines would look like a further field
    return summary.job, name, summary.state, when(summary.accepted_ms), *waited_and_ran(summary), waiting


def queue_row(summary: JobSummary) -> tuple[object, ...]:
    """Place, job, name, when it was accepted, in how much time it has its slots, why it waits."""
    wall_ms = time.time_ns() // 1_000_000
    expected = left(summary.expected_ms, wall_ms)
    name = " ".join(printable(summary.name).split())
    return summary.position or "", summary.job, name, when(summary.accepted_ms), expected, summary.waiting or ""


def waited_and_ran(summary: JobSummary) -> tuple[str, str]:
    """How long it waited for its first slot, and how long it has run, both until now unless that is over."""
    until_ms = summary.ended_ms or time.time_ns() // 1_000_000
    if summary.running_ms is not None:
        return took(summary.accepted_ms, summary.running_ms), took(summary.running_ms, until_ms)
    if summary.state == "QUEUED" or summary.status in (JobStatus.CANCELED, JobStatus.FAILED):  # it ended in the queue
        return took(summary.accepted_ms, until_ms), ""
    return "", took(summary.accepted_ms, until_ms)  # it did not have to wait


def spent_line(spent: TimeSpent) -> str:
    """Where a job's time went: queue 0.1 s, start 0.4 s, ..."""
    parts = ((name.removesuffix("_ms"), getattr(spent, name)) for name in type(spent).model_fields)
    return ", ".join(f"{phase} {took(1, 1 + ms)}" for phase, ms in parts)


def rescaled_line(detail: JobDetail | None) -> str:
    """Which vertices have another parallelism than the job was submitted with, or are about to; empty: none."""
    if detail is None:
        return ""
    given = [f"{printable(vertex)} {number}" for vertex, number in detail.rescaled.items()]
    coming = [f"{printable(vertex)} {number}" for vertex, number in (detail.rescaling or {}).items()]
    return ", ".join(given) + (f"{'; ' if given else ''}when what runs is canceled: {', '.join(coming)}" if coming else "")


def origin_line(detail: JobDetail | None) -> str:
    """What a job was run again from; empty: it was submitted by itself."""
    if detail is None or detail.origin is None:
        return ""
    return f"{'repairs' if detail.origin.repair else 'from'} {printable(detail.origin.job)}"


def files_lines(detail: JobDetail | None, job: str) -> list[str]:
    """What `show` and the end of `submit --wait` say of the files that a job left; nothing if there are none."""
    kept = size = gone = 0
    for task in detail.tasks if detail is not None else ():
        for subtask in task.subtasks:
            failed = [each.error for each in subtask.failures if each.error.files_kept is not None][-1:]
            for each in failed if subtask.files is None else ():
                kept, gone = kept + (each.files_kept or 0), gone + (each.files_left_out or 0)
            if files := subtask.files:
                kept, size, gone = kept + (files.kept or 0), size + (files.bytes or 0), gone + (files.left_out or 0)
    lines = [f"files     {kept}{f' ({size} bytes)' if size else ''}, left by relative paths: millrace files {job}"] if kept else []
    if gone:
        lines.append(f"NOT kept  {gone} file{'s' * (gone != 1)} more, gone with the attempt; which and why: millrace files {job}")
    return lines


def scheduled_line(scheduled: Scheduled) -> str:
    """What `show` says of a schedule's job."""
    moment = f"for {minute(scheduled.due)} {scheduled.time_zone}" if scheduled.due else "asked for by hand"
    return f"{scheduled.schedule}, {moment}"


def print_job(summary: JobSummary, detail: JobDetail | None, cause: Fault | None, verbose: bool = False) -> None:
    """`show`: the job, then its tasks with their subtasks' states, then what failed. `verbose`: also what Spark has done in each."""
    job, name, state, accepted, waited, ran, waiting = summary_row(summary)
    print(f"job       {job}", f"name      {name}", f"status    {state}", f"accepted  {accepted}", sep="\n")
    scheduled = scheduled_line(summary.scheduled) if summary.scheduled is not None else ""
    for head, value in (
        ("schedule", scheduled), ("again", origin_line(detail)), ("rescaled", rescaled_line(detail)),
        ("waited", waited), ("ran", ran), ("waits", waiting),
    ):  # fmt: skip
        if value:
            print(f"{head:8}  {value}")
    if detail is not None and detail.spent is not None:
        print(f"time      {spent_line(detail.spent)}")
    for line in cause_lines(cause):
        print(line)
    for line in files_lines(detail, job):
        print(line)
    if detail is None:
        print("its JobMaster has not answered: tasks are shown when it does")
        return
    print()
    table(("task", "subtask", "state", "attempt", "TaskManager", "took", "rows"), _subtask_rows(detail))
    for line in _uneven(detail):
        print(line)
    if verbose:
        _print_figures(detail)
    failures = list(_failures(detail))
    if failures:
        print("\nfailures", *failures, sep="\n")


def _subtask_rows(detail: JobDetail) -> Iterator[tuple[object, ...]]:
    for task in detail.tasks:
        for subtask in task.subtasks:
            rows = ", ".join(f"{vertex} {out.rows}" for vertex, out in subtask.outputs.items() if out.rows is not None)
            if subtask.progress is not None and subtask.state != ExecutionState.FINISHED:
                rows = progress_line(subtask.progress.model_dump())
            length = took(subtask.running_ms or subtask.deployed_ms, subtask.ended_ms)
            last = (subtask.attempt or "", subtask.task_manager, length)
            if subtask.kept_from is not None:
                rows = "; ".join(filter(None, (rows, f"kept from {printable(subtask.kept_from)}")))
            if subtask.state in NOT_DEPLOYED:  # what is known is of an attempt that failed
                last = ("", "", "")
            yield label(task.task), subtask.subtask, subtask.state, *last, rows
            for each in subtask.concurrent_attempts:
                done = progress_line(each.progress.model_dump()) if each.progress is not None else ""
                note = "; ".join(filter(None, (f"beside attempt {subtask.attempt}", done)))
                length = took(each.running_ms or each.deployed_ms, None)
                yield label(task.task), subtask.subtask, each.state, each.attempt, each.task_manager, length, note
        if task.omitted:
            yield (label(task.task), f"and {task.omitted} more", "", "", "", "", "")


def _print_figures(detail: JobDetail) -> None:
    """What the Spark of each attempt has done: of the failed ones that are listed, and of the last."""
    rows = [
        (label(task.task), subtask.subtask, number, *figures(progress.model_dump()))
        for task in detail.tasks
        for subtask in task.subtasks
        for number, progress in (
            *((failure.attempt, failure.progress) for failure in subtask.failures), (subtask.attempt, subtask.progress)
        )
        if progress is not None
    ]  # fmt: skip
    print("\nSpark")
    if rows:
        table(("task", "subtask", "attempt", *FIGURES), rows)
    else:
        print("  no attempt has reported what its Spark does: the first report comes after a second, and what was canceled is not listed")


_KEYS = "where rows come by hash, few keys may have most of them; more columns spread them"
_SLOT = "what a slot runs first takes longer, and so does what shares its machine with other work"
_WHY_LONGER = {True: _KEYS, False: _SLOT, None: f"{_KEYS}; and {_SLOT}"}
"""Whether it had more rows -> what that says."""


def _uneven(detail: JobDetail) -> Iterator[str]:
    """Edges that are skewed; then subtasks that took long, but for those that had more to do for that."""
    for edge in detail.skewed:
        yield f"\nuneven: {one_line(skew_line(edge))}\n  what helps: {one_line(skew_advice(edge))}"
    readers = {(reader, edge.subtask) for edge in detail.skewed for reader in edge.readers}
    for each in stragglers(detail):
        if any((vertex, each.subtask) in readers for vertex in each.task.split("+")):
            continue
        known = each.had_more_rows is not None
        mine, others = (f" for {rows:,} rows" if known else "" for rows in (each.rows, each.others_rows))
        times = f"took {took(1, 1 + each.took_ms)}{mine}, the others {took(1, 1 + each.others_ms)}{others}"
        yield f"\n{label(each.task)}[{each.subtask}] {times}: {_WHY_LONGER[each.had_more_rows]}"


def _failures(detail: JobDetail) -> Iterator[str]:
    """What failed, the oldest first, and what was decided on it; below what caused a restart what failed meanwhile. A JobMaster keeps the
    last few of each subtask."""
    found = [(failure, task, subtask) for task in detail.tasks for subtask in task.subtasks for failure in subtask.failures]
    found.sort(key=lambda each: each[0].error.decided.number if each[0].error.decided is not None else 0)
    if detail.failed > len(found):
        yield f"  {detail.failed - len(found)} earlier ones are not listed"
    for failure, task, subtask in found:
        decided = failure.error.decided
        if decided is None and failure.attempt == subtask.attempt and subtask.state not in NOT_DEPLOYED:
            continue  # of an earlier build, which does not say what followed: the cause has it
        message = printable(failure.error.message or failure.error.kind or "no reason is known").splitlines()[0].removesuffix(".")
        stopped = " (as `millrace down` does)" if message == STOPPED else ""
        place = f" on {failure.task_manager}" if failure.task_manager else ""
        follows = f": {printable(decision_text(decided))}" if decided is not None else ""
        indent = "  " if decided is None or decided.concurrent_with is None else "    and "
        when_ = f"{when(failure.at_ms)}  " if decided is not None else ""
        yield f"{indent}{when_}{label(task.task)}[{subtask.subtask}] attempt {failure.attempt}{place}: {message}{stopped}{follows}"


def cause_lines(cause: Fault | None) -> list[str]:
    """Why a job failed, where, and what to look at."""
    if cause is None:
        return []
    places = []
    if cause.vertex:
        places.append(f"vertex {cause.vertex}")
    elif cause.task:
        places.append(f"task {label(cause.task)}")
    if cause.file:
        places.append(cause.file)
    if cause.line is not None:
        column = f", column {cause.column}" if cause.column is not None else ""
        places.append(f"line {cause.line}{column}")
    where = f" ({', '.join(places)})" if places else ""
    condition = f" [{cause.condition}]" if cause.condition else ""
    return [printable(f"failed{where}{condition}: {cause.message or cause.kind or 'no cause is known'}")]


def print_result(result: Result, form: str) -> None:
    """`table`, `json` (a list of objects) or `csv`."""
    if form == "json":
        print_json([dict(zip(unique(result.columns), row, strict=True)) for row in result.rows])
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows([[_cell(value, "") for value in row] for row in result.rows])
    elif not _rows_table(result.columns, result.rows):
        print("cells are cut: --format json and --format csv show them whole", file=sys.stderr)
    if result.truncated:
        _print_cut(result)


def print_head(result: Result, more: str | None) -> None:
    """The first HEAD_ROWS rows as a table, and the command that shows more, if there is one."""
    if not _rows_table(result.columns, result.rows[:HEAD_ROWS]):
        print("cells are cut" + (f": {more} --format json shows them whole" if more else ""), file=sys.stderr)
    if len(result.rows) > HEAD_ROWS:
        of = f"the first {HEAD_ROWS} of {len(result.rows)} rows{' and more' * result.truncated}"
        print(of + (f": {more}" if more else ""), file=sys.stderr)
    elif result.truncated:
        _print_cut(result)


def _rows_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> bool:
    return table(columns, ([_cell(value, "NULL") for value in row] for row in rows))


def _print_cut(result: Result) -> None:
    print(f"these are the first {len(result.rows)} rows; all of them are where a sink writes them", file=sys.stderr)


def unique(columns: Sequence[str]) -> list[str]:
    """Names as keys of an object: a repeated one gets a number that makes it another name than all."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names or (number > 1 and name in columns):
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _cell(value: object, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value)
