"""What an etcd that was restored from a backup lacks, by the Dispatcher's own log: while that is whole it wins [R24]."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from millrace.core.cluster import place_of, short
from millrace.core.faults import fault
from millrace.core.fold import ScopeState
from millrace.core.messages.effects import CleanJob, StoredJob, type_of
from millrace.core.states import JobStatus
from millrace.core.topics import DISPATCHER, Topology
from millrace.io.interfaces import Compare, Put, Store, Txn
from millrace.io.storage.store import Storage

from .core.retirement import brief, tombstone, tombstone_of
from .core.starting import stored_of as accepted
from .stored import Unreadable, batches, key_of, stored_of, value_of

LOST = brief(fault("internal", "how it ended was lost with etcd, and its archive is gone"))
BATCH_MOST = 40


@dataclass(frozen=True)
class Missing:
    """What the key of a job must become. `revision`: of the key as it stands; 0: it is absent."""

    job: str
    stored: StoredJob
    revision: int


class LedMeanwhile(Exception):
    """A Dispatcher leads, or a key has changed: nothing may be put back beside it."""


def missing(
    folded: ScopeState, store: Store, storage: Storage, topology: Topology, cluster: str
) -> tuple[list[Missing], list[str]]:  # [R24]
    """All that the log, folded to its end, knows otherwise than etcd; and the jobs that only etcd can know, for they were accepted by
    records that the log has lost. What is still being stored or looked up is left to that. Raises Unavailable, StorageError."""
    state, end = folded.state, (folded.generation, folded.next_offset)
    cleaning = _being_cleaned(folded)
    entries = {entry.key.partition("/")[2]: entry for entry in store.list("jobs/")[0]}
    archived = _archives(storage, cluster)
    found, ahead = [], []
    for job in dict.fromkeys([*state.live, *state.ended, *cleaning, *entries, *archived]):
        entry = entries.get(job)
        try:
            stands = stored_of(entry)
        except Unreadable:
            stands = None  # what the log knows takes its place; what it does not know either, nobody does
            if not (job in state.live or job in state.ended or job in cleaning or job in archived):
                continue
        if job in state.lookups or stands is not None and stands.state == "clean":
            continue
        live, ended = state.live.get(job), state.ended.get(job)
        if live is None and ended is None and stands is not None and place_of(stands.acceptance) >= end:
            ahead.append(job)
            continue
        if live is not None and (stands is None or stands.acceptance != live.acceptance):
            stored = accepted(live)
        elif live is None and job in cleaning:
            if stands is not None and stands.state == "dirty":
                continue
            stored = cleaning[job]
        elif live is None and stands is not None and stands.state == "dirty":
            stored = tombstone(stands)  # it was cleaned up since the backup
        elif live is None and ended is not None:
            stored = tombstone_of(ended, topology.shard_of(job))
        elif live is None:
            stored = _forgotten(job, stands, archived.get(job, []), storage, topology)
        else:
            continue  # live, and accepted; or its end is stored, and not folded yet
        found.append(Missing(job, stored, entry.mod_revision if entry is not None else 0))
    return found, ahead


def put_back(found: Iterable[Missing], store: Store) -> None:
    """Raises LedMeanwhile, Unavailable; what was put back until then stays, and a repeat goes on."""
    nobody = Compare(f"leaders/{DISPATCHER}", 0)
    for batch in batches((each, len(value_of(each.stored))) for each in found):
        for first in range(0, len(batch), BATCH_MOST):
            some = batch[first : first + BATCH_MOST]
            compares = [Compare(key_of(each.job), each.revision) for each in some]
            puts = [Put(key_of(each.job), value_of(each.stored)) for each in some]
            if not store.txn(Txn([nobody, *compares], puts)).succeeded:
                raise LedMeanwhile


def _archives(storage: Storage, cluster: str) -> dict[str, list[str]]:
    """Job -> paths of its archives, the one written last behind the others. Those of a cluster that owned this storage before are of other
    jobs [R29]; what names no cluster was accepted before there were names of clusters."""
    found: dict[str, list[tuple[int, str]]] = {}
    for entry in storage.list("archives"):
        parts = entry.path.split("/")
        if len(parts) != 4:
            continue  # what a file manager left there, say
        _, job, acceptance, _ = parts
        if acceptance.count(".") < 2 or acceptance.startswith(f"{short(cluster)}."):
            found.setdefault(job, []).append((entry.modified_ms, entry.path))
    return {job: [path for _, path in sorted(paths)] for job, paths in found.items()}


def _being_cleaned(folded: ScopeState) -> dict[str, StoredJob]:
    """Job -> its ending, where the cleanup has no outcome yet. It acts on a dirty key alone: without one it would leave no tombstone, and
    beside an accepted one the job would run again."""
    effects = [CleanJob.model_validate_json(each.effect) for each in folded.effects.values() if type_of(each.effect) == "CleanJob"]
    return {each.job: each.tombstone.model_copy(update={"state": "dirty", "staging": each.staging}) for each in effects}


def _forgotten(
    job: str, stands: StoredJob | None, archives: list[str], storage: Storage, topology: Topology
) -> StoredJob:
    """An ended job that is too old for the state: its archive tells how it ended. Only an ended job is in no state."""
    of = [path for path in archives if stands is None or path.split("/")[2] == stands.acceptance]
    if not of:
        assert stands is not None, "it is known by its key or by its archive"
        lost = {"state": "clean", "graph": None, "status": JobStatus.FAILED.value, "ended_ms": stands.accepted_ms, "cause": LOST}
        return stands.model_copy(update=lost)
    kept = json.loads(storage.get(of[-1]))
    return StoredJob(
        state="clean", digest=stands.digest if stands is not None else "", acceptance=of[-1].split("/")[2],
        shard=topology.shard_of(job), accepted_ms=kept["accepted_ms"], name=kept["name"], status=kept["status"],
        ended_ms=kept["ended_ms"], archive=of[-1],
    )  # fmt: skip
