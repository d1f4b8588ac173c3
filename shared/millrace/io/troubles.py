"""What is left to be looked at by people, as keys of etcd that `millrace doctor` lists: `troubles/<kind>/<job>`.

A trouble is the job's own and holds up nothing. There are at most MOST of a kind; what is above that is in the log alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import structlog

from .interfaces import Delete, Entry, Put, Store, Txn, pages
from .performer import Fence, Refused

Kind = Literal["unreadable", "staging"]
"""unreadable: `jobs/<job>` holds what is no job. staging: folders of sinks' staged output that could not be deleted."""
MOST = 1_000

log = structlog.get_logger("troubles")


def key_of(kind: Kind, job: str) -> str:
    return f"troubles/{kind}/{job}"


def note(store: Store, fence: Fence, kind: Kind, job: str, **facts: Any) -> None:
    """Raises Unavailable, Refused."""
    log.error("a job is in trouble", kind=kind, job=job, **facts)
    key, value = key_of(kind, job), json.dumps(facts, separators=(",", ":")).encode()
    entry = store.get(key)
    room = store.count(f"troubles/{kind}/") < MOST if entry is None else entry.value != value
    if room and not store.txn(Txn([fence.compare()], [Put(key, value)])).succeeded:
        raise Refused


def over(store: Store, fence: Fence, kind: Kind, job: str) -> None:
    """It was mended, or given up. Raises Unavailable, Refused."""
    if not store.txn(Txn([fence.compare()], [Delete(key_of(kind, job))])).succeeded:
        raise Refused


def noted(store: Store, kind: Kind) -> Iterator[tuple[str, dict[str, Any], Entry]]:
    """(job, facts, entry) of each. Raises Unavailable."""
    prefix = f"troubles/{kind}/"
    for entry in pages(store, prefix):
        try:
            facts = json.loads(entry.value)
        except ValueError:
            facts = {}
        yield entry.key[len(prefix) :], facts if isinstance(facts, dict) else {}, entry


