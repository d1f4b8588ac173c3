"""The agent that runs TaskManagers, and the ResourceManager's provider that speaks with it [R33]: over real HTTP and real processes."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from deploy.agent import Agent, Refused, TaskManagerProcess, machine_holds
from deploy.agent_http import served
from deploy.local.downloads import CHECKOUT
from deploy.local.processes import free_port, is_running, port_is_free, spawn
from millrace.io.http.server import HttpServer
from millrace.runtime.settings import BadSettings
from services.resource_manager.providers import NotProvided, Standalone
from services.resource_manager.providers.process import ByAgents
from services.resource_manager.settings import ResourceManagerSettings
from services.task_manager.settings import TaskManagerSettings

TOKEN = "a token of an agent"
W1, W2 = "task-manager-1", "task-manager-2"
SLEEPS = "import time; time.sleep(600)"


class OfPython:
    """Starts Python instead of TaskManagers: what it runs is `code`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.code = folder, SLEEPS
        self.started: list[str] = []

    def __call__(self, name: str) -> TaskManagerProcess:
        self.started.append(name)
        return TaskManagerProcess(spawn([sys.executable, "-c", self.code], log=self.folder / f"{name}.log"))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[OfPython]:
    yield OfPython(tmp_path)


@pytest.fixture
def agent(make: OfPython) -> Iterator[Agent]:
    made = Agent(make)
    yield made
    for running in list(made.running.values()):
        running.stop(0)


@pytest.fixture
def url(agent: Agent) -> Iterator[str]:
    server = HttpServer(served(agent, TOKEN), name="agent")
    yield f"http://127.0.0.1:{server.start()}"
    server.stop()


def await_(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def test_what_is_started_runs_is_listed_and_is_stopped(agent: Agent, make: OfPython, url: str) -> None:
    provider = ByAgents([url], TOKEN)
    assert provider.workers(5) == {}
    provider.start(W1, 5)
    provider.start(W2, 5)
    assert provider.workers(5) == {W1: None, W2: None}
    running = agent.running[W1]
    provider.stop(W1, 5)
    assert running.ended() is not None and provider.workers(5) == {W2: None}
    provider.stop(W1, 5)
    assert make.started == [W1, W2]


def test_a_start_that_is_repeated_starts_nothing_more_unless_it_has_ended(agent: Agent, make: OfPython, url: str) -> None:
    provider = ByAgents([url], TOKEN)
    make.code = "print('no Java is there'); raise SystemExit(2)"
    provider.start(W1, 5)
    await_(lambda: provider.workers(5)[W1] is not None)
    assert provider.workers(5) == {W1: "it ended with 2: no Java is there"}
    make.code = SLEEPS
    provider.start(W1, 5)
    provider.start(W1, 5)
    assert provider.workers(5) == {W1: None} and make.started == [W1, W1]


def test_one_that_is_killed_is_told_of_and_not_started_again(agent: Agent, make: OfPython, url: str) -> None:
    provider = ByAgents([url], TOKEN)
    provider.start(W1, 5)
    running = agent.running[W1]
    assert isinstance(running, TaskManagerProcess)
    running.child.popen.send_signal(signal.SIGKILL)
    await_(lambda: running.ended() is not None)
    assert provider.workers(5) == {W1: "it ended with -9"} and make.started == [W1]
    provider.stop(W1, 5)
    assert provider.workers(5) == {}


def test_an_earlier_leader_changes_nothing_once_a_later_one_has_asked(agent: Agent, url: str) -> None:
    provider = ByAgents([url], TOKEN)
    provider.start(W1, 5)
    provider.workers(6)
    for asks in (provider.start, provider.stop):
        with pytest.raises(NotProvided, match=f"the agent at {url} refuses it: a later leader, of epoch 6, has asked already"):
            asks(W1, 5)
    with pytest.raises(NotProvided):
        provider.workers(5)
    assert provider.workers(6) == {W1: None}


def test_on_a_blocked_host_its_agent_starts_none(agent: Agent, make: OfPython, url: str) -> None:
    provider = ByAgents([url], TOKEN)
    assert provider.workers(5) == {} and provider.hosts == (socket.gethostname(),)
    with pytest.raises(NotProvided, match="^its host .* is blocked$"):
        provider.start(W1, 5, avoid=["another", socket.gethostname()])
    provider.start(W1, 5, avoid=["another"])
    assert make.started == [W1]


def test_an_id_is_not_given_again_while_its_process_is_being_stopped(agent: Agent, make: OfPython, tmp_path: Path) -> None:
    make.code = f"import signal, time; signal.signal(15, lambda *_: None); open({str(tmp_path / 'up')!r}, 'w'); time.sleep(600)"
    agent.start(W1, 5)
    await_((tmp_path / "up").exists)
    stopping = threading.Thread(target=agent.stop, args=(W1, 5))
    stopping.start()
    await_(lambda: W1 in agent._stopping)
    with pytest.raises(Refused, match="is being stopped"):
        agent.start(W1, 5)
    assert agent.workers(5) == {W1: None}, "it runs, until it does not"
    running = agent.running[W1]
    assert isinstance(running, TaskManagerProcess)
    running.child.popen.send_signal(signal.SIGKILL)
    stopping.join()
    assert agent.workers(5) == {}


def test_an_agent_that_ends_starts_nothing(agent: Agent) -> None:
    agent.close()
    with pytest.raises(Refused, match="the agent is being stopped"):
        agent.start(W1, 5)


class Slow:
    """It ends once all of them are asked to."""

    def __init__(self, all_asked: threading.Barrier) -> None:
        self.all_asked = all_asked
        self.is_ended = False

    def ended(self) -> str | None:
        return "it was stopped" if self.is_ended else None

    def stop(self, patience_s: float) -> None:
        self.all_asked.wait(timeout=60)
        self.is_ended = True


def test_an_agent_that_ends_stops_its_task_managers_side_by_side() -> None:
    """One after the other they took six seconds each, and whoever had sent SIGTERM killed the agent meanwhile."""
    barrier = threading.Barrier(20)
    slow = {f"task-manager-{number}": Slow(barrier) for number in range(1, 21)}
    agent = Agent(lambda name: slow[name])
    for name in slow:
        agent.start(name, 5)
    agent.end()
    assert all(each.is_ended for each in slow.values())
    with pytest.raises(Refused, match="the agent is being stopped"):
        agent.start(W1, 5)


@pytest.mark.parametrize("name", ["..%2Fsecret", "by-hand", "task-manager-0", "task-manager-01", "task-manager-1x", "task-manager-٣"])
def test_no_other_id_is_started(agent: Agent, name: str) -> None:
    with pytest.raises(Refused, match="is no id"):
        agent.start(name, 5)


def test_without_the_token_nothing_is_told_or_done(agent: Agent, make: OfPython, url: str) -> None:
    stranger = ByAgents([url], "another token")
    for ask in (lambda: stranger.workers(9), lambda: stranger.start(W1, 9), lambda: stranger.stop(W1, 9)):
        with pytest.raises(NotProvided, match="this needs the agent's token"):
            ask()
    assert make.started == [] and agent.epoch == 0


def test_an_agent_that_is_away_is_named() -> None:
    with pytest.raises(NotProvided, match=r"the agent at http://127.0.0.1:9 does not answer: .*refused"):
        ByAgents(["http://127.0.0.1:9"], TOKEN).workers(5)


def test_what_answers_and_speaks_no_http_is_an_agent_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"no HTTP at all\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NotProvided, match="does not answer: no HTTP at all"):
            ByAgents([f"http://127.0.0.1:{listener.getsockname()[1]}"], TOKEN).workers(5)
        thread.join()


def test_the_token_goes_through_no_proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urllib.request, "_opener", None)  # else one that an earlier test has made knows no proxy
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert ByAgents([url], TOKEN).workers(5) == {}


def test_what_cannot_be_started_is_said_in_the_words_of_the_system(agent: Agent, url: str) -> None:
    def fails(name: str) -> TaskManagerProcess:
        raise OSError(28, "No space left on device")

    agent.start_process = fails
    with pytest.raises(NotProvided, match="No space left on device"):
        ByAgents([url], TOKEN).start(W1, 5)


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        ("'http://a:7070', 'http://a:7070/'", "http://a:7070/ is named twice: each agent once"),
        ("'a:7070'", "'a:7070' is no address of an agent: it is to be http://host:port"),
        ("'http://user@a:7070'", "'http://user@a:7070' is no address of an agent: it is to be http://host:port"),
    ],
)
def test_addresses_of_agents_are_checked_at_the_start(tmp_path: Path, agents: str, words: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"resource_manager:\n  agents: [{agents}]\n")
    with pytest.raises(BadSettings) as refused:
        ResourceManagerSettings.load(["--config", str(file)])
    assert f"agents in {file}: {words}" in refused.value.problems


def test_a_task_manager_whose_settings_are_wrong_is_reported_with_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tm.yaml").write_text("task_manager: {slotz: 1}\n")
    with pytest.raises(SystemExit):
        TaskManagerSettings.load_or_exit(["--config", str(tmp_path / "tm.yaml")])
    (tmp_path / "log").write_text(capsys.readouterr().err)
    ended = TaskManagerProcess(SimpleNamespace(exit_code=lambda: 2, log=tmp_path / "log")).ended()
    assert ended == f"it ended with 2: unknown setting slotz in {tmp_path}/tm.yaml; did you mean slots?"


def test_what_an_agent_started_does_not_outlive_it_though_it_hangs(tmp_path: Path) -> None:
    """An agent that is started again lists nothing of before: what still ran would be there twice, and count for nobody."""
    port, config, token_file = free_port(), tmp_path / "settings.yaml", tmp_path / "token"
    config.touch()
    token_file.write_text(TOKEN)
    hangs = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    program = f"""
import sys
from deploy.local import processes
spawn = processes.spawn
processes.spawn = lambda argv, **more: spawn([sys.executable, "-c", {hangs!r}, argv[-1]], **more)
from deploy.cli import main
main()
"""
    command = [sys.executable, "-c", program, "agent", "--config", str(config), "--token-file", str(token_file), "--port", str(port)]
    with (tmp_path / "agent.log").open("w") as log:
        agent = psutil.Popen([*command, "--logs", str(tmp_path / "logs")], cwd=CHECKOUT, stdout=log, stderr=log)
    try:
        provider = ByAgents([f"http://127.0.0.1:{port}"], TOKEN)
        await_(lambda: not port_is_free(port))
        provider.start(W1, 1)
        await_(lambda: (tmp_path / "logs" / f"{W1}.log").read_text() == "1\n")
        [started] = agent.children()
        started.suspend()
    finally:
        agent.kill()
        agent.wait(60)
    try:
        await_(lambda: not is_running(started))
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            started.kill()


def test_the_logs_of_an_agents_task_managers_are_cut_and_that_of_one_that_failed_is_kept(tmp_path: Path) -> None:
    """One that ran for months filled the disk, and why the one before had ended was gone with the next start."""
    port, config, token_file, logs = free_port(), tmp_path / "settings.yaml", tmp_path / "token", tmp_path / "logs"
    config.touch()
    token_file.write_text(TOKEN)
    runs = f"""
import pathlib, time
if pathlib.Path({str(tmp_path / "fails")!r}).exists():
    raise SystemExit("no Java")
print("x" * 2000, flush=True)
time.sleep(600)
"""
    program = f"""
import functools, sys
from deploy.local import processes
processes.spawn = functools.partial(lambda spawn, argv, **more: spawn([sys.executable, "-c", {runs!r}], **more), processes.spawn)
processes.cut_log, processes.CUT_LOGS_S = functools.partial(processes.cut_log, most_bytes=1000), 0.05
from deploy.cli import main
main()
"""
    command = [sys.executable, "-c", program, "agent", "--config", str(config), "--token-file", str(token_file), "--port", str(port)]
    (tmp_path / "fails").touch()
    with (tmp_path / "agent.log").open("w") as log:
        agent = psutil.Popen([*command, "--logs", str(logs)], cwd=CHECKOUT, stdout=log, stderr=log)
    try:
        provider = ByAgents([f"http://127.0.0.1:{port}"], TOKEN)
        await_(lambda: not port_is_free(port))
        provider.start(W1, 1)
        await_(lambda: provider.workers(1)[W1] is not None)
        (tmp_path / "fails").unlink()
        provider.start(W1, 1)
        await_(lambda: (logs / f"{W1}.log.old").exists() and (logs / f"{W1}.log").stat().st_size == 0)
        assert (logs / f"{W1}.log.failed").read_text() == "no Java\n"
    finally:
        agent.terminate()
        agent.wait(60)


def test_more_that_are_kept_than_there_may_be_are_refused(url: str) -> None:
    given: dict[str, Any] = {"task_managers_min": 2, "task_managers_max": 1}
    with pytest.raises(BadSettings) as refused:
        ResourceManagerSettings(provider="process", agents=[url], agent_token=TOKEN, **given).make_provider()
    assert refused.value.problems == ["task_managers_min is 2, and task_managers_max 1: so many would never be kept"]
    assert isinstance(ResourceManagerSettings(**given).make_provider(), Standalone), "without a provider both mean nothing"


def test_the_provider_is_chosen_by_the_settings(url: str) -> None:
    assert isinstance(ResourceManagerSettings().make_provider(), Standalone)
    settings = ResourceManagerSettings(provider="process", agents=[url], agent_token=TOKEN)
    assert isinstance(settings.make_provider(), ByAgents) and settings.deciding()["provider"] == "process"
    own = ResourceManagerSettings(provider=f"{__name__}:of_my_own", worker_slots=7)
    assert own.make_provider().workers(1) == {"task-manager-7": None}


class Mine(Standalone):
    def __init__(self, slots: int) -> None:
        self._slots = slots

    def workers(self, epoch: int) -> dict[str, str | None]:
        return {f"task-manager-{self._slots}": None}


def of_my_own(settings: ResourceManagerSettings) -> Mine:
    return Mine(settings.worker_slots)


GIB = 1 << 30


@pytest.mark.parametrize(
    ("slots", "heap_mb", "cores", "memory", "holds"),
    [
        (2, None, 2, 8 * GIB, 1), (2, None, 16, 64 * GIB, 4), (2, 1024, 16, 64 * GIB, 8), (1, 512, 64, 512 * GIB, 16),
        (4, None, 2, 4 * GIB, 1), (2, None, 8, 16 * GIB, 1),
    ],
)  # fmt: skip
def test_a_machine_holds_as_many_as_its_cores_and_half_of_its_memory(
    slots: int, heap_mb: int | None, cores: int, memory: int, holds: int
) -> None:
    """The heap of a slot is the one that a single TaskManager would have: a stack that may grow is not given less."""
    assert machine_holds(slots, heap_mb, cores, memory) == holds
