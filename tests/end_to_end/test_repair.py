"""docs/restarts.md: a job whose last vertex fails by its code is repaired with the mended file, and nothing of the others runs again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.running import RunningStack
from tests.end_to_end.test_again import millrace

TEXT = (Path(__file__).parents[2] / "docs" / "restarts.md").read_text()
FILES = {name: text for name, text in re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", TEXT, re.DOTALL)}


@pytest.fixture
def running(replicated: RunningStack) -> RunningStack:
    """Not the one that is recorded: what a repair keeps is told by digests of what is redacted, so a redacted recording folds otherwise."""
    return replicated


def states(running: RunningStack, job: str) -> dict[str, list[tuple[str, int, str | None]]]:
    shown = json.loads(millrace(running, "show", job, "--json").stdout)
    return {
        task["task"]: [(each["state"], each["attempt"], each.get("kept_from")) for each in task["subtasks"]]
        for task in shown["detail"]["tasks"]
    }


def launched(running: RunningStack, job: str) -> set[str]:
    """The tasks of which an attempt was in a slot."""
    lines = millrace(running, "events", job, "--json").stdout.splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return {event["task"] for event in events if event["type"] == "AttemptStateChanged"}


@pytest.mark.long
def test_what_had_finished_does_not_run_again(running: RunningStack, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "sales").mkdir()
    for number, rows in enumerate(("east,1\nwest,2\neast,0\n", "west,3\nnorth,4\n")):
        (tmp_path / "sales" / f"{number}.csv").write_text(f"shop,amount\n{rows}")
    failed = millrace(running, "submit", tmp_path / "sales.yaml", "--job", "sales-broken", "--wait")
    assert failed.returncode == 1 and "amuont" in failed.stderr, failed.stderr
    before = states(running, "sales-broken")
    assert [state for state, _, _ in (*before["sales"], *before["cleaned"])] == ["FINISHED"] * 4, before

    (tmp_path / "ranking.py").write_text(FILES["ranking.py"].replace("amuont", "amount"))
    again = millrace(running, "repair", "sales-broken", "--file", tmp_path / "ranking.py", "--job", "sales-mended", "--wait")
    assert again.returncode == 0, again.stderr
    assert sorted(line.split() for line in again.stdout.splitlines()[1:]) == [["east", "1"], ["north", "4"], ["west", "5"]], again.stdout
    assert "sales: 2 subtasks kept from sales-broken" in again.stderr
    after = states(running, "sales-mended")
    assert after["sales"] == after["cleaned"] == [("FINISHED", 0, "sales-broken")] * 2
    assert [(state, attempt) for state, attempt, _ in after["ranked"]] == [("FINISHED", 1)] * 2
    assert launched(running, "sales-mended") == {"@plan", "ranked"}
    assert "again     repairs sales-broken\n" in millrace(running, "show", "sales-mended").stdout

    finished = millrace(running, "repair", "sales-mended")
    assert finished.returncode == 2 and "is FINISHED: there is nothing to repair" in finished.stderr, finished.stderr
    wrong = millrace(running, "repair", "sales-broken", "--file", tmp_path / "sales.yaml")
    assert wrong.returncode == 2 and "sales.yaml is no file of this job; there are: cleaning.py, ranking.py" in wrong.stderr


def test_a_mended_graph_takes_the_place_of_the_stored_one(running: RunningStack, tmp_path: Path) -> None:
    b = "sql: WRONG\n    parallelism: 2\n    inputs: {a: hash(id)}\n"
    graph = f"name: two\nvertices:\n  a: {{sql: SELECT id FROM range(10)}}\n  b:\n    {b}"
    mended = tmp_path / "two.yaml"
    mended.write_text(graph.replace("WRONG", "SELECT raise_error('bad') AS n FROM a"))
    failed = millrace(running, "submit", mended, "--job", "two-broken", "--wait")
    assert failed.returncode == 1, failed.stderr
    mended.write_text(graph.replace("WRONG", "SELECT count(*) AS n FROM a"))
    again = millrace(running, "repair", "two-broken", "--graph", mended, "--job", "two-mended", "--wait")
    assert again.returncode == 0, again.stderr
    assert sum(int(each) for each in again.stdout.split()[1:]) == 10, again.stdout
    assert launched(running, "two-mended") == {"b"}
