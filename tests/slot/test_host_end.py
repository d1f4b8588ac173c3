"""A host's own end takes a bounded time: with its TaskManager gone, nobody else would end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot import client
from services.task_manager.slot.common import procs
from services.task_manager.slot.common.config import SlotConfig
from services.task_manager.slot.host.children import Child, ChildLost, Children
from services.task_manager.slot.host.driver import Driver
from services.task_manager.slot.host.output import Pipe
from tests.slot.lifecycle import PATIENCE_S, lives, wait_until

ROOT = Path(__file__).parents[2]
HOST = """
import asyncio, os, subprocess, sys
sys.path.insert(0, {root!r})
from services.task_manager.slot.host import attempts, last_resort, main
last_resort.END_S = {end_s!r}

class Host:
    def __init__(self, *_): self.attempts = attempts.Attempts()
    def launch(self):
        escaped = subprocess.Popen(["sleep", "3600"], env={{}}, start_new_session=True)
        with open("escaped", "w") as file: file.write(str(escaped.pid))
    async def live(self, driver):
        open("alive", "w").close()
{live}

main.Host, main.preload = Host, lambda: None
main.jvm.find_java = main.jvm.find_spark = lambda *_: ""
sys.exit(main.main())
"""
AN_AWAIT = """
        while True:
            try: await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError: pass
"""
A_CALL = """
        os.mkfifo("never")
        os.open("never", os.O_WRONLY)
"""
CLEANS = """
        try: await asyncio.get_running_loop().create_future()
        finally:
            kill_below = main.procs.kill_below
            def slowly(*_):
                open("cleans", "w").close()
                while not os.path.exists("go on"): pass
                return kill_below(*_)
            main.procs.kill_below = slowly
"""


def host(folder: Path, monkeypatch: pytest.MonkeyPatch, live: str, end_s: float) -> tuple[client.SlotProcess, Callable[[], int], int]:
    """A slot whose host lives by this code; what waits for its end; a process below it that has left its session and has no marker."""
    script = folder / "host.py"
    script.write_text(HOST.format(root=str(ROOT), live=live, end_s=end_s))
    monkeypatch.setattr(client, "_HOST", str(script))
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    process = client.SlotProcess(SlotConfig(slot="s", folder=str(folder), python=sys.executable), events.put)

    def gone() -> int:
        event = events.get(timeout=PATIENCE_S)
        assert event["is"] == "gone", event
        return int(event["code"])

    wait_until((folder / "alive").exists, "the host lives")
    return process, gone, int((folder / "escaped").read_text())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("live", "signalled"), [(AN_AWAIT, False), (AN_AWAIT, True), (A_CALL, True)], ids=["order", "signal", "call"])
def test_a_host_that_hangs_at_its_end_ends_with_all_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, live: str, signalled: bool
) -> None:
    process, gone, escaped = host(tmp_path, monkeypatch, live, 1.0)
    if signalled:
        os.kill(process.pid, signal.SIGTERM)
    else:
        process.order({"do": "stop"})
    assert gone() == -signal.SIGKILL
    assert not lives(escaped)
    told = (tmp_path / "host.log").read_text()
    assert "has not ended within 1 s" in told
    assert "in live" in told, "where it waited"


@pytest.mark.timeout(60)
def test_a_signal_that_comes_while_a_host_cleans_does_not_keep_it_from_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of orders comes first, and the signal of a TaskManager that ended after it: the loop is closed by then."""
    process, gone, escaped = host(tmp_path, monkeypatch, CLEANS, 60.0)
    process.order({"do": "stop"})
    wait_until((tmp_path / "cleans").exists, "it cleans")
    os.kill(process.pid, signal.SIGTERM)
    (tmp_path / "go on").touch()
    assert gone() == 0
    assert not lives(escaped)


def test_a_cancellation_that_comes_with_an_answer_is_not_lost() -> None:
    """A host that was told to end went on with an attempt, for as long as that took."""

    async def both() -> None:
        come: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def line() -> bytes:
            return await come

        asked = asyncio.ensure_future(Child._within(None, line(), PATIENCE_S))  # type: ignore[arg-type]  # of a child, it needs nothing
        await asyncio.sleep(0.01)
        come.set_result(b"{}\n")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(both())


def test_an_answer_that_does_not_come_in_time_is_one_of_a_lost_child() -> None:
    async def ask() -> None:
        async def line() -> bytes:
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        with pytest.raises(ChildLost, match=r"^it does not answer$"):
            await Child._within(None, line(), 0.01)  # type: ignore[arg-type]  # of a child, it needs nothing

    asyncio.run(ask())


def test_the_end_of_a_child_that_is_killed_with_others_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waited for it here would have taken the status from those who wait for its end, and they would wait for ever."""

    async def kill() -> None:
        children = Children(asyncio.get_running_loop())
        child = subprocess.Popen(["sleep", "3600"])
        child.returncode = 0  # as of a JVM: the handler waits for it
        exited = children.watch(child.pid)
        stays = iter([True, True])  # one that ends slowly, and is looked at once more

        def living() -> list[int]:
            if next(stays, False):
                return [child.pid]
            while lives(child.pid):
                pass
            return []

        def kill(pids: list[int]) -> list[int]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            while lives(child.pid):
                pass
            return []

        monkeypatch.setattr(procs, "kill", kill)
        assert procs._kill_all(living, 60.0) == []
        assert await asyncio.wait_for(exited, PATIENCE_S) == signal.SIGKILL

    asyncio.run(kill())


def test_nobody_who_has_the_number_of_an_ended_jvm_is_killed_in_its_place(tmp_path: Path) -> None:
    async def close() -> None:
        loop = asyncio.get_running_loop()
        jvm = Driver(SlotConfig(slot="s", folder=str(tmp_path), python=sys.executable), Children(loop), str(tmp_path / "jvm"), {})
        jvm.pid, jvm.exited = os.getpid(), loop.create_future()
        jvm.exited.set_result(0)
        jvm._stdin, jvm._pipe = os.pipe()[::-1], Pipe(lambda data: None)
        os.close(jvm._stdin[1])
        jvm._pipe.close_in()
        loop.add_reader(jvm._pipe.fd, jvm._pump)
        await jvm.close()

    with subprocess.Popen(["sleep", "3600"]) as others:
        try:
            asyncio.run(close())
            assert lives(others.pid)
        finally:
            others.kill()
