"""The channel to a running attempt, and the host's inbox and pipe, without Spark."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from services.task_manager.slot import wire
from services.task_manager.slot.attempt import channel as channel_module
from services.task_manager.slot.attempt.channel import Channel
from services.task_manager.slot.attempt.stack import stack_of
from services.task_manager.slot.common.config import Dirs
from services.task_manager.slot.host import channel as host_channel
from services.task_manager.slot.host.attempts import Attempts, OrderedAttempt
from services.task_manager.slot.host.channel import AttemptChannel
from services.task_manager.slot.host.children import Child, Children, Spare
from services.task_manager.slot.host.out import Out, Stopped

PROGRESS: dict[str, int] = dict.fromkeys(wire.Progress.__annotations__, 0)
SPEC: Any = {}  # nobody looks into it
STATUS: dict[str, Any] = {"elapsed_ms": 1, "progress": PROGRESS, "stages": [], "stack": ["a.py:1 f"]}
LIMIT_S = 60


def lines(*messages: Any) -> bytes:
    return b"".join(map(wire.line_of, messages))


GOOD = [
    {"is": "progress", "progress": PROGRESS},
    {"is": "status", "question": "q", "status": STATUS},
    {"is": "status", "question": "q", "status": {**STATUS, "stages": [
        {"stage": 1, "name": "count at x.py:1", "tasks_done": 0, "tasks_total": 2}
    ]}},
]  # fmt: skip
BAD = [
    b"no json\n",
    b"[1]\n",
    b"3\n",
    b"[" * 10_000 + b"\n",
    b'"' + b"x" * wire.LINE_BYTES_MAX + b'"\n',
    lines({"is": "ended", "attempt": "another"}),
    lines({"is": "progress", "progress": {}}),
    lines({"is": "progress", "progress": PROGRESS, "attempt": "another"}),
    lines({"is": "progress", "progress": {**PROGRESS, "more": 1}}),
    lines({"is": "progress", "progress": {**PROGRESS, "tasks_done": -1}}),
    lines({"is": "progress", "progress": {**PROGRESS, "tasks_done": True}}),
    lines({"is": "progress", "progress": {**PROGRESS, "tasks_done": 1.5}}),
    lines({"is": "progress", "progress": {**PROGRESS, "tasks_done": 10**400}}),
    lines({"is": "progress", "progress": [PROGRESS]}),
    lines({"is": "status", "question": 1, "status": STATUS}),
    lines({"is": "status", "question": "q", "status": {**STATUS, "stack": ["x" * (wire.TEXT_MAX + 1)]}}),
    lines({"is": "status", "question": "q", "status": {**STATUS, "stack": ["x"] * (wire.STACK_MAX + 1)}}),
    lines({"is": "status", "question": "q", "status": {**STATUS, "stages": [{}]}}),
    lines({"is": "status", "question": "q", "status": {**STATUS, "stages": "x"}}),
    lines({"is": "status", "question": "q", "status": None}),
]


@pytest.mark.parametrize("message", GOOD, ids=range(len(GOOD)))
def test_what_an_attempt_of_ours_sends_is_taken(message: dict[str, Any]) -> None:
    assert wire.from_attempt(lines(message)) == message


@pytest.mark.parametrize("line", BAD, ids=range(len(BAD)))
def test_what_no_attempt_of_ours_sends_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="."):
        wire.from_attempt(line)


class Peer:
    """The attempt's end of a channel in the hands of the test."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent: list[Any] = []
        self.reads = True

    def send(self, body: Any) -> bool:
        if self.reads:
            self.sent.append(body)
        return self.reads

    async def line(self) -> bytes:
        return await self.lines.get()


class Talking:
    """A channel to an attempt called "a", and the events that came of it."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.events: list[Any] = []
        self.channel = AttemptChannel("a", self.peer, self.events.append)

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(LIMIT_S) if sys.version_info >= (3, 11) else _Unlimited():
            while not condition():
                await asyncio.sleep(0.005)


class _Unlimited:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


def run(scene: Callable[[Talking], Awaitable[None]]) -> Talking:
    async def play() -> Talking:
        talking = Talking()
        await scene(talking)
        talking.channel.close()
        return talking

    return asyncio.run(play())


def answer(no_answer: str | None, status: Any = None, question: str = "q") -> dict[str, Any]:
    return {"is": "status", "attempt": "a", "question": question, "status": status, "no_answer": no_answer}


def test_a_question_is_answered_once_and_by_nobody_who_was_not_asked() -> None:
    async def scene(it: Talking) -> None:
        for _ in range(2):
            it.peer.lines.put_nowait(lines({"is": "status", "question": "q", "status": STATUS}))
        await it.until(lambda: it.peer.lines.empty())
        assert it.events == []
        it.channel.order({"do": "report", "question": "q"})
        assert it.peer.sent == [{"do": "report", "question": "q"}]
        for _ in range(2):
            it.peer.lines.put_nowait(lines({"is": "status", "question": "q", "status": STATUS}))
        it.channel.order({"do": "report", "question": "next"})
        it.peer.lines.put_nowait(lines({"is": "status", "question": "next", "status": STATUS}))
        await it.until(lambda: len(it.events) == 2)  # what came before has been read

    assert run(scene).events == [answer(None, STATUS), answer(None, STATUS, "next")]


def test_every_question_has_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_S", 0.05)

    async def scene(it: Talking) -> None:
        it.channel.order({"do": "report", "question": "late"})
        await it.until(lambda: it.events)
        assert "has not answered for 0.05 s" in it.events.pop()["no_answer"]
        it.peer.reads = False
        it.channel.order({"do": "report", "question": "deaf"})
        assert "does not read its channel" in it.events.pop()["no_answer"]
        it.channel.order({"do": "interrupt"})
        it.peer.reads = True
        monkeypatch.setattr(wire, "ANSWER_S", 60)
        for number in range(host_channel._QUESTIONS_MAX + 1):
            it.channel.order({"do": "report", "question": str(number)})
        assert [each["no_answer"] for each in it.events] == ["it was asked too much at once"]
        it.events.clear()

    ended = run(scene).events
    assert ended == [answer("it has just ended", question=str(number)) for number in range(host_channel._QUESTIONS_MAX)]


def test_a_question_to_an_attempt_that_is_about_to_be_reported_as_ended_is_answered_at_once() -> None:
    async def scene(it: Talking) -> None:
        it.channel.close()
        it.channel.order({"do": "report", "question": "q"})
        assert it.events == [answer("it has just ended")] and not it.peer.sent

    run(scene)


def test_progress_is_passed_on_about_once_a_second_whatever_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_channel, "_PAUSE_S", 0)
    monkeypatch.setattr(wire, "PROGRESS_S", 1000)

    async def scene(it: Talking) -> None:
        for number in range(100):
            it.peer.lines.put_nowait(lines({"is": "progress", "progress": {**PROGRESS, "rows_read": number}}))
        await it.until(lambda: it.peer.lines.empty())

    assert run(scene).events == [{"is": "progress", "attempt": "a", "progress": PROGRESS}]


def test_the_channel_of_who_sends_what_no_attempt_sends_is_not_read_any_more() -> None:
    async def scene(it: Talking) -> None:
        it.peer.lines.put_nowait(b"GET / HTTP/1.1\n")
        it.peer.lines.put_nowait(lines({"is": "progress", "progress": PROGRESS}))
        await it.until(lambda: it.channel._reading.done())
        it.channel.order({"do": "report", "question": "q"})

    assert run(scene).events == [answer("it has just ended")]


class Running(Child):
    """A child whose channel is as that of an attempt."""

    _LIMIT = Spare._LIMIT


def flood(sock: socket.socket, line: bytes) -> None:
    while True:
        sock.sendall(line * 1000)


@pytest.mark.parametrize("line", [b"x" * 200, b'{"is": 3}\n'], ids=["no end", "many"])
def test_a_process_that_writes_without_end_fills_its_own_socket(line: bytes) -> None:
    """The host reads on at its own pace, and holds no more than a line or two."""

    async def scene() -> int:
        child = Running(Children(asyncio.get_running_loop()), lambda sock: flood(sock, line), [])
        events: list[Any] = []
        reader, _ = await child._open()
        child_channel = AttemptChannel("a", child, events.append)
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began + 0.5:
            await asyncio.sleep(0.01)  # the loop turns
        held = len(reader._buffer)  # asyncio has no other way to see it
        assert not child.exited.done()
        child_channel.close()
        child.close()
        await asyncio.wait_for(child.exited, LIMIT_S)
        assert not events
        return held

    assert asyncio.run(scene()) < 1 << 20


def test_a_process_that_never_reads_loses_orders_and_blocks_nobody() -> None:
    async def scene() -> list[bool]:
        child = Running(Children(asyncio.get_running_loop()), lambda sock: sock.recv(1) and None or __import__("time").sleep(600), [])
        await child._open()
        sent = [child.send({"do": "report", "question": "x" * 1000}) for _ in range(10_000)]
        child.close()
        await asyncio.wait_for(child.exited, LIMIT_S)
        return sent

    sent = asyncio.run(scene())
    assert sent[0]
    assert not sent[-1]


# the attempt's end


def test_a_descriptor_that_user_code_closed_and_opened_anew_is_not_written_to(tmp_path: Any) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs)
    channel.send({"attached": True})
    number = theirs.fileno()
    os.close(number)
    users = os.open(tmp_path / "users", os.O_WRONLY | os.O_CREAT)
    os.dup2(users, number)
    with pytest.raises(OSError, match="closed"):
        channel.send({"took": "a"})
    assert channel.line() is None
    assert (tmp_path / "users").read_bytes() == b""
    assert ours.recv(1000) == lines({"attached": True})
    theirs.detach()
    for fd in {users, number}:
        os.close(fd)
    ours.close()


def test_nothing_that_user_code_starts_has_the_channel() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(theirs)
    look = f"import os\ntry: os.fstat({theirs.fileno()})\nexcept OSError: print('closed')"
    assert subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, close_fds=False, check=True).stdout == "closed\n"
    pid = os.fork()
    if not pid:
        os._exit(3 if theirs.fileno() < 0 else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    channel.send({"took": "a"})
    assert ours.recv(1000) == lines({"took": "a"})
    ours.close()
    theirs.close()


def test_a_look_at_spark_that_takes_long_delays_the_next_one_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one loads classes. On a busy machine it took seconds, and nothing was reported for twenty times as long."""
    monkeypatch.setattr(wire, "PROGRESS_S", 0.01)
    monkeypatch.setattr(channel_module, "PAUSE_MOST_S", 0.02)
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT_S)

    class Slow:
        last: tuple[dict[str, int], list[Any]] = (PROGRESS, [])
        looks = 0

        def look(self) -> None:
            time.sleep(0.2)
            self.looks += 1
            self.last = {**PROGRESS, "tasks_done": self.looks}, []

    pauses: list[float] = []

    class Wanted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            return super().wait(min(timeout, 0.02))

    service = channel_module._Service(Channel(theirs), Slow(), "/nowhere")  # it has what is used of one
    service._wanted = Wanted()
    threading.Thread(target=service.report_progress, daemon=True).start()
    received = b""
    while received.count(b"\n") < 4:
        received += ours.recv(10_000)
    assert len(pauses) >= 4
    assert max(pauses) <= 0.02, "not twenty times what a look took"
    ours.close()  # which ends the thread


class Last:
    """A look at Spark which reports who took it."""

    last: tuple[dict[str, int], list[Any]] = (PROGRESS, [])

    def __init__(self, hangs: threading.Event | None = None) -> None:
        self._hangs, self.by = hangs, []

    def look(self) -> None: ...

    def look_last(self) -> None:
        self.by.append(threading.get_ident())
        if self._hangs is not None:
            self._hangs.wait(LIMIT_S)


def test_the_last_look_at_spark_is_awaited() -> None:
    ours, theirs = socket.socketpair()
    spark = Last()
    service = channel_module._Service(Channel(theirs), spark, "/nowhere")
    looking = threading.Thread(target=service.report_progress, daemon=True)
    looking.start()
    service.look_last()
    assert spark.by == [looking.ident]
    looking.join(LIMIT_S)
    assert not looking.is_alive(), "it looks no more"
    service.look_last()
    assert len(spark.by) == 1
    ours.close()
    theirs.close()


def test_a_jvm_that_hangs_at_the_last_look_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_LAST_S", 0.01)
    ours, theirs = socket.socketpair()
    hangs = threading.Event()
    service = channel_module._Service(Channel(theirs), Last(hangs), "/nowhere")
    looking = threading.Thread(target=service.report_progress, daemon=True)
    looking.start()
    service.look_last()  # which comes back
    assert looking.is_alive() and not hangs.is_set()
    hangs.set()
    looking.join(LIMIT_S)
    ours.close()
    theirs.close()


def test_a_stack_has_places_and_no_values() -> None:
    secret = "hunter2"

    def inner() -> list[str]:
        return stack_of(sys._getframe(), "/nowhere")

    stack = inner()
    assert stack[-1].endswith(" inner")
    assert "test_channel_parts.py:" in stack[-1]
    assert not any(secret in each for each in stack)
    assert len(stack) <= wire.STACK_MAX
    assert all(len(each) <= wire.TEXT_MAX for each in stack)


def test_a_deep_stack_is_bounded() -> None:
    def down(left: int) -> list[str]:
        return down(left - 1) if left else stack_of(sys._getframe(), "/nowhere")

    assert len(down(200)) == wire.STACK_MAX


# the host's attempts and pipe


def test_the_first_ordered_attempt_is_given_until_it_is_removed_and_nothing_once_a_process_has_ended() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        attempts, ended = Attempts(), loop.create_future()
        first, second = (OrderedAttempt(name, SPEC, Dirs("", "", "", ""), loop.create_future()) for name in "ab")
        waiting = asyncio.ensure_future(attempts.first(ended))
        await asyncio.sleep(0)
        attempts.put(first)
        attempts.put(second)
        assert await waiting is first
        assert await attempts.first(ended) is first
        attempts.remove(first)
        assert await attempts.first(ended) is second
        assert attempts.find("a") is None
        attempts.remove(second)
        assert attempts.empty
        waiting = asyncio.ensure_future(attempts.first(ended))
        await asyncio.sleep(0)
        ended.set_result(None)
        assert await waiting is None
        attempts.put(first)
        assert await attempts.first(ended) is None

    asyncio.run(scene())


def test_an_attempt_that_is_killed_in_the_moment_that_it_comes_is_not_given() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        attempts, ended = Attempts(), loop.create_future()
        first = OrderedAttempt("a", SPEC, Dirs("", "", "", ""), loop.create_future())
        waiting = asyncio.ensure_future(attempts.first(ended))
        await asyncio.sleep(0)
        attempts.put(first)
        attempts.remove(first)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        ended.set_result(None)
        assert await waiting is None

    asyncio.run(scene())


def test_a_taskmanager_that_does_not_read_holds_up_no_host() -> None:
    heard, said = os.pipe()

    async def scene() -> None:
        out = Out(said)
        ready: wire.Ready = {"is": "ready", "slot": "0", "application_id": "a"}
        progress: Any = {"is": "progress", "attempt": "a", "progress": PROGRESS}
        for number in range(1000):
            out.send({"is": "broken", "reason": str(number), "hint": "x" * 1000})
        out.offer(progress)
        status: Any = {"is": "status", "attempt": "a", "question": "1", "status": None, "no_answer": "it has ended"}
        out.offer(status)
        for _ in range(500):
            await asyncio.sleep(0)
            os.read(heard, 500) if select.select([heard], [], [], 0)[0] else None
        out.send(ready)
        os.set_blocking(heard, False)
        read = b""
        while b'"ready"' not in read[-100:]:
            await asyncio.sleep(0)
            try:
                read += os.read(heard, 1 << 20)
            except BlockingIOError:
                continue
        events = [json.loads(line) for line in read.split(b"\n")[1:] if line]
        numbers = [int(each["reason"]) for each in events if each["is"] == "broken"]
        assert numbers == list(range(numbers[0], 1000))
        assert [each["is"] for each in events[-3:]] == ["broken", "status", "ready"], "an answer comes once, progress again"
        out.offer(progress)
        assert json.loads(os.read(heard, 1000)) == progress
        os.close(heard)
        with pytest.raises(Stopped):
            out.send(ready)

    asyncio.run(scene())
    os.close(said)
