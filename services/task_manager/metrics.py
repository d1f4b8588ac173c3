"""What the metrics show of a TaskManager."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from millrace.core.topics import RESOURCE_MANAGER, TASK_MANAGER
from millrace.runtime import metrics
from millrace.runtime.metrics import Sample

from .ports.blob_cache import BlobCache
from .shell import Shell


def readings(shell: Shell, blobs: BlobCache) -> Iterator[Sample]:
    """Its gauges. Any thread."""
    held = blobs.held()
    yield metrics.BLOBS_HELD.of(held.files)
    yield metrics.BLOBS_HELD_BYTES.of(held.bytes)
    yield metrics.BLOBS_USED.of(held.used)
    yield metrics.LOOP_AGE.of((shell.clock() - shell.turned_ms) / 1000, TASK_MANAGER)
    folded = shell.folded
    if folded is None:
        return
    peer = folded.peers.get(RESOURCE_MANAGER)
    yield metrics.OUTBOX.of(len(folded.outbox), TASK_MANAGER)
    yield from metrics.OWN_SLOTS.counts(Counter(slot.state.value for slot in list(folded.state.slots.values())))
    yield metrics.REGISTERED.of(peer is not None and peer.life > 0)
    yield metrics.BEHIND.of(folded.state.behind)
