"""What is left to be looked at by people, as keys of etcd that `millrace doctor` lists: `troubles/<kind>/<id>`.

A trouble of a job is its own and holds up nothing; of requests there is one, and they wait. There are at most MOST of a kind; what is
above that is in the log alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from millrace.io.interfaces import Delete, Entry, Put, Store, Txn, pages

from .performer import Fence, Refused

Kind = Literal["unreadable", "staging", "requests", "graphs"]
"""unreadable: `jobs/<job>` holds what is no job. graphs: it holds a graph that somebody else has put there, at revision `offset`, and that
is refused. staging: folders of sinks' staged output that could not be deleted.
requests: nobody can tell whether client.commands can be read."""
MOST = 1_000
UNKNOWN = "what etcd holds about it cannot be read"

log = structlog.get_logger("troubles")


class Facts(BaseModel):
    """The value of such a key."""

    model_config = ConfigDict(frozen=True, strict=True)

    reason: str
    folders: Sequence[str] = ()
    since_ms: Annotated[int, Field(ge=0, lt=1 << 53)] = 0
    offset: Annotated[int, Field(ge=-1, lt=1 << 63)] = -1


def key_of(kind: Kind, job: str) -> str:
    return f"troubles/{kind}/{job}"


def note(store: Store, fence: Fence, kind: Kind, job: str, facts: Facts) -> None:
    """Raises Unavailable, Refused."""
    log.error("a trouble is noted", kind=kind, of=job, **facts.model_dump(exclude_defaults=True))
    key, value = key_of(kind, job), facts.model_dump_json(exclude_defaults=True).encode()
    entry = store.get(key)
    room = store.count(f"troubles/{kind}/") < MOST if entry is None else entry.value != value
    if room and not store.txn(Txn([fence.compare()], [Put(key, value)])).succeeded:
        raise Refused


def over(store: Store, fence: Fence, kind: Kind, job: str) -> None:
    """It was mended, or given up. Raises Unavailable, Refused."""
    if not store.txn(Txn([fence.compare()], [Delete(key_of(kind, job))])).succeeded:
        raise Refused


def noted(store: Store, kind: Kind) -> Iterator[tuple[str, Facts, Entry]]:
    """(job, facts, entry) of each; a foreign value says nothing but that. Raises Unavailable."""
    prefix = f"troubles/{kind}/"
    for entry in pages(store, prefix):
        try:
            facts = Facts.model_validate_json(entry.value)
        except ValidationError:
            facts = Facts(reason=UNKNOWN)
        yield entry.key[len(prefix) :], facts, entry
