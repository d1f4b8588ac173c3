"""TaskManagers that come and go [R33]: jobs make a cluster grow, rest makes it shrink, and its provider fails in every way. Run as a seed
says."""

from __future__ import annotations

import random
from contextlib import suppress

from millrace.core.states import WITH_TASK_MANAGER, WorkerState
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from tests.simulation import workload
from tests.simulation.audit import audit
from tests.simulation.behaviour import Timing
from tests.simulation.cluster import Cluster, Stuck
from tests.simulation.faults import Faults
from tests.simulation.provider import MemoryProvider

CONTROL = (f"{DISPATCHER}#1", f"{RESOURCE_MANAGER}#1", f"{RESOURCE_MANAGER}#2", f"{JOB_MASTER}#1")
START_MS, IDLE_MS = 4_000, 2_000
SLOW_MS = 500
OTHERS = tuple(f"{kind}:{RESOURCE_MANAGER}" for kind in ("kill", "pause", "lease", "cut", "cut", "cut")) + ("broker", "etcd")
OF_PROVIDER = ("away", "refuses", "loses_answers", "mute", "doubles")
OF_WORKERS = ("dies", "hangs", "is_lost")
KINDS = (*OF_PROVIDER, *OF_WORKERS, *OF_WORKERS, *("healed",) * 6, "forgotten", "nothing")
TURNS = 16
WAITS = (100, 300, 1_000)  # steps between two other faults
WAITS_MS = (0, 20, 200, 1_000, 4_000)
GRAPHS = (workload.single, workload.wide, workload.roots)
STARTS_A_MINUTE = 30  # at most, while nothing that is started works
ENDS_MS = 180_000  # in which all jobs end once all is well: pauses after failures are in it
RESTS_MS = 150_000  # in which what is not needed goes. What nobody has asked for is found by the list of each minute


class Scene:
    """A cluster whose TaskManagers are started by a provider."""

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(f"providing {seed}")
        self._least, self._most = chance.choice(((0, 1), (0, 2), (1, 3)))
        deciding = {
            "provider": "memory", "task_managers_min": self._least, "task_managers_max": self._most,
            "task_managers_spare": chance.choice((0, 0, 1)), "worker_slots": 2, "worker_memory_mb": 1024,
            "worker_start_ms": START_MS, "worker_idle_ms": IDLE_MS,
        }  # fmt: skip
        self._cluster = cluster = Cluster(
            Topology(), seed=seed, task_managers=0, slots=2, control=(), stalls=chance.choice((0.0, 0.1)), timing=Timing(run=(100, 1_500)),
            deciding={RESOURCE_MANAGER: deciding},
        )  # fmt: skip
        self._provider = MemoryProvider(cluster, self._most, chance.choice((0, 500, 3_000)))
        for name in CONTROL:
            cluster.start(name)
        workload.upload_module(cluster.world)
        self._waiting = [f"job-{number}" for number in range(12)]
        self._faults = Faults(cluster, chance, chance.choice((0, 4, 8)), OTHERS, waits=WAITS)
        cluster.between = self._faults.step

    def run(self) -> None:
        """AssertionError, with what was done, when something does not hold."""
        try:
            self._run()
            assert not self._provider.broken, self._provider.broken[0]
        except AssertionError as failure:
            trace = "\n".join(f"{at_ms} ms: {what}" for at_ms, what in self._faults.trace)
            raise type(failure)(f"{failure}\n{trace}") from failure

    def _run(self) -> None:
        cluster, jobs = self._cluster, list(self._waiting)
        for _ in range(TURNS):
            if self._chance.random() < 0.4:
                self._submit()
            self._harm()
            self._pass(self._chance.choice(WAITS_MS))
        while self._waiting:
            self._submit()
        self._heal()
        cluster.world.stalls = 0.0
        cluster.run(lambda: cluster.ended(*jobs), most_ms=ENDS_MS)
        self._answer_late()
        self._come_to_rest(RESTS_MS)
        cluster.run(most_ms=3_000)
        self._come_to_rest(3_000)
        self._assert_pauses()
        audit(cluster)

    def _submit(self) -> None:
        if self._waiting:
            job = self._waiting.pop(0)
            self._cluster.client.submit(job, self._chance.choice(GRAPHS)(job))

    def _pass(self, ms: int) -> None:
        """Time goes on. Now and then a job comes just when a TaskManager is asked whether it may be stopped."""
        end_ms, drains = self._cluster.world.clock.now_ms() + ms, False
        while self._cluster.world.clock.now_ms() < end_ms:
            self._cluster.step()
            self._faults.heal()
            before, drains = drains, self._drains()
            if drains and not before and self._chance.random() < 0.7:
                self._submit()

    # what happens

    def _harm(self) -> None:
        kind = self._chance.choice(KINDS)
        if kind in OF_PROVIDER:
            setattr(self._provider, kind, True)
        elif kind == "healed":
            self._provider.heal()
        elif kind == "forgotten":  # the ResourceManager loses its log, and cannot ask what there is
            self._provider.away = self._faults.do(f"cut:{RESOURCE_MANAGER}")
        elif kind in OF_WORKERS:
            names = [each for each in self._provider.living() if f"task-manager/{each}" in self._cluster.processes]
            if not names:
                return
            worker = self._chance.choice(names)
            kind = f"{worker} {kind}"
            if kind.endswith("dies"):
                self._cluster.kill(f"task-manager/{worker}")
            elif kind.endswith("is_lost"):
                self._provider.lose(worker)
            else:
                self._cluster.paused[f"task-manager/{worker}"] = None
        self._faults.note(f"the provider: {kind}" if kind in OF_PROVIDER else kind)

    def _heal(self) -> None:
        self._faults.note("all is well")
        self._faults.left = 0
        self._provider.heal()
        for name in [name for name in self._cluster.paused if name.startswith("task-manager/")]:
            self._cluster.paused.pop(name)
        while not self._faults.over:
            self._pass(100)

    def _answer_late(self) -> None:
        """TaskManagers stand still while they are asked whether they may be stopped. A job comes, and is given a slot before they
        answer."""
        cluster, job = self._cluster, "job-late"
        with suppress(Stuck):
            cluster.run(lambda: self._rests() or self._due(SLOW_MS), most_ms=RESTS_MS)
        if not self._due(SLOW_MS):
            return
        still = [name for name in cluster.processes if name.startswith("task-manager/")]
        cluster.paused.update(dict.fromkeys(still))
        with suppress(Stuck):
            cluster.run(self._drains, most_ms=2 * SLOW_MS)
        cluster.client.submit(job, workload.single(job))
        cluster.run(most_ms=SLOW_MS)
        for name in still:
            cluster.paused.pop(name, None)
        cluster.run(lambda: cluster.ended(job), most_ms=ENDS_MS)

    def _due(self, ms: int) -> bool:
        """Whether an idle TaskManager is asked within so long."""
        folded = self._cluster.leader(RESOURCE_MANAGER)
        known = [] if folded is None else [*folded.state.workers.known.values()]
        idle = [each.idle_ms for each in known if each.state is WorkerState.REGISTERED and each.idle_ms is not None]
        return folded is not None and len(known) > self._least and any(folded.now_ms >= since_ms + IDLE_MS - ms for since_ms in idle)

    def _drains(self) -> bool:
        folded = self._cluster.leader(RESOURCE_MANAGER)
        return folded is not None and any(each.state is WorkerState.DRAINING for each in folded.state.workers.known.values())

    # what must hold

    def _come_to_rest(self, most_ms: int) -> None:
        try:
            self._cluster.run(self._rests, most_ms=most_ms)
        except Stuck as stuck:
            raise AssertionError(f"[R33]: the provider has {self._provider.has}: {stuck}") from None

    def _rests(self) -> bool:
        """As many TaskManagers as are kept are there, registered, and the provider has no other."""
        folded = self._cluster.leader(RESOURCE_MANAGER)
        if folded is None or not self._cluster.at_rest():
            return False
        known = folded.state.workers.known
        registered = all(each.state in WITH_TASK_MANAGER for each in known.values())
        return registered and sorted(known) == sorted(self._provider.has) and len(known) == self._least

    def _assert_pauses(self) -> None:
        """What does not work is not tried again and again."""
        times = self._provider.started_ms
        busiest = max((sum(at_ms <= each < at_ms + 60_000 for each in times) for at_ms in times), default=0)
        assert busiest <= STARTS_A_MINUTE, f"[R33]: {busiest} TaskManagers are started in a minute"


def workers_come_and_go(seed: int) -> None:
    """AssertionError when something does not hold."""
    Scene(seed).run()
