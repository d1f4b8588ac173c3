"""Jobs as they stand in etcd, `jobs/<id>`, and the room that a transaction has for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pydantic import ValidationError

from millrace.core.messages.base import JOB_ID_PATTERN
from millrace.core.messages.effects import StoredJob
from millrace.core.states import ENDED_JOB
from millrace.io.interfaces import Entry

JOBS = "jobs/"
BATCH_BYTES = 700_000  # of values in one transaction, which may have 1 MiB with their keys [R19]

T = TypeVar("T")


class Unreadable(ValueError):
    """What stands under a job's key is none of ours: somebody else's, or damaged. The trouble of that job alone."""


def key_of(job: str) -> str:
    return f"{JOBS}{job}"


def repeat_key(job: str) -> str:
    """Where the stamp of its last submission stands, if it came long after the job's end."""
    return f"repeats/{job}"


def job_of(entry: Entry) -> str:
    return entry.key[len(JOBS) :]


def value_of(stored: StoredJob) -> bytes:
    return stored.model_dump_json(exclude_defaults=True).encode()


def stored_of(entry: Entry | None) -> StoredJob | None:
    """Raises Unreadable."""
    if entry is not None and not re.fullmatch(JOB_ID_PATTERN, job_of(entry)):
        raise Unreadable("its key is no job id")
    try:
        stands = StoredJob.model_validate_json(entry.value) if entry is not None else None
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]  # no word of the value itself: it may hold anything
        where = ".".join(map(str, first["loc"]))
        raise Unreadable(f"what etcd holds under jobs/ for it cannot be read ({where + ': ' if where else ''}{first['msg']})") from None
    if stands is not None and (stands.graph is None if stands.state == "accepted" else stands.status not in ENDED_JOB):
        lacks = "a graph" if stands.state == "accepted" else f"a status of {', '.join(ENDED_JOB)}"
        raise Unreadable(f"what etcd holds under jobs/ for it is {stands.state} without {lacks}")
    return stands


def batches(sized: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Items with their bytes, in groups that fit into one transaction each."""
    batch: list[T] = []
    size = 0
    for item, more in sized:
        if batch and size + more > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    if batch:
        yield batch
