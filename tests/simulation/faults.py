"""What may happen to a cluster, drawn from a seed: each fault is done, and some time later undone."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER
from tests.simulation.book import FENCED_MS
from tests.simulation.cluster import Cluster, Process
from tests.simulation.control import ControlProcess, NotedLoop
from tests.simulation.damage import DOWN_MS, Damage
from tests.simulation.store import Fault
from tests.simulation.task_manager import TaskManagerProcess
from tests.simulation.world import PREFIX

PAUSED_MS = (100, 600, 3_000, 9_000)
SKEWS_MS = (-3_600_000, -700, 0, 0, 700, 3_600_000)
AWAY_MS = (50, 400, 2_500, 8_000)
NEARLY_LOST_MS = (350, 400, 450, 500, 550, 600, 650, 800)  # about as long as it takes to be declared lost
ANSWERS: tuple[Fault, ...] = ("unavailable", "unknown, done", "unknown, not done")
WAITS = (3, 30, 100, 300)  # steps
WORD_STEPS = 1_500  # in which a word must come, else the fault goes without
VAIN_MOST = 2_000  # faults that could not be done: then there are no more
CONTROL = (DISPATCHER, RESOURCE_MANAGER, JOB_MASTER)


@dataclass
class Faults(Damage):
    """Does `left` faults, of the kinds named, at moments that it draws: between any two steps of any processes whose names begin with
    `aim`, and to the logs of any scopes, or of those.

    A kind may bring its own aim, and others that follow at once: `lose+cut:resource-manager`. `waits`: how many steps lie between two
    faults. `after`: words; each fault then waits for a record, or a key of etcd, that has one of them.
    """

    cluster: Cluster
    chance: random.Random
    left: int
    kinds: tuple[str, ...]
    aim: str = ""
    waits: tuple[int, ...] = WAITS
    after: tuple[str, ...] = ()
    trace: list[tuple[int, str]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)  # kind -> how often

    def __post_init__(self) -> None:
        self._begin_ms = self.cluster.world.clock.now_ms()
        self._undo: list[tuple[int, str, Callable[[], object]]] = []  # (when, what, how)
        self._down: dict[str, None] = {}  # processes that were ended, or are ending, and are to be started again
        self._read = self._seen = 0  # of the broker's journal, and of etcd's history
        self._word, self._patience = b"", 0
        self._wait, self._vain = self._draw_wait(), 0
        self._heard_again: dict[str, int] = {}  # process of a TaskManager that is not unheard any more -> when

    @property
    def over(self) -> bool:
        return not (self.left or self._undo)

    def step(self) -> None:
        """Something happened in the cluster: a fault may follow at once."""
        if self._word and not self._comes():
            return
        self._wait -= 1
        if self.left and self._wait <= 0:
            kind = self.chance.choice(self.kinds)
            if self.do(kind):
                self.left -= 1
                self.done[kind] = self.done.get(kind, 0) + 1
                self._wait = self._draw_wait()
            else:
                self._wait, self._vain = 3, self._vain + 1  # there is nothing that this could be done to
                if self._vain > VAIN_MOST:
                    self.left = 0

    def heal(self) -> None:
        """Undoes what has lasted long enough."""
        now_ms = self.cluster.world.clock.now_ms()
        for each in [each for each in self._undo if each[0] <= now_ms]:
            self._undo.remove(each)
            self.note(each[1])
            each[2]()
        for name in [name for name, at_ms in self._heard_again.items() if now_ms - at_ms >= FENCED_MS]:
            del self._heard_again[name]
            self.cluster.world.book.unheard.pop(name, None)

    def do(self, kind: str) -> bool:
        """Whether the first of what a kind names was done; the others follow if they can."""
        aim, done = self.aim, []
        for one in kind.split("+"):
            name, _, own = one.partition(":")
            self.aim = own or aim
            done.append(getattr(self, f"_{name}")())
            if not done[0]:
                break
        self.aim = aim
        return done[0]

    def _draw_wait(self) -> int:
        if self.after:
            self._word, self._patience = self.chance.choice(self.after).encode(), WORD_STEPS
        return self.chance.choice(self.waits)

    def _comes(self) -> bool:
        """Whether the word that is waited for has come, or has taken too long."""
        journal, history = self.cluster.world.broker.journal, self.cluster.world.etcd.history
        values = [record.value for record in journal[self._read :]]
        values += [key.encode() + (value or b"") for _, key, value in history[self._seen :]]
        self._read, self._seen, self._patience = len(journal), len(history), self._patience - 1
        if self._patience <= 0 or any(self._word in value for value in values):
            self._word = b""
        return not self._word

    def note(self, what: str) -> None:
        self.trace.append((self.cluster.world.clock.now_ms() - self._begin_ms, what))

    def _later(self, spans: tuple[int, ...], what: str, how: Callable[[], object]) -> None:
        self._undo.append((self.cluster.world.clock.now_ms() + self.chance.choice(spans), what, how))

    def _one(self) -> str | None:
        """A process that runs, and that nothing lasting was done to."""
        names = [
            name
            for name, each in self.cluster.processes.items()
            if each.alive
            and name == each.name
            and name.startswith(self.aim)
            and name not in self._down
            and name not in self.cluster.paused
            and not (each.bus.cut_off or each.bus.mute or each.bus.deaf or each.store.cut_off)
        ]
        return self.chance.choice(names) if names else None

    # the kinds: each says whether it was done

    def _kill(self) -> bool:
        return self._end("kill", self.cluster.kill)

    def _stop(self) -> bool:
        return self._end("stop", self.cluster.stop)

    def _end(self, what: str, how: Callable[[str], None]) -> bool:
        name = self._one()
        if name is None or self._knows_what_is_gone(name):
            return False
        self.note(f"{what} {name}")
        process = self.cluster.processes[name]
        how(name)
        self._down[name] = None
        self._later(DOWN_MS, f"start {name}", lambda: self._start(name, process))
        return True

    def _knows_what_is_gone(self, name: str) -> bool:
        """Whether a process has folded records that a log has lost, and has not noticed yet. It lives on until it has: a cut that no living
        replica saw is found only when a peer speaks, and the promise does not cover it."""
        process = self.cluster.processes[name]
        return isinstance(process, ControlProcess) and any(loop.strays for loop in process.loops)

    def _lose(self) -> bool:
        """A TaskManager dies for ever; another one stays."""
        name = self._one()
        if name is None or not name.startswith("task-manager/"):
            return False
        living = [each for each, process in self.cluster.processes.items() if process.alive and each == process.name]
        if not any(each.startswith("task-manager/") and each not in (name, *self._down) for each in living):
            return False
        self.note(f"{name} is lost for ever")
        self.cluster.kill(name)
        return True

    def _start(self, name: str, before: Process) -> None:
        process = self.cluster.processes[name]
        if process.alive and process is before:  # it takes longer to stop
            self._later((100,), f"start {name}", lambda: self._start(name, before))
            return
        if not process.alive:
            self.cluster.start(name)
        del self._down[name]

    def _pause(self, spans: tuple[int, ...] = PAUSED_MS) -> bool:
        """SIGSTOP and SIGCONT: what it believes is old when it goes on. A TaskManager's slots are processes of their own."""
        name = self._one()
        if name is None:
            return False
        self.note(f"pause {name}")
        self.cluster.paused[name] = None
        self._later(spans, f"resume {name}", lambda: self.cluster.paused.pop(name))
        return True

    def _twin(self) -> bool:
        """A stopped TaskManager is taken for dead: another process of its name is started, and then that one wakes. Who hears of the
        new one gives its tasks away at once; those in its slots end by themselves when they miss it."""
        name = self._one()
        if name is None or not name.startswith("task-manager/"):
            return False
        if self.cluster.processes[name].state is None:
            return False  # it would begin as the later one when it goes on
        self.note(f"{name} is stopped, and another process of its name is started")
        self._unheard(name)
        self.cluster.world.book.replaced[self.cluster.processes[name].slots.process] = None
        self.cluster.paused[name] = None
        again = self.cluster.twin(name)
        self._later(PAUSED_MS, f"{again} goes on", lambda: self.cluster.paused.pop(again, None))
        return True

    def _broker(self) -> bool:
        broker = self.cluster.world.broker
        if broker.paused:
            return False
        self.note("the broker is away")
        broker.pause()
        self._later(AWAY_MS, "the broker is back", broker.resume)
        return True

    def _etcd(self) -> bool:
        etcd = self.cluster.world.etcd
        if etcd.paused:
            return False
        self.note("etcd is away")
        etcd.pause()
        self._later(AWAY_MS, "etcd is back", etcd.resume)
        return True

    def _cut_off(self) -> bool:
        """A process hears neither Kafka nor etcd, nor do they hear it."""
        return self._part(True, True)

    def _blink(self) -> bool:
        """A process is cut off for about as long as it takes to declare a TaskManager lost: it may be, or not, when it hears again."""
        return self._part(True, True, NEARLY_LOST_MS)

    def _nap(self) -> bool:
        """As `_pause`, for as long as `_blink`."""
        return self._pause(NEARLY_LOST_MS)

    def _hoarse(self) -> bool:
        """A TaskManager reads all, and asks what it will, and nothing that it writes comes to Kafka, for as long as `_blink`."""
        name = self._one()
        if name is None or not name.startswith("task-manager/"):
            return False
        process = self.cluster.processes[name]
        process.bus.mute = process.bus.may_ask = True
        self._unheard(name)
        self.note(f"{name} cannot write to Kafka, and reads it")

        def mend() -> None:
            process.bus.mute = process.bus.may_ask = False
            self._heard(process)

        self._later(NEARLY_LOST_MS, f"{name} can again", mend)
        return True

    def _suspend(self) -> bool:
        """The whole machine stands still: all processes, the broker and etcd; only clocks go on."""
        if self.cluster.world.broker.paused or self.cluster.world.etcd.paused:
            return False
        names = [name for name, each in self.cluster.processes.items() if each.alive and name not in self.cluster.paused]
        self.note("the machine is suspended")
        self.cluster.world.broker.pause()
        self.cluster.world.etcd.pause()
        self.cluster.paused.update(dict.fromkeys(names))
        self._later(PAUSED_MS, "the machine goes on", lambda: self._resume_all(names))
        return True

    def _resume_all(self, names: list[str]) -> None:
        self.cluster.world.broker.resume()
        self.cluster.world.etcd.resume()
        for name in names:
            self.cluster.paused.pop(name, None)

    def _half_cut_off(self) -> bool:
        """A process is cut off from one of the two."""
        kafka = self.chance.random() < 0.5
        return self._part(kafka, not kafka)

    def _part(self, kafka: bool, etcd: bool, spans: tuple[int, ...] = PAUSED_MS) -> bool:
        name = self._one()
        if name is None:
            return False
        process = self.cluster.processes[name]
        if kafka and not etcd:
            self._unheard(name)
        self.note(f"{name} is cut off from {'Kafka' if kafka else ''}{' and ' if kafka and etcd else ''}{'etcd' if etcd else ''}")
        process.bus.cut_off, process.store.cut_off = kafka, etcd
        if etcd:
            self.cluster.world.etcd.lose_watches(process.store)

        def mend() -> None:
            process.bus.cut_off = process.store.cut_off = False
            self._heard(process)

        self._later(spans, f"{name} is not cut off any more", mend)
        return True

    def _unheard(self, name: str) -> None:
        """A TaskManager that Kafka alone does not hear, or that hears nothing of it, lives on beside its successors until it reads its
        loss in etcd, a moment later; or, where nobody knows of it since logs were cut, until it hears again."""
        process = self.cluster.processes[name]
        if isinstance(process, TaskManagerProcess):
            self.cluster.world.book.unheard[process.slots.process] = None
            self._heard_again.pop(process.slots.process, None)

    def _heard(self, process: Process) -> None:
        """Nothing keeps it from being heard any more."""
        if isinstance(process, TaskManagerProcess) and process.slots.process in self.cluster.world.book.unheard:
            self._heard_again[process.slots.process] = self.cluster.world.clock.now_ms()

    def _one_way(self) -> bool:
        """A process is heard by Kafka and hears nothing of it, or the other way round."""
        name = self._one()
        if name is None:
            return False
        process = self.cluster.processes[name]
        bus = process.bus
        bus.mute = self.chance.random() < 0.5
        bus.deaf = not bus.mute
        self._unheard(name)
        self.note(f"{name} {'cannot write to' if bus.mute else 'cannot read from'} Kafka")

        def mend() -> None:
            bus.mute = bus.deaf = False
            self._heard(process)

        self._later(PAUSED_MS, f"{name} can again", mend)
        return True

    def _storage(self) -> bool:
        """Storage takes nothing more: a full disk."""
        storage = self.cluster.world.storage
        if storage.full:
            return False
        self.note("storage is full")
        storage.full = True
        self._later(AWAY_MS, "storage has room", lambda: setattr(storage, "full", False))
        return True

    def _jvm(self) -> bool:
        """The JVM of a slot dies, whatever it is at."""
        task_managers = [each for each in self.cluster.task_managers() if each.state is not None]
        if not task_managers:
            return False
        process = self.chance.choice(task_managers)
        slot, for_good = self.chance.randrange(process.slot_count), self.chance.random() < 0.5
        self.note(f"the JVM of slot {slot} of {process.name} dies{' for good' if for_good else ''}")
        process.slots.jvm_ends(slot, for_good)
        return True

    def _leading(self) -> list[tuple[ControlProcess, NotedLoop]]:
        """Who leads the scopes that are aimed at, of all that nothing lasting was done to."""
        found = []
        for name, each in self.cluster.processes.items():
            if isinstance(each, ControlProcess) and each.alive and name not in self.cluster.paused:
                found += [(each, one) for one in each.loops if each.leads(one.scope) and one.scope.startswith(self.aim)]
        return found

    def _give(self) -> bool:
        """A leader gives a scope away; sometimes etcd does not answer when it gives the key back."""
        leading = self._leading()
        if not leading:
            return False
        process, loop = self.chance.choice(leading)
        loop.unanswered = self.chance.random() < 0.5
        self.note(f"{process.name} gives {loop.scope} away{', and etcd does not answer' if loop.unanswered else ''}")
        loop.give_away()
        return True

    def _term(self) -> bool:
        """SIGTERM to a process that is stopped: it hears of it when it goes on."""
        name = self._one()
        if name is None:
            return False
        self.note(f"pause {name}, and ask it to end")
        self.cluster.paused[name] = None
        self._down[name] = None
        self._later(PAUSED_MS, f"resume and stop {name}", lambda: self._resume_and_stop(name))
        return True

    def _resume_and_stop(self, name: str) -> None:
        process = self.cluster.processes[name]
        del self.cluster.paused[name]
        self.cluster.stop(name)
        self._later(DOWN_MS, f"start {name}", lambda: self._start(name, process))

    def _voiceless(self) -> bool:
        """A control process cannot write to Kafka any more, ever, though all else goes well; another one of its service can."""
        name = self._one()
        service = name.partition("#")[0] if name else ""
        well = [each for each in self.cluster.processes if each.startswith(f"{service}#") and each != name and each not in self._down]
        if name is None or "#" not in name or not well or any(self.cluster.processes[each].bus.mute for each in well):
            return False
        self.note(f"{name} cannot write to Kafka any more")
        bus = self.cluster.processes[name].bus
        bus.mute = bus.may_ask = True
        return True

    def _hole(self) -> bool:
        """Of what a process has on its way, Kafka refuses the oldest record and takes those behind it."""
        name = self._one()
        if name is None or self._knows_what_is_gone(name):
            return False
        lost = self.cluster.processes[name].bus.lose_one()
        if lost is not None:
            self.note(f"{name} cannot deliver a record for {lost}")
        return lost is not None

    def _answers(self) -> bool:
        """Some of a process's next calls to etcd have no answer, or one that is not known."""
        name = self._one()
        if name is None:
            return False
        faults = [self.chance.choice(ANSWERS) for _ in range(self.chance.choice((1, 3, 6)))]
        self.note(f"etcd to {name}: {faults}")
        self.cluster.processes[name].store.faults.extend(faults)
        return True

    def _puts(self) -> bool:
        """As `_answers`, of the next writes to jobs alone."""
        name = self._one()
        if name is None or not name.startswith(DISPATCHER):
            return False
        faults = [self.chance.choice(ANSWERS) for _ in range(self.chance.choice((1, 3)))]
        self.note(f"etcd to {name}, when it writes jobs: {faults}")
        self.cluster.processes[name].store.write_faults.extend(faults)
        return True

    def _watches(self) -> bool:
        self.note("watches are lost")
        self.cluster.world.etcd.lose_watches()
        return True

    def _lease(self) -> bool:
        """A leader's lease is revoked by hand."""
        keys = f"{PREFIX}leaders/{self.aim}" if self.aim.startswith(CONTROL) else ""
        leases = sorted({entry.lease for entry in self.cluster.world.etcd.entries(keys) if entry.lease})
        if not leases or self.cluster.world.etcd.paused:
            return False
        lease = self.chance.choice(leases)
        self.note(f"lease {lease} is revoked")
        self.cluster.world.etcd.end_lease(lease)
        return True

    def _clock(self) -> bool:
        """The broker's clock is set."""
        broker = self.cluster.world.broker
        broker.skew_ms = self.chance.choice(SKEWS_MS)
        self.note(f"the broker's clock is {broker.skew_ms} ms ahead")
        return True


PROCESSES = ("kill", "kill", "stop")
NETWORK = ("cut_off", "half_cut_off", "one_way", "hole", "repeat", "replay", "broker")
ALL = (*PROCESSES, "lose", "twin", "pause", "pause", "storage", "etcd", "answers", "watches", "lease", "clock", *NETWORK)
WITH_CUTS = (*ALL, "cut", "cut", "replace", "flipped", "missing", "stranger", "bomb", "scratch")
CUTS = ("cut", "flipped", "missing", "kill", "pause", "broker")
RARE = ("blink", "blink", "nap", "hoarse", "suspend", "jvm", "give", "term", "puts")
