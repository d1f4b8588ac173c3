"""The host's side of one JVM: the JVM, its control process, its output, and the attempts' processes attached to it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from ..attempt import main as process
from ..common import jvm, procs
from ..common.config import SlotConfig
from ..control import main as control
from .output import CappedLog, Pipe

START_S = 180
ATTACH_S = 60
RESET_S = 15
_LOG_BYTES = 2 << 20


class DriverLost(Exception):
    """The JVM ended, hangs, or is no longer fit for an attempt; it has to be replaced."""


class Children:
    """The children of the host, waited for by one SIGCHLD handler: those it started, and orphans that it adopted."""

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

    def __init__(self, children: Children, run: Callable[[socket.socket], None], keep: list[int]) -> None:
        ours, theirs = socket.socketpair()
        self.pid = procs.fork(lambda: run(theirs), [theirs.fileno(), *keep])
        self.exited = children.watch(self.pid)
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Sends ``body`` and returns the answer; raises DriverLost after twice ``within_s`` or at its end."""
        _, writer = await self._open()
        writer.write((json.dumps(body) + "\n").encode())
        if writer.transport.get_write_buffer_size() or writer.transport.is_closing():  # nearly never: then no turn of the loop is lost
            await self._within(writer.drain(), within_s)
        return await self.answer(within_s)

    async def answer(self, within_s: float) -> dict[str, Any]:
        """The next line; raises DriverLost after ``within_s`` or at its end."""
        line = await self._within(self._read(), within_s)
        if not line:
            raise DriverLost("it ended")
        return json.loads(line)

    async def _within(self, step: Coroutine[Any, Any, Any], within_s: float) -> Any:
        try:
            return await asyncio.wait_for(step, within_s)
        except asyncio.TimeoutError:
            raise DriverLost("it does not answer") from None
        except OSError:
            raise DriverLost("it ended") from None

    async def _read(self) -> bytes:
        reader, _ = await self._open()
        return await reader.readline()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=1 << 20)
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

    def __init__(self, children: Children, driver: Driver) -> None:
        self.stdout, self.stderr = Pipe(driver.log.write), Pipe(driver.log.write)
        pipes = [self.stdout, self.stderr]

        def run(channel: socket.socket) -> None:
            os.dup2(self.stdout.fd_in, 1)
            os.dup2(self.stderr.fd_in, 2)
            for pipe in pipes:
                os.close(pipe.fd_in)
            process.main(channel, driver.port, driver.secret, driver.application_id)

        super().__init__(children, run, [pipe.fd_in for pipe in pipes])
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


def _new_log(path: str) -> CappedLog:
    """A log at ``path``; the one before is kept beside it, for it may tell why a JVM had to be replaced."""
    if os.path.exists(path):
        os.replace(path, path + ".1")
    log = CappedLog(path, _LOG_BYTES, _LOG_BYTES)
    log.write(b"")  # it is there from the start: messages name it
    return log


class Driver:
    """One JVM with a Spark context. ``open`` it, ask it, ``close`` it; a DriverLost from any call means: close it."""

    def __init__(self, config: SlotConfig, children: Children, folder: str, static_conf: dict[str, str]) -> None:
        self._config = config
        self._children = children
        self._folder = folder
        self._static_conf = static_conf
        self._control: Child | None = None
        self.log = _new_log(os.path.join(config.folder, "jvm.log"))
        self.echo: Callable[[bytes], None] | None = None
        self.pid = 0
        self.exited: asyncio.Future[int]
        self.port = 0
        self.secret = ""
        self.application_id = ""
        self.attempts = 0
        self.was_ready = False

    def launch(self, java: str, spark_home: str, options: list[str]) -> None:
        """Starts the JVM's process; returns at once."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.makedirs(self._folder, mode=0o700)
        conf = jvm.spark_conf(self._config, self._static_conf, self._folder)
        jvm.write_files(self._config, conf, self._folder, options)
        self._stdin, self._pipe = os.pipe()[::-1], Pipe(self._printed)
        parent = os.getpid()
        started = subprocess.Popen(
            jvm.command(spark_home, self._folder),
            stdin=self._stdin[1],
            stdout=self._pipe.fd_in,
            stderr=subprocess.STDOUT,
            cwd=os.path.join(self._folder, "cwd"),
            env=jvm.environment(spark_home, java, self._folder, self._conn_info),
            preexec_fn=lambda: procs.lead_a_group(parent),
        )
        started.returncode = 0  # the SIGCHLD handler waits for it
        self.pid = started.pid
        self.exited = self._children.watch(self.pid)
        os.close(self._stdin[1])
        self._pipe.close_in()
        asyncio.get_running_loop().add_reader(self._pipe.fd, self._pump)

    @property
    def _conn_info(self) -> str:
        return os.path.join(self._folder, "gateway")

    def _pump(self) -> None:
        if not self._pipe.pump():
            asyncio.get_running_loop().remove_reader(self._pipe.fd)

    def _printed(self, data: bytes) -> None:
        (self.echo or self.log.write)(data)  # what an attempt's own code prints there is that job's, and goes to no one else's log

    async def open(self) -> None:
        """Waits for the JVM's gateway and opens the Spark context; a first Python worker has answered then."""
        deadline = time.monotonic() + START_S
        while (found := jvm.read_conn_info(self._conn_info)) is None:
            if self.exited.done():
                raise DriverLost(jvm.exit_reason(self.exited.result(), self._folder))
            if time.monotonic() > deadline:
                raise DriverLost(f"The JVM did not start within {START_S} s.")
            await asyncio.sleep(0.02)
        os.unlink(self._conn_info)
        self.port, self.secret = found
        os.environ["PYSPARK_PYTHON"] = sys.executable
        self._control = Child(
            self._children,
            lambda channel: control.serve(channel, self.port, self.secret, self._folder, self.pid),
            [],
        )
        self.application_id = (await self._ask("open", START_S))["application_id"]

    async def _ask(self, what: str, limit_s: float, **parameters: Any) -> dict[str, Any]:
        assert self._control is not None
        question = asyncio.ensure_future(self._control.ask({"do": what, "with": parameters}, limit_s))
        await asyncio.wait({question, self.exited}, return_when=asyncio.FIRST_COMPLETED)
        if not question.done():
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)
            raise DriverLost(self.why_ended())
        answer = question.result()
        if not answer["ok"]:
            raise DriverLost(self.why_ended() if self.exited.done() else answer["reason"])
        return answer

    def why_ended(self) -> str:
        """One sentence on the end of the JVM; it must have ended."""
        return jvm.exit_reason(self.exited.result(), self._folder)

    def ended_from_outside(self) -> bool:
        """Whether somebody ended the JVM; it must have ended."""
        return jvm.ended_from_outside(self.exited.result(), self._folder)

    async def spare(self) -> Spare:
        """Forks the process of the next attempt and waits until it is attached, while the Python workers are probed."""
        spare = Spare(self._children, self)
        try:
            probe = asyncio.ensure_future(self._ask("probe", RESET_S if self.attempts else START_S))
            attached, _ = await asyncio.gather(spare.answer(ATTACH_S), probe)
            if not attached["attached"]:
                raise DriverLost(attached["reason"])
        except BaseException:
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
            spare.close()
            raise
        return spare

    async def quiet(self) -> None:
        """Ends what the last attempt left running in the JVM and in Python workers; raises DriverLost if that fails."""
        local = jvm.is_local(self._config.master)
        within_s = max(self._config.quiet_ms, 0 if local else 5000) / 1000
        answer = await self._ask("quiet", within_s + 1.0, within_s=within_s)
        if not answer["quiet"]:
            raise DriverLost(f"{answer['living']} of the last attempt would not end")

    async def reset(self, had_variables: bool) -> None:
        """Clears what the last attempt left and prepares for the next; raises DriverLost if a new JVM is needed. `had_variables`: that
        attempt had environment variables of its job."""
        self.attempts += 1
        if os.path.exists(jvm.out_of_memory_mark(self._folder)):
            raise DriverLost("it ran out of memory")
        if self.attempts >= self._config.attempts_per_jvm:
            raise DriverLost(f"it ran {self.attempts} attempts")
        if (reason := (await self._ask("reset", RESET_S, had_variables=had_variables))["replace"]) is not None:
            raise DriverLost(reason)

    def helpers(self) -> list[int]:
        """The processes beside the JVM that an attempt's end must spare."""
        return [self._control.pid] if self._control is not None else []

    def drain(self) -> None:
        """Passes on all that the JVM has printed until now."""
        if self._pipe.fd >= 0:
            self._pipe.drain()

    async def close(self) -> None:
        """Kills the JVM, everything below it and the control process, waits for that, and removes the JVM's folder."""
        if self._control is not None:
            self._control.close()
        if self._pipe.fd < 0:
            return
        procs.kill([*([] if self.exited.done() else [self.pid]), *procs.below(self.pid)])
        await asyncio.wait({self.exited}, timeout=5)
        os.close(self._stdin[0])
        asyncio.get_running_loop().remove_reader(self._pipe.fd)
        self._pipe.drain()
        self._pipe.close()
        self.log.close()
        shutil.rmtree(self._folder, ignore_errors=True)
