"""Somebody else who writes under the keys of jobs in etcd: puts graphs there, valid ones and others, over what is known too, and deletes
those of live jobs. What must hold then."""

from __future__ import annotations

import json
import random
from typing import Any

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.events import DeadLetter, JobAccepted, JobCancelling
from millrace.edge.requests import check_graph
from millrace.io.interfaces import Delete, Entry, Put, Txn
from services.dispatcher.stored import Unreadable, stored_of, value_of
from tests.simulation import faults, workload
from tests.simulation.cluster import Cluster
from tests.simulation.store import MemoryStore
from tests.simulation.world import PREFIX

NAME = "stranger"
LETTERS = "etcd jobs/"
GARBAGE = (b"", b"{", b'{"state":"accepted"}', b"\xff")
STRANGERS: dict[str, Any] = {"strangers": 0.05, "graphs": (workload.roots, workload.wide, workload.single), "repairs": 0.0}
"""The shape of a trial in which graphs are put there and deleted. No log is cut in it: a key that is deleted and a log that is lost
together leave nobody who knows the job."""
KINDS = (*faults.PROCESSES, "lose", "pause", "etcd", "answers", "watches", "lease", "storage", "broker", "term")


class Stranger:
    """Draws what it does from a seed. `jobs`: ids that must come to an end, to which it adds."""

    def __init__(self, seed: int, cluster: Cluster, jobs: list[str]) -> None:
        self._seed, self._chance, self._cluster, self._jobs = seed, random.Random(f"strangers {seed}"), cluster, jobs
        self._store = MemoryStore(cluster.world.etcd, PREFIX, NAME)
        self.malformed: dict[str, bytes] = {}
        self.added: list[str] = []
        self.removed: dict[str, bool] = {}  # job -> whether it is known that the job lived
        cluster.world.strangers = True

    def act(self) -> None:
        if self._cluster.world.etcd.paused:
            return
        self._chance.choice((self._add, self._add, self._spoil, self._remove, self._write_over, self._lose))()

    @property
    def rests(self) -> bool:
        """Whether nothing of what it has put stands in etcd, but what is malformed."""
        standing = [each for each in self._entries() if (each.mod_revision, each.key) in self._written() and not self._is_malformed(each)]
        return not standing and self._cluster.ended(*self.added)

    def assert_taken_up(self) -> None:
        """What was added is accepted once, what is malformed never, and of that a letter says why; what is deleted is canceled by no more
        than one wish, and has an end all the same."""
        accepted = [each.job for each in self._events(JobAccepted)]
        for job in self.added:
            assert accepted.count(job) == 1, f"[R24]: {job}, which somebody has put into etcd, is accepted {accepted.count(job)} times"
        letters = {each.topic.removeprefix(LETTERS) for each in letters_of(self._cluster)}
        for job in self.malformed:
            assert job not in accepted, f"[R26]: {job} is accepted, and malformed"
            assert job in letters, f"[R26]: of {job}, which is malformed, nobody is told"
        canceled = [each.job for each in self._events(JobCancelling) if each.reason]
        strange = [job for job in canceled if job not in self.removed]
        assert not strange, f"[R24]: {strange} are canceled, and nobody has deleted their graphs"

    def _events(self, kind: type) -> list[Any]:
        return [each for job in [*self._jobs, *self.malformed] for each in self._cluster.client.events(job) if isinstance(each, kind)]

    def _entries(self) -> list[Entry]:
        return list(self._store.list("jobs/")[0]) if not self._cluster.world.etcd.paused else []

    def _written(self) -> dict[tuple[int, str], None]:
        return {(revision, key.removeprefix(PREFIX)): None for revision, key in self._cluster.world.etcd.foreign}

    def _is_malformed(self, entry: Entry) -> bool:
        return entry.key.partition("/")[2] in self.malformed

    def _put(self, job: str, value: bytes) -> None:
        self._store.txn(Txn((), [Put(f"jobs/{job}", value)]))

    def _value(self, name: str, own: str = "") -> bytes:
        """As somebody copies it: its other fields are of another job, or, edited, of this one."""
        graph = check_graph(workload.drawn(self._seed, name, STRANGERS["graphs"]), {}, DEFAULT_LIMITS).stored
        acceptance = self._chance.choice(("0123abcd.1.7", f"{self._cluster.world.cluster[:8]}.1.3", *([own] if own else [])))
        return value_of(StoredJob(state="accepted", digest="x", acceptance=acceptance, shard=0, accepted_ms=1, graph=graph, name="copied"))

    def _is_announced(self, job: str) -> bool:
        """Before that it is not accepted: what is done to its key then is done to what somebody has put there."""
        return any(isinstance(each, JobAccepted) for each in self._cluster.client.events(job))

    def _known(self, *states: str) -> list[str]:
        """Jobs that a Dispatcher has put there."""
        found = []
        for entry in self._entries():
            try:
                stands = stored_of(entry)
            except Unreadable:
                continue
            own, job = (entry.mod_revision, entry.key) not in self._written(), entry.key.partition("/")[2]
            if own and stands is not None and stands.state in states and self._is_announced(job):
                found.append(job)
        return found

    def _add(self) -> None:
        job = f"added-{len(self.added)}"
        self._put(job, self._value(job))
        self.added.append(job)
        self._jobs.append(job)

    def _spoil(self) -> None:
        job = f"spoilt-{len(self.malformed)}"
        value = self._chance.choice((*GARBAGE, self._value(job).replace(b'"vertices":{', b'"vertexes":{')))
        self._put(job, value)
        self.malformed[job] = value

    def _remove(self) -> None:
        """Of a job that lives as etcd has it."""
        if jobs := self._known("accepted"):
            job = self._chance.choice(jobs)
            self.removed[job] = True
            self._store.txn(Txn((), [Delete(f"jobs/{job}")]))

    def _lose(self) -> None:
        """As in an etcd that was restored from a backup: a key is gone, and no history tells why."""
        etcd = self._cluster.world.etcd
        if jobs := self._known("accepted"):
            del etcd._entries[f"{PREFIX}jobs/{self._chance.choice(jobs)}"]
        etcd.compact()
        etcd.lose_watches()

    def _write_over(self) -> None:
        if jobs := self._known("accepted", "clean"):
            job = self._chance.choice(jobs)
            stands = self._cluster.stored(job)
            edited = self._value(f"over {job}", stands.acceptance if stands is not None else "")
            self._put(job, self._chance.choice((*GARBAGE[1:], edited, edited)))


def letters_of(cluster: Cluster) -> list[DeadLetter]:
    """Those of graphs in etcd."""
    records = [json.loads(each.value) for each in cluster.world.broker.log("dead-letters", 0).records]
    return [DeadLetter.model_validate(each) for each in records if each["topic"].startswith(LETTERS)]
