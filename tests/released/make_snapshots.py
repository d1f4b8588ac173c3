"""Makes the snapshots of this folder, by the code of the version that they are of: in a checkout of it

    python PATH_TO_THIS_FILE PATH_TO_THE_FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, ".")

from millrace.core.fold import Fold
from millrace.core.machine import Configured
from millrace.core.messages import jobs
from millrace.core.topics import Topology
from millrace.runtime.snapshots import freeze
from tests.core import of_dispatcher, of_resource_manager
from tests.core.of_job_master import ONE, PLANNED, REPORT, RM, SINK, TWO, USER, Shard

CHAIN = {
    "name": "chain",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x", "parallelism": 2},
        "b": {"sql": "SELECT x FROM a", "parallelism": 2, "inputs": {"a": "hash(x)"}},
    },
}
A = {"outputs": {"a": {"schema": '{"type":"struct","fields":[]}', "rows": 3, "bytes": 40}}}
B = {"outputs": {"b": {"schema": "{}", "rows": 1, "bytes": 9}}, "result": {"columns": ["x"], "types": ["int"], "rows": [[1]]}}
WITH_RESTART: dict[str, Any] = {"restart": {"attempts": 3, "delay_ms": 60_000}}
FATAL = {"kind": "user", "retryable": False, "message": "boom"}


def shard() -> Shard:
    """A job in each state that lasts."""
    made = Shard()

    def starts(job: str, graph: dict[str, Any], *allocations: str, **changes: Any) -> None:
        made.start({**graph, "name": job}, job, **changes)
        for number in range(len(allocations)):
            made.offer(f"{job}.{allocations[number]}", job=job)

    starts("queued", TWO)
    made(jobs.JobQueued(job="queued", reason="no free slot", position=1), RM)
    starts("deploying", ONE, "1")
    starts("running", CHAIN, "1")
    made.told("running.1", "RUNNING")
    starts("half", CHAIN, "1", "2")
    made.told("half.1", "FINISHED", report=A)
    starts("done-but-one", CHAIN, "1", "2")
    for number in (1, 2):
        made.told(f"done-but-one.{number}", "FINISHED", report=A)
    made.told("done-but-one.2", "FINISHED", report=B)
    starts("retrying", {**CHAIN, **WITH_RESTART}, "1", "2")
    made.told("retrying.1", "FAILED", error={**USER, "detail": "a stack trace"})
    starts("moved", CHAIN, "1", "2")
    made.told("moved.1", "FAILED", error={"kind": "infrastructure", "retryable": True, "message": "the JVM ended"})
    starts("planning", PLANNED, "1")
    starts("planned", PLANNED, "1", "2")
    made.told("planned.1", "FINISHED", report={"sources": {"s": {"files": [], "schema": "{}"}}, "outputs": {}})
    made.offer("planned.3", job="planned")
    starts("canceling", CHAIN, "1")
    made(jobs.CancelStartedJob(job="canceling"))
    starts("failing", CHAIN, "1", "2")
    made.told("failing.1", "FAILED", error=FATAL)
    starts("publishing", SINK, "1")
    made.told("publishing.1", "FINISHED", report={"outputs": {}})
    starts("finished", ONE, "1")
    made.told("finished.1", "FINISHED", report=REPORT)
    starts("failed", ONE, "1")
    made.told("failed.1", "FAILED", error=FATAL)
    starts("canceled", ONE)
    made(jobs.CancelStartedJob(job="canceled"))
    made(jobs.StartJob(job="unreadable", acceptance="acc-unreadable", graph={"name": "x", "vertices": 3}, accepted_ms=500))
    return made


def dispatcher() -> of_dispatcher.World:
    made = of_dispatcher.World()
    made.tell(Configured({}))
    made.submit()
    return made


def resource_manager() -> of_resource_manager.Driver:
    made = of_resource_manager.Driver().declared()
    made.register()
    made.say(of_resource_manager.JM0, jobs.RequestSlots(job="one", slots=2, priority=0, since_ms=1, memory_mb=None))
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    for made in (shard(), dispatcher(), resource_manager()):
        folded = Fold(made.machine, Topology()).blank(1, 0)
        folded.state = made.state
        folded.epoch, folded.next_offset, folded.build = 5, 1000, "0.1.0"
        (folder / f"{made.machine.scope.replace('/', '-')}.jsonl.zst").write_bytes(freeze(made.machine, folded))


if __name__ == "__main__":
    main()
