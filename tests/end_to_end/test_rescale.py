"""docs/restarts.md: a job that runs is given another parallelism on a real stack, and its JobMaster's leader is killed over it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.end_to_end.running import RunningStack, until
from tests.end_to_end.test_again import millrace

HOLD = """
    import os, pathlib, time

    def hold(numbers):
        folder = pathlib.Path({folder!r})
        (folder / str(os.getpid())).touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        return numbers
"""


def test_what_runs_begins_again_with_other_numbers_and_no_row_counts_twice(running: RunningStack, tmp_path: Path) -> None:
    sha256, path = running.module(HOLD.format(folder=str(tmp_path)), "holding.py")
    graph = {
        "name": "wider",
        "vertices": {
            "numbers": {"sql": "SELECT id, id % 5 AS k FROM range(100)"},
            "held": {"python": "holding:hold", "schema": "id LONG, k LONG", "parallelism": 2, "inputs": {"numbers": "hash(k)"}},
            "counted": {
                "sql": "SELECT k, count(*) AS n, sum(id) AS s FROM held GROUP BY k", "parallelism": 2, "inputs": {"held": "hash(k)"},
            },
        },
        "modules": [{"name": "holding.py", "sha256": sha256}],
        "restart": {"strategy": "none"},
    }  # fmt: skip
    job = running.submit(graph, {sha256: path})
    until("both subtasks of held at work", lambda: len(list(tmp_path.iterdir())) == 2)

    refused = millrace(running, "rescale", job.id, "-p", "numbers=2")
    assert refused.returncode == 2 and "numbers: stays at 1, not 2: parallelism 2 needs an input by forward or hash" in refused.stderr
    done = millrace(running, "rescale", job.id, "--parallelism", "counted=3")
    assert done.returncode == 0 and done.stderr == f"job {job.id} is rescaled: 1 vertex has another parallelism\n", done.stderr
    running.kill("job-master")
    rescaled = job.event("JobRescaled")
    assert (rescaled["parallelism"], [each["parallelism"] for each in rescaled["tasks"]]) == ({"counted": 3}, [1, 2, 3])
    kept = job.event("SubtasksKept")
    assert (kept["task"], kept["subtasks"], kept["kept_from"]) == ("numbers", [0], job.id)
    until("both subtasks of held at work again", lambda: len(list(tmp_path.iterdir())) == 4)
    again = millrace(running, "rescale", job.id, "-p", "counted=3")
    assert again.returncode == 0 and again.stderr == f"job {job.id} has these numbers already: nothing changes\n"
    assert [line.split()[:2] for line in again.stdout.splitlines()[1:]] == [["numbers", "1"], ["held", "2"], ["counted", "3"]]

    (tmp_path / "go").touch()
    assert job.end["type"] == "JobFinished"
    rows = sorted(running.client.result(job.id).rows)
    assert rows == [[k, 20, sum(range(k, 100, 5))] for k in range(5)]
    shown = json.loads(millrace(running, "show", job.id, "--json").stdout)["detail"]
    assert (shown["rescaled"], shown["restarts"], shown.get("failed", 0)) == ({"counted": 3}, 0, 0)
    attempts = {task["task"]: [each["attempt"] for each in task["subtasks"]] for task in shown["tasks"]}
    assert attempts == {"numbers": [1], "held": [2, 2], "counted": [1, 1, 1]}
    assert millrace(running, "rescale", job.id, "-p", "4").returncode == 1, "it has ended"
