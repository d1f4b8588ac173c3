"""The host: one JVM, its output, its control process and the attempts' processes attached to it. Both are forked here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .. import wire
from ..attempt import main as attempt
from ..common import jvm, procs
from ..common.attach import Known
from ..common.conf import MASTER, is_remote
from ..common.config import SlotConfig
from ..common.folders import why_kept
from ..control import main as control
from .children import Child, ChildLost, Children, Spare
from .output import CappedLog, Pipe

START_S = 180
ATTACH_S = 60
RESET_S = 15
STOP_S = 15
_LOG_BYTES = 2 << 20


class DriverLost(Exception):
    """The JVM ended, hangs, or is no longer fit for an attempt; it has to be replaced."""


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
        self._remote = is_remote(static_conf.get(MASTER, config.master))
        self.log = _new_log(os.path.join(config.folder, "jvm.log"))
        self.echo: Callable[[bytes], None] | None = None
        self.pid = 0
        self.exited: asyncio.Future[int]
        self.port = 0
        self.secret = ""
        self.application_id = ""
        self.attempts = 0
        self.was_ready = False
        self._lost = ""  # why: an answer that comes late must not be taken for that of the next question
        self._unwarmed = 1  # steps of the warming that were not begun, as far as is known
        self._warms = False
        self._known: Known = {"classes": {}, "settings": {}}
        self.probe_s: float = START_S  # what a probe may take: long, where it starts Python's daemon

    def launch(self, java: str, spark_home: str, options: list[str]) -> None:
        """Starts the JVM's process."""
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
            cwd=os.path.join(self._folder, jvm.CWD),
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
            lambda channel: control.serve(channel, self.port, self.secret, self._folder, self.pid, self._config.warming_rounds),
            [],
        )
        self.application_id = (await self._ask({"do": "open"}, START_S))["application_id"]

    async def _ask(self, order: wire.ControlOrder, limit_s: float) -> wire.ControlAnswer:
        if self._lost:
            raise DriverLost(self._lost)
        assert self._control is not None
        question: asyncio.Future[wire.ControlAnswer] = asyncio.ensure_future(self._control.ask(order, limit_s))
        ends: set[asyncio.Future[Any]] = {question, self.exited}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not question.done():
                raise DriverLost(self.why_ended())
            answer = question.result()
        except (ChildLost, DriverLost, asyncio.CancelledError) as error:
            self._lost = str(error) or "it does not answer"
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)
            if isinstance(error, ChildLost):
                raise DriverLost(self._lost) from None
            raise
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
        spare = Spare(
            self._children,
            lambda channel: attempt.main(channel, self.port, self.secret, self.application_id, self._known),
            self.log.write,
        )
        try:
            probe = asyncio.ensure_future(self._ask({"do": "probe"}, self.probe_s))
            attached: wire.Attached
            attached, _ = await asyncio.gather(spare.answer(ATTACH_S), probe)
            if not attached["attached"]:
                raise DriverLost(attached["reason"])
            self._known = attached.get("known", self._known)
            self.probe_s = RESET_S
        except BaseException as error:
            probe.cancel()
            await asyncio.gather(probe, return_exceptions=True)
            spare.close()
            if isinstance(error, ChildLost):
                raise DriverLost(str(error)) from None
            raise
        return spare

    async def quiet(self) -> None:
        """Ends what the last attempt left running in the JVM and in Python workers; raises DriverLost if that fails."""
        within_s = max(self._config.quiet_ms, 5000 if self._remote else 0) / 1000
        living = (await self._ask({"do": "quiet", "within_s": within_s}, within_s + 1.0))["living"]
        if living:
            raise DriverLost(f"{living} of the last attempt would not end")

    async def stop_context(self) -> bool:
        """Ends the Spark of one attempt before it is reported as ended: its executors are given back, and its event log is whole.
        False, with nothing done, where the JVM's end is enough."""
        if not self._static_conf or not (self._remote or self._static_conf.get("spark.eventLog.enabled", "").lower() == "true"):
            return False
        with contextlib.suppress(DriverLost):  # it is killed next in any case
            await self._ask({"do": "stop_context"}, STOP_S)
        return True

    async def reset(self, had_variables: bool) -> None:
        """Clears what the last attempt left and prepares for the next; raises DriverLost if a new JVM is needed. `had_variables`: that
        attempt had environment variables of its job."""
        self.attempts += 1
        if os.path.exists(jvm.out_of_memory_mark(self._folder)):
            raise DriverLost("it ran out of memory")
        if self.attempts >= self._config.attempts_per_jvm:
            raise DriverLost(f"it ran {self.attempts} attempts")
        answer = await self._ask({"do": "reset", "had_variables": had_variables}, RESET_S)
        if (reason := answer["replace"]) is not None:
            raise DriverLost(reason)
        if had_variables:  # daemons of that attempt were ended: on a busy machine, new ones take as long as a JVM's first
            self.probe_s = START_S

    async def warm(self) -> None:
        """Lets the JVM be led through what jobs do, until `pause`."""
        if self._unwarmed:
            self._unwarmed = (await self._ask({"do": "warm"}, RESET_S))["left"]
            self._warms = True

    async def pause(self, killed: asyncio.Future[str]) -> None:
        """Leaves the JVM to an attempt. On a busy machine a step that a cold JVM does takes as long as its start: that ends no attempt.
        One that was `killed` waits no longer than for a reset: the JVM may hang."""
        if not self._warms:
            return
        self._warms = False
        pausing = asyncio.ensure_future(self._ask({"do": "pause"}, START_S))
        ends: set[asyncio.Future[Any]] = {pausing, killed}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({pausing}, timeout=RESET_S)
        if not pausing.done():
            pausing.cancel()
            await asyncio.gather(pausing, return_exceptions=True)
            raise DriverLost(self._lost)
        pausing.result()

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
        if not self.exited.done():  # else its number may be another's, and what it left is the host's own
            procs.kill([self.pid, *procs.below(self.pid)])
        await asyncio.wait({self.exited}, timeout=5)
        os.close(self._stdin[0])
        asyncio.get_running_loop().remove_reader(self._pipe.fd)
        self._pipe.drain()
        self._pipe.close()
        self.log.close()
        if why := why_kept(self._folder):
            print(f"what was left in a JVM's folder cannot be removed: {why}", file=sys.stderr)
