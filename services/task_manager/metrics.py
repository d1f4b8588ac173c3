"""What the metrics show of a TaskManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from millrace.core.topics import RESOURCE_MANAGER, TASK_MANAGER
from millrace.runtime import metrics
from millrace.runtime.metrics import Sample

from .ports.blob_cache import BlobCache
from .ports.spark_work import SparkWork
from .shell import Shell


def of_spark(work: SparkWork) -> Iterator[Sample]:
    """What the Spark of its slots has done. Any thread."""
    done, peak = work.read()
    for what, name in (("done", "tasks_done"), ("failed", "tasks_failed")):
        yield metrics.SPARK_TASKS.of(done[name], what)
    for what, name in (
        ("read", "rows_read"), ("written", "rows_written"), ("shuffle_read", "rows_shuffle_read"), ("shuffle_written", "rows_shuffled"),
    ):  # fmt: skip
        yield metrics.SPARK_ROWS.of(done[name], what)
    for what, name in (
        ("read", "bytes_read"), ("written", "bytes_written"), ("shuffle_read", "bytes_shuffle_read"), ("shuffle_written", "bytes_shuffled"),
        ("spilled_memory", "bytes_spilled_memory"), ("spilled_disk", "bytes_spilled_disk"),
    ):  # fmt: skip
        yield metrics.SPARK_BYTES.of(done[name], what)
    for what, name in (("run", "run_ms"), ("cpu", "cpu_ms"), ("gc", "gc_ms")):
        yield metrics.SPARK_SECONDS.of(done[name] / 1000, what)
    yield metrics.SPARK_PEAK.of(peak)


def of_blobs(blobs: BlobCache) -> Iterator[Sample]:
    """Its cache of jobs' files. Any thread."""
    held = blobs.held()
    yield metrics.BLOBS_HELD.of(held.files)
    yield metrics.BLOBS_HELD_BYTES.of(held.bytes)
    yield metrics.BLOBS_USED.of(held.used)


def readings(shell: Shell) -> Iterator[Sample]:
    """Its other gauges. Any thread."""
    yield metrics.LOOP_AGE.of((shell.clock() - shell.turned_ms) / 1000, TASK_MANAGER)
    folded = shell.folded
    if folded is None:
        return
    peer = folded.peers.get(RESOURCE_MANAGER)
    yield metrics.OUTBOX.of(len(folded.outbox), TASK_MANAGER)
    yield from metrics.OWN_SLOTS.counts(Counter(slot.state.value for slot in list(folded.state.slots.values())))
    yield metrics.REGISTERED.of(peer is not None and peer.life > 0)
    yield metrics.BEHIND.of(folded.state.behind)
