"""The life of a slot at moments that no real JVM and no real process can be made to meet."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace.core.faults import INFRASTRUCTURE, class_of
from millrace.core.messages.attempts import Fault
from services.task_manager.slot.common import faults, procs
from services.task_manager.slot.common.config import Dirs, SlotConfig
from services.task_manager.slot.host import ending, life
from services.task_manager.slot.host.attempts import OrderedAttempt
from services.task_manager.slot.host.children import ChildLost
from services.task_manager.slot.host.driver import DriverLost
from services.task_manager.slot.host.life import Host
from tests.slot.lifecycle import PATIENCE_S


class Jvm:
    """A driver whose JVM does what the test wants."""

    port, secret, pid, echo = 1, "", 0, None

    def __init__(self) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.next_spare: Any = None
        self.paused: Exception | None = None
        self.closing = asyncio.Event()

    async def open(self) -> None:
        await self.closing.wait()

    async def spare(self) -> Any:
        return self.next_spare

    async def close(self) -> None:
        self.closing.set()
        await turns()

    async def pause(self, killed: asyncio.Future[str]) -> None:
        if self.paused is not None:
            raise self.paused

    async def nothing(self, *_: Any) -> None: ...

    warm = quiet = stop_context = nothing

    def helpers(self) -> list[int]:
        return []

    def drain(self) -> None: ...

    def why_ended(self) -> str:
        return "The JVM ended."

    def ended_from_outside(self) -> bool:
        return True


class Process:
    """A spare process which is lost when it is given an attempt."""

    def __init__(self) -> None:
        self.exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stdout, self.stderr = SimpleNamespace(sink=None), SimpleNamespace(sink=None)
        self.closed = False
        self.asked: Callable[[], Awaitable[None]] = turns

    async def ask(self, body: Any, within_s: float) -> Any:
        await self.asked()
        raise ChildLost("it does not answer")

    def kill(self) -> None:
        if not self.exited.done():
            self.exited.set_result(signal.SIGKILL)

    def finish_output(self) -> None: ...

    def close(self) -> None:
        self.closed = True


class Look:
    """The process of a look."""

    def kill(self) -> None: ...


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Scene:
    """A host, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.said: list[Any] = []
        self.folder = folder
        (folder / "log").mkdir()
        out: Any = SimpleNamespace(send=self.said.append, offer=self.said.append)
        self.host = Host(SlotConfig(slot="s", folder=str(folder), python=sys.executable), "java", "spark", out)
        self.jvm, self.spare = Jvm(), Process()

    def order(self, name: str) -> Any:
        dirs: Any = dict.fromkeys(("work", "log", "blobs", "findings"), str(self.folder / "log"))
        spec: Any = {"conf": {}, "modules": [], "job": "j", "task": "t", "parallelism": 1}
        self.host.order({"do": "run", "attempt": name, "spec": spec, "dirs": dirs})
        return self.host.attempts.find(name)

    def kill(self, name: str) -> None:
        self.host.order({"do": "kill", "attempt": name, "why": "it was cancelled"})

    def next(self) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self.host._next(self.jvm, self.spare))

    def ended(self) -> list[tuple[str, str]]:
        return [(each["attempt"], each["status"]) for each in self.said if each["is"] == "ended"]

    def look(self) -> asyncio.Future[None]:
        """One that is under way, and has ended as soon as the future is done."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        child: Any = Look()

        async def end() -> None:
            await done
            del self.host._looks._under_way[child]

        self.host._looks._under_way[child] = asyncio.ensure_future(end())
        return done


@pytest.fixture(name="play")
def play_(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    monkeypatch.setattr(procs, "kill_below", lambda pid, spared=(): [])  # below the tests' own process is more than a slot has

    def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
        async def all_of_it() -> None:
            await asyncio.wait_for(scene(Scene(tmp_path)), PATIENCE_S)

        asyncio.run(all_of_it())

    return play


def test_an_attempt_that_is_killed_while_looks_are_being_ended_is_not_begun(play: Any) -> None:
    """It ended twice, and the host with it."""

    async def scene(it: Scene) -> None:
        look, coming = it.look(), it.next()
        await turns()
        it.order("a")
        await turns()  # it was found, and the look is being ended
        it.kill("a")
        assert it.ended() == [("a", "killed")]
        look.set_result(None)
        await turns()
        assert not coming.done()
        b = it.order("b")
        assert await coming is b and b.started

    play(scene)


def test_an_attempt_whose_jvm_ends_while_looks_are_being_ended_waits_for_the_next(play: Any) -> None:
    async def scene(it: Scene) -> None:
        look, coming, a = it.look(), it.next(), it.order("a")
        await turns()
        it.jvm.exited.set_result(9)
        look.set_result(None)
        with pytest.raises(DriverLost):
            await coming
        assert it.host.attempts.find("a") is a and not a.started
        it.kill("a")
        assert it.ended() == [("a", "killed")], "as long as it waits, its end needs no JVM"

    play(scene)


@pytest.mark.parametrize("paused", [None, DriverLost("a step of the warming hangs")])
def test_an_attempt_that_the_host_itself_ends_before_it_began_did_not_run_out_of_memory(play: Any, paused: Exception | None) -> None:
    async def scene(it: Scene) -> None:
        it.jvm.paused = paused
        await it.host._run(it.jvm, it.spare, it.order("a"))
        [ended] = [each for each in it.said if each["is"] == "ended"]
        assert ended["status"] == "failed" and ended["error"]["message"] == f"The attempt did not begin: {paused or 'it does not answer'}"
        assert class_of(Fault.model_validate(ended["error"])) is INFRASTRUCTURE and ended["error"]["retryable"]

    play(scene)


def test_an_attempt_that_is_killed_while_its_process_does_not_begin_was_killed(play: Any) -> None:
    async def scene(it: Scene) -> None:
        a = it.order("a")
        a.started = True

        async def asked() -> None:
            it.kill("a")

        it.spare.asked = asked
        await it.host._run(it.jvm, it.spare, a)
        assert it.ended() == [("a", "killed")]

    play(scene)


def test_a_spare_that_comes_while_the_jvm_of_a_killed_attempt_is_ended_is_closed(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(it: Scene) -> None:
        it.jvm.next_spare = it.spare
        monkeypatch.setattr(it.host, "launch", lambda conf: it.jvm)
        a = it.order("a")
        a.started = True
        running = asyncio.ensure_future(it.host._run_apart(a, {"spark.driver.memory": "2g"}))
        await turns()
        it.kill("a")
        await running
        assert it.ended() == [("a", "killed")] and it.spare.closed

    play(scene)


@pytest.mark.parametrize("condition", ["NOT_WRITABLE", "NOT_READABLE"])
def test_no_attempt_that_ran_can_have_its_job_wait_for_storage_without_end(condition: str, tmp_path: Path) -> None:
    """Its user's code can write what the process leaves."""
    forged = faults.fault("infrastructure", "No space left on device", retryable=True, condition=condition)
    (tmp_path / "error.json").write_text(json.dumps(forged))
    attempt = OrderedAttempt("a", cast(Any, {}), Dirs(work="", log=str(tmp_path), blobs="", findings=""), cast(Any, None))
    assert ending.failure(faults.FAILED << 8, attempt, None) == {**forged, "condition": None}
    attempt.refused = forged  # this one has run no code of a user
    assert ending.failure(faults.FAILED << 8, attempt, None) == forged


def test_a_folder_that_cannot_be_removed_breaks_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function made one as another user where a JVM had been started: no later JVM of the slot had a folder."""
    made: list[str] = []

    class Started:
        def __init__(self, config: Any, children: Any, folder: str, conf: Any) -> None:
            made.append(folder)

        def launch(self, *_: Any) -> None:
            os.mkdir(made[-1])

    def not_ours(path: str, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    async def launch() -> None:
        scene = Scene(tmp_path)
        scene.host.launch()
        assert os.listdir(made[0]) == []
        with monkeypatch.context() as patch:
            patch.setattr("os.rmdir", not_ours)
            scene.host.launch()
        assert all(map(os.path.isdir, made)), "it stays, and the next JVM has another"
        scene.host.launch()
        assert list(map(os.path.isdir, made)) == [False, False, True], "it goes as soon as it may"

    monkeypatch.setattr(life, "Driver", Started)
    asyncio.run(launch())
