"""What is done to a stack, drawn from a seed: processes killed, asked to end, stopped and woken, leases revoked, servers killed."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from deploy.local.processes import is_running
from deploy.local.stack import Stack
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Unavailable

PAUSE_S = (0.3, 3.0)  # between two faults
STOPPED_S = (0.2, 4.0)  # how long a process is stopped
BOUT = 12  # faults, after which the cluster is left alone until it is whole: on a slow machine it would never be
KINDS = {
    "leader killed": 5,
    "leader asked to end": 2,
    "leader stopped": 3,
    "leader or standby killed": 2,
    "lease revoked": 2,
    "TaskManager killed": 3,
    "TaskManager stopped": 2,
    "Kafka killed": 2,
    "etcd killed": 2,
}
"""What can be done, and how often in proportion."""
OF_AGENTS = {"agent killed": 8, "agent stopped": 4, "TaskManager killed": 6, "TaskManager stopped": 8}
"""Besides, or more often, where agents start TaskManagers."""


@dataclass
class Fault:
    """One that was done."""

    at_s: float
    kind: str
    what: str


@dataclass
class Faults:
    """`scopes` have leaders; `task_managers` and `agents` tell the processes of those by name. `kill_etcd`: it is one that keeps
    what it acknowledged when it is killed; else it is asked to end."""

    stack: Stack
    store: EtcdStore
    scopes: tuple[str, ...]
    task_managers: Callable[[], dict[str, int]]
    agents: Callable[[], dict[str, int]] | None
    """None: there are none."""
    kill_etcd: bool
    seed: int
    say: Callable[[str], None]
    done: list[Fault] = field(default_factory=list)
    woken: dict[int, float] = field(default_factory=dict)
    """Process -> when it was woken."""

    def __post_init__(self) -> None:
        self._draw = random.Random(f"{self.seed} faults")
        self._wakers: list[threading.Timer] = []
        self.kinds = KINDS | (OF_AGENTS if self.agents is not None else {})
        self._do: dict[str, Callable[[], str | None]] = {
            "leader killed": lambda: self._signal_leader(signal.SIGKILL),
            "leader asked to end": lambda: self._signal_leader(signal.SIGTERM),
            "leader stopped": lambda: self._stop(self._leader),
            "leader or standby killed": lambda: self._kill(self._control),
            "lease revoked": self._revoke,
            "TaskManager killed": lambda: self._kill(self._task_manager),
            "TaskManager stopped": lambda: self._stop(self._task_manager),
            "agent killed": lambda: self._kill(self._agent),
            "agent stopped": lambda: self._stop(self._agent),
            "Kafka killed": lambda: self._server("kafka.Kafka", signal.SIGKILL),
            "etcd killed": lambda: self._server("etcd", signal.SIGKILL if self.kill_etcd else signal.SIGTERM),
        }

    def run(self, over: Callable[[], bool], rest: Callable[[], None]) -> None:
        """One after the other until then; some last while the next come. `rest` waits for a whole cluster."""
        while not over():
            if self.done and len(self.done) % BOUT == 0:
                self.heal()
                rest()
            kind = self._draw.choices(list(self.kinds), list(self.kinds.values()))[0]
            at_s = time.monotonic()
            with contextlib.suppress(psutil.NoSuchProcess, Unavailable, KeyError):
                what = self._do[kind]()
                if what is not None:
                    self.done.append(Fault(at_s, kind, what))
                    self.say(f"{kind}: {what}")
            time.sleep(self._draw.uniform(*PAUSE_S))

    def heal(self) -> None:
        """Whatever is stopped goes on."""
        for waker in self._wakers:
            waker.join()

    def _leader(self) -> tuple[str, int]:
        scope = self._draw.choice(self.scopes)
        entry = self.store.get(f"leaders/{scope}")
        if entry is None:
            raise KeyError(scope)
        name = entry.value.decode()
        return f"{name}, which leads {scope}", self._services()[name]

    def _control(self) -> tuple[str, int]:
        services = self._services()
        name = self._draw.choice(sorted(services))
        return name, services[name]

    def _task_manager(self) -> tuple[str, int]:
        return self._one_of(self.task_managers())

    def _agent(self) -> tuple[str, int]:
        return self._one_of(self.agents() if self.agents is not None else {})

    def _one_of(self, processes: dict[str, int]) -> tuple[str, int]:
        """Raises KeyError: there is none just now."""
        if not processes:
            raise KeyError("a process")
        name = self._draw.choice(sorted(processes))
        return name, processes[name]

    def _services(self) -> dict[str, int]:
        services = self.stack.facts()["services"]
        return {name: each["pid"] for name, each in services.items() if not name.startswith("task-manager")}

    def _signal_leader(self, number: signal.Signals) -> str:
        name, pid = self._leader()
        psutil.Process(pid).send_signal(number)
        return name

    def _kill(self, choose: Callable[[], tuple[str, int]]) -> str:
        name, pid = choose()
        psutil.Process(pid).kill()
        return name

    def _stop(self, choose: Callable[[], tuple[str, int]]) -> str:
        """SIGSTOP, and SIGCONT some time later."""
        seconds = self._draw.uniform(*STOPPED_S)
        name, pid = choose()
        process = psutil.Process(pid)
        process.suspend()

        def wake() -> None:
            self.woken[pid] = time.monotonic()
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

        waker = threading.Timer(seconds, wake)
        waker.start()
        self._wakers.append(waker)
        return f"{name}, for {seconds:.1f} s"

    def _revoke(self) -> str:
        scope = self._draw.choice(self.scopes)
        entry = self.store.get(f"leaders/{scope}")
        if entry is None or not entry.lease:
            raise KeyError(scope)
        self.store.revoke(entry.lease)
        return f"that of {entry.value.decode()}, which leads {scope}"

    def _server(self, word: str, number: signal.Signals) -> str | None:
        """Only one that is up: the supervisor gives up a server that does not come up."""
        if self._starting(word):
            return None
        server = server_of(self.stack, word)
        if server is None:
            return None
        server.send_signal(number)
        return f"process {server.pid}, {number.name}"

    def _starting(self, word: str) -> bool:
        name = "Kafka" if "kafka" in word else "etcd"
        said = [step for step in self.stack.facts()["steps"] if step.startswith(f"{name}:")]
        return not said[-1].startswith(f"{name}: ready")


def server_of(stack: Stack, word: str) -> psutil.Process | None:
    """The process of Kafka or etcd, by its program or its main class; None: it does not run just now."""
    supervisor = stack.supervisor()
    assert supervisor is not None
    for child in supervisor.children():
        if word in (child.name(), *child.cmdline()) and is_running(child):
            return child
    return None
