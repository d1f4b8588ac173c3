"""Whether the cluster is shut down. It stands in etcd: each service that reads it ends, and none begins before it was opened again."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from millrace.core.messages.client import ShutDown
from millrace.io.interfaces import Compare, Delete, Entry, Put, Store, Txn

KEY = "shutdown"
REOPENED = "reopened"
"""The name of the last end after which the cluster was opened again."""


class Ended(BaseModel):
    """What stands there: the final status."""

    model_config = ConfigDict(frozen=True)

    name: str
    shut_down: ShutDown

    def value(self) -> bytes:
        return self.model_dump_json().encode()

    def __str__(self) -> str:
        seen = self.shut_down
        jobs = f"{seen.live} job{'' if seen.live == 1 else 's'} kept, {seen.suspended} suspended" if seen.live else "all jobs had ended"
        left = f", {seen.workers} TaskManager{'' if seen.workers == 1 else 's'} of the provider not stopped" if seen.workers else ""
        silent = f"; without an answer of {', '.join(seen.silent)}" if seen.silent else ""
        return f"the cluster is shut down: {jobs}{left}{silent}"


def parsed(entry: Entry | None) -> Ended | None:
    """None: it is not shut down. What nobody can read is none of ours."""
    try:
        return Ended.model_validate_json(entry.value) if entry is not None else None
    except ValidationError:
        return None


def name_of_last(store: Store) -> str:
    """Of the end that was opened again; empty: there was none. Raises Unavailable."""
    entry = store.get(REOPENED)
    return entry.value.decode(errors="replace") if entry is not None else ""


def reopen(store: Store) -> Ended | None:  # [R34]
    """Opens the cluster again, for those who start it; None: it was not shut down. Raises Unavailable."""
    entry = store.get(KEY)
    ended = parsed(entry)
    if entry is None:
        return None
    puts = [Put(REOPENED, ended.name.encode())] if ended is not None else []
    store.txn(Txn([Compare(KEY, entry.mod_revision)], [*puts, Delete(KEY)]))
    return ended
