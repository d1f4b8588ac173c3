"""One trial: a cluster, jobs and faults drawn from a seed, run to rest and audited.

First anything may happen, and only safety is asked. When all has healed, every job must come to its end without a long rest on the
way; then nothing may be left over.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import structlog

from millrace.core.messages.base import Request
from millrace.core.messages.client import (
    AwaitJobResult,
    DescribeBlobServer,
    DescribeJob,
    GetClusterOverview,
    GetJobStatus,
    JobRejected,
    ListJobDetails,
    ListJobs,
    ListTaskManagers,
    ReportNow,
)
from millrace.core.messages.processes import AboutTaskManager
from millrace.core.messages.requirements import UpdateRequirements
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from millrace.runtime.service import BALANCE_S
from tests.simulation import faults as faults_
from tests.simulation import workload
from tests.simulation.audit import assert_parked, audit
from tests.simulation.behaviour import Timing
from tests.simulation.blocking import Blocker
from tests.simulation.cluster import Cluster, Stuck
from tests.simulation.faults import Faults
from tests.simulation.modules import Modules
from tests.simulation.shown import assert_shown
from tests.simulation.strangers import Stranger

QUESTIONS: tuple[type[Request], ...] = (
    AwaitJobResult, DescribeBlobServer, DescribeJob, GetClusterOverview, GetJobStatus, ListJobDetails, ListJobs,
    ListTaskManagers, ReportNow, *get_args(AboutTaskManager),
)  # fmt: skip
AIMS = ("", "", "", "task-manager", "dispatcher", "resource-manager", "job-master")
KINDS = (faults_.ALL, faults_.ALL, faults_.WITH_CUTS, faults_.PROCESSES, faults_.CUTS)
SERVICES = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)
BALANCED_LOOKS = 12  # of ten seconds, until leaders are shared: a standby is heard every 20 s, and one scope goes every 5 s
REST_MS = 3_000  # after the last job has ended, before the audit
IDLE_MOST_MS = 30_000  # between two facts about jobs while all are well and jobs wait for their end
HEARD = {"jvm", "storage", "puts"}  # faults that keep nobody from being heard
LIVE_MOST = 3  # jobs, in a paced trial
RESCALES_MOST = 3  # of a job
REPAIRS_MOST = 2  # of a job, one after the other
STEPS_MOST = 200_000  # of the cluster, in all: a trial takes some thousands


@dataclass
class Trial:
    """`faults`: how many things happen to the cluster, of these `kinds`, to processes and logs of the services `aim`; each is undone
    somewhat later. `few`: five jobs. None: as the seed says. `poison`: jobs whose start ends processes, besides those that it draws.

    `shape`: other things that the seed would draw, by name. `paced`: no more than three jobs are live at a time, so that the faults find
    some, and there are no faults before the first job and when all have ended. `waits`, `after`: see Faults. `steps_most`: it counts as
    stuck after so many without a new fact about a job.
    """

    seed: int
    faults: int | None = None
    kinds: tuple[str, ...] | None = None
    aim: str | None = None
    few: bool = False
    poison: tuple[str, ...] = ()
    shape: Mapping[str, Any] = field(default_factory=dict)
    paced: bool = False
    waits: tuple[int, ...] = faults_.WAITS
    steps_most: int = STEPS_MOST
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._chance = chance = random.Random(f"trial {self.seed}")
        faults, kinds = chance.choice((3, 16, 30, 50)), chance.choice(KINDS)
        self.faults = faults if self.faults is None else self.faults
        self.kinds = self.kinds or kinds
        self.jobs = [f"job-{number}" for number in range(5 if self.few else chance.choice((5, 5, 10, 25)))]
        shards, replicas = self._drawn("shards", (1, 1, 2)), self._drawn("replicas", (1, 2))
        self.cluster = Cluster(
            Topology(shards=shards),
            seed=self.seed,
            task_managers=self._drawn("task_managers", (1, 2, 3)),
            slots=self._drawn("slots", (1, 2, 3)),
            script=workload.drawn_behaviour(self.seed, self._drawn("failing", (0.05, 0.12, 0.12, 0.4))),
            control=tuple(f"{service}#{n}" for service in SERVICES for n in range(1, replicas + 1)),
            snapshot_records=self._drawn("snapshot_records", (3, 50, 300, 50_000)),
            stalls=self._drawn("stalls", (0.0, 0.02, 0.1)),
            timing=self.shape.get("timing", Timing(progress=(20, 300))),
            deciding=self.shape.get("deciding"),
            poison=(*self.poison, *(job for job in self.jobs if chance.random() < 0.02)),
        )
        aim = chance.choice(AIMS) if self.aim is None else self.aim
        self.done = Faults(self.cluster, chance, self.faults, self.kinds, aim, self.waits, self.after)
        self.cluster.between = None if self.paced else self.done.step
        self._flows = not self.cluster.world.stalls
        self._modules = Modules(self.cluster)
        self._known, self._known_ms, self._known_rounds = (0, 0, 0), 0, 0
        self._to_submit = list(self.jobs)
        canceled = self._drawn("canceled", (0.05, 0.15, 0.5))
        self._to_cancel = [job for job in self.jobs if chance.random() < canceled]
        self._awaited: set[str] = set()
        self._refused: dict[str, None] = {}  # correlations of submissions that found no room
        self._early: dict[str, list[str]] = {}  # job -> cancels of it that were refused, for they came before it
        self._canceled: dict[str, None] = {}
        self._asking = random.Random(f"asks {self.seed}")
        self._blocker = Blocker(self.seed, self.cluster, self.shape.get("task_managers", 3)) if "blocks" in self.shape else None
        self._stranger = Stranger(self.seed, self.cluster, self.jobs) if "strangers" in self.shape else None
        self._repairing = random.Random(f"repairs {self.seed}")
        self._repairs = self.shape.get("repairs", self._repairing.choice((0.0, 0.0, 0.5)))
        self._looked_at: dict[str, None] = {}  # ended jobs of which it is drawn whether they are repaired
        self._rescaling = random.Random(f"rescales {self.seed}")
        rescaled = self.shape.get("rescales", self._rescaling.choice((0.0, 0.3, 0.6)))
        self._to_rescale = [job for job in self.jobs for _ in range(RESCALES_MOST) if self._rescaling.random() < rescaled]
        self._repaired: dict[str, str] = {}  # new job -> correlation of its submission

    def _drawn(self, name: str, choices: tuple[Any, ...]) -> Any:
        """As the shape says, else as the seed does."""
        drawn = self._chance.choice(choices)
        return self.shape.get(name, drawn)

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
            cluster.world.stalls = 0.0  # what stands still for a while is a fault as well: a leader may be replaced for it
            cluster.run(cluster.ready, most_ms=20_000)
            cluster.run(most_ms=REST_MS)
            self._assert_balance()
            self._assert_nobody_missed()
            audit(cluster)
            assert_shown(cluster)
            assert_parked(cluster)
            if self._stranger is not None:
                self._stranger.assert_taken_up()
            self._assert_nothing_refused_is_done()
        except Exception as failure:
            trace = "\n".join(f"{at_ms} ms: {what}" for at_ms, what in self.done.trace)
            what = f"{type(failure).__name__}: {failure}"
            raise AssertionError(f"seed {self.seed}, faults {self.faults}: {what}\n{trace}") from failure
        return cluster.hash()

    def _assert_balance(self) -> None:
        """[R6]: processes that host several scopes lead as many each, and then leave it at that."""
        cluster = self.cluster
        if len(cluster.led()) < 2:
            return
        for _ in range(BALANCED_LOOKS):
            before = cluster.led()
            cluster.run(most_ms=2 * int(1000 * BALANCE_S))
            if cluster.balanced() and cluster.led() == before:
                return
        raise AssertionError(f"[R6]: at rest scopes go from {before} to {cluster.led()}")

    def _assert_nobody_missed(self) -> None:
        """I10: where nothing keeps a TaskManager from being heard, none is declared lost. That would heal a slot which one side alone takes
        for held, at the price of all that runs there."""
        if not self._flows or set(self.done.done) - HEARD:
            return
        events = self.cluster.world.broker.log("cluster.events", 0).records
        gone = [each.value.decode() for each in events if b'"TaskManagerGone"' in each.value]
        assert not gone, f"I10: a TaskManager that was heard all the time is lost: {gone[0]}"

    def _assert_nothing_refused_is_done(self) -> None:
        """[R30]: what was refused stays so, though a Dispatcher that is born anew reads it again."""
        if self.cluster.world.book.asked_again:
            return
        for job in self._early:
            kinds = [event.type for event in self.cluster.client.events(job)]
            assert job in self._canceled or "JobCanceled" not in kinds, f"[R30]: {job} is canceled by a request that was refused"

    def _look(self) -> None:
        """I10: when all is well again, jobs go on. Meanwhile they have what they use."""
        cluster, now_ms = self.cluster, self.cluster.world.clock.now_ms()
        self._modules.look()
        facts = self._facts()
        if facts != self._known:
            self._known_rounds = cluster.rounds
        if facts != self._known or not self.done.over:
            self._known, self._known_ms = facts, now_ms
        idle = now_ms - self._known_ms > IDLE_MOST_MS or cluster.rounds - self._known_rounds > self.steps_most
        if idle or cluster.rounds > STEPS_MOST:
            left = [job for job in self.jobs if not cluster.ended(job)]
            raise Stuck(f"I10: {left} do not go on: {cluster.describe()}")

    def _facts(self) -> tuple[int, int, int]:
        """How much is asked, and how much is known, of jobs. Who unblocks hosts asks until it is done."""
        world = self.cluster.world
        known = sum(world.broker.log("job.events", k).end for k in range(world.topology.job_event_partitions))
        asked = self._blocker.asked if self._blocker is not None else 0
        return len(self._to_submit), len(self._to_cancel) + asked, known

    def _over(self) -> bool:
        waiting = self._to_submit or self._to_cancel or not self.done.over or not (self._blocker is None or self._blocker.rests)
        waiting = waiting or self._repaired or not (self._stranger is None or self._stranger.rests)
        return not waiting and self.cluster.ended(*self.jobs)

    def _live(self) -> int:
        """How many jobs were submitted and have not ended."""
        return sum(job not in self._to_submit and not self.cluster.ended(job) for job in self.jobs)

    def _act(self) -> None:
        chance, client = self._chance, self.cluster.client
        if self.paced and not self._to_submit and not self._live():
            self.done.left = 0
        while self._to_submit and chance.random() < 0.5 and not (self.paced and self._live() >= LIVE_MOST):
            job = self._to_submit.pop(0)
            for _ in range(chance.choice((1, 1, 1, 1, 2))):  # a client that was not answered in time sends again
                client.submit(job, workload.drawn(self.seed, job, self.shape.get("graphs", workload.KINDS)))
            self.cluster.between = self.done.step
        if self._to_submit and chance.random() < 0.02:
            large = self.cluster.world.broker.largest("client.commands")  # more than a producer of ours writes
            client.send(f"{{no request {client.junk}".encode().ljust(large if client.junk % 8 == 7 else 0))
        if self._asking.random() < self.shape.get("asks", 0.0):
            self._ask()
        ending = self.done.over and not self._to_submit
        if self._blocker is not None and (ending or self._asking.random() < self.shape["blocks"]):
            self._blocker.act(ending)
        if self._stranger is not None and not ending and self._asking.random() < self.shape["strangers"]:
            self._stranger.act()
        if "max_live_subtasks" in self.cluster.deciding.get(DISPATCHER, {}):
            self._submit_refused_again()
        if self._to_submit and self._asking.random() < self.shape.get("early", 0.02):
            job = self._asking.choice(self._to_submit)  # a cancel of what there is not yet
            self._early.setdefault(job, []).append(client.cancel(job))
        if self._repairs:
            self._repair()
        if self._to_rescale and self._rescaling.random() < 0.2:
            self._rescale()
        if self._to_cancel and chance.random() < 0.05:
            job = self._to_cancel.pop(0)
            self._canceled[job] = None
            client.cancel(job)

    def _rescale(self) -> None:
        """A client gives a job another parallelism: of all that may have it, or of one vertex. Some of these cannot be."""
        job = self._to_rescale.pop(self._rescaling.randrange(len(self._to_rescale)))
        vertices = list(workload.drawn(self.seed, job, self.shape.get("graphs", workload.KINDS))["vertices"])
        number, one = self._rescaling.choice((1, 2, 3, 4)), self._rescaling.choice((None, self._rescaling.choice(vertices)))
        if one is None:
            self.cluster.client.ask(UpdateRequirements, job=job, parallelism=number)
        else:
            self.cluster.client.ask(UpdateRequirements, job=job, vertices={one: number})

    def _repair(self) -> None:
        """Some of those that FAILED or were CANCELED are repaired; what is accepted is a job as any other."""
        cluster = self.cluster
        for job in self.jobs:
            if job not in self._looked_at and job not in self._to_submit and cluster.ended(job):
                self._looked_at[job] = None
                wanted = cluster.statuses()[job] in ("FAILED", "CANCELED") and job.count(".") < REPAIRS_MOST
                if wanted and self._repairing.random() < self._repairs:
                    self._submit_repair(job)
        replies = cluster.client.replies() if self._repaired else {}
        for new, correlation in list(self._repaired.items()):
            [reply, *_] = replies.get(correlation, [None])
            if isinstance(reply, JobRejected) and reply.kind in ("busy", "internal"):
                self._submit_repair(new.rpartition(".")[0])
            elif reply is not None:
                del self._repaired[new]
                if not isinstance(reply, JobRejected):
                    self.jobs.append(new)

    def _submit_repair(self, job: str) -> None:
        graph = workload.repairing(self.seed, job, self.shape.get("graphs", workload.KINDS))
        self._repaired[f"{job}.r"] = self.cluster.client.submit(f"{job}.r", graph)

    def _submit_refused_again(self) -> None:
        """What found no room comes again [R30]."""
        for correlation, replies in self.cluster.client.replies().items():
            busy = [each for each in replies if isinstance(each, JobRejected) and each.kind == "busy"]
            if busy and correlation not in self._refused:
                self._refused[correlation] = None
                if busy[0].job not in self._to_submit and self.cluster.stored(busy[0].job) is None:
                    self._to_submit.append(busy[0].job)

    def _ask(self) -> None:
        """A client wants to know something, of a job or a TaskManager that there may be."""
        request, job = self._asking.choice(QUESTIONS), self._asking.choice(self.jobs)
        if request is AwaitJobResult:
            if job in self._awaited:
                return  # who waits for it already would be answered once
            self._awaited.add(job)
        about = {"job": job} if "job" in request.model_fields else {}
        if "task_manager" in request.model_fields:
            about["task_manager"] = self._asking.choice(("1", "1", "2", "3", "4"))
        if "log" in request.model_fields:
            about["log"] = self._asking.choice(("log", "none"))
        self.cluster.client.ask(request, **about)


def quiet_logs() -> None:
    """The services say a lot about what is done to them here."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))

