"""Exchange data of ended jobs, which stay so that those can be repaired: how long, and how many. A part of the housekeeping.

First the job's key says that its data are kept no more, then they are swept as those of nobody. The key is compared: a repair that was
given the data since it was read has changed it (`repairs`). So nothing is deleted that a live job reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import structlog

from millrace.core.messages.effects import StoredJob
from millrace.io.interfaces import Compare, Entry, Put, Store, Txn
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime.performer import Fence

from .core.retirement import exchange_path
from .core.state import Settings
from .stored import Unreadable, job_of, key_of, stored_of, value_of

LISTED_MOST = 100_000
"""Jobs whose data are kept; of more those go that ended first."""

log = structlog.get_logger("housekeeping")


@dataclass(frozen=True)
class _Kept:
    ended_ms: int
    job: str
    revision: int
    stands: StoredJob


@dataclass
class KeptExchange:
    """`see` each key that is listed, then `over`."""

    store: Store
    storage: Storage
    _own: dict[str, None] = field(default_factory=dict)
    _read: dict[str, None] = field(default_factory=dict)
    _kept: list[_Kept] = field(default_factory=list)

    def see(self, entry: Entry, stands: StoredJob) -> None:
        """What a job reads that lives, or is kept itself, stays, too."""
        if stands.state != "clean" or stands.kept_until_ms is not None:
            self._read |= {acceptance: None for acceptance in stands.kept_of if acceptance != stands.acceptance}
        if stands.state == "clean" and stands.kept_until_ms is not None:
            self._own[stands.acceptance] = None
            self._kept.append(_Kept(stands.ended_ms or 0, job_of(entry), entry.mod_revision, stands))

    @property
    def owned(self) -> dict[str, None]:
        """Acceptances whose data stay."""
        return {**self._own, **self._read}

    def over(self, wall_ms: int, settings: Settings, fence: Fence) -> None:
        """Those that are kept no more are owned no more. The newest stay, as many as fit. Raises Unavailable, Refused."""
        newest = sorted(self._kept, key=lambda each: (each.ended_ms, each.job), reverse=True)
        size = 0
        for number, each in enumerate(newest):
            size += self._size(each.stands.acceptance) if settings.keep_for_repair_ms else 0
            fits = size <= settings.keep_for_repair_mb << 20 and number < LISTED_MOST
            until_ms = min(each.stands.kept_until_ms or 0, each.ended_ms + settings.keep_for_repair_ms)
            if (not fits or wall_ms > until_ms) and not self._is_read(each.stands) and self._forget(each, fence):
                log.info("exchange data of a job are kept no more", job=each.job, fits=fits)

    def _is_read(self, stands: StoredJob) -> bool:
        """Whether a job that was given them may still read them, or hand them on."""
        for job in stands.repaired_by:
            try:
                other = stored_of(self.store.get(key_of(job)))
            except Unreadable:
                return True
            if other is not None and (other.state != "clean" or other.kept_until_ms is not None):
                return True
        return False

    def _forget(self, each: _Kept, fence: Fence) -> bool:
        stone = each.stands.model_copy(update={"kept_until_ms": None, "kept_of": {}, "repaired_by": []})
        compares = [fence.compare(), Compare(key_of(each.job), each.revision)]
        done = self.store.txn(Txn(compares, [Put(key_of(each.job), value_of(stone))], [fence.compare().key]))
        if not done.succeeded:
            fence.check_read(done.reads)  # else it was repaired just now
            return False
        self._own.pop(each.stands.acceptance, None)
        return True

    def _size(self, acceptance: str) -> int:
        """Bytes; 0 while storage does not answer."""
        try:
            return sum(entry.size for entry in self.storage.walk(exchange_path(acceptance)))
        except StorageError as failure:
            log.warning("not measured", folder=exchange_path(acceptance), reason=str(failure))
            return 0
