"""The process that runs a local stack: starts Kafka, etcd and the services, starts again what dies, ends all in order.

    python -m deploy.local.supervisor STACK [PARENT_PID]

With a parent it ends when that process does. Everything it starts ends with it: each child has a parent-death signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import queue
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from deploy.agent import STOP_S, Agent, TaskManagerProcess
from deploy.provision import OtherTopology, provision
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.kafka.admin import KafkaAdmin
from millrace.runtime.identity import OtherCluster, StillRuns
from millrace.runtime.signals import on_stop

from . import monitoring
from .closed import shut_down_in
from .downloads import CHECKOUT
from .errors import LocalError
from .etcd import EtcdServer
from .kafka import KafkaBroker
from .monitoring import Target
from .processes import CUT_LOGS_S, Child, cut_log, free_port, log_tail, port_is_free, put_aside, spawn
from .server import LocalServer
from .stack import CONTROL_SERVICES, DIRECTLY, Stack
from .stack_settings import Served, blob_url, without_decided, write_settings

RESTART_FIRST_S, RESTART_MOST_S = 0.05, 5.0
STEADY_S = 10.0  # a service that ran so long starts again without delay
ENDED_S = 15.0  # three times the lease of a leader


@dataclass
class Service:
    """One service process that is kept running."""

    name: str
    module: str
    instance: str
    child: Child | None = None
    started: float = 0.0
    restarts: int = 0
    delay_s: float = RESTART_FIRST_S
    took_work: Child | None = None  # the process that said so
    facts: dict[str, Any] = field(default_factory=dict)
    """What stack.json has of it; replaced as a whole."""


class Supervisor:
    """Runs until SIGTERM or SIGINT. Children are waited for on threads, so an idle supervisor costs nothing."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.options = stack.options()
        self.kafka = KafkaBroker(stack.folder / "kafka")
        self.etcd = EtcdServer(stack.folder / "etcd")
        self.facts: dict[str, Any] = {**stack.facts(), "pid": os.getpid(), "created": psutil.Process().create_time()}
        self.left = stack.facts()
        self.facts |= {"name": stack.name, "state": "starting", "steps": [], "warnings": [], "shut_down": None}
        self.deaths: queue.SimpleQueue[Service | LocalServer | None] = queue.SimpleQueue()
        self.warnings: dict[str, str | None] = {}  # what about -> the warning that stands
        self.stopping = threading.Event()
        self.healing: list[tuple[Service | LocalServer, threading.Thread]] = []
        """What is started again, each by a thread of its own: what dies meanwhile does not wait for it."""
        self._facts_lock = threading.RLock()  # several threads know something new
        self.agent = Agent(self._start_task_manager)
        self.services = [
            Service(name, f"services.{name}", name.replace("_", "-") + (f"-{number}" if number > 1 else ""))
            for number in range(1, self.options.standbys + 2)
            for name in CONTROL_SERVICES
        ]
        if self.options.web:
            self.services.append(Service("web", "services.web", "web"))
        for index in range(self.options.task_managers):
            self.services.append(Service("task_manager", "services.task_manager", f"task-manager-{index + 1}"))

    def run(self) -> int:
        on_stop(self._ask_to_stop)
        try:
            self._start()
            self._write_facts(state="ready")
            self._watch()
        except LocalError as failure:
            _print(f"{failure}\n{failure.detail}")
            if not self.stopping.is_set():
                self._write_facts(state="failed", reason=str(failure), detail=failure.detail)
                self.stopping.set()  # what is being started again
                self._stop()
                return 1
        self._write_facts(state="stopping")
        self._stop()
        for service in self.services:
            service.facts = {}
        self._write_facts(state="stopped")
        return 0

    def _ask_to_stop(self) -> None:
        self.stopping.set()
        self.deaths.put(None)

    def _write_facts(self, **facts: Any) -> None:
        with self._facts_lock, contextlib.suppress(OSError):
            self.facts |= facts
            services = {each.instance: each.facts for each in self.services if each.facts}
            self.stack.write_facts({**self.facts, "services": services})
            answering = [each for each in self.services if "health_port" in each.facts]
            targets = [Target(each.name.replace("_", "-"), each.instance, each.facts["health_port"]) for each in answering]
            monitoring.write(self.stack.folder, targets)

    def _report(self, step: str) -> None:
        _print(step)
        with self._facts_lock:
            self._write_facts(steps=[*self.facts["steps"], step])

    def _warn(self, about: str, warning: str | None) -> None:
        with self._facts_lock:
            self.warnings[about] = warning
            self._write_facts(warnings=[each for each in self.warnings.values() if each])

    # starting

    def _start(self) -> None:
        """Both servers at once; the services beside them, as soon as the ports are known: they wait for what they need."""
        self.stack.end_left(self.left)  # before they have ended, others cannot take their place
        with ThreadPoolExecutor(2, thread_name_prefix="start") as pool:
            starts = [pool.submit(server.start, self._report, self.stopping.is_set) for server in (self.kafka, self.etcd)]
            try:
                self._await(lambda: self._has_ports() or any(start.done() for start in starts), "ports")
                if self._has_ports():
                    self._write_settings()
                    for service in self.services:
                        self._spawn(service)
                        if self._is_provided(service):
                            self.agent.running[service.instance] = self._running(service)
                    self._report("services: starting")
            finally:
                for start in starts:
                    start.result()
        warning = self.etcd.etcd.warning if self.etcd.etcd is not None else None
        self._warn("etcd's kind", warning)
        self._provision(EtcdStore(self.etcd.endpoint, "/millrace/default/"))
        for server in (self.kafka, self.etcd):
            self._wait_for(server)
        self._await(self._all_take_work, "services")
        self._report("services: ready")

    def _provision(self, store: EtcdStore) -> None:
        give_up_s = time.monotonic() + ENDED_S
        while True:
            try:
                provision(KafkaAdmin(self.kafka.bootstrap), store, Topology(shards=self.options.shards))
                return
            except StillRuns as failure:  # a stack of 0.1.0 that was killed: the keys of its leaders end with their leases
                if self.stopping.is_set() or time.monotonic() > give_up_s:
                    raise LocalError(f"The stack's data cannot be taken over: {failure}.") from None
                time.sleep(0.1)
            except (OtherCluster, OtherTopology, ValueError) as failure:
                raise LocalError(
                    f"The stack's data does not fit: {failure}. 'millrace down --purge{self.stack.option}' deletes it."
                ) from None

    def _has_ports(self) -> bool:
        return len(self.kafka.ports) == 2 and bool(self.etcd.ports)

    def _await(self, done: Callable[[], bool], what: str, limit_s: float = 90.0) -> None:
        end = time.monotonic() + limit_s
        while not done():
            if self.stopping.is_set():
                raise LocalError("Stopped while starting.")
            if time.monotonic() > end:
                raise LocalError(f"The {what} were not there within {limit_s:.0f} s: see {self.stack.folder / 'logs'}.")
            time.sleep(0.01)

    def _write_settings(self) -> None:
        """One file for all services, readable by its owner alone: it has the blob server's token."""
        stack = self.stack
        port = self._choose_blob_ports()
        write_settings(stack, self.options, self.kafka.bootstrap, self.etcd.endpoint, port, self._serve_agent())
        self._write_facts(
            kafka_bootstrap=self.kafka.bootstrap,
            etcd_endpoint=self.etcd.endpoint,
            blob_url=blob_url(self.options, port),
            token_file=str(stack.token_file),
            storage=str(stack.folder / "storage"),
        )
        if self.options.web:
            web = self.facts.get("web_port")
            web = web if web is not None and port_is_free(web) else free_port(self.facts["blob_ports"].values())
            self._write_facts(web_port=web, web_url=f"http://127.0.0.1:{web}")
        else:
            self._write_facts(web_url=None)

    def _serve_agent(self) -> Served | None:
        """The agent that starts TaskManagers for the ResourceManager, where the stack grows. Its port and its token are new each time."""
        if not self.options.grows:
            return None
        from deploy.agent_http import served  # it takes a moment, which other stacks are spared
        from millrace.io.http.server import HttpServer

        token = secrets.token_urlsafe(32)
        return Served(f"http://127.0.0.1:{HttpServer(served(self.agent, token), name='agent').start()}", token)

    def _choose_blob_ports(self) -> int:
        """Every Dispatcher has a BlobServer, whose port it keeps while it can; that of the first one, for the settings' file."""
        taken = [*self.kafka.ports.values(), *self.etcd.ports.values()]
        before, ports = self.facts.get("blob_ports", {}), {}
        for service in self.services:
            if service.name == "dispatcher":
                port = before.get(service.instance)
                if port is None or not port_is_free(port):
                    port = free_port([*taken, *before.values()])
                ports[service.instance] = port
                taken.append(port)
        self._write_facts(blob_ports=ports)
        return int(ports["dispatcher"])

    # services

    def _spawn(self, service: Service) -> None:
        logs, run = self.stack.folder / "logs", self.stack.folder / "run"
        run.mkdir(exist_ok=True)
        ready = run / f"{service.instance}.json"
        ready.unlink(missing_ok=True)
        log = logs / f"{service.instance}.log"
        put_aside(log, service.child.exit_code() if service.child is not None else None)
        command = [sys.executable, "-m", service.module, "--config", str(self.stack.settings_file)]
        command += ["--ready-file", str(ready), "--instance", service.instance]
        if service.name == "task_manager":
            command += ["--id", service.instance]
        if service.name == "dispatcher":
            command += ["--blob-port", str(self.facts["blob_ports"][service.instance])]
        if service.name == "web":
            command += ["--port", str(self.facts["web_port"]), *self.stack.option.split()]
            if self.options.flink_dashboard:
                command += ["--flink-dashboard", self.options.flink_dashboard]
        env = {**without_decided(os.environ, self.options.grows), "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}
        service.child = spawn(command, log=log, env=env, cwd=self.stack.folder)
        service.started = time.monotonic()
        service.facts = {
            "pid": service.child.pid, "restarts": service.restarts, "log": str(log), "ready_file": str(ready),
        }  # fmt: skip
        self._wait_for(service)
        self._write_facts()

    def _is_provided(self, service: Service) -> bool:
        """Whether the ResourceManager starts it, and starts it again when it has ended."""
        return service.name == "task_manager" and self.options.grows

    def _start_task_manager(self, name: str) -> TaskManagerProcess:
        service = Service("task_manager", "services.task_manager", name)
        self._spawn(service)
        with self._facts_lock:  # not sooner: who goes through the list asks for its process and its facts
            self.services = [*(each for each in self.services if each.instance != name), service]
            self._write_facts()
        return self._running(service)

    def _running(self, service: Service) -> TaskManagerProcess:
        def gone() -> None:
            with self._facts_lock:
                self.services = [each for each in self.services if each is not service]
                self._write_facts()

        assert service.child is not None
        return TaskManagerProcess(service.child, gone)

    def _is_ready(self, service: Service) -> bool:
        """It has said that it is up."""
        facts = service.facts
        if "health_port" in facts:
            return True
        try:
            ready = json.loads(Path(facts["ready_file"]).read_text())
        except (OSError, ValueError):
            return False
        with self._facts_lock:
            if service.facts is facts:  # else it was started again meanwhile
                service.facts = {**facts, "health_port": ready["health_port"]}
        self._write_facts()
        return True

    def _comes_up(self, service: Service) -> bool:
        """As `_is_ready`. Raises LocalError for one that has ended instead, with its last words. The ResourceManager may have stopped one
        that it starts, or replaces it: of those only one that refuses its settings raises."""
        assert service.child is not None
        code = service.child.exit_code()
        replaced = self._is_provided(service) and code != 2
        if code is None or replaced or self._is_ready(service):
            return self._is_ready(service)
        tail = log_tail([service.child.log])
        words = tail.splitlines()[-1] if code == 2 and tail else f"it ended with {code}, see {service.child.log}"
        raise LocalError(f"{service.instance} does not start: {words}", tail)

    def _takes_work(self, service: Service) -> bool:
        """It follows its log, or leads. A TaskManager has only to be up: its slots take seconds to be warm, and jobs wait for them."""
        if not self._comes_up(service) or service.name == "task_manager" or service.took_work is service.child:
            return self._comes_up(service)
        try:
            with DIRECTLY.open(f"http://127.0.0.1:{service.facts['health_port']}/ready", timeout=2):
                service.took_work = service.child  # it is not asked again while the others come
                return True
        except OSError:
            return False

    def _all_take_work(self) -> bool:
        """What ends when it was up already is started again, as later on. Raises LocalError for a service that did not come up."""
        with contextlib.suppress(queue.Empty):
            while (what := self.deaths.get_nowait()) is not None:
                if isinstance(what, Service):
                    self._comes_up(what)
                self._start_again(what)
        return all(self._takes_work(service) for service in self.services)

    def _wait_for(self, what: Service | LocalServer) -> None:
        """A thread that waits for the child's end and says so."""
        child = what.child
        assert child is not None

        def wait() -> None:
            child.popen.wait()
            self.deaths.put(what)

        threading.Thread(target=wait, name="end", daemon=True).start()

    def _watch(self) -> None:
        """Starts again what ends, until asked to stop. A service that fails at once is started ever more slowly."""
        for service in self.services:
            threading.Thread(target=self._learn_port, args=(service,), name="port", daemon=True).start()
        threading.Thread(target=self._cut_logs, name="logs", daemon=True).start()
        while not self.stopping.is_set():
            what = self.deaths.get()
            if what is None or self.stopping.is_set() or self._is_shut_down(what):
                return
            self._start_again(what)

    def _is_shut_down(self, what: Service | LocalServer) -> bool:
        """Whether it has ended because the cluster is shut down: then the stack ends, too."""
        ended = isinstance(what, Service) and what.child is not None and what.child.exit_code() == 0
        reason = shut_down_in(self.etcd.endpoint) if ended else None
        if reason is not None:
            self._write_facts(shut_down=reason)
            self._report(reason)
            self.stopping.set()
        return reason is not None

    def _cut_logs(self) -> None:
        while not self.stopping.wait(CUT_LOGS_S):
            for service in self.services:  # those that the ResourceManager has started since
                if service.facts:
                    self._is_ready(service)
            logs = [service.child.log for service in self.services if service.child is not None]
            for log in [*logs, *(log for server in (self.kafka, self.etcd) for log in server.logs)]:
                cut_log(log)

    def _start_again(self, what: Service | LocalServer) -> None:
        """Starts what has ended again, on a thread of its own."""
        if isinstance(what, LocalServer):
            self._report(f"{what.NAME}: ended; starting it again")
            thread = threading.Thread(target=self._server_again, args=(what,), name="again", daemon=True)
        else:
            code = what.child.exit_code() if what.child is not None else None
            if self._is_provided(what):
                _print(f"{what.instance}: ended with {code}")
                return
            if time.monotonic() - what.started > STEADY_S:
                what.delay_s = RESTART_FIRST_S
            self._report(f"{what.instance}: ended with {code}; starting it again")
            thread = threading.Thread(target=self._again, args=(what,), name="again", daemon=True)
        thread.start()
        self.healing = [*(each for each in self.healing if each[1].is_alive()), (what, thread)]

    def _server_again(self, server: LocalServer) -> None:
        """Starts Kafka or etcd again, also if it ended for a reason that lasts, such as a full disk: what runs waits for it."""
        warned = ""
        while not self.stopping.is_set():
            try:
                server.stop()
                server.start(self._report, self.stopping.is_set)
            except Exception as failure:  # a LocalError, or what nobody thought of: nobody else would start it again
                reason = str(failure) if isinstance(failure, LocalError) else repr(failure)
                if reason != warned and not self.stopping.is_set():
                    warned = reason
                    self._report(f"{server.NAME}: cannot be started now; trying again. {warned}")
                    self._warn(server.NAME, warned)
                self.stopping.wait(RESTART_MOST_S)
                continue
            self._warn(server.NAME, None)
            self._wait_for(server)
            return

    def _again(self, service: Service) -> None:
        """Starts a service again after its delay; others do not wait for it."""
        while not self.stopping.wait(service.delay_s):
            service.delay_s = min(service.delay_s * 2, RESTART_MOST_S)
            service.restarts += 1
            try:
                self._spawn(service)
            except OSError as failure:
                self._report(f"{service.instance}: cannot be started now ({failure.strerror}); trying again")
                continue
            self._learn_port(service)
            return

    def _learn_port(self, service: Service) -> None:
        with contextlib.suppress(LocalError):
            self._await(lambda: self._is_ready(service), service.instance)

    # stopping

    def _stop(self) -> None:
        """Services first, all at once; then the servers under them."""
        self.agent.close()
        for what, thread in self.healing:
            if isinstance(what, Service):  # else one would be started behind this
                thread.join()
        living = [service.child for service in self.services if service.child is not None]
        with ThreadPoolExecutor(max(2, len(living)), thread_name_prefix="stop") as pool:
            list(pool.map(lambda child: child.stop(STOP_S), living))
            for _, thread in self.healing:  # soon: it is asked to stop as well
                thread.join()
            list(pool.map(lambda server: server.stop(), (self.kafka, self.etcd)))


def _print(line: str) -> None:
    """To the supervisor's log, whose disk may be full: that must not end what runs."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def main() -> int:
    if len(sys.argv) > 2:
        _end_with(int(sys.argv[2]))
    stack = Stack(sys.argv[1])
    lock = os.open(stack.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held while this process lives
    except BlockingIOError:
        _print(f"another supervisor runs stack {stack.name}; this one ends")
        return 0
    return Supervisor(stack).run()


def _end_with(parent: int) -> None:
    """SIGTERM when the parent dies: at once on Linux, by a watching thread elsewhere."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
    else:
        threading.Thread(target=_watch_parent, args=(parent,), name="parent", daemon=True).start()
    if os.getppid() != parent:
        sys.exit(1)


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
