"""What `millrace up` is told is checked before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from deploy.cli import app as program
from services.task_manager.settings import LEAST_HEAP_MB


def test_a_heap_with_which_spark_does_not_start_is_refused_at_the_prompt() -> None:
    """The stack came up, and its slots were broken: Spark says why in the logs of each alone."""
    told = CliRunner().invoke(program.app, ["up", "--stack", "none", "--heap-mb", str(LEAST_HEAP_MB - 1)])
    assert told.exit_code == 2 and str(LEAST_HEAP_MB) in told.output and "--heap-mb" in told.output


def test_a_folder_that_is_no_dashboard_is_refused_at_the_prompt(tmp_path: Path) -> None:
    told = CliRunner().invoke(program.app, ["up", "--stack", "none", "--web", "--flink-dashboard", str(tmp_path)])
    assert told.exit_code == 2 and "index.html" in told.output
    (tmp_path / "index.html").touch()
    told = CliRunner().invoke(program.app, ["up", "--stack", "none", "--flink-dashboard", str(tmp_path)])
    assert told.exit_code == 2 and "--web" in told.output


def test_a_storage_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    """In a process of its own, as a user starts it: it would have set up logs, and printed a traceback."""
    done = subprocess.run(
        [sys.executable, "-c", "from deploy.cli import main; main()", "history", "--storage", "nosuch://bucket/x"],
        **{"cwd": tmp_path, "capture_output": True, "text": True, "check": False, "timeout": 120},
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "history: nosuch://bucket/x: cannot be opened (Protocol not known: nosuch); use a folder, or install what this URL needs"
    )
    assert "Traceback" not in done.stdout + done.stderr
