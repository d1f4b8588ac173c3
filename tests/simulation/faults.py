"""What may happen to a cluster, drawn from a seed: each fault is done, and some time later undone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.core.topics import TOPICS
from tests.simulation.cluster import Cluster
from tests.simulation.control import ControlProcess
from tests.simulation.store import Fault

DOWN_MS = (0, 50, 300, 1_000, 7_000)
PAUSED_MS = (100, 600, 3_000, 9_000)
AWAY_MS = (50, 400, 2_500, 8_000)
ANSWERS: tuple[Fault, ...] = ("unavailable", "unknown, done", "unknown, not done")
INBOXES = tuple(topic.name for topic in TOPICS if topic.name.endswith(".commands"))


@dataclass
class Faults:
    """Does `left` faults, of the kinds named, at moments that it draws: between any two steps of any processes."""

    cluster: Cluster
    chance: random.Random
    left: int
    kinds: tuple[str, ...]
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begin_ms = self.cluster.world.clock.now_ms()
        self._undo: list[tuple[int, str, Callable[[], object]]] = []  # (when, what, how)
        self._down: dict[str, None] = {}  # processes that were ended, or are ending, and are to be started again
        self._wait = self._draw_wait()

    @property
    def over(self) -> bool:
        return not (self.left or self._undo)

    def step(self) -> None:
        """Something happened in the cluster: a fault may follow at once."""
        self._wait -= 1
        if self.left and self._wait <= 0:
            self.left -= 1
            self._wait = self._draw_wait()
            getattr(self, f"_{self.chance.choice(self.kinds)}")()

    def heal(self) -> None:
        """Undoes what has lasted long enough."""
        now_ms = self.cluster.world.clock.now_ms()
        for each in [each for each in self._undo if each[0] <= now_ms]:
            self._undo.remove(each)
            self._note(each[1])
            each[2]()

    def _draw_wait(self) -> int:
        return self.chance.choice((3, 30, 100, 300))

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.cluster.world.clock.now_ms() - self._begin_ms} ms: {what}")

    def _later(self, spans: tuple[int, ...], what: str, how: Callable[[], object]) -> None:
        self._undo.append((self.cluster.world.clock.now_ms() + self.chance.choice(spans), what, how))

    def _one(self, control: bool = False) -> str | None:
        """A process that runs."""
        names = [
            name
            for name, each in self.cluster.processes.items()
            if name not in self._down
            and name not in self.cluster.paused
            and (isinstance(each, ControlProcess) or not control)
        ]
        return self.chance.choice(names) if names else None

    # the kinds

    def _kill(self) -> None:
        self._end("kill", self.cluster.kill)

    def _stop(self) -> None:
        self._end("stop", self.cluster.stop)

    def _end(self, what: str, how: Callable[[str], None]) -> None:
        name = self._one()
        if name is not None:
            self._note(f"{what} {name}")
            how(name)
            self._down[name] = None
            self._later(DOWN_MS, f"start {name}", lambda: self._start(name))

    def _start(self, name: str) -> None:
        if self.cluster.processes[name].alive:  # it takes longer to stop
            self._later((100,), f"start {name}", lambda: self._start(name))
        else:
            self.cluster.start(name)
            del self._down[name]

    def _pause(self) -> None:
        """SIGSTOP and SIGCONT: what it believes is old when it goes on."""
        name = self._one(control=True)
        if name is not None:
            self._note(f"pause {name}")
            self.cluster.paused[name] = None
            self._later(PAUSED_MS, f"resume {name}", lambda: self.cluster.paused.pop(name))

    def _broker(self) -> None:
        broker = self.cluster.world.broker
        if not broker.paused:
            self._note("the broker is away")
            broker.pause()
            self._later(AWAY_MS, "the broker is back", broker.resume)

    def _etcd(self) -> None:
        etcd = self.cluster.world.etcd
        if not etcd.paused:
            self._note("etcd is away")
            etcd.pause()
            self._later(AWAY_MS, "etcd is back", etcd.resume)

    def _answers(self) -> None:
        """Some of a process's next calls to etcd have no answer, or one that is not known."""
        name = self._one()
        if name is not None:
            faults = [self.chance.choice(ANSWERS) for _ in range(self.chance.choice((1, 3, 6)))]
            self._note(f"etcd to {name}: {faults}")
            self.cluster.processes[name].store.faults.extend(faults)

    def _watches(self) -> None:
        self._note("watches are lost")
        self.cluster.world.etcd.lose_watches()

    def _lease(self) -> None:
        """A leader's lease is revoked by hand."""
        leases = sorted({entry.lease for entry in self.cluster.world.etcd.entries("") if entry.lease})
        if leases and not self.cluster.world.etcd.paused:
            lease = self.chance.choice(leases)
            self._note(f"lease {lease} is revoked")
            self.cluster.world.etcd.end_lease(lease)

    def _repeat(self) -> None:
        """Records arrive a second time, late."""
        broker, topology = self.cluster.world.broker, self.cluster.world.topology
        topic = self.chance.choice([each for each in INBOXES if each != "client.commands"])
        count = next(each for each in TOPICS if each.name == topic).count(topology)
        partition = self.chance.randrange(count)
        log = broker.log(topic, partition)
        if log.records:
            offset = self.chance.randrange(max(log.first, log.end - 200), log.end)
            self._note(f"{topic}[{partition}] {offset} is repeated")
            broker.repeat(topic, partition, offset)

    def _cut(self) -> None:
        """An inbox loses its last records: an unclean election, a power cut. The scope must begin a new generation."""
        world = self.cluster.world
        scope = self.chance.choice(world.topology.scopes())
        topic, partition = world.topology.inbox(scope)
        end = max(world.broker.log(topic, partition).end - self.chance.randint(1, 40), 0)
        self._note(f"{scope} loses its records from {end} on")
        world.broker.truncate(topic, partition, end)
        world.book.cut(scope, end)


PROCESSES = ("kill", "kill", "stop")
ALL = ("kill", "kill", "stop", "pause", "pause", "broker", "etcd", "answers", "watches", "lease", "repeat")
WITH_CUTS = (*ALL, "cut", "cut")
