"""One trial: a cluster, jobs and faults drawn from a seed, run to rest and audited.

First anything may happen, and only safety is asked. When all has healed, every job must come to its end without a long rest on the
way; then nothing may be left over.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass

import structlog

from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from tests.simulation import faults as faults_
from tests.simulation import workload
from tests.simulation.audit import assert_parked, audit
from tests.simulation.cluster import Cluster, Stuck
from tests.simulation.faults import Faults

KINDS = (faults_.ALL, faults_.ALL, faults_.WITH_CUTS, faults_.PROCESSES, faults_.CUTS)
SERVICES = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
REST_MS = 3_000  # after the last job has ended, before the audit
IDLE_MOST_MS = 30_000  # between two facts about jobs while all are well and jobs wait for their end
STEPS_MOST = 200_000  # of the cluster: a trial takes some thousands


@dataclass
class Trial:
    """`faults`: how many things happen to the cluster, of these `kinds`; each is undone somewhat later. None: as the seed says."""

    seed: int
    faults: int | None = None
    kinds: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        self._chance = chance = random.Random(f"trial {self.seed}")
        faults, kinds = chance.choice((3, 16, 30, 50)), chance.choice(KINDS)
        self.faults = faults if self.faults is None else self.faults
        self.kinds = self.kinds or kinds
        self.jobs = [f"job-{number}" for number in range(chance.choice((5, 10, 20, 30)))]
        shards, replicas = chance.choice((1, 1, 2)), chance.choice((1, 1, 2))
        self.cluster = Cluster(
            Topology(shards=shards),
            seed=self.seed,
            task_managers=chance.choice((1, 2, 3)),
            slots=chance.choice((1, 2, 3)),
            script=workload.drawn_behaviour(self.seed),
            control=tuple(f"{service}#{n}" for service in SERVICES for n in range(1, replicas + 1)),
            snapshot_records=chance.choice((3, 50, 300, 50_000)),
            stalls=chance.choice((0.0, 0.02, 0.1)),
            poison=tuple(job for job in self.jobs if chance.random() < 0.02),
        )
        self.done = Faults(self.cluster, chance, self.faults, self.kinds)
        self.cluster.between = self.done.step
        self._known = self._known_ms = 0
        self._to_submit = list(self.jobs)
        self._to_cancel = [job for job in self.jobs if chance.random() < 0.15]

    def run(self) -> str:
        """The hash of all that happened. AssertionError with the seed and the trace when something does not hold."""
        cluster, clock = self.cluster, self.cluster.world.clock
        workload.upload_module(cluster.world)
        try:
            while not self._over():
                next_ms = clock.now_ms() + self._chance.randint(1, 150)
                while clock.now_ms() < next_ms:
                    cluster.step()
                    self.done.heal()
                self._act()
                self._look()
            cluster.run(cluster.ready, most_ms=20_000)
            cluster.run(most_ms=REST_MS)
            audit(cluster)
            assert_parked(cluster)
        except Exception as failure:
            trace = "\n".join(f"{at_ms} ms: {what}" for at_ms, what in self.done.trace)
            what = f"{type(failure).__name__}: {failure}"
            raise AssertionError(f"seed {self.seed}, faults {self.faults}: {what}\n{trace}") from failure
        return cluster.hash()

    def _look(self) -> None:
        """I10: when all is well again, jobs go on."""
        cluster, now_ms = self.cluster, self.cluster.world.clock.now_ms()
        facts = self._facts()
        if facts != self._known or not self.done.over:
            self._known, self._known_ms = facts, now_ms
        stuck = now_ms - self._known_ms > IDLE_MOST_MS or cluster.rounds > STEPS_MOST
        if stuck:
            left = [job for job in self.jobs if not cluster.ended(job)]
            raise Stuck(f"I10: {left} do not go on: {cluster.describe()}")

    def _facts(self) -> int:
        """How many are known about jobs."""
        world = self.cluster.world
        partitions = world.topology.job_event_partitions
        return len(self._to_submit) + sum(world.broker.log("job.events", k).end for k in range(partitions))

    def _over(self) -> bool:
        waiting = self._to_submit or self._to_cancel or not self.done.over
        return not waiting and self.cluster.ended(*self.jobs)

    def _act(self) -> None:
        chance, client = self._chance, self.cluster.client
        while self._to_submit and chance.random() < 0.5:
            job = self._to_submit.pop(0)
            for _ in range(chance.choice((1, 1, 1, 1, 2))):  # a client that was not answered in time sends again
                client.submit(job, workload.drawn(self.seed, job))
        if self._to_submit and chance.random() < 0.02:
            client.send(f"{{no request {client.junk}".encode())
        if self._to_cancel and chance.random() < 0.05:
            client.cancel(self._to_cancel.pop(0))


def quiet_logs() -> None:
    """The services say a lot about what is done to them here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

