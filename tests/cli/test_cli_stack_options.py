"""What `millrace up` is told is checked before anything is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app as program
from deploy.cli.stack_commands import _print_living, _service_rows, _task_managers, _task_managers_now
from deploy.local.stack import Options, Stack
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


def test_settings_that_cannot_be_used_are_refused_at_the_prompt_also_when_they_are_those_of_the_last_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    own = tmp_path / "own.yaml"
    own.write_text("heartbeat.timout: 5 s\n")
    told = CliRunner().invoke(program.app, ["up", "--stack", "none", "--config", str(own)])
    assert told.exit_code == 2 and "did you mean" in told.output and "--config" in told.output
    stack = Stack("none")
    stack.folder.mkdir(parents=True)
    stack.write_facts({"options": {"config": str(tmp_path / "gone.yaml")}})
    assert stack.options().config == str(tmp_path / "gone.yaml")
    told = CliRunner().invoke(program.app, ["up", "--stack", "none"])
    assert told.exit_code == 2 and "cannot be read" in " ".join(told.output.split())


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


@pytest.mark.parametrize(
    ("known", "before", "given", "least", "most"),
    [
        (False, (1, None), (None, None, None), 1, 4),
        (False, (1, None), (None, 0, None), 0, 4),
        (False, (1, None), (None, 6, None), 6, 6),
        (False, (1, None), (None, None, 3), 1, 3),
        (False, (1, None), (2, None, None), 2, None),
        (True, (0, 5), (None, None, None), 0, 5),
        (True, (0, 5), (None, 2, None), 2, 5),
        (True, (4, 5), (None, None, 3), 3, 3),
        (True, (2, None), (None, 0, None), 0, 4),
        (True, (0, 5), (0, None, None), 0, None),
    ],
)  # fmt: skip
def test_how_many_task_managers_there_are(
    monkeypatch: pytest.MonkeyPatch, known: bool, before: tuple[int, int | None], given: tuple[Any, ...], least: int, most: int | None
) -> None:
    """At the first time as many as the machine holds; later what was given last."""
    monkeypatch.setattr("deploy.agent.machine_holds", lambda *machine: 4)
    options = {**Options(task_managers=before[0], task_managers_most=before[1]).__dict__}
    options |= _task_managers(options, known, *given)
    assert (options["task_managers"], options["task_managers_most"]) == (least, most)


@pytest.mark.parametrize("words", [["--task-managers", "1", "--min", "0"], ["--min", "3", "--max", "2"]])
def test_numbers_of_task_managers_that_contradict_each_other_are_refused(words: list[str]) -> None:
    told = CliRunner().invoke(program.app, ["up", "--stack", "none", *words])
    assert told.exit_code == 2 and "--m" in told.output


def test_a_scope_that_waits_for_another_build_says_for_which() -> None:
    scopes = [
        {"scope": "job-master/0", "role": "leader", "offset": 7, "waits_for": ""},
        {"scope": "job-master/1", "role": "starting", "waits_for": "0.1.0+5e59682c"},
    ]
    services = {"job-master": {"pid": 4, "restarts": 1, "health": {"status": "ok", "scopes": scopes}}}
    assert list(_service_rows(services)) == [
        ("job-master", 4, "job-master/0", "leader", 7, 1),
        ("job-master", 4, "job-master/1", "starting, waits for build 0.1.0+5e59682c", None, 1),
    ]


def test_a_stack_is_asked_whatever_cluster_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down` named the jobs of that one, `status` counted its TaskManagers, and `demo` ran its pipeline there."""
    asked = []

    class Client:
        def __init__(self, bootstrap: str, **more: Any) -> None:
            asked.append(bootstrap)

        def __enter__(self) -> Any:
            return SimpleNamespace(overview=lambda: SimpleNamespace(provided=None), list=lambda *_, **__: SimpleNamespace(total=0))

        def __exit__(self, *_: object) -> None: ...

    def up(self: Stack, *_: Any, **__: Any) -> dict[str, Any]:
        self.folder.mkdir(parents=True)
        return self.facts() | {"kafka_bootstrap": "own:1"}

    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "another:1")
    monkeypatch.setattr("millrace.client.Millrace", Client)
    monkeypatch.setattr(Stack, "facts", lambda self: {"state": "ready", "kafka_bootstrap": "own:1"})
    monkeypatch.setattr(Stack, "supervisor", lambda self: object())
    _print_living(Stack("default"), purge=False)
    assert _task_managers_now(Stack("default")) is None
    monkeypatch.setattr(Stack, "up", up)
    monkeypatch.setattr(Stack, "down", lambda self, purge: True)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv("MILLRACE_JAVA_OPTIONS", "")
    monkeypatch.setattr("deploy.local.flights.flights_folder", lambda _: tmp_path)
    monkeypatch.setattr("millrace.cli.submit.check_loaded", lambda _: None)
    monkeypatch.setattr("millrace.cli.submit.send", lambda *_: None)
    monkeypatch.setattr("millrace.cli.submit.follow", lambda *_, **__: 0)
    assert CliRunner().invoke(program.app, ["demo", "--out", str(tmp_path / "out")]).exit_code == 0
    assert asked == ["own:1"] * 3
