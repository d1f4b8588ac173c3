"""The Dispatcher's effects on etcd and storage. Each port takes up to 40 effects of its type and returns their outcomes.

Every write compares the leader key [R17]. Writes go in batches of one transaction; where one compare fails, one by one [R19].
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import structlog

from millrace.core.messages.base import Body
from millrace.core.messages.effects import (
    CleanJob,
    ClusterEnded,
    EndCluster,
    EndJob,
    FindJob,
    JobFound,
    JobGraphStored,
    JobResultStored,
    KeepJob,
    KeepJobGraph,
    ListStoredJobs,
    PutJobGraph,
    RecoverJobs,
    RepairRefused,
    StoredJob,
)
from millrace.core.origins import repairs_of
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn, Unavailable, UnknownOutcome
from millrace.io.storage.store import NameTaken, NotFound, Storage, StorageError, blob_path, upload_path
from millrace.runtime import shut_down
from millrace.runtime.performer import Fence, PerEffect, Port, Refused

from .archivist import Archivist
from .cleaning import Cleaning, delete_tree
from .listed import StoredListing
from .recovering import Recovering
from .repairs import Repairs
from .replacing import Replacing
from .schedules.ports import ScheduleStore
from .staging import Staging
from .stored import Unreadable, batches, key_of, stored_of, value_of

SINGLE_TRIES = 5

log = structlog.get_logger("ports")


class JobStore:
    """Jobs in etcd (`jobs/<id>`), their archives and leavings in storage. `wall_ms` is the real clock, Unix time."""

    def __init__(
        self,
        store: Store,
        storage: Storage,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        staging: Staging | None = None,
        archivist: Archivist | None = None,
    ):
        self._store, self._storage, self._wall_ms, self._archivist = store, storage, wall_ms, archivist
        self._cleaning, self._recovering = Cleaning(store, storage, staging or Staging()), Recovering(store)
        self._listing = StoredListing(store, wall_ms)
        self._repairs, self._replacing = Repairs(store, storage), Replacing(store)
        self.schedules_changed = threading.Event()
        """Is set when a schedule may stand otherwise than before."""
        self._schedules = ScheduleStore(store, storage, wall_ms, self.schedules_changed)
        # (job, acceptance) of puts that may have been carried out: too late or not, they are tried until that is known. Of the term
        # of `_perhaps_epoch`: a leader that goes on after another one knows nothing of what that one found out
        self._perhaps: set[tuple[str, str]] = set()
        self._perhaps_epoch = 0

    def ports(self) -> dict[type[Body], Port]:
        return {
            PutJobGraph: self.put_graphs,
            KeepJobGraph: PerEffect(self._replacing.keep),
            FindJob: self.find,
            EndJob: self.end,
            CleanJob: self._cleaning.clean,
            KeepJob: PerEffect(self._cleaning.keep),
            RecoverJobs: PerEffect(self._recovering.recover),
            ListStoredJobs: PerEffect(self._listing.listed),
            EndCluster: PerEffect(self.end_cluster),
            **self._schedules.ports(),
        }

    # PutJobGraph

    def put_graphs(self, effects: Sequence[PutJobGraph], fence: Fence) -> list[JobGraphStored | None]:  # [R30]
        """Create-if-absent [R18]. What is too late is not put, unless an earlier try may have put it in time; nor, until a later try,
        what storage cannot keep the modules of."""
        outcomes: dict[str, JobGraphStored] = {}
        wall_ms = self._wall_ms()
        if self._perhaps_epoch != fence.epoch:
            self._perhaps, self._perhaps_epoch = set(), fence.epoch
        fresh: list[tuple[PutJobGraph, bytes]] = []
        for effect in effects:
            late = effect.accept_before_ms is not None and wall_ms > effect.accept_before_ms
            if late and (effect.job, effect.stored.acceptance) not in self._perhaps:
                outcomes[effect.job] = self._read_stored(effect.job, fence)
            elif effect.replaces:
                self._replace(effect, fence, outcomes)
            elif repairs_of(effect.stored.graph or {}) is not None:
                self._put_repair(effect, wall_ms, fence, outcomes)
            elif self._keep_modules(effect):
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
                    # copied in vain: the id is another's
                    delete_tree(self._storage, effect.job, f"blobs/{effect.job}/{effect.stored.acceptance}")
        return [outcomes.get(effect.job) for effect in effects]

    def _put_batch(
        self, batch: Sequence[tuple[PutJobGraph, bytes]], fence: Fence, outcomes: dict[str, JobGraphStored]
    ) -> None:  # [R19]
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
            if result.reads[put.key] is None:
                raise Refused
            outcomes[effect.job] = _standing(effect.job, result.reads[put.key])

    def _put_repair(
        self, effect: PutJobGraph, wall_ms: int, fence: Fence, outcomes: dict[str, JobGraphStored]
    ) -> None:
        """By itself, for it compares the jobs whose data it is given, too. A try before, whose answer was lost, cannot succeed behind a
        refusal by what their keys hold: they have changed since. Any other refusal waits until that try is known."""
        standing = self._read_stored(effect.job, fence)
        if standing.stands is not None or standing.unreadable is not None:
            outcomes[effect.job] = standing
            return
        asked = (effect.job, effect.stored.acceptance)
        try:
            found = self._repairs.look(effect, None if asked in self._perhaps else wall_ms)
        except StorageError as failure:
            log.warning("a repair waits for storage", job=effect.job, reason=str(failure))
            return
        if isinstance(found, RepairRefused):
            outcomes[effect.job] = JobGraphStored(job=effect.job, stands=None, refused=found)
            return
        if not self._keep_modules(effect):
            return
        key = key_of(effect.job)
        compares = [fence.compare(), Compare(key, 0), *found.compares]
        try:
            done = self._store.txn(Txn(compares, [Put(key, value_of(found.stored)), *found.puts], [key, fence.compare().key]))
        except UnknownOutcome as unknown:
            self._perhaps.add(asked)
            log.warning("not known yet whether a job was stored", job=effect.job, reason=str(unknown))
            return
        if done.succeeded:
            outcomes[effect.job] = JobGraphStored(job=effect.job, stands=found.stored.model_copy(update={"graph": None}))
        else:
            fence.check_read(done.reads)  # else one of the others has changed just now: look again

    def _replace(self, effect: PutJobGraph, fence: Fence, outcomes: dict[str, JobGraphStored]) -> None:
        try:
            outcome = self._replacing.put(effect, fence, self._keep_modules)
        except Unavailable as failure:  # it waits by itself
            log.warning("not known yet whether a job was stored", job=effect.job, reason=str(failure))
            return
        if outcome is not None:
            outcomes[effect.job] = outcome

    def _read_stored(self, job: str, fence: Fence) -> JobGraphStored:
        result = self._store.txn(Txn([fence.compare()], [], [key_of(job)]))
        if not result.succeeded:
            raise Refused
        return _standing(job, result.reads[key_of(job)])

    def _keep_modules(self, effect: PutJobGraph) -> bool:
        """Uploads go by age; what an accepted job uses stays as long as the job. False: storage is away, and nothing is accepted before
        they are kept."""
        for module in (effect.stored.graph or {}).get("modules", ()):
            sha256 = module["sha256"]
            try:
                kept = blob_path(effect.job, effect.stored.acceptance, sha256)
                self._storage.copy_new(upload_path(sha256), kept)
            except (NotFound, NameTaken) as failure:  # it stays so: the attempt that needs it will say so, by name
                log.warning("a module of a job is not there", job=effect.job, module=module["name"], reason=str(failure))
            except StorageError as failure:
                log.warning("a submission waits for storage", job=effect.job, module=module["name"], reason=str(failure))
                return False
        return True

    # FindJob

    def find(self, effects: Sequence[FindJob], fence: Fence) -> list[JobFound]:
        reads = self._store.txn(Txn([], [], [key_of(effect.job) for effect in effects])).reads
        return [_found(effect.job, reads[key_of(effect.job)]) for effect in effects]

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
        known = {job: stands for job, (_, entry) in found.items() if (stands := _readable(entry)) and stands.status}
        wanted = [(effect, entry) for effect, entry in found.values() if effect.job not in known]
        fence.check_read(reads)
        if wanted:
            compares = [Compare(key_of(e.job), entry.mod_revision if entry else 0) for e, entry in wanted]
            puts = [Put(key_of(e.job), value_of(e.ending)) for e, _ in wanted]
            if self._store.txn(Txn([fence.compare(), *compares], puts)).succeeded:
                known |= {effect.job: effect.ending for effect, _ in wanted}
                self._listing.forget()
        outcomes.update((job, JobResultStored(job=job, stands=stands)) for job, stands in known.items())

    # EndCluster

    def end_cluster(self, effect: EndCluster, fence: Fence) -> ClusterEnded:  # [R34]
        """Unless the cluster was opened again after it: then a leader of before died between the key and its outcome."""
        reads = self._store.txn(Txn([], [], [fence.compare().key, shut_down.REOPENED])).reads
        fence.check_read(reads)
        reopened = reads[shut_down.REOPENED]
        if reopened is None or reopened.value.decode(errors="replace") != effect.name:
            compare = Compare(shut_down.REOPENED, reopened.mod_revision if reopened is not None else 0)
            ended = shut_down.Ended(name=effect.name, shut_down=effect.shut_down)
            if not self._store.txn(Txn([fence.compare(), compare], [Put(shut_down.KEY, ended.value())])).succeeded:
                raise Refused
        return ClusterEnded(name=effect.name)

    def _archive(self, effect: EndJob) -> bool:
        assert effect.ending.archive is not None, "an ending names its archive"
        try:
            self._storage.put_if_absent(effect.ending.archive, effect.archive.json_text())
        except StorageError as failure:
            log.error(
                "an archive could not be written; the job's end waits for it", job=effect.job, reason=str(failure)
            )
            return False
        if self._archivist is not None:
            self._archivist.take(effect.ending.archive)
        return True


def _stored(effect: PutJobGraph) -> JobGraphStored:
    return JobGraphStored(job=effect.job, stands=effect.stored.model_copy(update={"graph": None}))


def _standing(job: str, entry: Entry | None) -> JobGraphStored:
    try:
        return JobGraphStored(job=job, stands=stored_of(entry))
    except Unreadable as reason:
        return JobGraphStored(job=job, stands=None, unreadable=str(reason))


def _found(job: str, entry: Entry | None) -> JobFound:
    try:
        return JobFound(job=job, stands=stored_of(entry))
    except Unreadable as reason:
        return JobFound(job=job, stands=None, unreadable=str(reason))


def _readable(entry: Entry | None) -> StoredJob | None:
    """What nobody can read is no ending: the one that the log knows takes its place."""
    try:
        return stored_of(entry)
    except Unreadable:
        return None
