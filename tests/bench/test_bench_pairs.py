"""Two builds beside each other: whose turn it is, which jobs count, and what is said of a stack that ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.bench import pairs
from tests.bench.pairs import AT_A_TURN, WARM_UP, app

CLUSTERS = """
import contextlib
@contextlib.contextmanager
def cluster(name, say, slots, simulated):
    yield type("Running", (), dict(slots=slots, settle=lambda self: note("settled")))()
    note("ended")
def note(what):
    with open({turns!r}, "a") as turns: turns.write("{build} " + what + chr(10))
"""
RUNNING = """
from .clusters import note
jobs = []
def submit(running):
    jobs.append(running.slots)
    note("job")
    if len(jobs) > {most}: raise SystemExit("no more")
    return (9.0, 9.0) if len(jobs) % {every} == 1 else (0.01, {running_s})
"""


def stack_of(folder: Path, build: str, running_s: float, most: int = 1000) -> Path:
    """A checkout whose jobs take so long, and the first one of each turn much longer."""
    python = folder / build / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    package = folder / build / "tests/bench"
    package.mkdir(parents=True)
    (folder / build / "shared").mkdir()
    (package / "clusters.py").write_text(CLUSTERS.format(turns=str(folder / "turns"), build=build))
    (package / "running.py").write_text(RUNNING.format(running_s=running_s, most=most, every=AT_A_TURN))
    return folder / build


def turns_of(folder: Path) -> list[str]:
    return (folder / "turns").read_text().splitlines()


def test_both_are_asked_by_turns_and_the_first_job_of_a_turn_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "WARM_UP", AT_A_TURN)
    monkeypatch.setattr(pairs, "CHECKOUT", stack_of(tmp_path, "new", 0.03))
    done = CliRunner().invoke(app, [str(stack_of(tmp_path, "old", 0.02)), "--turns", "2"])
    assert done.exit_code == 0, done.output
    shown = {line.strip().split("  ")[0]: line.split() for line in done.output.splitlines()}
    assert shown["submit -> RUNNING"][3:] == ["20", "ms", "30", "ms", "1.50", "x"]
    assert shown["submit -> accepted"][3:] == ["10", "ms", "10", "ms", "1.00", "x"]
    order = [line.split()[0] for line in turns_of(tmp_path) if line.endswith("job")][2 * AT_A_TURN :: AT_A_TURN]
    assert order == ["new", "old", "old", "new"]
    assert [line for line in turns_of(tmp_path) if line.endswith("ended")] == ["old ended", "new ended"]
    assert not [line for line in turns_of(tmp_path) if line.endswith("settled")]


def test_real_slots_rest_before_the_next_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "WARM_UP", 1)
    monkeypatch.setattr(pairs, "CHECKOUT", stack_of(tmp_path, "new", 0.03))
    done = CliRunner().invoke(app, [str(stack_of(tmp_path, "old", 0.02)), "--turns", "1", "--real"])
    assert done.exit_code == 0, done.output
    assert [line.endswith("settled") for line in turns_of(tmp_path)[:-2]] == [False, True] * (len(turns_of(tmp_path)[:-2]) // 2)


def test_a_stack_that_ends_is_named_and_the_other_one_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "CHECKOUT", stack_of(tmp_path, "new", 0.03, most=WARM_UP))
    done = CliRunner().invoke(app, [str(stack_of(tmp_path, "old", 0.02)), "--turns", "1"])
    assert f"the stack of {tmp_path / 'new'} has ended" in str(done.exception)
    assert "old ended" in turns_of(tmp_path)
