"""Mutants of what grows [R32]: each takes a bound away."""

from __future__ import annotations

import millrace.core.fold as fold
import millrace.runtime.saving as saving
from millrace.io.storage.store import Storage, Swept
from services.dispatcher.core import retirement
from services.dispatcher.housekeeping import Housekeeping
from tests.simulation.mutants.registry import mutant

NEVER = 1 << 50


@mutant(32, "core/fold.py:PARTED_KEPT", "every TaskManager that ever was stays in state, in snapshots and in the loop of every tenth tick")
def peers_that_parted_stay() -> None:
    fold.PARTED_KEPT = NEVER


@mutant(32, "dispatcher/housekeeping.py:Housekeeping", "etcd is full after some months, and nobody can lead any more")
def tombstones_stay() -> None:
    Housekeeping._forget = lambda self, over, now_ms, asked_ms, fence: None


@mutant(32, "io/storage/store.py:Storage.sweep", "what jobs leave in storage is never deleted")
def nothing_is_swept() -> None:
    Storage.sweep = lambda self, prefix, older_than_ms, now_ms, keep=(): Swept(0, 0)


@mutant(32, "runtime/saving.py:SNAPSHOT_BYTES", "an inbox of large records fills the disk, and takes minutes to be folded again")
def inboxes_are_cut_by_records_alone() -> None:
    saving.SNAPSHOT_BYTES = NEVER


@mutant(32, "dispatcher/core/retirement.py:forget_oldest", "every job that ever ended stays in state")
def ended_jobs_are_remembered_for_ever() -> None:
    retirement.forget_oldest = lambda state: None
