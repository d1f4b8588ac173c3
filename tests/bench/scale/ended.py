"""Fifty thousand jobs that have ended: what Dispatcher and JobMaster keep of them."""

from __future__ import annotations

import gc
import sys
from types import FunctionType, MethodType, ModuleType

import psutil

from millrace.runtime.snapshots import freeze

from ..figures import Row, Run
from .cluster import Cluster, cluster
from .in_memory import Leader

JOBS, LOOKS = 50_000, 5
FLAT_MOST = 1.1
AT_ONCE = 20


def measure(run: Run) -> None:
    """As many jobs as are remembered, then again and again as many in their place: of each look the bytes of what a leader keeps."""
    jobs = run.count(JOBS, 500)
    part = jobs // LOOKS
    kept: dict[str, list[int]] = {"Dispatcher": [], "JobMaster": [], "ResourceManager": []}
    resident: list[float] = []
    with cluster(2, 10, retained_jobs=part) as running:
        while running.submitted < jobs:
            for _ in range(AT_ONCE):
                running.submit({"name": "ended", "vertices": {"query": {"sql": f"SELECT {running.submitted} AS number"}}})
            running.tick()
            if running.submitted % part == 0:
                running.tick(20)
                for who, leader in _leaders(running).items():
                    kept[who].append(_kept_bytes(leader))
                resident.append(psutil.Process().memory_info().rss / 1e6)
                run.say(f"{running.submitted:,} jobs have ended: {resident[-1]:.0f} MB resident")
        assert running.counts["JobFinished"] == running.submitted, running.counts
        snapshots = {who: len(freeze(leader.machine, leader.folded)) for who, leader in _leaders(running).items()}
    run.samples |= {"kept_bytes": kept, "resident_mb": resident, "snapshot_bytes": snapshots}
    for who, sizes in kept.items():
        flat = sizes[-1] / sizes[0]
        run.rows.append(Row(
            f"memory of the {who} after {jobs:,} ended jobs", 1, f"{sizes[-1] / 1e6:.2f} MB", f"snapshot {snapshots[who] / 1e6:.2f} MB",
            f"after {part:,}: {sizes[0] / 1e6:.2f} MB", f"{flat:.2f} x", f"at most {FLAT_MOST} x", flat <= FLAT_MOST,
        ))  # fmt: skip
    flat = resident[-1] / resident[0]
    run.rows.append(Row(
        f"resident memory of all three in one process after {jobs:,} ended jobs", 1, f"{resident[-1]:.0f} MB", "",
        f"after {part:,}: {resident[0]:.0f} MB", f"{flat:.2f} x", f"at most {FLAT_MOST} x", flat <= FLAT_MOST,
    ))  # fmt: skip


def _leaders(running: Cluster) -> dict[str, Leader]:
    return {"Dispatcher": running.dispatcher, "JobMaster": running.job_master, "ResourceManager": running.resource_manager}


def _kept_bytes(leader: Leader) -> int:
    """Of all objects that a scope's state leads to, and what its leader has still to send. Classes and functions are everybody's."""
    replica = leader.loop.replica
    assert replica is not None
    seen: dict[int, None] = {}
    left: list[object] = [replica.folded, replica.speaking]
    total = 0
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType, FunctionType, MethodType)):
            continue
        seen[id(each)] = None
        total += sys.getsizeof(each)
        left += gc.get_referents(each)
    return total
