"""Mutants of etcd restored from a backup [R24], and of handovers between builds [R27]."""

from __future__ import annotations

import dataclasses
from typing import Any

import deploy.recover as recover
import millrace.core.replica as replica
import millrace.runtime.generations as generations
import millrace.runtime.loop as loop
import millrace.runtime.saving as saving
from tests.simulation.mutants.registry import around, mutant


@mutant(24, "runtime/generations.py:Generations._refuse_older_store", "who knows of more than etcd leads on beside it")
def an_older_etcd_is_led_on() -> None:
    generations.Generations._refuse_older_store = lambda self, known: None


@mutant(24, "deploy/recover.py:_raise_revision", "epochs are given a second time")
def recover_leaves_the_revision() -> None:
    recover._raise_revision = lambda store, known, say: None
    generations.Generations._refuse_older_store = lambda self, known: None


@mutant(24, "deploy/recover.py:_put_generation", "a log that began after the backup is taken for one that was replaced")
def recover_leaves_the_generations() -> None:
    recover._put_generation = lambda *given: None


def _put_back(state: str) -> None:
    def put_back(original: Any, found: Any, store: Any) -> None:
        original([each for each in found if each.stored.state == state], store)

    around(recover, "put_back", put_back)


@mutant(24, "deploy/recover.py:_put_jobs", "what was accepted after the backup is nowhere when the log is lost, too")
def recover_puts_back_no_accepted_job() -> None:
    _put_back("clean")


@mutant(24, "deploy/recover.py:_put_jobs", "what ended after the backup counts as running")
def recover_puts_back_no_ended_job() -> None:
    _put_back("accepted")


@mutant(27, "core/replica.py:Replica._elected", "a replica folds what another build leads")
def a_replica_goes_on_as_another_build() -> None:
    def elected(original: Any, self: Any, record: Any, *given: Any) -> Any:
        return original(self, record.model_copy(update={"build": self.build}), *given)

    around(replica.Replica, "_elected", elected)


@mutant(27, "runtime/loading.py:Loading.state", "a build goes on from what another one has not ended")
def a_snapshot_of_another_build_counts() -> None:
    def newest(original: Any, self: Any, generation: int) -> Any:
        pointer = original(self, generation)
        return dataclasses.replace(pointer, final=True) if pointer is not None else None

    around(loop.Snapshots, "newest", newest)


@mutant(27, "runtime/saving.py:Saving.last", "the end of a term is not recorded, and the other build waits for ever")
def the_last_snapshot_of_a_term_is_not_marked() -> None:
    def last(self: Any, folded: Any) -> None:
        self._clean(self._snapshots.save(folded))

    saving.Saving.last = last


@mutant(27, "runtime/snapshots.py:Snapshots.keep", "every snapshot looks like the end of a term")
def every_snapshot_is_final() -> None:
    def keep(original: Any, self: Any, generation: int, offset: int, build: str, data: bytes, final: bool = False) -> Any:
        return original(self, generation, offset, build, data, True)

    around(loop.Snapshots, "keep", keep)
