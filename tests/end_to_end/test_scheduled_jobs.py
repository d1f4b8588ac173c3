"""A graph that runs by cron, on a real stack: what was missed is made up for once, though the Dispatcher is killed meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from millrace.client import MillraceError
from millrace.core.messages.schedules import ScheduleRun
from tests.end_to_end.running import RunningStack, until
from tests.end_to_end.test_again import millrace

GRAPH = """
name: each minute
parameters: {scheduled_time: by hand, rows: 1}
vertices:
  numbers:
    sql: SELECT '${scheduled_time}' AS due, count(*) AS n FROM range(${rows})
"""
RUNS = 3


@pytest.mark.long
def test_each_missed_time_is_run_once_though_the_dispatcher_is_killed(running: RunningStack, tmp_path: Path) -> None:
    graph = tmp_path / "each_minute.yaml"
    graph.write_text(GRAPH)
    options = ["--cron", "* * * * *", "--since", f"{RUNS}m", "--missed", "all", "-p", "rows=7"]
    made = millrace(running, "schedule", "set", "often", graph, *options)
    assert made.returncode == 0 and made.stdout.startswith("next "), made.stderr
    running.kill("dispatcher")

    def finished() -> list[ScheduleRun]:
        with contextlib.suppress(MillraceError):  # while no Dispatcher leads
            return [each for each in running.client.schedule("often").runs if each.state == "FINISHED"]
        return []

    done = until("the missed times were run", lambda: found if len(found := finished()) >= RUNS else [])
    assert millrace(running, "schedule", "pause", "often").returncode == 0
    dues = [each.due or "" for each in reversed(done)]
    assert len(set(dues)) == len(dues) and dues == sorted(dues), "each once, the oldest first"
    for each in done:
        assert each.job is not None and running.client.result(each.job).rows == [[each.due, 7]]
    assert f"schedule  often, for {dues[0][:16].replace('T', ' ')} UTC" in millrace(running, "show", done[-1].job).stdout

    by_hand = millrace(running, "schedule", "run", "often", "--wait")
    assert by_hand.returncode == 0 and by_hand.stdout.split()[-1] == "7", by_hand.stderr
    assert millrace(running, "schedule", "remove", "often").returncode == 0
    gone = millrace(running, "schedule", "show", "often")
    assert (gone.returncode, "there is no schedule often" in gone.stderr) == (1, True)
