"""Two builds measured by turns: what is compared, in which order, and what is said of a figure that one of them cannot measure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.bench import builds
from tests.bench.builds import app, rows_of

ROOT = Path(__file__).parents[2]
MEASURES = """
import json, os, pathlib, sys
name, out = sys.argv[1], pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
with open({turns!r}, "a") as turns: turns.write("{build} " + name + " " + os.environ["MILLRACE_HOME"] + "\\n")
if name in {failing!r}: sys.exit(1)
out.mkdir(parents=True, exist_ok=True)
rows = {{"submit -> RUNNING": "{ms} ms", "accepted": "{rate} a second", "only {build}": "7 MB"}}
(out / (name + ".json")).write_text(json.dumps(dict(rows=[dict(figure=figure, p50=p50) for figure, p50 in rows.items()])))
"""


def checkout(folder: Path, build: str, ms: str, rate: str, failing: tuple[str, ...] = ()) -> Path:
    """A checkout whose benchmark says these numbers, and notes in `turns` that it was asked."""
    python = folder / build / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    package = folder / build / "tests/bench"
    package.mkdir(parents=True)
    text = MEASURES.format(turns=str(folder / "turns"), build=build, ms=ms, rate=rate, failing=failing)
    (package / "__main__.py").write_text(text)
    (package / "__init__.py").touch()
    return folder / build


def test_each_build_has_its_turn_and_the_new_one_is_told_in_times_of_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = checkout(tmp_path, "old", "20.0", "1,000")
    monkeypatch.setattr(builds, "CHECKOUT", checkout(tmp_path, "new", "5.0", "3,000"))
    done = CliRunner().invoke(app, [str(old), "running", "--rounds", "2"])
    assert done.exit_code == 0, done.output
    turns = [line.split() for line in (tmp_path / "turns").read_text().splitlines()]
    assert [turn[0] for turn in turns] == ["old", "new", "old", "new"]
    assert len({home for _, _, home in turns}) == 2
    shown = {line.strip().split("  ")[0]: line.split() for line in done.output.splitlines()}
    assert shown["submit -> RUNNING"][3:] == ["20", "ms", "5", "ms", "0.25", "x"]
    assert shown["accepted"][1:] == ["1,000", "a", "second", "3,000", "a", "second", "3.00", "x", "more", "is", "better"]
    assert shown["only old"][2:] == ["7", "MB", "-"] and shown["only new"][2:] == ["-", "7", "MB"]


def test_what_one_build_cannot_measure_is_said_and_the_others_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = checkout(tmp_path, "old", "20.0", "1,000", failing=("burst",))
    monkeypatch.setattr(builds, "CHECKOUT", checkout(tmp_path, "new", "5.0", "3,000"))
    done = CliRunner().invoke(app, [str(old), "burst", "running", "--rounds", "1"])
    assert done.exit_code == 1
    assert f"could not be measured: burst in {old}" in done.output and "0.25 x" in done.output


def test_rows_of_a_figure() -> None:
    rows = [{"figure": "a", "p50": "1,234 ms"}, {"figure": "b", "p50": "idle 56 MB"}, {"figure": "c", "p50": "nothing"}]
    assert rows_of(rows) == [("a", 1234.0, "ms"), ("b", 56.0, "MB")]


def test_after_ctrl_c_what_was_measured_is_shown(tmp_path: Path) -> None:
    """And the benchmark under way has time to stop its stack."""
    old, new = checkout(tmp_path, "old", "20.0", "1,000"), checkout(tmp_path, "new", "5.0", "3,000")
    slow = "import pathlib, signal, sys, time\nended = pathlib.Path(sys.argv[0]).with_name('ended')\n"
    slow += "def end(*_):\n    time.sleep(0.3)\n    ended.touch()\n    sys.exit(1)\n"
    slow += "signal.signal(signal.SIGTERM, end)\nended.with_name('begun').touch()\ntime.sleep(600)\n"
    package = new / "tests/bench"
    (package / "__main__.py").write_text(slow)
    code = f"from pathlib import Path\nfrom tests.bench import builds\nbuilds.CHECKOUT = Path({str(new)!r})\nbuilds.app()"
    command = [sys.executable, "-c", code, str(old), "running"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    while not (package / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130 and (package / "ended").exists()
    assert "20 ms" in output and "only old" in output
