"""`millrace run-application`, without the stack that it starts."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deploy.cli import app as program
from deploy.cli.application import KEPT, PREFIX, _sweep
from deploy.local.errors import LocalError
from millrace.cli.exits import Exit
from tests.docs.commands import assert_taken

NAME = f"{PREFIX}{os.getpid()}-0a0b"
GRAPH = 'name: one\nvertices:\n  one: {sql: "SELECT 1 AS a"}\n'


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the command does with its stack, in order; how it comes up, and how its job ends."""
    from deploy.local import stack as local

    did: list[Any] = []
    found = SimpleNamespace(did=did, up=lambda: None, code=0, folder=tmp_path / "stacks" / NAME, wait="CANCELED")

    class Stack(local.Stack):
        def up(self, options: Any, progress: Any, foreground: bool = False) -> dict[str, Any]:
            did.append(("up", self.name, options.slots, foreground))
            self.folder.mkdir(parents=True)
            (self.folder / "lock").touch()
            found.up()
            return {"warnings": ["a laptop's etcd"], "kafka_bootstrap": "own:1"}

        def down(self, purge: bool = False) -> bool:
            did.append(("down", purge))
            return True

    class Client:
        def __init__(self, bootstrap: str, token: str, timeout_s: float) -> None:
            assert (bootstrap, bool(token)) == ("own:1", True)

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None: ...

        def cancel(self, job: str) -> None:
            did.append(("cancel", job))

        def wait(self, job: str, timeout_s: float) -> Any:
            if isinstance(found.wait, Exception):
                raise found.wait
            return SimpleNamespace(status=found.wait)

    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    monkeypatch.setattr(local, "Stack", Stack)
    monkeypatch.setattr("deploy.local.java.find_java", lambda: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("secrets.token_hex", lambda _: "0a0b")
    monkeypatch.setattr("millrace.client.Millrace", Client)
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "another:1")  # of a cluster that is not meant
    monkeypatch.setattr("millrace.cli.submit.send", lambda *_: did.append("send") or SimpleNamespace(id="one-1"))
    monkeypatch.setattr("millrace.cli.submit.follow", lambda *_, **named: did.append(("follow", named["lives_on"])) or found.code)
    (tmp_path / "graph.yaml").write_text(GRAPH)
    monkeypatch.chdir(tmp_path)
    return found


def run(*words: str) -> int:
    return program.guarded(lambda: program.app(["run-application", *words], prog_name="millrace"))


@pytest.mark.parametrize("code", [Exit.FINISHED, Exit.FAILED, Exit.CANCELED, Exit.UNKNOWN, 77])
def test_a_job_has_a_stack_of_its_own_and_its_end_is_the_exit_code(scene: SimpleNamespace, code: int) -> None:
    scene.code = code
    assert run("graph.yaml", "--slots", "3") == code
    assert scene.did == [("up", NAME, 3, True), "send", ("follow", False), ("down", True)]


def test_a_graph_that_is_wrong_starts_nothing(scene: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("name: x\nvertices: {}\n")
    assert (run("wrong.yaml"), run("no such file.yaml"), scene.did) == (Exit.INVALID, Exit.INVALID, [])


def test_services_that_do_not_start_leave_nothing(scene: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise LocalError("The disk is full.")

    scene.up = fails
    assert run("graph.yaml") == Exit.UNAVAILABLE
    assert scene.did[-1] == ("down", True)
    assert "millrace: The disk is full. Its folder is deleted; with --keep it stays.\n" in capsys.readouterr().err
    assert run("graph.yaml", "--keep") == Exit.UNAVAILABLE
    assert "millrace: The disk is full.\n" in capsys.readouterr().err


@pytest.mark.parametrize(("wait", "told"), [
    ("CANCELED", "job one-1 is CANCELED"), (TimeoutError("it has not ended"), "job one-1 ends with its services: it has not ended"),
])  # fmt: skip
def test_ctrl_c_cancels_the_job_and_ends_all(
    scene: SimpleNamespace, capsys: pytest.CaptureFixture[str], wait: Any, told: str
) -> None:
    scene.code, scene.wait = Exit.INTERRUPTED, wait
    assert run("graph.yaml") == Exit.INTERRUPTED
    assert scene.did[-2:] == [("cancel", "one-1"), ("down", True)] and told in capsys.readouterr().err


def test_ctrl_c_while_it_starts_ends_all(scene: SimpleNamespace) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    scene.up = interrupted
    assert (run("graph.yaml"), scene.did[-1]) == (Exit.INTERRUPTED, ("down", True))


def test_its_folder_can_be_kept(scene: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("graph.yaml", "--keep", "--quiet") == 0
    assert scene.did[-1] == ("down", False) and (scene.folder / KEPT).exists()
    storage = scene.folder / "storage"
    command = f"millrace history --storage {storage}"
    assert capsys.readouterr().err == f"kept: {scene.folder}; look at it: {command}\n"
    assert_taken(command)


def test_what_a_killed_one_left_goes_at_the_next_run_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    dead = 2**22 + 7  # above any process number
    mine, of_parent, kept = f"{PREFIX}{os.getpid()}-0a", f"{PREFIX}{os.getppid()}-0a", f"{PREFIX}{dead + 1}-0a"
    # One with our number is of a process before us: ours has not begun.
    names = {f"{PREFIX}{dead}-0a": False, mine: False, of_parent: True, kept: True, f"{PREFIX}mine": True, "default": True}
    for name in names:
        (tmp_path / "stacks" / name).mkdir(parents=True)
        (tmp_path / "stacks" / name / "lock").touch()
    (tmp_path / "stacks" / kept / KEPT).touch()
    _sweep(tmp_path / "stacks")
    assert {name: (tmp_path / "stacks" / name).exists() for name in names} == names


def test_what_runs_in_another_container_on_the_same_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process number means nothing here: a checkout that two containers share lost the data of a running application."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    dead = 2**22 + 7
    alive, ended, begun, old = (tmp_path / "stacks" / f"{PREFIX}{dead}-{name}" for name in ("alive", "ended", "begun", "old"))
    for folder in (alive, ended, begun, old):
        folder.mkdir(parents=True)
    (ended / "lock").touch()
    os.utime(old, (0, 0))
    with open(alive / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as its supervisor has it
        _sweep(tmp_path / "stacks")
    assert [alive.exists(), ended.exists(), begun.exists(), old.exists()] == [True, False, True, False]
