"""Commands that a user sits before: what they start ends with them, whether they come to their end or are interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from deploy.local.downloads import CHECKOUT
from deploy.local.stack import Stack, home
from tests.bench.clusters import environment
from tests.end_to_end.running import processes_of, until

PROGRAM = (sys.executable, "-c", "from deploy.cli import main; main()")


class Command:
    """A command of the program, in the background."""

    def __init__(self, *words: str, background: bool = False) -> None:
        """`background`: as a shell without a terminal starts it there: Ctrl-C is ignored."""
        ignore = (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if background else None
        self.process = subprocess.Popen(
            [*PROGRAM, *words], cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=ignore,
        )  # fmt: skip
        self.said: list[str] = []

    @property
    def demo(self) -> Stack:
        """The stack of a demo: it bears its process's number."""
        return Stack(f"demo-{self.process.pid}")

    @property
    def application(self) -> Stack:
        """The same of `run-application`, or where there is none, or none any more, a name that nothing has."""
        name = f"application-{self.process.pid}-"
        return Stack(next((each.name for each in (home() / "stacks").glob(f"{name}*")), f"{name}none"))

    def until(self, words: str) -> None:
        """Reads what it says up to the line that has these words."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            if words in line:
                return
        raise AssertionError(f"it never said {words!r}, but: {''.join(self.said)}")

    def end(self) -> tuple[int, str, str]:
        """(exit code, stdout, stderr), once it has ended. However long it takes: the test's own limit ends one that hangs."""
        out, err = self.process.communicate()
        return self.process.returncode, out, "".join(self.said) + err


@pytest.fixture
def commands(stacks_home: Path) -> Iterator[list[Command]]:
    made: list[Command] = []
    yield made
    for each in made:
        each.process.kill()
        each.process.wait()
        for stack in (each.demo, each.application):
            stack.down(purge=True)  # of one that did not come to its end


def start(commands: list[Command], *words: str, background: bool = False) -> Command:
    commands.append(Command(*words, background=background))
    return commands[-1]


def test_ctrl_c_ends_a_stack_in_the_foreground_and_its_data_stays(commands: list[Command]) -> None:
    up = start(commands, "up", "--stack", "front", "--task-managers", "0")
    up.until("Ctrl-C stops it.")
    stack = Stack("front")
    assert stack.status()["state"] == "ready"
    up.process.send_signal(signal.SIGINT)
    code, _, err = up.end()
    assert (code, err.splitlines()[-1]) == (0, "stopping")
    assert stack.status()["state"] == "stopped"
    assert processes_of(stack.folder) == []
    assert (stack.folder / "etcd").is_dir()


@pytest.mark.long
def test_an_application_has_its_result_as_its_exit_code_and_leaves_nothing(commands: list[Command], tmp_path: Path) -> None:
    """As docs/submitting.md has it."""
    (tmp_path / "hello.yaml").write_text('name: hello\nvertices: {hello: {sql: "SELECT \'Hello\' AS word"}}\n')
    done = start(commands, "run-application", str(tmp_path / "hello.yaml"), "--slots", "1", "--heap-mb", "512")
    code, out, err = done.end()
    assert (code, "Hello" in out, "FINISHED" in err) == (0, True, True), err
    assert not done.application.folder.exists() and processes_of(home() / "stacks" / f"application-{done.process.pid}-") == []


@pytest.mark.long
def test_ctrl_c_cancels_an_application_and_ends_all_of_it(commands: list[Command], tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(f"import pathlib, time\npathlib.Path({str(tmp_path / 'runs')!r}).touch()\ntime.sleep(600)\n")
    (tmp_path / "long.yaml").write_text("name: long\nvertices: {long: {spark_app: {script: long.py}}}\n")
    run = start(commands, "run-application", str(tmp_path / "long.yaml"), "--slots", "1", "--heap-mb", "512")
    until("the script's first line", (tmp_path / "runs").exists)
    folder = run.application.folder
    assert folder.is_dir() and processes_of(folder)
    run.process.send_signal(signal.SIGINT)
    code, _, err = run.end()
    assert code == 130 and "is CANCELED" in err, err
    assert (processes_of(folder), folder.exists()) == ([], False)


@pytest.mark.long
def test_the_demo_shows_its_result_and_leaves_nothing_but_that(commands: list[Command], tmp_path: Path) -> None:
    demo = start(commands, "demo", "--out", str(tmp_path / "out"))
    code, out, err = demo.end()
    assert code == 0, err
    assert "ExpressJet" in out and f"the same rows are in {tmp_path / 'out'} as Parquet" in err
    assert len(pd.read_parquet(tmp_path / "out")) > 30
    assert (processes_of(demo.demo.folder), demo.demo.folder.exists()) == ([], False)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_demo_or_its_end_in_the_background_ends_all_that_it_started(
    commands: list[Command], tmp_path: Path, number: signal.Signals
) -> None:
    demo = start(commands, "demo", "--out", str(tmp_path / "out"), background=number == signal.SIGTERM)
    demo.until("job flight-delays")
    folder = demo.demo.folder
    assert folder.is_dir() and processes_of(folder)
    demo.process.send_signal(number)
    code, _, err = demo.end()
    assert (code, err.splitlines()[-1]) == (130, "stopping"), err
    assert (processes_of(folder), folder.exists()) == ([], False)
