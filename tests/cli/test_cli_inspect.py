"""Progress of running attempts as people read it, and `millrace inspect`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli import inspect as command
from millrace.cli.app import app
from millrace.cli.progress import PROGRESS_S, View, show_progress
from millrace.cli.words import progress_line, short
from millrace.core.messages import client
from millrace.core.messages.progress import AttemptProgress
from tests.core.of_progress import progress, status


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0 k"), (1_234_567, "1.2 M"), (34_000_000, "34 M"), (2 * 10**12, "2000 G")],
)
def test_a_number_is_short(number: int, text: str) -> None:
    assert short(number) == text


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({}, ""),
        ({"stages_total": 1, "tasks_total": 2}, "stages 0/1, tasks 0/2"),
        (
            {"stages_done": 2, "stages_total": 5, "tasks_done": 140, "tasks_failed": 3, "tasks_total": 200, "rows_read": 1_200_000,
             "rows_per_s": 300_000},
            "stages 2/5, tasks 140/200 (3 failed), 1.2 M rows, 300 k rows/s",
        ),
        (
            {"stages_total": 1, "tasks_total": 2, "rows_read": 9, "bytes_read": 950, "bytes_written": 34_000_000, "bytes_shuffled": 1_200},
            "stages 0/1, tasks 0/2, 9 rows, 950 B read, 34 MB written, 1.2 kB shuffled",
        ),
    ],
)  # fmt: skip
def test_progress_is_a_short_line(values: dict[str, int], line: str) -> None:
    assert progress_line(progress(**values).model_dump()) == line


def test_bytes_that_a_build_does_not_count_are_not_shown() -> None:
    known = progress(stages_total=1, tasks_total=2).model_dump(exclude=("bytes_read", "bytes_written", "bytes_shuffled"))
    assert progress_line(AttemptProgress.model_validate(known).model_dump()) == progress_line(known) == "stages 0/1, tasks 0/2"


def event(tasks_done: int) -> dict[str, Any]:
    values = progress(tasks_done, stages_total=1, tasks_total=9).model_dump()
    return {"type": "AttemptsProgressing", "attempts": [{"task": "t", "subtask": 1, "attempt": 1, "progress": values}]}


def test_a_view_shows_a_running_subtask_until_its_attempt_ends() -> None:
    from rich.console import Console

    view, console = View("j"), Console(width=100, record=True)
    view.add({"type": "JobAccepted", "tasks": [{"task": "t", "parallelism": 2}]})
    view.add(event(4))
    console.print(view.render(1))
    assert "[1]" in (shown := console.export_text()) and "stages 0/1, tasks 4/9" in shown
    view.add({"type": "AttemptStateChanged", "task": "t", "subtask": 1, "attempt": 1, "state": "FAILED"})
    console.print(view.render(1))
    assert "tasks 4/9" not in console.export_text()


def test_lines_tell_progress_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.0, 2.0, PROGRESS_S + 1, PROGRESS_S + 2, PROGRESS_S + 3])
    monkeypatch.setattr("millrace.cli.progress.time.monotonic", lambda: next(times))
    events = iter([event(1), event(2), event(3), event(4), {"type": "JobFinished"}])
    assert show_progress("j", events, lambda: None).status == "FINISHED"
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["t[1] stages 0/1, tasks 3/9", "FINISHED"]


def test_an_attempt_without_a_spark_job_yet_is_worth_no_line() -> None:
    values = progress(0).model_dump()
    assert values["stages_total"] == 0
    at_first = {"task": "t", "subtask": 0, "attempt": 1, "progress": values}
    (other,) = event(3)["attempts"]
    assert View("j").add({"type": "AttemptsProgressing", "attempts": [at_first]}) is None
    assert View("j").add({"type": "AttemptsProgressing", "attempts": [at_first, other]}) == "t[1] stages 0/1, tasks 3/9"


class Cluster:
    def __init__(self, reported: client.JobReported) -> None:
        self.reported, self.asked = reported, []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None: ...

    def report_now(self, *asked: Any) -> client.JobReported:
        self.asked.append(asked)
        return self.reported


def inspected(reported: client.JobReported, monkeypatch: pytest.MonkeyPatch, *options: str) -> Any:
    cluster = Cluster(reported)
    monkeypatch.setattr(command, "connected", lambda stack: cluster)
    done = CliRunner().invoke(app, ["inspect", "j", *options])
    assert done.exit_code == 0, done.output
    return done, cluster.asked


def attempt(**more: Any) -> client.InspectedAttempt:
    return client.InspectedAttempt(task="t", subtask=1, attempt=2, task_manager="tm-1", running_ms=5, **more)


def test_inspect_shows_what_each_attempt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = [attempt(status=status(2)), attempt(no_answer="it has just ended")]
    reported = client.JobReported(correlation="1", job="j", attempts=attempts, running=3)
    done, asked = inspected(reported, monkeypatch, "--task", "t", "--subtask", "1")
    assert asked == [("j", "t", 1)]
    assert done.stdout.splitlines() == [
        "t[1] attempt 2 on tm-1",
        "  for 1.5 s; no Spark job yet",
        "  stage 3: 2/5 tasks  count at job.py:4",
        "  Python, the innermost call last:",
        "    job.py:4 main",
        "t[1] attempt 2 on tm-1",
        "  no answer: it has just ended",
    ]
    assert done.stderr == "2 of 3 running attempts; others with --task and --subtask\n"
    done, _ = inspected(reported, monkeypatch, "--json")
    assert json.loads(done.stdout)["attempts"][0]["status"]["stack"] == ["job.py:4 main"]


def test_inspect_says_why_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = inspected(client.JobReported(correlation="1", job="j", reason="the job has ended: it is FAILED"), monkeypatch)
    assert (asked, done.stdout, done.stderr) == ([("j", "", None)], "", "nothing to look at: the job has ended: it is FAILED\n")
    done, _ = inspected(client.JobReported(correlation="1", job="j", silent="job-master/0"), monkeypatch)
    assert done.stderr.startswith("job-master/0 does not answer, and nobody else knows")
