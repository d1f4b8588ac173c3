"""Mutants of a cluster's identity [R29]."""

from __future__ import annotations

from typing import Any

import millrace.runtime.identity as identity
import millrace.runtime.snapshots as snapshots
import services.dispatcher.core.submission as submission
from tests.simulation.mutants.registry import around, mutant


@mutant(29, "core/cluster.py:acceptance_of", "the first job of a fresh cluster has the name of a job of the one before")
def an_acceptance_is_of_no_cluster() -> None:
    submission.acceptance_of = lambda cluster, record: record


@mutant(29, "runtime/snapshots.py:Pointer.path", "whoever deletes below a snapshot deletes another cluster's")
def a_snapshot_is_of_no_cluster() -> None:
    def begin(original: Any, self: Any, store: Any, storage: Any, machine: Any, cluster: str = "") -> None:
        original(self, store, storage, machine)

    around(snapshots.Snapshots, "__init__", begin)


@mutant(29, "runtime/identity.py:check_storage", "a cluster starts over the storage of another one, which goes on there")
def nobody_asks_whose_storage_it_is() -> None:
    identity.check_storage = lambda storage, me, store: None
