"""A job that ended once more, and a graph for each value of a parameter, by the command line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cli.inside import command
from tests.end_to_end.running import RunningStack

GRAPH = """
name: per-day
parameters: {day: 2026-01-01}
restart: {attempts: 1}
vertices:
  sales:
    source: {format: csv, path: "${folder}/${day}.csv", schema: amount INT, options: {header: true, mode: FAILFAST}}
  total:
    sql: SELECT '${day}' AS day, sum(amount) AS total FROM sales
    inputs: {sales: forward}
"""


def millrace(running: RunningStack, *arguments: object) -> subprocess.CompletedProcess[str]:
    return command(*arguments, "--stack", running.stack.name)


@pytest.mark.long
def test_a_graph_is_run_for_each_value_and_what_failed_again_by_the_same_command(running: RunningStack, tmp_path: Path) -> None:
    graph = tmp_path / "per_day.yaml"
    graph.write_text(GRAPH.replace("${folder}", str(tmp_path)))
    for day, amount in (("2026-01-01", "1"), ("2026-01-02", "none"), ("2026-01-03", "3")):
        (tmp_path / f"{day}.csv").write_text(f"amount\n{amount}\n")
    backfill = ["backfill", graph, "--over", "day=2026-01-01..2026-01-03", "--parallel", "2"]
    first = millrace(running, *backfill)
    assert first.returncode == 1, first.stderr
    ended = {day: (job, status) for day, job, status in (line.split("\t") for line in first.stdout.splitlines())}
    assert {day: status for day, (_, status) in ended.items()} == {
        "2026-01-01": "FINISHED", "2026-01-02": "FAILED", "2026-01-03": "FINISHED",
    }  # fmt: skip
    assert "3 runs: 2 FINISHED, 1 not" in first.stderr and "the same command runs these again" in first.stderr

    (tmp_path / "2026-01-02.csv").write_text("amount\n2\n")
    second = millrace(running, *backfill)
    assert second.returncode == 0, second.stderr
    jobs = {day: job for day, job, _ in (line.split("\t") for line in second.stdout.splitlines())}
    assert jobs == {day: job + (".2" if status == "FAILED" else "") for day, (job, status) in ended.items()}
    totals = [millrace(running, "result", jobs[day]).stdout.split()[-1] for day in sorted(jobs)]
    assert totals == ["1", "2", "3"]

    (tmp_path / "2026-01-03.csv").write_text("amount\n30\n")
    again = millrace(running, "run-again", jobs["2026-01-03"], "--wait")
    assert (again.returncode, again.stdout.split()) == (0, ["day", "total", "2026-01-03", "30"]), again.stderr
    unknown = millrace(running, "run-again", "nobody")
    assert (unknown.returncode, "nobody" in unknown.stderr) == (1, True)
