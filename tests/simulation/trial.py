"""One trial: a cluster, jobs and faults drawn from a seed, run to rest and audited.

`python -m tests.simulation.trial SEED [SEED ...]` runs trials and prints a line for each, with the hash of all that happened.
"""

from __future__ import annotations

import logging
import random
import sys
from dataclasses import dataclass

import structlog

from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from tests.simulation import faults as faults_
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Faults

SERVICES = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
REST_MS = 3_000  # after the last job has ended, before the audit
MOST_MS = 300_000


@dataclass
class Trial:
    """`faults`: how many things happen to the cluster, of these `kinds`; each is undone somewhat later."""

    seed: int
    faults: int = 12
    kinds: tuple[str, ...] = faults_.ALL

    def __post_init__(self) -> None:
        self._chance = chance = random.Random(f"trial {self.seed}")
        self.jobs = [f"job-{number}" for number in range(chance.choice((10, 20, 30)))]
        replicas = chance.choice((1, 1, 2))
        self.cluster = Cluster(
            Topology(shards=chance.choice((1, 1, 2))),
            seed=self.seed,
            task_managers=chance.choice((1, 2, 3)),
            slots=chance.choice((1, 2, 3)),
            script=workload.drawn_behaviour(self.seed),
            control=tuple(f"{service}#{n}" for service in SERVICES for n in range(1, replicas + 1)),
            snapshot_records=chance.choice((3, 50, 300, 50_000)),
            stalls=chance.choice((0.0, 0.02, 0.1)),
        )
        self.done = Faults(self.cluster, chance, self.faults, self.kinds)
        self.cluster.between = self.done.step
        self._to_submit = list(self.jobs)
        self._to_cancel = [job for job in self.jobs if chance.random() < 0.15]

    def run(self) -> str:
        """The hash of all that happened. AssertionError with the seed and the trace when something does not hold."""
        cluster, clock = self.cluster, self.cluster.world.clock
        workload.upload_module(cluster.world)
        try:
            end_ms = clock.now_ms() + MOST_MS
            while not self._over():
                next_ms = clock.now_ms() + self._chance.randint(1, 150)
                while clock.now_ms() < next_ms:
                    cluster.step()
                    self.done.heal()
                self._act()
                if clock.now_ms() > end_ms:
                    left = [job for job in self.jobs if not cluster.ended(job)]
                    raise AssertionError(f"I10: {left} have not ended: {cluster.describe()}")
            cluster.run(cluster.ready, most_ms=20_000)
            cluster.run(most_ms=REST_MS)
            audit(cluster)
        except Exception as failure:
            trace = "\n".join(self.done.trace)
            raise AssertionError(f"seed {self.seed}, faults {self.faults}: {failure}\n{trace}") from failure
        return cluster.hash()

    def _over(self) -> bool:
        waiting = self._to_submit or self._to_cancel or not self.done.over
        return not waiting and self.cluster.ended(*self.jobs)

    def _act(self) -> None:
        chance, client = self._chance, self.cluster.client
        while self._to_submit and chance.random() < 0.5:
            job = self._to_submit.pop(0)
            for _ in range(chance.choice((1, 1, 1, 1, 2))):  # a client that was not answered in time sends again
                client.submit(job, workload.drawn(self.seed, job))
        if self._to_cancel and chance.random() < 0.05:
            client.cancel(self._to_cancel.pop(0))


def quiet_logs() -> None:
    """The services say a lot about what is done to them here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def main(arguments: list[str]) -> int:
    quiet_logs()
    for seed in map(int, arguments):
        trial = Trial(seed)
        print(f"{seed} {trial.run()} {trial.cluster.world.book.folded} records", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
