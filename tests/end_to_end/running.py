"""A real stack for tests, its jobs with all that they say, and what to show when a test fails."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
from confluent_kafka import Consumer, Message, TopicPartition

from deploy.local.processes import is_running, log_tail
from deploy.local.stack import Options, Stack
from millrace.client import Job, Millrace, MillraceError
from millrace.client import Unavailable as NoAnswer
from millrace.edge.graph_file import load_script
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Entry, Unavailable

LIMIT_S = 300.0
"""How long a test waits for something to happen: not how long it takes, but when it is sure that it does not happen."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
T = TypeVar("T")
Event = dict[str, Any]
RUNNING: list[RunningStack] = []
"""The stacks that are up now, for the report of a test that fails."""

HOLD = """
    import os, pathlib, sys, time
    folder = pathlib.Path(sys.argv[1])
    for other in folder.iterdir():
        try:
            if pathlib.Path(f"/proc/{other.name}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "TZX":
                (folder / "two at once").touch()
        except OSError:
            pass  # it has ended
    (folder / str(os.getpid())).touch()
    while not (folder / "go").exists():
        time.sleep(0.02)
    print("let go")
"""
"""A script that says that it runs by a file with its process's number, and ends when it finds the file `go`. An attempt
that finds another one at work, neither ended nor stopped, says so too."""


def until(what: str, found: Callable[[], T], limit_s: float = LIMIT_S, shown: Callable[[], object] = lambda: "") -> T:
    """The first true value of `found`, asked again and again; what was waited for is told when it does not come, and what is `shown`."""
    began_s = time.monotonic()
    while not (value := found()):
        waited_s = time.monotonic() - began_s
        assert waited_s < limit_s, f"waited {limit_s:.0f} s in vain for: {what} {shown()}"
        time.sleep(min(0.5, max(0.02, waited_s / 20)))  # a question costs: who waits for long asks less often
    return value


class Watched:
    """A submitted job; its events are collected as they come."""

    def __init__(self, job: Job) -> None:
        self.job, self.id = job, job.id
        self.events: list[Event] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        try:
            for event in self.job.events():
                with self._changed:
                    self.events.append(event)
                    self._changed.notify_all()
        except MillraceError as failure:
            with self._changed:
                self.events.append({"type": "no more events", "why": str(failure)})
                self._changed.notify_all()

    def until(self, what: str, found: Callable[[list[Event]], T], limit_s: float = LIMIT_S) -> T:
        """The first true value of `found(events so far)`."""
        value: T
        with self._changed:
            came = self._changed.wait_for(lambda: found(self.events), limit_s)
            assert came, f"waited {limit_s:.0f} s in vain for: {what} of job {self.id}; {len(self.events)} events came"
            value = came
        return value

    def event(self, type_: str, **fields: Any) -> Event:
        """The first event of this type with these fields, when it comes."""

        def found(events: list[Event]) -> Event | None:
            return next((e for e in events if e["type"] == type_ and fields.items() <= e.items()), None)

        return self.until(f"{type_} {fields or ''}", found)

    def running(self, **fields: Any) -> Event:
        return self.event("AttemptStateChanged", state="RUNNING", **fields)

    @property
    def end(self) -> Event:
        """The event of its end, when it comes."""
        ends = ("JobFinished", "JobFailed", "JobCanceled")
        return self.until("its end", lambda events: next((e for e in events if e["type"] in ends), None))

    @property
    def rows(self) -> list[list[Any]]:
        """The rows of its result, once it is FINISHED."""
        assert self.end["type"] == "JobFinished", self.end
        return self.job.result().rows

    @property
    def cause(self) -> dict[str, Any]:
        """Why it FAILED."""
        assert self.end["type"] == "JobFailed", self.end
        cause: dict[str, Any] = self.end["cause"]
        return cause

    def attempts(self, state: str | None = None) -> list[tuple[str, int, int]]:
        """(task, subtask, attempt) of its attempts, in the order of their events; those that came into this state."""
        found = [e for e in self.events if e["type"] == "AttemptStateChanged" and state in (None, e["state"])]
        return list(dict.fromkeys((e["task"], e["subtask"], e["attempt"]) for e in found))


class Held:
    """A job of one script that runs until it is let go."""

    def __init__(self, running: RunningStack, folder: Path, **settings: Any) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.watched = running.script(HOLD, [folder], name="held", **settings)

    @property
    def pids(self) -> list[int]:
        """The processes of all attempts so far."""
        names = [path.name for path in self.folder.iterdir()]
        assert "two at once" not in names, names
        return sorted(int(name) for name in names if name.isdigit())

    def started(self, count: int = 1, limit_s: float = LIMIT_S) -> list[int]:
        """The processes, once so many attempts have come to the script's first line."""
        until(f"{count} attempts of {self.watched.id} at work", lambda: len(self.pids) >= count, limit_s)
        return self.pids

    def let_go(self) -> Watched:
        (self.folder / "go").touch()
        return self.watched


def run_at_once(held: list[Held]) -> None:
    """They run together, so each slot has taken one of them; then they finish. Until then no slot takes what was submitted later."""
    for each in held:
        each.started(limit_s=2 * LIMIT_S)  # a JVM that was killed is started anew, with the least priority
    for each in held:
        assert each.let_go().end["type"] == "JobFinished"


class RunningStack:
    """A stack that is up inside a `with`, and a client of it."""

    def __init__(self, name: str, options: Options) -> None:
        self.stack = Stack(name)
        self.options = options
        self.jobs: list[Watched] = []
        self.said: list[str] = []
        self.client: Any = None  # a Millrace, while it is up
        self._scripts = self.stack.folder.parent / f"{name}-scripts"
        self._scripts.mkdir(parents=True, exist_ok=True)
        RUNNING.append(self)

    def __enter__(self) -> RunningStack:
        try:
            self.up()
        except BaseException as failure:
            self.__exit__(failure)
            raise
        return self

    def __exit__(self, failure: object = None, *_: object) -> None:
        RUNNING.remove(self)
        self.down()
        if failure is None:
            surprises = self.surprises()
            assert not surprises, "\n".join(surprises)  # pytest explains no assertion of a module that is no test

    def up(self) -> None:
        """Starts it; the client is connected."""
        # In the foreground, so that a run of tests that is killed leaves nothing.
        self.facts = self.stack.up(self.options, self.said.append, foreground=True)
        self.token = Path(self.facts["token_file"]).read_text()
        self.client = until("a connection to Kafka", self._connected)

    def _connected(self) -> Millrace | None:
        """None: the broker, which has just started, has not answered in the few seconds that a client gives it."""
        try:
            return Millrace(self.facts["kafka_bootstrap"], token=self.token, timeout_s=LIMIT_S)
        except NoAnswer:
            return None

    def down(self) -> None:
        """Stops it; its data stays."""
        if self.client is not None:
            self.client.close()
            self.client = None
        self.stack.down()

    # jobs

    def submit(self, graph: Mapping[str, Any], uploads: Mapping[str, Path] | None = None, **more: Any) -> Watched:
        return self.watch(self.client.submit(graph, uploads=uploads, **more))

    def watch(self, job: Job) -> Watched:
        self.jobs.append(Watched(job))
        return self.jobs[-1]

    def sql(self, query: str, **settings: Any) -> Watched:
        """A job of one query."""
        return self.submit({"name": "query", "vertices": {"query": {"sql": query}}, **settings})

    def python_file(self, source: str, name: str = "main.py") -> Path:
        """A file with this source, the common indentation removed."""
        folder = self._scripts / str(len(list(self._scripts.iterdir())))
        folder.mkdir()
        (folder / name).write_text(textwrap.dedent(source))
        return folder / name

    def script(
        self, source: str, args: Sequence[object] = (), name: str = "script", settings: Mapping[str, Any] | None = None,
        **flags: Any,
    ) -> Watched:  # fmt: skip
        """A job of one script. settings: further fields of the graph (restart, timeouts); flags: those of spark-submit."""
        loaded = load_script(self.python_file(source), [str(arg) for arg in args], name=name, **flags)
        assert not loaded.errors, loaded.errors
        return self.submit({**loaded.raw, **(settings or {})}, loaded.uploads)

    def module(self, source: str, name: str) -> tuple[str, Path]:
        """(SHA-256, path) of a module with this source."""
        path = self.python_file(source, name)
        return hashlib.sha256(path.read_bytes()).hexdigest(), path

    def works(self, folder: Path) -> None:
        """Every slot runs a job: as many at once as there are slots."""
        run_at_once(self.hold_slots(folder))

    def hold_slots(self, folder: Path) -> list[Held]:
        """A job for each slot, behind all that waits: see `run_at_once`."""
        return [Held(self, folder / f"works-{n}") for n in range(self.options.slots * self.options.task_managers)]

    # services

    def pid(self, service: str) -> int:
        """dispatcher, resource-manager, job-master, task-manager-1, ..."""
        pid: int = self.stack.facts()["services"][service]["pid"]
        return pid

    def kill(self, *services: str) -> None:
        """SIGKILL to all of them at once; returns when they are dead."""
        processes = [psutil.Process(self.pid(service)) for service in services]
        for process in processes:
            process.kill()
        until(f"end of {services}", lambda: not any(is_running(process) for process in processes))

    def server(self, word: str) -> psutil.Process:
        """The process of Kafka or etcd, by its program or its main class."""
        found = [each for each in processes_of(self.stack.folder) if word in _words(each)]
        assert len(found) == 1, found
        return found[0]

    def kill_supervisor(self) -> None:
        """SIGKILL to it alone; returns when it is dead."""
        supervisor = self.stack.supervisor()
        assert supervisor is not None
        supervisor.kill()
        until("the end of the supervisor", lambda: not is_running(supervisor))
        self.client.close()

    def started_again(self, service: str, old: int) -> None:
        """The supervisor has started it again, and it is up."""
        until(
            f"another {service} than process {old}",
            lambda: self.pid(service) != old and self.stack.facts()["services"][service].get("health_port"),
        )

    def idle(self) -> bool:
        """All TaskManagers are there, and all slots are free."""
        seen = self.client.overview()
        slots = self.options.slots * self.options.task_managers
        return (seen.task_managers, seen.slots, seen.free_slots) == (self.options.task_managers, slots, slots)

    def quiesce(self) -> None:
        """Cancels what a test left, and waits until all slots are free."""
        for job in self.jobs:
            if not any(event["type"] in ("JobFinished", "JobFailed", "JobCanceled") for event in job.events):
                try:
                    job.job.cancel()
                except MillraceError:
                    pass  # it has just ended
        self.jobs.clear()
        until("all slots to be free", self.idle, 2 * LIMIT_S)  # a JVM that was killed is started anew and warmed, with the least priority

    # leaders

    def leader(self, scope: str) -> str:
        """The name of the process that leads a scope, as soon as there is one that answers."""

        def found() -> str | None:
            for name, service in self.stack.status()["services"].items():
                for each in (service["health"] or {}).get("scopes", ()):
                    if (each["scope"], each["role"]) == (scope, "leader"):
                        return str(name)
            return None

        return until(f"a leader of {scope}", found) or ""

    def leader_key(self, scope: str) -> Entry | None:
        """Who leads, as etcd has it."""
        store = EtcdStore(self.facts["etcd_endpoint"], "/millrace/default/")

        def asked() -> list[Entry | None]:
            with contextlib.suppress(Unavailable):  # a busy etcd may need more than the two seconds that a call has
                return [store.get(f"leaders/{scope}")]
            return []

        try:
            return until("an answer of etcd", asked)[0]
        finally:
            store.close()

    # reports

    def surprises(self) -> list[str]:
        """What its services logged with a traceback: an exception that nobody had thought of."""
        found = []
        for log in sorted((self.stack.folder / "logs").glob("*.log")):
            for line in log.read_text(errors="replace").splitlines():
                if '"exception":' in line or line.startswith("Traceback"):
                    found.append(f"{log.name}: {line}")
        return found

    def report(self) -> str:
        """The last events of the jobs of the test, and the ends of all logs."""
        lines = [f"stack {self.stack.name}: {self.said}"]
        for job in self.jobs[-8:]:
            lines.append(f"-- job {job.id}")
            lines += [json.dumps(event)[:600] for event in job.events[-12:]]
        for log in sorted((self.stack.folder / "logs").glob("*.log")):
            tail = [line[:600] for line in log_tail([log], 60).splitlines() if "Connection refused" not in line]
            lines += [f"-- {log.name}", *tail[-12:]]
        return "\n".join(lines)


class Topic:
    """A partition of a topic, read with a consumer of its own from where it ended when this was made, or from `offset`."""

    def __init__(self, bootstrap: str, name: str, partition: int = 0, offset: int | None = None) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False})
        where = TopicPartition(name, partition)
        self.offset = self._consumer.get_watermark_offsets(where, timeout=30)[1] if offset is None else offset
        where.offset = self.offset
        self._consumer.assign([where])
        self.records: list[Message] = []

    def next(self, what: str, limit_s: float = LIMIT_S) -> Message:
        """The next record."""

        def poll() -> Message | None:
            message = self._consumer.poll(0.1)
            assert message is None or message.error() is None, message.error()
            return message

        self.records.append(until(what, poll, limit_s))
        return self.records[-1]

    def close(self) -> None:
        self._consumer.close()


def _words(process: psutil.Process) -> list[str]:
    """Its program and its command line; none of one that ends as it is looked at."""
    try:
        return [process.name(), *process.cmdline()]
    except psutil.Error:
        return []


def processes_of(folder: Path) -> list[psutil.Process]:
    """The living processes that have this folder in their command line or environment, or work in it.

    MILLRACE_HOME is no sign: while it is set for the tests here, a server that a test of the client starts again inherits it, and
    outlives the stacks. Nothing of a stack has that sign alone.
    """
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            environment.pop("MILLRACE_HOME", None)
            texts = [*process.cmdline(), *environment.values(), process.cwd()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in text for text in texts) and is_running(process):
            found.append(process)
    return found


def described(process: psutil.Process) -> str:
    """One line that says of a living process where it stands in its family, since when, and what it is."""
    with contextlib.suppress(psutil.Error):
        age_s = time.time() - process.create_time()
        line = f"{process.pid} below {process.ppid()}, {process.status()}, {age_s:.0f} s old: {' '.join(process.cmdline())}"
        return line if len(line) < 200 else f"{line[:120]} ... {line[-70:]}"
    return f"{process.pid} has ended meanwhile"
