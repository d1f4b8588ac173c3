"""What a stack costs that has nothing to do: processor and disk, beside its Kafka and etcd alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from deploy.local.stack import disk_use
from millrace.core.topics import TOPICS
from millrace.runtime.saving import KEPT_RECORDS, SNAPSHOT_RECORDS

from .clusters import cluster, processor_seconds, servers
from .figures import Row, Run

CORE_MOST_PERCENT = 5.0
REST_S = 60.0  # by then what runs at rest is compiled, in Kafka's JVM and the slots'
DAY_S = 86_400
SEGMENT_MB = int(TOPICS[0].config()["segment.bytes"]) >> 20


def measure(run: Run) -> None:
    seconds = run.count(60, 15)
    with cluster("idle", run.say) as running, servers("idle") as alone:
        for server in alone:
            server.start()
        run.say("waiting until all of the stack rests: its slots are warmed first")
        running.await_rest()
        run.say(f"resting {REST_S:.0f} s")
        time.sleep(REST_S)
        run.say(f"watching {seconds} s")
        started, before = time.monotonic(), processor_seconds(running.families())
        peers = {server.NAME: psutil.Process(server.pid) for server in alone}
        peers_before = processor_seconds({name: [process] for name, process in peers.items()})
        disk = _disk(running.stack.folder)
        time.sleep(seconds)
        after, grown = processor_seconds(running.families()), _disk(running.stack.folder)
        peers_after = processor_seconds({name: [process] for name, process in peers.items()})
        took = time.monotonic() - started
    use, peer = _use(before, after, took), _use(peers_before, peers_after, took)
    growth = {name: (grown[name] - disk[name]) / took * DAY_S / 1e6 for name in grown}
    run.samples |= {"percent_of_a_core": use, "alone_percent": peer, "disk_bytes": grown, "growth_mb_a_day": growth}
    _rows(run, seconds, use, peer, growth)


def _rows(
    run: Run, seconds: int, use: Mapping[str, float], peer: Mapping[str, float], growth: Mapping[str, float]
) -> None:
    total, alone = sum(use.values()), sum(peer.values())
    run.rows.append(Row(
        "idle stack: processor, % of a core", 1, f"{total:.1f} %",
        ", ".join(f"{name} {part:.1f}" for name, part in use.items()),
        f"Kafka {peer['Kafka']:.1f} %, etcd {peer['etcd']:.1f} %", f"{total / alone:.1f} x",
        f"{CORE_MOST_PERCENT:.0f} %", total <= CORE_MOST_PERCENT,
    ))  # fmt: skip
    bound = (
        f"inboxes: cut below the last snapshot, one each {SNAPSHOT_RECORDS:,} records, less {KEPT_RECORDS:,}; public topics: "
        f"by time; both by whole segments of {SEGMENT_MB} MB; etcd: compacted, 2 write-ahead logs of 64 MB"
    )
    run.rows.append(Row(
        f"idle stack: disk, from {seconds} s", 1, f"{sum(growth.values()):.0f} MB a day",
        ", ".join(f"{name} {part:.1f}" for name, part in growth.items() if abs(part) >= 0.05) or "nothing grew",
        "", "", f"bounded ({bound})", None,
    ))  # fmt: skip


def _use(before: dict[str, dict[int, float]], after: dict[str, dict[int, float]], took_s: float) -> dict[str, float]:
    """Percent of a core, by family. One that ended meanwhile counts nothing, and takes nothing away."""
    return {
        name: 100 * sum(used - before.get(name, {}).get(pid, 0.0) for pid, used in processes.items()) / took_s
        for name, processes in after.items()
    }


def _disk(folder: Path) -> dict[str, int]:
    return {name: size for name, size in disk_use(folder).items() if name != "free"}
