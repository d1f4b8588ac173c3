"""A stack whose cluster is shut down, and started again: `millrace shutdown`, as docs/operate.md has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from deploy.local.downloads import CHECKOUT
from deploy.local.stack import Options
from tests.bench.clusters import environment
from tests.end_to_end.running import Held, RunningStack, processes_of, until
from tests.end_to_end.test_foreground import PROGRAM


def test_jobs_are_suspended_kept_and_go_on(stacks_home: Path, archives: Path, tmp_path: Path) -> None:
    with RunningStack("ends", Options(slots=1, task_managers=1, heap_mb=512), archives) as running:
        held = Held(running, tmp_path / "held")
        [before] = held.started()
        waits = running.sql("SELECT 1 AS a")
        words = ["shutdown", "--yes", "--stack", "ends"]
        done = subprocess.run([*PROGRAM, *words], env=environment(), cwd=CHECKOUT, capture_output=True, text=True, timeout=180)
        assert (done.returncode, done.stdout) == (0, "the cluster is shut down: 2 jobs are kept, 2 of them suspended\n"), done.stderr
        assert held.watched.event("JobStateChanged", status="SUSPENDED") and waits.event("JobStateChanged", status="SUSPENDED")
        until("the end of all processes", lambda: processes_of(running.stack.folder) == [])
        seen = running.stack.status()
        assert (seen["state"], seen["shut_down"]) == ("stopped", "the cluster is shut down: 2 jobs kept, 2 suspended")
        running.down()
        running.up()
        assert before in held.started(2), "it runs again"
        held.let_go()
        assert running.client.wait(held.watched.id, 120).status == running.client.wait(waits.id, 120).status == "FINISHED"
