"""Several agents, each with its port [R33]: where TaskManagers are started, and what becomes of those of an agent that is away."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from deploy.agent import Agent
from deploy.agent_http import served
from millrace.io.http.server import HttpServer
from services.resource_manager.providers import NotProvided, process
from services.resource_manager.providers.process import ByAgents
from tests.conftest import stop

TOKEN, CLUSTER = "a token of several agents", "0123456789abcdef"
WORKERS = [f"task-manager-{number}" for number in range(1, 8)]
PROGRAM = """
import sys
from pathlib import Path
from deploy.agent import Agent, TaskManagerProcess
from deploy.agent_http import served
from deploy.local.processes import spawn
from millrace.io.http.server import HttpServer

folder, name, most, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
start = lambda worker: TaskManagerProcess(spawn([sys.executable, "-c", "import time; time.sleep(600)"], log=folder / f"{worker}.log"))
agent = Agent(start, host=name, most=most, claim=folder / "cluster")
print(HttpServer(served(agent, sys.argv[5]), "127.0.0.1", port, name="agent").start(), flush=True)
sys.stdin.read()
for running in list(agent.running.values()):
    running.stop(1)
"""


class Runs:
    """A TaskManager that runs until it is stopped."""

    def ended(self) -> str | None:
        return None

    def stop(self, patience_s: float) -> None:
        pass


class Host:
    """An agent in the test's own process. Its TaskManagers end with it."""

    def __init__(self, folder: Path, name: str, most: int) -> None:
        self.folder, self.name, self.most, self.port = folder / name, name, most, 0
        self.folder.mkdir()
        self._server: HttpServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        agent = Agent(lambda worker: Runs(), host=self.name, most=self.most, claim=self.folder / "cluster")
        self._server = HttpServer(served(agent, TOKEN), "127.0.0.1", self.port, name="agent")
        self.port = self._server.start()

    def down(self) -> None:
        """Nobody listens at its port any more."""
        if self._server is not None:
            self._server.stop()
            self._server = None


class HangingHost(Host):
    """An agent's process, which can stand still, and its TaskManagers."""

    _process: subprocess.Popen[str] | None = None

    def up(self) -> None:
        command = [sys.executable, "-c", PROGRAM, str(self.folder), self.name, str(self.most), str(self.port), TOKEN]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def hang(self) -> None:
        assert self._process is not None
        stop(self._process.pid)

    def wake(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def down(self) -> None:
        if self._process is not None:
            self.wake()
            self._process.communicate()


def up(*made: Host) -> Iterator[list[Host]]:
    for host in made:
        host.up()
    yield [*made]
    for host in made:
        host.down()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    yield from up(Host(tmp_path, "a", 2), Host(tmp_path, "b", 4))


@pytest.fixture
def hanging(tmp_path: Path) -> HangingHost:
    return HangingHost(tmp_path, "a", 2)


@pytest.fixture
def beside(hanging: HangingHost, tmp_path: Path) -> Iterator[list[Host]]:
    """The one that can hang, and another."""
    yield from up(hanging, Host(tmp_path, "b", 4))


class Clock:
    """Seconds that a test lets go by."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def provider(hosts: list[Host], clock: Callable[[], float] | None = None, cluster: str = CLUSTER) -> ByAgents:
    return ByAgents([host.url for host in hosts], TOKEN, cluster, clock_s=clock or Clock())


def of(hosts: list[Host]) -> list[list[str]]:
    """What each of the agents has."""
    return [sorted(ByAgents([host.url], TOKEN, CLUSTER).workers(99)) for host in hosts]


def test_the_next_is_started_where_most_room_is(hosts: list[Host]) -> None:
    agents = provider(hosts)
    assert agents.workers(5) == {} and agents.hosts == ("a", "b")
    for worker in WORKERS[:6]:
        agents.start(worker, 5)
    assert agents.workers(5) == dict.fromkeys(WORKERS[:6])
    with pytest.raises(NotProvided, match=r"no agent has room: http://127.0.0.1:\d+ runs 2, http://127.0.0.1:\d+ runs 4"):
        agents.start(WORKERS[6], 5)
    agents.stop(WORKERS[0], 5)
    agents.start(WORKERS[6], 5)
    first, second = of(hosts)
    assert (len(first), len(second)) == (2, 4) and not {*first} & {*second}


def test_a_repeated_start_stays_where_it_is_whoever_leads(hosts: list[Host]) -> None:
    provider(hosts).start(WORKERS[0], 5)
    before = of(hosts)
    later = provider(hosts)
    later.start(WORKERS[0], 100)  # without a list before: its leader of before may have begun it
    later.start(WORKERS[0], 100)
    assert [sorted(ByAgents([host.url], TOKEN, CLUSTER).workers(100)) for host in hosts] == before
    later.stop(WORKERS[0], 100)
    assert later.workers(100) == {}


def test_a_blocked_host_is_avoided(hosts: list[Host]) -> None:
    agents = provider(hosts)
    for worker in WORKERS[:3]:
        agents.start(worker, 5, avoid=["a"])
    assert of(hosts) == [[], WORKERS[:3]]
    with pytest.raises(NotProvided, match="the hosts of all agents are blocked"):
        provider(hosts).start(WORKERS[3], 99, avoid=["a", "b"])


def test_one_that_does_not_answer_is_left_out_and_what_it_had_counts_for_a_while(hosts: list[Host]) -> None:
    clock = Clock()
    agents = provider(hosts, clock)
    agents.start(WORKERS[0], 5)
    agents.start(WORKERS[1], 5)
    assert of(hosts) == [[WORKERS[0]], [WORKERS[1]]]
    again = provider(hosts, clock)
    again.workers(100)
    hosts[0].down()
    assert again.workers(100) == {WORKERS[0]: None, WORKERS[1]: None}, "it may run"
    assert len(again.left_out) == 1 and f"the agent at {hosts[0].url} does not answer" in again.left_out[0]
    again.start(WORKERS[2], 100)
    with pytest.raises(NotProvided, match="does not answer"):
        again.stop(WORKERS[0], 100)
    clock.s += 30
    assert again.workers(100) == {WORKERS[1]: None, WORKERS[2]: None}, "others are started in its place"
    again.stop(WORKERS[0], 100)
    hosts[0].up()
    assert again.workers(100) == {WORKERS[1]: None, WORKERS[2]: None} and again.left_out == []
    again.start(WORKERS[3], 100)
    assert list(ByAgents([hosts[0].url], TOKEN, CLUSTER).workers(100)) == [WORKERS[3]], "it has most room again"


@pytest.mark.long
def test_one_that_hangs_holds_up_no_other_and_what_it_has_is_found_when_it_is_back(hanging: HangingHost, beside: list[Host]) -> None:
    clock = Clock()
    agents = provider(beside, clock)
    agents.start(WORKERS[0], 5)
    hanging.hang()
    assert agents.workers(5) == {WORKERS[0]: None}
    clock.s += 30
    assert agents.workers(5) == {}
    agents.start(WORKERS[0], 5)  # in its place, by the same id
    hanging.wake()
    deadline = time.monotonic() + 60
    while agents.workers(5) != {WORKERS[0]: None} or agents.left_out:
        assert time.monotonic() < deadline
    assert sum(map(len, of(beside))) == 1, "of two with one id one is stopped"


def test_a_new_leader_starts_nothing_until_it_knows_what_all_have_or_has_waited_for_it(
    hanging: HangingHost, beside: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider(beside).start(WORKERS[0], 5)
    hanging.hang()
    clock = Clock()
    later = provider(beside, clock)
    with monkeypatch.context() as patch:
        patch.setattr(process, "LIST_S", 0.5)  # one that hangs costs each question so much
        for ask in (lambda: later.workers(6), lambda: later.start(WORKERS[1], 6), lambda: later.stop(WORKERS[0], 6)):
            with pytest.raises(NotProvided, match="what it has is not known, and for 30 s nothing is started without it"):
                ask()
    clock.s += 30
    assert later.workers(6) == {}
    later.start(WORKERS[1], 6)
    hanging.wake()
    deadline = time.monotonic() + 60
    while later.workers(6) != {WORKERS[0]: None, WORKERS[1]: None}:
        assert time.monotonic() < deadline


def test_one_that_leads_again_does_not_count_how_long_an_agent_was_away_before(hosts: list[Host]) -> None:
    clock = Clock()
    first = provider(hosts, clock)
    first.start(WORKERS[0], 5)
    assert first.workers(5) == {WORKERS[0]: None}
    hosts[1].down()
    first.workers(5)
    assert len(first.left_out) == 1
    clock.s += 30
    hosts[1].up()
    provider(hosts).start(WORKERS[1], 6)  # another one leads, and has one started there
    assert [sorted(ByAgents([host.url], TOKEN, CLUSTER).workers(6)) for host in hosts] == [[WORKERS[0]], [WORKERS[1]]]
    hosts[1].down()
    for ask in (lambda: first.workers(7), lambda: first.start(WORKERS[1], 7), lambda: first.workers(7)):
        with pytest.raises(NotProvided, match="what it has is not known, and for 30 s nothing is started without it"):
            ask()
        clock.s += 10  # it does not begin anew with each question
    assert first.workers(7) == {WORKERS[0]: None}


def test_while_none_answers_nothing_is_known(hosts: list[Host]) -> None:
    agents = provider(hosts)
    for host in hosts:
        host.down()
    with pytest.raises(NotProvided, match=r"does not answer.*; .*does not answer"):
        agents.workers(5)


def test_an_agent_serves_the_cluster_that_asks_it_first_also_after_it_was_started_again(hosts: list[Host]) -> None:
    agents = provider(hosts)
    agents.start(WORKERS[0], 5)
    for cluster in ("fedcba9876543210", ""):
        stranger = provider(hosts, cluster=cluster)
        for ask in (partial(stranger.stop, WORKERS[0]), partial(stranger.start, WORKERS[1]), stranger.workers):
            with pytest.raises(NotProvided, match=f"refuses it: it serves cluster {CLUSTER}, and not "):
                ask(99)
    assert agents.workers(5) == {WORKERS[0]: None}, "a stranger's epochs are none of its own"
    hosts[0].down()
    hosts[0].up()
    with pytest.raises(NotProvided, match="to give it to another one, end it, delete .*cluster and start it again"):
        provider(hosts[:1], cluster="fedcba9876543210").workers(1)
    assert (hosts[0].folder / "cluster").read_text() == f"{CLUSTER}\n"


def test_an_agent_that_refuses_is_left_out_and_the_others_go_on(hosts: list[Host]) -> None:
    clock = Clock()
    ByAgents([hosts[0].url], TOKEN, "fedcba9876543210").workers(1)
    agents = provider(hosts, clock)
    with pytest.raises(NotProvided, match="it serves cluster fedcba9876543210"):
        agents.workers(5)
    clock.s += 30
    assert agents.workers(5) == {} and "it serves cluster fedcba9876543210" in agents.left_out[0]
    agents.start(WORKERS[0], 5)
    assert sorted(ByAgents([hosts[1].url], TOKEN, CLUSTER).workers(5)) == [WORKERS[0]]


def test_a_process_that_ends_asks_no_agent_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that came due in that moment was logged as an error that nobody had thought of."""
    monkeypatch.setattr("concurrent.futures.thread._shutdown", True)
    with pytest.raises(NotProvided, match="the agents cannot be asked: cannot schedule new futures after interpreter shutdown"):
        ByAgents(["http://127.0.0.1:9"], "a token").workers(1)
