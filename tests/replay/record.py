"""`python -m tests.replay.record OUT`: records an incident on a real stack: the JobMaster's leader is killed in the middle of a deployment.

What the walk through the incident and the tests replay. Recorded anew when a new build folds otherwise [R27]; the page then has to be told
the new offsets.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from deploy.local.stack import Options, Stack
from tests.end_to_end.running import RunningStack, until

START_S = 300.0  # a busy machine starts JVMs slowly
GRAPH = {
    "name": "orders",
    "vertices": {
        "north": {"sql": "SELECT id % 3 AS shop, id AS amount FROM range(300)"},
        "south": {"sql": "SELECT id % 3 AS shop, 2 * id AS amount FROM range(300)"},
        "sales": {
            "sql": "SELECT shop, sum(amount) AS total FROM (SELECT * FROM north UNION ALL SELECT * FROM south) GROUP BY shop ORDER BY shop",
            "inputs": {"north": "broadcast", "south": "broadcast"},
        },
    },
}
FAILS = {"name": "typo", "vertices": {"query": {"sql": "SELECT no_such_column FROM range(3)"}}}


def incident(running: RunningStack) -> str:
    """Lets it happen; the id of the job that was being deployed."""
    warm = running.client.submit(GRAPH, job="orders-1")
    assert running.watch(warm).end["type"] == "JobFinished"
    until("all slots to be free", running.idle)
    pid = running.pid(running.leader("job-master/0"))
    hit = running.watch(running.client.submit(GRAPH, job="orders-2"))
    hit.event("AttemptStateChanged", state="DEPLOYING")
    os.kill(pid, signal.SIGKILL)
    assert hit.end["type"] == "JobFinished"
    assert running.watch(running.client.submit(FAILS, job="typo-1")).end["type"] == "JobFailed"
    until("all slots to be free", running.idle)
    time.sleep(0.5)  # what follows an end
    return hit.id


def main(out: Path) -> None:
    from deploy.cli.replay import export_

    os.environ.setdefault("MILLRACE_HOME", str(Path("build", "replay").absolute()))
    Stack("replay").down(purge=True)
    with RunningStack("replay", Options(slots=1, task_managers=2, heap_mb=512, standbys=1)) as running:
        until("all slots to be free", running.idle, START_S)
        incident(running)
        export_(out, stack="replay")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
