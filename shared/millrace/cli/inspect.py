"""`millrace inspect`: what a job's running attempts are doing at this moment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import StackOption, connected
from .options import JobArgument, JsonOption

if TYPE_CHECKING:
    from millrace.core.messages.client import InspectedAttempt


def inspect(
    job: JobArgument,
    task: Annotated[str, typer.Option(metavar="VERTEX", help="Only the task with this vertex.")] = "",
    subtask: Annotated[int | None, typer.Option(min=0, help="Only this subtask, counted from 0.")] = None,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Ask a job's running attempts what they are doing at this moment: Spark stages, tasks, rows, and the Python stack.

    millrace inspect JOB --task orders --subtask 3
    """
    with connected(stack) as millrace:
        reported = millrace.report_now(job, task, subtask)
    from .tables import print_json

    if as_json:
        print_json(reported.model_dump(exclude={"type", "version", "correlation"}))
        return
    for attempt in reported.attempts:
        print(*_lines(attempt), sep="\n")
    if reported.running > len(reported.attempts):
        print(f"{len(reported.attempts)} of {reported.running} running attempts; others with --task and --subtask", file=sys.stderr)
    if reported.reason:
        print(f"nothing to look at: {reported.reason}", file=sys.stderr)
    if reported.silent:
        print(f"{reported.silent} does not answer, and nobody else knows; running attempts go on meanwhile", file=sys.stderr)


def _lines(attempt: InspectedAttempt) -> Iterator[str]:
    from .words import label, one_line, progress_line

    yield f"{label(attempt.task)}[{attempt.subtask}] attempt {attempt.attempt} on {attempt.task_manager}"
    status = attempt.status
    if status is None:
        yield f"  no answer: {attempt.no_answer}"
        return
    progress = progress_line(status.progress.model_dump())
    yield f"  for {status.elapsed_ms / 1000:.1f} s; {progress or 'no Spark job yet'}"
    for stage in status.stages:
        yield f"  stage {stage.stage}: {stage.tasks_done}/{stage.tasks_total} tasks  {one_line(stage.name)}"
    yield "  Python, the innermost call last:"
    for frame in status.stack:
        yield f"    {one_line(frame)}"
