"""One trial: a cluster, jobs and faults drawn from a seed, run to rest and audited.

`python -m tests.simulation.trial SEED [SEED ...]` runs trials and prints a line for each, with the hash of all that happened.
"""

from __future__ import annotations

import logging
import random
import sys
from dataclasses import dataclass, field

import structlog

from millrace.core.topics import Topology
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.cluster import Cluster

REST_MS = 3_000  # after the last job has ended, before the audit
MOST_MS = 300_000


@dataclass
class Trial:
    """`faults`: how many processes are killed or stopped, each to be started again somewhat later."""

    seed: int
    faults: int = 8
    trace: list[str] = field(default_factory=list)  # what was done to the cluster

    def __post_init__(self) -> None:
        self._chance = chance = random.Random(f"trial {self.seed}")
        self.jobs = [f"job-{number}" for number in range(chance.choice((10, 20, 30)))]
        self.cluster = Cluster(
            Topology(shards=chance.choice((1, 1, 2))),
            seed=self.seed,
            task_managers=chance.choice((1, 2, 3)),
            slots=chance.choice((1, 2, 3)),
            script=workload.drawn_behaviour(self.seed),
            snapshot_records=chance.choice((50, 300, 50_000)),
        )
        self._to_submit = list(self.jobs)
        self._to_cancel = [job for job in self.jobs if chance.random() < 0.15]
        self._faults = self.faults
        self._down: dict[str, int] = {}  # process -> when it is started again

    def run(self) -> str:
        """The hash of all that happened. AssertionError with the seed and the trace when something does not hold."""
        cluster, clock = self.cluster, self.cluster.world.clock
        workload.upload_module(cluster.world)
        self._begin_ms = clock.now_ms()
        try:
            while not self._over():
                next_ms = clock.now_ms() + self._chance.randint(1, 150)
                while clock.now_ms() < next_ms:
                    cluster.step()
                self._act()
                if clock.now_ms() - self._begin_ms > MOST_MS:
                    left = [job for job in self.jobs if not cluster.ended(job)]
                    raise AssertionError(f"I10: {left} have not ended: {cluster.describe()}")
            cluster.run(cluster.ready, most_ms=20_000)
            cluster.run(most_ms=REST_MS)
            audit(cluster)
        except Exception as failure:
            done = "\n".join(self.trace)
            raise AssertionError(f"seed {self.seed}, faults {self.faults}: {failure}\n{done}") from failure
        return cluster.hash()

    def _over(self) -> bool:
        at_rest = not (self._to_submit or self._to_cancel or self._faults or self._down)
        return at_rest and self.cluster.ended(*self.jobs)

    def _act(self) -> None:
        chance, cluster = self._chance, self.cluster
        now_ms = cluster.world.clock.now_ms()
        while self._to_submit and chance.random() < 0.5:
            job = self._to_submit.pop(0)
            for _ in range(chance.choice((1, 1, 1, 1, 2))):  # a client that was not answered in time sends again
                cluster.client.submit(job, workload.drawn(self.seed, job))
        if self._to_cancel and chance.random() < 0.05:
            cluster.client.cancel(self._to_cancel.pop(0))
        living = [name for name, process in cluster.processes.items() if process.alive]
        if self._faults and living and chance.random() < 0.15:
            name, how = chance.choice(living), chance.choice((cluster.kill, cluster.kill, cluster.stop))
            how(name)
            self._faults -= 1
            self._down[name] = now_ms + chance.choice((0, 50, 300, 1_000, 7_000))
            self._note(f"{how.__name__} {name}")
        for name, start_ms in list(self._down.items()):
            if now_ms >= start_ms and not cluster.processes[name].alive:
                del self._down[name]
                cluster.start(name)
                self._note(f"start {name}")

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.cluster.world.clock.now_ms() - self._begin_ms} ms: {what}")


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
