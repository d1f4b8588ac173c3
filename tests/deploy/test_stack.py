"""What a stack tells of itself."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from ruamel.yaml import YAML

from deploy.agent import Agent
from deploy.local import supervisor
from deploy.local.downloads import cache_folder
from deploy.local.errors import LocalError
from deploy.local.processes import spawn
from deploy.local.server import LocalServer
from deploy.local.stack import Options, Stack, _health, disk_use
from deploy.local.stack_settings import DECIDED, Served, own_settings, without_decided, write_settings
from deploy.local.supervisor import Service, Supervisor
from millrace.runtime.health import HealthServer
from millrace.runtime.settings import BadSettings


def test_what_goes_while_the_disk_use_is_counted_counts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt's folder is deleted between the moment that it is listed and the moment that it is looked into."""
    for name in ("attempt", "kept"):
        (tmp_path / "work" / name).mkdir(parents=True)
        (tmp_path / "work" / name / "stdout").write_bytes(b"x" * 100_000)
    scandir = os.scandir

    def gone(path: Any = ".") -> Any:
        if os.fspath(path).endswith("attempt"):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert 100_000 <= disk_use(tmp_path)["work"] < 200_000


def test_a_service_that_has_just_been_started_is_said_to_start() -> None:
    assert _health({"pid": 7, "restarts": 2}) == {"status": "starts: it has not said yet where it answers"}


def test_a_stack_that_never_ran_has_the_room_of_the_disk_it_will_be_on(tmp_path: Path) -> None:
    assert disk_use(tmp_path / "stacks" / "none").keys() == {"free"}


def test_a_home_that_cannot_be_written_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_HOME", "/proc/self/nowhere")
    with pytest.raises(LocalError, match="^/proc/self/nowhere/stacks/default cannot be used: No such file or directory.$"):
        Stack("default").up(Options(), print)


def test_a_token_that_is_empty_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine stopped between the file's making and its writing: the stack could never start again."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    stack = Stack("default")
    stack.folder.mkdir(parents=True)
    stack.token_file.touch()
    made = stack.token()
    assert len(made) > 30 and stack.token() == stack.token_file.read_text() == made
    assert stack.token_file.stat().st_mode & 0o777 == 0o600
    assert list(stack.folder.iterdir()) == [stack.token_file]


def test_nobody_else_of_the_machine_reads_what_jobs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Storage, logs and Kafka's segments carry parameters and rows; a stack of an earlier release was open to all."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    stack = Stack("default")
    stack.folder.mkdir(parents=True, mode=0o755)

    def not_now(*_: Any, **__: Any) -> None:
        raise OSError("no process is started here")

    monkeypatch.setattr(subprocess, "Popen", not_now)
    with pytest.raises(OSError, match="no process is started here"):
        stack.up(Options(), print)
    assert stack.folder.stat().st_mode & 0o777 == 0o700


def test_the_advice_of_a_refused_start_is_for_that_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down --purge` without the name would delete the default stack."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    advised = []
    for name in ("default", "two"):
        stack = Stack(name)
        stack.folder.mkdir(parents=True)
        stack.write_facts({"options": {"shards": 1}})
        with pytest.raises(LocalError) as refused:
            stack.up(Options(shards=4), print)
        advised.append(str(refused.value).rpartition("say ")[2])
    assert advised == [
        "--shards 1, or 'millrace down --purge' and start anew.", "--shards 1, or 'millrace down --purge --stack two' and start anew.",
    ]  # fmt: skip


@pytest.mark.parametrize("purge", [False, True])
def test_what_a_killed_supervisor_left_is_ended_and_nothing_else(purge: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no signal tells children of a parent's death, as on macOS: `down` said that it was not running, and deleted what they used."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    stack = Stack("default")
    for part in ("kafka", "etcd", "logs"):
        (stack.folder / part).mkdir(parents=True)
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    dispatcher = spawn([*sleeps, "--config", str(stack.settings_file)], log=tmp_path / "log")
    kafka, stranger, later = (spawn(sleeps, log=tmp_path / "log") for _ in range(3))
    try:
        stack.write_facts({"state": "ready", "pid": 0, "services": {"dispatcher": {"pid": dispatcher.pid}, "web": {"pid": stranger.pid}}})
        for part, pid, created in (("kafka", kafka.pid, psutil.Process(kafka.pid).create_time()), ("etcd", later.pid, 1.0)):
            (stack.folder / part / "meta.json").write_text(json.dumps({"pid": pid, "created": created}))
        assert stack.down(purge)
        assert [each.exit_code() for each in (dispatcher, kafka, stranger, later)] == [-15, -15, None, None]
        assert stack.folder.exists() != purge and not stack.down()
    finally:
        for each in (dispatcher, kafka, stranger, later):
            each.stop(0)


class Server(LocalServer):
    NAME = "Kafka"

    def __init__(self) -> None: ...

    command = is_ready = None

    def stop(self, patience_s: float = 15.0) -> None: ...


def supervised(told: list[str]) -> Any:
    made: Any = object.__new__(Supervisor)
    made.services, made.healing, made.warnings, made.facts = [], [], {"etcd": "old"}, {"steps": []}
    made.stopping, made.deaths, made._facts_lock = threading.Event(), queue.SimpleQueue(), threading.RLock()
    made.agent = Agent(made._start_task_manager)
    made._write_facts = lambda **facts: told.append(str(facts.get("warnings"))) or made.facts.update(facts)
    return made


def join(made: Any) -> None:
    for _, thread in made.healing:
        thread.join()


@pytest.mark.parametrize(("failure", "said"), [
    (LocalError("The disk is full: free some space."), "The disk is full: free some space."),
    (OSError(24, "Too many open files"), "OSError(24, 'Too many open files')"),  # where it is looked whether its port is free
])  # fmt: skip
def test_a_server_that_cannot_be_started_now_is_tried_again_and_what_runs_is_not_ended(
    failure: Exception, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a while."""

    class Full(Server):
        left = 2

        def start(self, progress: Any = None, stopping: Any = None) -> None:
            if self.left:
                self.left -= 1
                raise failure

    told: list[str] = []
    made = supervised(told)
    made._wait_for = lambda server: made._ask_to_stop()
    monkeypatch.setattr(supervisor, "RESTART_MOST_S", 0)
    made.deaths.put(Full())
    made._watch()
    join(made)
    assert made.facts["steps"] == [
        "Kafka: ended; starting it again",
        f"Kafka: cannot be started now; trying again. {said}",
    ]
    assert [each for each in told if each != "None"] == [str(["old", said]), "['old']"]


def test_while_a_server_starts_again_services_are_looked_after_and_the_stack_can_be_ended(tmp_path: Path) -> None:
    class Slow(Server):
        """Runs, and does not answer."""

        child, is_ready = SimpleNamespace(exit_code=lambda: None), lambda self: False

        def start(self, progress: Any = None, stopping: Any = None) -> None:
            self._await_ready(stopping)

    made = supervised([])
    died: Any = Service("dispatcher", "services.dispatcher", "dispatcher")

    def again(service: Service) -> None:
        assert service is died
        made._ask_to_stop()

    made._again = again
    made.deaths.put(Slow())
    made.deaths.put(died)
    made._watch()
    join(made)
    assert made.facts["steps"] == ["Kafka: ended; starting it again", "dispatcher: ended with None; starting it again"]


def test_a_service_that_was_up_and_ended_before_all_others_were_is_started_again() -> None:
    made: Any = supervised([])
    started: queue.SimpleQueue[Service] = queue.SimpleQueue()
    made._again, made._takes_work = started.put, lambda service: False
    died = Service("dispatcher", "services.dispatcher", "dispatcher", facts={"health_port": 1})
    died.child = cast("Any", SimpleNamespace(exit_code=lambda: -6))
    made.services.append(died)
    made.deaths.put(died)
    assert not made._all_take_work()
    assert made.facts["steps"] == ["dispatcher: ended with -6; starting it again"]
    assert started.get(timeout=120) is died


def test_a_service_that_ended_before_it_was_up_ends_the_start(tmp_path: Path) -> None:
    made = supervised([])
    died = Service("dispatcher", "services.dispatcher", "dispatcher", facts={"ready_file": str(tmp_path / "none")})
    died.child = cast("Any", SimpleNamespace(exit_code=lambda: 3, log=tmp_path / "log"))
    made.deaths.put(died)
    with pytest.raises(LocalError, match="dispatcher does not start: it ended with 3"):
        made._all_take_work()


def test_a_service_that_took_work_is_not_asked_again_until_it_is_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = supervised([]), []

    def ask(self: Any, url: str, timeout: float) -> Any:
        asked.append(url)
        return contextlib.nullcontext()

    monkeypatch.setattr(type(supervisor.DIRECTLY), "open", ask)
    service = Service("dispatcher", "services.dispatcher", "dispatcher", facts={"health_port": 1})
    for _ in range(2):
        service.child = cast("Any", SimpleNamespace(exit_code=lambda: None))
        assert made._takes_work(service) and made._takes_work(service)
    assert asked == ["http://127.0.0.1:1/ready"] * 2


def test_no_proxy_stands_between_a_stack_and_its_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one in the environment that does not know this machine's loopback, no stack ever took work."""
    monkeypatch.setattr(urllib.request, "_opener", None)  # else one that an earlier test has made knows no proxy
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server = HealthServer(lambda: {"ready": True})
    service = Service("dispatcher", "services.dispatcher", "dispatcher", facts={"health_port": server.start()})
    service.child = cast("Any", SimpleNamespace(exit_code=lambda: None))
    try:
        assert supervised([])._takes_work(service) and _health(service.facts) == {"status": "ok", "ready": True}
    finally:
        server.stop()


def provided(folder: Path, code: int | None) -> Service:
    """A TaskManager of a stack that grows; it has not said that it is up. `code`: with which it has ended."""
    log = folder / "log"
    log.write_text("no Java\n")
    made = Service("task_manager", "services.task_manager", "task-manager-1", facts={"ready_file": str(folder / "none")})
    made.child = cast("Any", SimpleNamespace(exit_code=lambda: code, log=log))
    return made


def no_room(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_that_the_supervisor_writes_to_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TaskManager that ended took the whole stack with it."""
    made = supervised([])
    made.options, made.kafka, made.etcd = Options(task_managers=1, task_managers_most=2), Server(), Server()
    monkeypatch.setattr(supervisor, "on_stop", lambda _: None)
    made._start = lambda: made._comes_up(provided(tmp_path, 2))
    full = SimpleNamespace(write=no_room, flush=no_room)
    monkeypatch.setattr(sys, "stdout", full)
    monkeypatch.setattr(sys, "stderr", full)
    made.deaths.put(provided(tmp_path, 1))
    made.deaths.put(None)
    made._watch()
    assert made.run() == 1
    assert made.facts["reason"] == "task-manager-1 does not start: no Java"


@pytest.mark.parametrize("code", [-15, -9, 0, 1])
def test_a_task_manager_that_is_stopped_or_replaced_before_it_was_up_does_not_end_the_start(code: int, tmp_path: Path) -> None:
    made = supervised([])
    made.options = Options(task_managers=1, task_managers_most=2)
    stopped = provided(tmp_path, code)
    made.services.append(stopped)
    made.deaths.put(stopped)
    assert not made._all_take_work(), "it is waited for what takes its place"
    made._running(stopped).gone()
    assert made._all_take_work()


def test_a_task_manager_that_refuses_its_settings_ends_the_start(tmp_path: Path) -> None:
    made = supervised([])
    made.options = Options(task_managers=1, task_managers_most=2)
    made.services.append(provided(tmp_path, 2))
    with pytest.raises(LocalError, match="task-manager-1 does not start: no Java"):
        made._all_take_work()


def test_a_task_manager_that_is_being_started_is_not_yet_waited_for(tmp_path: Path) -> None:
    """The agent starts it on a thread of its own while the main thread goes through what there is."""
    made = supervised([])
    made.options = Options(task_managers=0, task_managers_most=2)
    seen = []

    def spawn(service: Service) -> None:
        seen.append(made._all_take_work())
        ready = provided(tmp_path, None)
        service.child, service.facts = ready.child, ready.facts

    made._spawn = spawn
    made._start_task_manager("task-manager-1")
    assert seen == [True] and not made._all_take_work()
    assert [each.instance for each in made.services] == ["task-manager-1"]


def test_a_start_that_fails_ends_also_what_is_being_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot be started, and a service that is to be started a moment later."""
    did = []

    class Full(Server):
        def start(self, progress: Any = None, stopping: Any = None) -> None:
            raise LocalError("The disk is full.")

        def stop(self, patience_s: float = 15.0) -> None:
            did.append("the server stops")

    made = supervised([])
    made.kafka = made.etcd = Full()
    died = Service("dispatcher", "services.dispatcher", "dispatcher", delay_s=60, started=time.monotonic())
    made._spawn = lambda service: did.append("the service starts")

    def start() -> None:
        for each in (made.kafka, died):
            made._start_again(each)
        raise LocalError("The services were not there.")

    made._start = start
    monkeypatch.setattr(supervisor, "on_stop", lambda _: None)
    assert made.run() == 1
    assert "the service starts" not in did and not any(thread.is_alive() for _, thread in made.healing)


def settings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> dict[str, Any]:
    """What the services of a stack are given, beside the user's own file."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    (tmp_path / "own.yaml").write_text(text)
    stack = Stack("settings")
    stack.folder.mkdir(parents=True)
    options = Options(config=str(tmp_path / "own.yaml"))
    write_settings(stack, options, "k:1", "e:2", 7, Served("http://agent", "token"))
    found: dict[str, Any] = YAML(typ="safe").load(stack.settings_file.read_text())
    return found


def test_a_users_own_settings_reach_the_services_of_a_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "heartbeat.timeout: 5 s\nlog_level: debug\ntask_manager: {conf: {spark.x: y}}\nresource_manager: {ageing_ms: 7}\n"
    found = settings_of(tmp_path, monkeypatch, text)
    assert (found["log_level"], found["kafka_bootstrap"]) == ("debug", "k:1")
    assert found["task_manager"] | {"conf": {"spark.x": "y"}, "slots": 2} == found["task_manager"]
    given = found["resource_manager"]
    assert (given["lost_after_ms"], given["ageing_ms"], given["provider"]) == (5000, 7, "process")


def test_what_a_stack_decides_is_no_users_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = settings_of(tmp_path, monkeypatch, "{}")
    assert written["resource_manager"]["lost_after_ms"] == 800
    assert written["task_manager"]["class_data_folder"] == str(cache_folder() / "class-data"), "all stacks have one"
    for service, names in DECIDED.items():
        section = written.get(service, {}) if service else written
        assert set(section) - set(DECIDED) <= {*names, "lost_after_ms", "class_data_folder"}, "all that a stack writes is its own"
        for name in names:
            text = f"{service}: {{{name}: 1}}\n" if service else f"{name}: x\n"
            (tmp_path / "wrong.yaml").write_text(text)
            with pytest.raises(BadSettings, match=f"{name} is decided by the stack"):
                own_settings(str(tmp_path / "wrong.yaml"))
    for text, reason in (
        ("resource_manager: {ageing: 7}", "in .*wrong.yaml: unknown setting resource_manager.ageing; did you mean ageing_ms?"),
        ("resource_manger: {ageing_ms: 7}", "unknown setting resource_manger; did you mean resource_manager?"),
        ("tenants: {a: {slots: 2}}", "unknown setting tenants; it is one of the section resource_manager"),
        ("log_levle: debug", "unknown setting log_levle; did you mean log_level?"),
        ("resource_manager: {heartbeat.timeot: 2 s}", "heartbeat.timeot; did you mean heartbeat.timeout, at the top level of the file?"),
    ):
        (tmp_path / "wrong.yaml").write_text(text)
        with pytest.raises(BadSettings, match=reason.replace("?", "[?]")):
            own_settings(str(tmp_path / "wrong.yaml"))
    (tmp_path / "wrong.yaml").write_text("taskmanager.numberOfTaskSlots: 4\n")
    with pytest.raises(BadSettings, match="slots is decided by the stack"):
        own_settings(str(tmp_path / "wrong.yaml"))
    (tmp_path / "wrong.yaml").write_text("task_manager: 5\n")
    with pytest.raises(BadSettings, match="section task_manager must be a mapping"):
        own_settings(str(tmp_path / "wrong.yaml"))
    assert own_settings("") == {}


def test_no_variable_of_the_shell_goes_before_what_the_stack_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that names a cluster, perhaps the one in production: the stack's own services joined that one."""
    monkeypatch.setenv("MILLRACE_HOME", str(tmp_path))
    meant = {"PATH": "/bin", "MILLRACE_HOME": str(tmp_path), "MILLRACE_JAVA_OPTIONS": "-Xint", "MILLRACE_LOST_AFTER_MS": "7"}
    others = {f"MILLRACE_{name.upper()}": "another" for names in DECIDED.values() for name in names}
    others |= {f"MILLRACE_{name}": "another" for name in ("HOST", "PORT", "ID", "CONFIG", "INSTANCE")}
    others |= {"millrace_cluster": "read in small letters, too", "MILLRACE_WORKER_SLOT_EXTRAS__GPU": "1"}
    assert without_decided({**meant, **others}, grows=True) == meant
    agents = {"MILLRACE_PROVIDER": "process", "MILLRACE_AGENTS": '["http://host:1"]', "MILLRACE_TASK_MANAGERS_MIN": "2"}
    assert without_decided({**meant, **others, **agents}, grows=False) == {
        **meant, **{name: value for name, value in (others | agents).items() if "WORKER" in name or "AGENT" in name}, **agents,
        "MILLRACE_TASK_MANAGERS_MAX": "another",
    }  # fmt: skip
    given = []

    def start(command: Any, *, log: Path, env: dict[str, str], cwd: Path) -> Any:
        given.append(env)
        return SimpleNamespace(pid=1)

    monkeypatch.setattr(supervisor, "spawn", start)
    monkeypatch.setattr(os, "environ", {**meant, **others})
    made = supervised([])
    made.stack, made.options, made._wait_for = Stack("default"), Options(task_managers=0, task_managers_most=1), lambda service: None
    made.stack.folder.mkdir(parents=True)
    made._spawn(Service("job_master", "services.job_master", "job-master"))
    assert meant.items() <= given[0].items() and not given[0].keys() & others.keys()
