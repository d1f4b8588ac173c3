"""A whole cluster in one process, as a function of its seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from millrace import __version__
from millrace.core.fold import ScopeState
from millrace.core.messages.effects import StoredJob
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology
from millrace.runtime.snapshots import freeze
from tests.simulation.behaviour import Script, Timing, all_finish
from tests.simulation.client import Client
from tests.simulation.control import ControlProcess
from tests.simulation.task_manager import TaskManagerProcess
from tests.simulation.world import PREFIX, World

CONTROL = (f"{DISPATCHER}#1", f"{RESOURCE_MANAGER}#1", f"{JOB_MASTER}#1")
SLEEPY = 0.15  # chance that a step that might happen does not happen yet
MS_A_ROUND = (0, 0, 0, 1)

Process = ControlProcess | TaskManagerProcess


class Stuck(AssertionError):
    """What should have happened has not, in the time it was given."""


class Cluster:
    """Starts with one process of each control service and TaskManagers `task-manager/1`, `task-manager/2`, ...

    Names of control processes: `dispatcher#1`, `resource-manager#2`, `job-master#1` (all shards), `job-master/0#1` (one).
    """

    def __init__(
        self,
        topology: Topology | None = None,
        *,
        task_managers: int = 1,
        slots: int = 2,
        seed: int = 0,
        script: Script = all_finish,
        timing: Timing | None = None,
        snapshot_records: int = 1_000,
        stalls: float = 0.0,
        control: tuple[str, ...] = CONTROL,
        deciding: Mapping[str, dict[str, Any]] | None = None,
        poison: tuple[str, ...] = (),
        beside: Cluster | None = None,
    ) -> None:
        """deciding: service, or one TaskManager -> settings that decide, besides the defaults.

        beside: another cluster, whose storage and sinks it is given."""
        self.world = World(
            topology or Topology(), seed, script, timing or Timing(), snapshot_records, stalls, poison,
            beside=beside.world if beside else None,
        )  # fmt: skip
        self.slots, self.deciding = slots, dict(deciding or {})
        self.processes: dict[str, Process] = {}
        self.unwatched: Callable[[str], bool] = lambda name: False  # nobody starts these again when they have ended
        self._past: list[TaskManagerProcess] = []  # those whose names were given to others
        self.client = Client(self.world)
        self.paused: dict[str, None] = {}  # names of processes that are stopped for a while (SIGSTOP)
        self.between: Callable[[], None] | None = None  # called whenever something has happened
        self.rounds = 0
        self._stored: dict[str, tuple[int, StoredJob]] = {}  # job -> its entry as it was last looked at, and of which revision
        for name in (*control, *(f"task-manager/{number}" for number in range(1, task_managers + 1))):
            self.start(name)

    # what is done to it

    def start(self, name: str, slots: int | None = None, build: str = __version__) -> Process:
        """Starts a process, for the first time or again."""
        before = self.processes.get(name)
        assert before is None or not before.alive, f"{name} runs"
        if isinstance(before, TaskManagerProcess):
            self._past.append(before)
        process: Process
        if name.startswith("task-manager/"):
            given = self.deciding.get(name, self.deciding.get("task-manager"))
            process = TaskManagerProcess(self.world, name, self.slots if slots is None else slots, given)
        else:
            service = name.partition("#")[0].partition("/")[0]
            process = ControlProcess(self.world, name, self.deciding.get(service, {}), build)
        self.processes[name] = process
        return process

    def twin(self, name: str) -> str:
        """A second process of the same name is started, by who takes a stopped one for dead; under which name that one is known now."""
        before = self.processes.pop(name)
        again = f"{name}, replaced at its start {self.world.starts}"
        self.processes[again] = before
        self.paused[again] = self.paused.pop(name)
        self.start(name)
        return again

    def kill(self, name: str) -> None:
        self.paused.pop(name, None)
        self.processes[name].kill()

    def stop(self, name: str) -> None:
        self.processes[name].stop()

    # time goes on

    def step(self) -> None:
        """One round: whatever may happen has its chance, in a drawn order; then time goes on a little."""
        chance, clock, etcd = self.world.random, self.world.clock, self.world.etcd
        self.rounds += 1
        steps: list[tuple[Process | None, Callable[[], bool]]] = []
        if etcd.has_news:
            steps.append((None, lambda: etcd.deliver(1) > 0))
        for name, process in self.processes.items():
            if process.alive and name not in self.paused:
                steps += [(process, step) for step in process.ready()]
            elif process.alive and isinstance(process, TaskManagerProcess):
                steps.append((None, process.slots.turn))  # processes of their own
        chance.shuffle(steps)
        happened = self._supervise()
        for process, step in steps:
            ready = process is None or (process.alive and not (self.paused and self._is_paused(process)))
            if ready and chance.random() >= SLEEPY and step():
                happened = True
                if self.between is not None:
                    self.between()
        if happened:
            clock.advance(chance.choice(MS_A_ROUND))
            return
        now_ms = clock.now_ms()
        living = [(name in self.paused, each) for name, each in self.processes.items() if each.alive]
        due_ms = min((each.due_ms(paused) for paused, each in living), default=now_ms + 50)
        clock.advance(min(max(due_ms - now_ms, 1), 50))

    def _is_paused(self, process: Process) -> bool:
        return any(self.processes[name] is process for name in self.paused)

    def _supervise(self) -> bool:
        """Starts processes again that ended themselves and ask for it, as who watches them does."""
        again = [each for name, each in self.processes.items() if each.wants_again and name == each.name and not self.unwatched(name)]
        for process in again:
            if isinstance(process, TaskManagerProcess):
                self.start(process.name, process.slot_count)
            else:
                self.start(process.name, build=process.build)
        return bool(again)

    def run(self, until: Callable[[], bool] | None = None, *, most_ms: int = 60_000) -> None:
        """Goes on until `until` holds (None: for all of `most_ms`). Raises Stuck when it does not."""
        end_ms = self.world.clock.now_ms() + most_ms
        while self.world.clock.now_ms() < end_ms:
            if until is not None and until():
                return
            self.step()
        if until is not None and not until():
            raise Stuck(f"not within {most_ms} ms: {self.describe()}")

    # what is seen of it

    def leader(self, scope: str) -> ScopeState | None:
        """The folded state of the process that leads a scope."""
        for process in self.processes.values():
            if isinstance(process, ControlProcess) and process.alive and process.leads(scope):
                return process.folded(scope)
        return None

    def task_managers(self) -> list[TaskManagerProcess]:
        return [each for each in self.processes.values() if isinstance(each, TaskManagerProcess) and each.alive]

    def every_task_manager(self) -> list[TaskManagerProcess]:
        """All that ever were, those that are dead too."""
        return [*self._past, *(each for each in self.processes.values() if isinstance(each, TaskManagerProcess))]

    def stored(self, job: str) -> StoredJob | None:
        """The job as it stands in etcd."""
        entry = self.world.job_entry(job)
        if entry is None:
            return None
        revision, stored = self._stored.get(job, (0, None))
        if stored is None or revision != entry.mod_revision:
            stored = StoredJob.model_validate_json(entry.value)
            self._stored[job] = (entry.mod_revision, stored)
        return stored

    def ended(self, *jobs: str) -> bool:
        """Whether these jobs have ended, and nothing is left to be done for them."""
        return all((stored := self.stored(job)) is not None and stored.state == "clean" for job in jobs)

    def statuses(self) -> dict[str, str | None]:
        """Job -> how it ended (None: it has not), of all accepted jobs."""
        jobs = [each.key.rpartition("/")[2] for each in self.world.etcd.entries(f"{PREFIX}jobs/")]
        return {job: stored.status for job in jobs if (stored := self.stored(job)) is not None}

    def ready(self) -> bool:
        """Whether every scope has a leader, and the ResourceManager knows the TaskManagers that live and no other, all slots free."""
        resource_manager = self.leader(RESOURCE_MANAGER)
        if resource_manager is None or any(self.leader(scope) is None for scope in self.world.topology.scopes()):
            return False
        living = {each.id: each.slot_count for each in self.task_managers()}
        free = sum(len(keys) for keys in resource_manager.state.free.values())
        return resource_manager.state.task_managers.keys() == living.keys() and free == sum(living.values())

    def led(self) -> dict[str, list[str]]:
        """Process -> what it leads, of the processes that host several scopes and can write."""
        return {
            name: [loop.scope for loop in each.loops if each.leads(loop.scope)]
            for name, each in self.processes.items()
            if isinstance(each, ControlProcess) and each.alive and len(each.loops) > 1 and not each.bus.mute
        }

    def balanced(self) -> bool:
        """Whether none of them leads two scopes more than another."""
        counts = [len(scopes) for scopes in self.led().values()]
        return sum(counts) == self.world.topology.shards and max(counts) - min(counts) < 2

    def at_rest(self) -> bool:
        """Whether every request was folded, every job has ended, every slot is free, and nothing is on its way."""
        dispatcher = self.leader(DISPATCHER)
        if dispatcher is None or not self.ready() or not self.ended(*self.statuses()):
            return False
        asked = self.world.broker.log("client.commands", 0).end
        moving = any(each.alive and each.bus.queued() for each in self.processes.values())
        effects = any(self.leader(scope).effects for scope in self.world.topology.scopes())
        return dispatcher.client_mark == asked - 1 and not (dispatcher.state.lookups or moving or effects)

    def describe(self) -> str:
        """Where everything stands, for a failure."""
        lines = [f"seed {self.world.seed}, {self.world.clock.now_ms()} ms, jobs {self.statuses()}"]
        for process in self.processes.values():
            if isinstance(process, TaskManagerProcess):
                lines.append(f"{process.name}: alive {process.alive}, {process.over}, {process.state}")
            else:
                lines.append(f"{process.name}: alive {process.alive}, {[loop.health() for loop in process.loops]}")
        return "\n".join(lines)

    def hash(self) -> str:
        """A digest of every log's bytes, all that etcd ever held, and every folded state."""
        mixed = hashlib.blake2b(digest_size=16)
        for record in self.world.broker.journal:
            mixed.update(f"{record.topic} {record.partition} {record.offset} {record.stamp_ms} ".encode())
            mixed.update(record.value)
        for revision, key, value in self.world.etcd.history:
            mixed.update(f"{revision} {key} ".encode() + (value or b""))
        for process in self.processes.values():
            if isinstance(process, TaskManagerProcess):
                if process.journal.folded is not None:
                    mixed.update(freeze(process.journal.machine, process.journal.folded))
                continue
            for loop in process.loops:
                if loop.replica is not None:
                    mixed.update(freeze(loop.hosted.machine, loop.replica.folded))
        return mixed.hexdigest()
