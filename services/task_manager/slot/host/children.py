"""The host: its children. Those that it started and orphans that it adopted are waited for; those of ours have a channel to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from .. import wire
from ..common import procs
from .output import Pipe


class ChildLost(Exception):
    """A process of ours ended, or does not answer."""


class Children:
    """Waits for them by one SIGCHLD handler."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._exits: dict[int, asyncio.Future[int]] = {}
        loop.add_signal_handler(signal.SIGCHLD, self._reap)

    def watch(self, pid: int) -> asyncio.Future[int]:
        """A future of the wait status of a child that was just started."""
        self._exits[pid] = self._loop.create_future()
        return self._exits[pid]

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            future = self._exits.pop(pid, None)
            if future and not future.done():
                future.set_result(status)


class Child:
    """A forked process of ours with a channel of JSON lines to it."""

    _LIMIT = 1 << 20
    """The longest line that is read. What is not read here soon stays in the process's own socket."""

    def __init__(self, children: Children, run: Callable[[socket.socket], None], keep: list[int]) -> None:
        ours, theirs = socket.socketpair()
        self.pid = procs.fork(lambda: run(theirs), [theirs.fileno(), *keep])
        self.exited = children.watch(self.pid)
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: wire.ControlOrder | wire.Assignment, within_s: float) -> Any:
        """Sends ``body`` and returns the answer; raises ChildLost after twice ``within_s`` or at its end."""
        _, writer = await self._open()
        writer.write(wire.line_of(body))
        if writer.transport.get_write_buffer_size() or writer.transport.is_closing():  # nearly never: then no turn of the loop is lost
            await self._within(writer.drain(), within_s)
        return await self.answer(within_s)

    async def answer(self, within_s: float) -> Any:
        """The message in the next line; raises ChildLost after ``within_s`` or at its end."""
        line = await self._within(self.line(), within_s)
        if not line:
            raise ChildLost("it ended")
        return json.loads(line)

    async def _within(self, step: Coroutine[Any, Any, Any], within_s: float) -> Any:
        """Not by `asyncio.wait_for`: before Python 3.12 that loses a cancellation which comes in the moment of the answer."""
        answer = asyncio.ensure_future(step)
        try:
            await asyncio.wait({answer}, timeout=within_s)
        finally:
            if not answer.done():
                answer.cancel()
                await asyncio.wait({answer})
        try:
            return answer.result()
        except asyncio.CancelledError:
            raise ChildLost("it does not answer") from None
        except OSError:
            raise ChildLost("it ended") from None
        except ValueError:
            raise ChildLost("its answer is too long") from None

    def send(self, order: wire.AttemptOrder) -> bool:
        """Sends ``order`` without waiting for anything; False: it is lost, for the process does not read, or has ended."""
        if self._writer is None or self._writer.transport.is_closing() or self._writer.transport.get_write_buffer_size():
            return False
        self._writer.write(wire.line_of(order))
        return True

    async def line(self) -> bytes:
        """The next line, nothing at the end. Raises ValueError for one that is too long, OSError."""
        reader, _ = await self._open()
        return await reader.readline()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=self._LIMIT)
        return self._reader, self._writer

    def kill(self) -> None:
        """Kills it and its process group."""
        if not self.exited.done():
            procs.kill([self.pid])
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass

    def close(self) -> None:
        """Kills it and closes the channel."""
        self.kill()
        if self._writer is not None:
            self._writer.close()
        else:
            self._socket.close()


class Spare(Child):
    """The process of the next attempt, with pipes for what it prints."""

    _LIMIT = wire.LINE_BYTES_MAX

    def __init__(self, children: Children, run: Callable[[socket.socket], None], log: Callable[[bytes], None]) -> None:
        """``run``: what it does, with its end of the channel. ``log``: takes what it prints before it has an attempt."""
        self.stdout, self.stderr = Pipe(log), Pipe(log)
        pipes = [self.stdout, self.stderr]

        def printing(channel: socket.socket) -> None:
            os.dup2(self.stdout.fd_in, 1)
            os.dup2(self.stderr.fd_in, 2)
            for pipe in pipes:
                os.close(pipe.fd_in)
            run(channel)

        super().__init__(children, printing, [pipe.fd_in for pipe in pipes])
        self._loop = asyncio.get_running_loop()
        for pipe in pipes:
            pipe.close_in()
            self._loop.add_reader(pipe.fd, self._pump, pipe)

    def _pump(self, pipe: Pipe) -> None:
        if not pipe.pump():
            self._loop.remove_reader(pipe.fd)

    def finish_output(self) -> None:
        """Passes on what is left in the pipes and closes them."""
        for pipe in (self.stdout, self.stderr):
            if pipe.fd >= 0:
                self._loop.remove_reader(pipe.fd)
                pipe.drain()
                pipe.close()

    def close(self) -> None:
        super().close()
        self.finish_output()
