"""The Dispatcher's effects on etcd and storage. Each port takes up to 40 effects of its type and returns their outcomes.

Every write compares the leader key [17]. Writes go in batches of one transaction; where one compare fails, one by one [19].
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from millrace.core.messages.base import Body
from millrace.core.messages.effects import (
    CleanJob,
    EndJob,
    FindJob,
    JobCleaned,
    JobFound,
    JobGraphStored,
    JobResultStored,
    JobsRecovered,
    PutJobGraph,
    RecoverJobs,
    StoredJob,
)
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn, Unavailable, UnknownOutcome
from millrace.io.performer import Fence, OneByOne, Port, Refused
from millrace.io.storage import Storage, StorageError, blob_path, upload_path

BATCH_BYTES = 700_000  # of values in one transaction; etcd's limit is 1 MiB
PAGE_BYTES = 600_000  # of a JobsRecovered: it must fit into one record
SINGLE_TRIES = 5
CLEAN_TRIES = 30  # about a minute

T = TypeVar("T")

log = structlog.get_logger("ports")


class JobStore:
    """Jobs in etcd (`jobs/<id>`), their archives and leavings in storage. `wall_ms` is the real clock, Unix time."""

    def __init__(
        self, store: Store, storage: Storage, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ):
        self._store, self._storage, self._wall_ms = store, storage, wall_ms
        # (job, acceptance) of puts that may have been carried out: too late or not, they are tried until that is known
        self._perhaps: set[tuple[str, str]] = set()
        self._clean_tries: dict[str, int] = {}  # job -> how often what it leaves could not be deleted
        self._listing: list[tuple[str, bytes]] = []  # what RecoverJobs has still to tell, in the term `_listed_epoch`
        self._listed_epoch = 0

    def ports(self) -> dict[type[Body], Port]:
        return {
            PutJobGraph: self.put_graphs,
            FindJob: self.find,
            EndJob: self.end,
            CleanJob: self.clean,
            RecoverJobs: OneByOne(self.recover),
        }

    # PutJobGraph

    def put_graphs(self, effects: Sequence[PutJobGraph], fence: Fence) -> list[JobGraphStored | None]:
        """Create-if-absent [18]. What is too late is not put, unless an earlier try may have put it in time."""
        outcomes: dict[str, JobGraphStored] = {}
        now_ms = self._wall_ms()
        fresh: list[tuple[PutJobGraph, bytes]] = []
        for effect in effects:
            late = effect.accept_before_ms is not None and now_ms > effect.accept_before_ms
            if late and (effect.job, effect.stored.acceptance) not in self._perhaps:
                stands = self._fenced_read(effect.job, fence)
                outcomes[effect.job] = JobGraphStored(job=effect.job, stands=stands)
            else:
                self._keep_modules(effect)
                fresh.append((effect, value_of(effect.stored)))
        for batch in batches((each, len(each[1])) for each in fresh):
            try:
                self._put_batch(batch, fence, outcomes)
            except UnknownOutcome as unknown:
                self._perhaps |= {(effect.job, effect.stored.acceptance) for effect, _ in batch}
                log.warning("not known yet whether jobs were stored", jobs=len(batch), reason=str(unknown))
            except Unavailable:
                if not outcomes:
                    raise
        for effect in effects:
            if effect.job in outcomes:
                self._perhaps.discard((effect.job, effect.stored.acceptance))
                stands = outcomes[effect.job].stands
                if stands is not None and stands.acceptance != effect.stored.acceptance:
                    self._delete_modules(effect.job, effect.stored.acceptance)  # copied in vain: the id is another's
        return [outcomes.get(effect.job) for effect in effects]

    def _put_batch(
        self, batch: Sequence[tuple[PutJobGraph, bytes]], fence: Fence, outcomes: dict[str, JobGraphStored]
    ) -> None:
        absent = [Compare(key_of(effect.job), 0) for effect, _ in batch]
        puts = [Put(key_of(effect.job), value) for effect, value in batch]
        if self._store.txn(Txn([fence.compare(), *absent], puts)).succeeded:
            outcomes.update((e.job, _stored(e)) for e, _ in batch)
            return
        for (effect, _), compare, put in zip(batch, absent, puts, strict=True):
            result = self._store.txn(Txn([fence.compare(), compare], [put], [put.key]))
            if result.succeeded:
                outcomes[effect.job] = _stored(effect)
                continue
            stands = stored_of(result.reads[put.key])
            if stands is None:
                raise Refused
            outcomes[effect.job] = JobGraphStored(job=effect.job, stands=stands)

    def _fenced_read(self, job: str, fence: Fence) -> StoredJob | None:
        result = self._store.txn(Txn([fence.compare()], [], [key_of(job)]))
        if not result.succeeded:
            raise Refused
        return stored_of(result.reads[key_of(job)])

    def _keep_modules(self, effect: PutJobGraph) -> None:
        """Uploads go by age; what an accepted job uses stays as long as the job."""
        for module in (effect.stored.graph or {}).get("modules", ()):
            sha256 = module["sha256"]
            try:
                kept = blob_path(effect.job, effect.stored.acceptance, sha256)
                self._storage.copy_new(upload_path(sha256), kept)
            except StorageError as failure:  # the attempt that needs it will say so, by name
                log.warning(
                    "a module of a job could not be kept", job=effect.job, module=module["name"], reason=str(failure)
                )

    # FindJob

    def find(self, effects: Sequence[FindJob], fence: Fence) -> list[JobFound]:
        reads = self._store.txn(Txn([], [], [key_of(effect.job) for effect in effects])).reads
        return [JobFound(job=effect.job, stands=stored_of(reads[key_of(effect.job)])) for effect in effects]

    # EndJob

    def end(self, effects: Sequence[EndJob], fence: Fence) -> list[JobResultStored | None]:
        """The archives first, so that an ending is never seen without; then the endings."""
        written = [effect for effect in effects if self._archive(effect)]
        outcomes: dict[str, JobResultStored] = {}
        for batch in batches((effect, len(value_of(effect.ending))) for effect in written):
            self._end_batch(batch, fence, outcomes)
        for effect in written:
            for _ in range(SINGLE_TRIES):
                if effect.job not in outcomes:
                    self._end_batch([effect], fence, outcomes)
        return [outcomes.get(effect.job) for effect in effects]

    def _end_batch(self, batch: Sequence[EndJob], fence: Fence, outcomes: dict[str, JobResultStored]) -> None:
        """Adds what stands now; if a key was changed under it, only of those that had ended before."""
        reads = self._store.txn(Txn([], [], [fence.compare().key, *(key_of(effect.job) for effect in batch)])).reads
        found = {effect.job: (effect, reads[key_of(effect.job)]) for effect in batch}
        known = {job: stands for job, (_, entry) in found.items() if (stands := stored_of(entry)) and stands.status}
        wanted = [(effect, entry) for effect, entry in found.values() if effect.job not in known]
        _check_leader(reads[fence.compare().key], fence)
        if wanted:
            compares = [Compare(key_of(e.job), entry.mod_revision if entry else 0) for e, entry in wanted]
            puts = [Put(key_of(e.job), value_of(e.ending)) for e, _ in wanted]
            if self._store.txn(Txn([fence.compare(), *compares], puts)).succeeded:
                known |= {effect.job: effect.ending for effect, _ in wanted}
        outcomes.update((job, JobResultStored(job=job, stands=stands)) for job, stands in known.items())

    def _archive(self, effect: EndJob) -> bool:
        assert effect.ending.archive is not None, "an ending names its archive"
        try:
            self._storage.put_if_absent(effect.ending.archive, _json(effect.archive))
        except StorageError as failure:
            log.error(
                "an archive could not be written; the job's end waits for it", job=effect.job, reason=str(failure)
            )
            return False
        return True

    # CleanJob

    def clean(self, effects: Sequence[CleanJob], fence: Fence) -> list[JobCleaned | None]:
        """Deletes first, so that a crash between leaves the job dirty and is tried again."""
        cleared = [effect for effect in effects if self._clear(effect)]
        reads = self._store.txn(Txn([], [], [key_of(effect.job) for effect in cleared])).reads if cleared else {}
        dirty = [(e, entry) for e in cleared if (entry := reads[key_of(e.job)]) and _is_dirty(entry)]
        if dirty:
            compares = [Compare(key_of(e.job), entry.mod_revision) for e, entry in dirty]
            puts = [Put(key_of(e.job), value_of(e.tombstone)) for e, _ in dirty]
            done = self._store.txn(Txn([fence.compare(), *compares], puts, [fence.compare().key]))
            if not done.succeeded:
                _check_leader(done.reads[fence.compare().key], fence)
                return [None for _ in effects]  # an earlier try, whose answer was lost, came between: look again
        return [JobCleaned(job=effect.job) if effect in cleared else None for effect in effects]

    def _clear(self, effect: CleanJob) -> bool:
        """Whether the job is done with. No sweep takes its exchange data and modules: where storage is away, they are tried again for a
        while, and after that stay, for what can never be deleted must not keep the lane from the others."""
        gone = self._delete(effect.job, lambda: self._storage.delete_tree(effect.exchange))
        gone = self._delete_modules(effect.job, effect.tombstone.acceptance) and gone
        for folder in effect.staging:
            self._delete(effect.job, lambda folder=folder: delete_staging(folder))
        tries = self._clean_tries.pop(effect.job, 0) + 1
        if gone or tries == CLEAN_TRIES:
            return True
        self._clean_tries[effect.job] = tries
        return False

    def _delete_modules(self, job: str, acceptance: str) -> bool:
        return self._delete(job, lambda: self._storage.delete_tree(f"blobs/{job}/{acceptance}"))

    def _delete(self, job: str, delete: Callable[[], None]) -> bool:
        """Whether it is deleted; what cannot be is said."""
        try:
            delete()
        except Exception as failure:  # a path that a user named can be anything: nothing there may stop the others
            log.warning("leavings of a job could not be deleted", job=job, reason=str(failure))
            return False
        return True

    # RecoverJobs

    def recover(self, effect: RecoverJobs, fence: Fence) -> JobsRecovered:
        """The listing is read once and told in pages; another leader that goes on reads its own and skips what was told."""
        if not effect.after or not self._listing or self._listed_epoch != fence.epoch:
            self._listing, self._listed_epoch = self._list(effect.retained), fence.epoch
        page: dict[str, StoredJob] = {}
        size, index = 0, 0
        for index, (job, value) in enumerate(self._listing):
            if job <= effect.after:
                continue
            size += len(value) + len(job)
            if page and size > PAGE_BYTES:
                self._listing = self._listing[index:]
                return JobsRecovered(jobs=page, through=next(reversed(page)))
            page[job] = StoredJob.model_validate_json(value)
        self._listing = []
        return JobsRecovered(jobs=page, through=None)

    def _list(self, retained: int) -> list[tuple[str, bytes]]:
        entries, _ = self._store.list("jobs/")
        ended = [(json.loads(entry.value), entry) for entry in entries]
        clean = sorted((value.get("ended_ms") or 0, entry.key) for value, entry in ended if value["state"] == "clean")
        forgotten = {key for _, key in clean[: max(0, len(clean) - retained)]}
        return [(entry.key[len("jobs/") :], entry.value) for entry in entries if entry.key not in forgotten]


def delete_staging(folder: str) -> None:
    """Deletes one job's part of a sink's staging folder `.../.<name>.staging/<acceptance>`, and that folder if it is empty then.
    Raises OSError; refuses any other path, for sinks are named by users."""
    path, _, acceptance = folder.removeprefix("file://").rpartition("/")
    name = path.rpartition("/")[2]
    if not (name.startswith(".") and name.endswith(".staging") and acceptance and acceptance not in (".", "..")):
        raise OSError(f"{folder} is no staging folder")
    if "://" in path or ":" in path.split("/")[0]:
        import fsspec

        fs, root = fsspec.url_to_fs(folder)
        if fs.exists(root):
            fs.rm(root, recursive=True)
        return
    import shutil

    local = Path(path)
    if (local / acceptance).exists():
        shutil.rmtree(local / acceptance)
    with contextlib.suppress(OSError):  # another job stages there, or it is gone
        local.rmdir()


def _check_leader(entry: Entry | None, fence: Fence) -> None:
    if entry is None or entry.mod_revision != fence.epoch:
        raise Refused


def _stored(effect: PutJobGraph) -> JobGraphStored:
    return JobGraphStored(job=effect.job, stands=effect.stored.model_copy(update={"graph": None}))


def key_of(job: str) -> str:
    return f"jobs/{job}"


def value_of(stored: StoredJob) -> bytes:
    return stored.model_dump_json(exclude_defaults=True).encode()


def stored_of(entry: Entry | None) -> StoredJob | None:
    return StoredJob.model_validate_json(entry.value) if entry is not None else None


def _is_dirty(entry: Entry) -> bool:
    return bool(json.loads(entry.value)["state"] == "dirty")


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def batches(sized: Iterable[tuple[T, int]]) -> Iterable[list[T]]:
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
