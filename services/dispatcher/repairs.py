"""What a job that repairs another one is given: looked up where it is stored, and held for as long as it is needed.

The keys of the jobs whose exchange data it reads are changed with its own, in one transaction: `repaired_by` names it there. Whoever wants
to delete the data compares those keys. So either the data stay, or the repair is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from millrace.core.messages.effects import PutJobGraph, RepairRefused, StoredJob
from millrace.core.messages.execution import Archive
from millrace.core.messages.kept import Kept
from millrace.core.origins import repairs_of
from millrace.io.interfaces import Compare, Entry, Put, Store
from millrace.io.storage.store import NotFound, Storage

from .stored import Unreadable, key_of, stored_of, value_of

REPAIRS_MOST = 20
"""Of one job: each is named in its key."""


@dataclass(frozen=True)
class Begun:
    """The job as it is to be stored, and what is compared and put with it."""

    stored: StoredJob
    compares: Sequence[Compare]
    puts: Sequence[Put]


class Repairs:
    """Looks at what stands in etcd now."""

    def __init__(self, store: Store, storage: Storage) -> None:
        self._store, self._storage = store, storage

    def look(self, effect: PutJobGraph, wall_ms: int | None) -> Begun | RepairRefused:
        """wall_ms: by the wall clock; None: it was begun in time. Raises StorageError, Unavailable."""
        job = repairs_of(effect.stored.graph or {}) or ""
        found = self._kept_by(job, wall_ms, effect.stored.graph or {})
        if isinstance(found, RepairRefused):
            return found
        stored = effect.stored.model_copy(update={"kept": found, "kept_of": found.jobs})
        compares, puts = [], []
        for acceptance, other in found.jobs.items():
            entry = self._store.get(key_of(other))
            stands = _readable(entry)
            if entry is None or stands is None or stands.acceptance != acceptance or stands.kept_until_ms is None:
                return _gone(job, f"what it has of {other} is deleted already")
            if len(stands.repaired_by) >= REPAIRS_MOST:
                return _no(f"job {other} was repaired {REPAIRS_MOST} times: repair the last one of those, or run it again")
            compares.append(Compare(entry.key, entry.mod_revision))
            puts.append(Put(entry.key, value_of(stands.model_copy(update={"repaired_by": [*stands.repaired_by, effect.job]}))))
        return Begun(stored, compares, puts)

    def _kept_by(self, job: str, wall_ms: int | None, graph: Mapping[str, Any]) -> Kept | RepairRefused:
        stands = _readable(self._store.get(key_of(job)))
        if stands is None:
            return _no(f"there is no job {job} that could be repaired")
        if stands.state == "accepted":
            return _no(f"job {job} has not ended: it can be repaired once it has FAILED or was CANCELED")
        if stands.status == "FINISHED":
            return _no(f"job {job} is FINISHED: there is nothing to repair, for only what FAILED or was CANCELED is; run it again")
        if stands.state == "dirty":
            return RepairRefused(kind="busy", reason=f"job {job} has ended just now; try again")
        kept, of = self._manifest(stands)
        if of and not of.keys() & _vertices(graph).keys():
            named = ", ".join(sorted(of)[:5]) + (", ..." if len(of) > 5 else "")
            return _no(f"no vertex of this graph is one of job {job} ({named}): nothing of it would be kept; submit the graph as a new job")
        if kept is None:
            return _no(f"nothing of job {job} had finished that could be kept: run it again (millrace run-again {job})")
        if kept.why:
            return _no(f"job {job} cannot be repaired: {kept.why}; run it again (millrace run-again {job})")
        if stands.kept_until_ms is None or wall_ms is not None and wall_ms > stands.kept_until_ms:
            return _gone(job, "what it had finished is deleted already, or was not kept (keep_for_repair_hours, keep_for_repair_mb)")
        return kept

    def _manifest(self, stands: StoredJob) -> tuple[Kept | None, Mapping[str, Any]]:
        """... and its vertices; none: they are not known. Raises StorageError."""
        if stands.archive is None:
            return None, {}
        try:
            archive = Archive.model_validate_json(self._storage.get(stands.archive), extra="ignore")
            return archive.kept, _vertices(archive.graph)
        except NotFound:
            return Kept(why="its archive is gone"), {}
        except ValidationError:
            return Kept(why="its archive cannot be read"), {}


def _vertices(graph: Mapping[str, Any]) -> Mapping[str, Any]:
    found = graph.get("vertices")
    return found if isinstance(found, dict) else {}


def _readable(entry: Entry | None) -> StoredJob | None:
    try:
        return stored_of(entry)
    except Unreadable:
        return None


def _gone(job: str, why: str) -> RepairRefused:
    return _no(f"job {job} cannot be repaired: {why}; run it again (millrace run-again {job})")


def _no(reason: str) -> RepairRefused:
    return RepairRefused(kind="conflict", reason=reason)
