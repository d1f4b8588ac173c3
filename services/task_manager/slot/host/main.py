"""The host of a slot: the process between TaskManager and attempts, and the zygote of the latter.

Started as ``python host/main.py PARENT_PID BEATS CONF``, where CONF is the file of ``millrace.edge.spark_conf``.
It speaks JSON lines on stdin and stdout:

    TaskManager -> host   {"do": "start", "config": SlotConfig} first; then {"do": "run", "attempt", "spec", "dirs"},
                          {"do": "kill", "attempt", "why"}, {"do": "stop"}
    host -> TaskManager   {"is": "ready", "slot", "application_id"}: warm, probed, a spare process attached: may be offered
                          {"is": "running", "attempt"}: the process has its attempt
                          {"is": "ended", "attempt", "status": "finished" | "failed" | "killed", "report", "error"}:
                          for failed and killed nothing of it lives or writes any more
                          {"is": "replacing", "reason", "attempt"?}: a new JVM is being started; ready follows (with
                          "attempt": it is that attempt's own JVM, and running follows)
                          {"is": "broken", "reason", "hint"}: the slot cannot be started; the host ends

It never attaches to a JVM itself (a fork of an attached process could not attach again), runs no user code and has one
thread. When its TaskManager ends, so does it, and everything below it; also, while an attempt runs, when its TaskManager is stopped or
hangs: from the file descriptor BEATS it reads, again and again, for how many milliseconds at most it may hear nothing there.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # loaded under a private name, so that no name of ours is in a user's way
    import importlib.util

    _HERE = os.path.dirname(os.path.abspath(__file__))
    _FOLDER = os.path.dirname(_HERE)
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    for _name, _file in (("_millrace_slot", os.path.join(_FOLDER, "__init__.py")), ("_millrace_slot.common.conf", sys.argv[3])):
        _spec = importlib.util.spec_from_file_location(
            _name, _file, submodule_search_locations=[_FOLDER] if _name == "_millrace_slot" else None
        )
        assert _spec is not None and _spec.loader is not None
        sys.modules[_name] = _module = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(_module)
    sys.exit(importlib.import_module("_millrace_slot.host.main").main())

import asyncio
import contextlib
import dataclasses
import importlib
import json
import pathlib
import shutil
import signal
from typing import Any

from ..attempt.main import FAILED, JVM_LOST, not_ready, plain_error
from ..common import jvm, left, procs
from ..common.conf import classify_conf
from ..common.config import Dirs, SlotConfig
from . import archive
from .driver import Children, Driver, DriverLost, Spare
from .output import CappedLog
from .preload import Broken, preload

_FAILED_STARTS_MAX = 2
_SPARES_LOST_MAX = 3
_LINE_BYTES = 64 << 20
_OWN_LOG_BYTES = 4 << 20
_STEP_S = 0.05
_FOLDER_HINT = "Free space on its disk, or give the TaskManager a work folder that it may write to."


class Stopped(Exception):
    """The TaskManager told the host to stop, or is gone."""


@dataclasses.dataclass
class Command:
    """An attempt that was ordered and has not ended."""

    attempt: str
    spec: dict[str, Any]
    dirs: Dirs
    killed: asyncio.Future[str]
    started: bool = False
    refused: dict[str, Any] | None = None
    """Why its process could not begin."""


class Host:
    """One slot: a driver, a spare process, at most one attempt."""

    def __init__(self, config: SlotConfig, java: str, spark_home: str, out: int) -> None:
        self._config = config
        self._java = java
        self._spark_home = spark_home
        self._out = out
        self._children = Children(asyncio.get_running_loop())
        self._commands: dict[str, Command] = {}
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # ends the wait for an attempt
        self.busy = asyncio.Event()  # there is a command
        self._drivers = 0
        self._archive = archive.Archive(config, java, spark_home)
        self._foreign: set[int] = set()
        """What attempts left running that this user may not end; known, so that each is told once."""

    def launch(self, static_conf: dict[str, str] | None = None) -> Driver:
        """A driver whose JVM is being started. Raises Broken."""
        self._drivers += 1
        folder = os.path.join(self._config.folder, f"driver-{self._drivers}")
        try:
            driver = Driver(self._config, self._children, folder, static_conf or {})
            driver.launch(self._java, self._spark_home, self._archive.options())
        except OSError as error:
            raise Broken(f"The slot cannot use its folder {self._config.folder}: {error}", _FOLDER_HINT) from None
        return driver

    def order(self, message: dict[str, Any]) -> None:
        """Takes one command of the TaskManager; ``kill`` of an attempt that has ended means nothing."""
        if message["do"] == "run":
            killed = asyncio.get_running_loop().create_future()
            command = Command(message["attempt"], message["spec"], Dirs(**message["dirs"]), killed)
            self._commands[command.attempt] = command
            self._look()
            self.busy.set()
        elif message["do"] == "kill":
            command = self._commands.get(message["attempt"])
            if command and not command.killed.done():
                command.killed.set_result(message.get("why") or "it was cancelled")
                if not command.started:
                    self._ended(command, "killed", error=_killed(command))
        elif message["do"] == "stop":
            raise Stopped

    async def live(self, driver: Driver) -> None:
        """Serves attempts for ever, on ``driver`` and its successors; returns only when the slot is broken."""
        failures = 0
        while True:
            try:
                await driver.open()
                await self._serve(driver)
            except DriverLost as lost:
                reason = str(lost)
            finally:
                await self._end(driver)
            failures = 0 if driver.was_ready else failures + 1
            if failures == _FAILED_STARTS_MAX:
                return self._say("broken", reason=reason, hint=f"The JVM's log is {self._config.folder}/jvm.log.")
            self._say("replacing", reason=reason)
            driver = self.launch()

    async def _end(self, driver: Driver) -> None:
        await driver.close()
        procs.kill_below(os.getpid(), [*self._archive.pids(), *self._foreign])

    async def _serve(self, driver: Driver) -> None:
        """Runs attempts on ``driver`` until DriverLost."""
        spares_lost = 0
        while True:
            spare = await driver.spare()
            try:
                driver.was_ready = True
                _bound_own_log()
                self._say("ready", slot=self._config.slot, application_id=driver.application_id)
                self._archive.make_in_background(self._children.watch)
                command = await self._next(driver, spare)
                if command is None:
                    spares_lost += 1
                    if spares_lost == _SPARES_LOST_MAX:
                        raise DriverLost(f"{spares_lost} spare processes ended by themselves")
                    continue
                try:
                    static_conf = _static_conf(command)
                except OSError as error:  # the attempt's trouble, not the slot's
                    self._ended(command, "failed", error=not_ready(error))
                    continue
                if static_conf:
                    spare.close()
                    await self._end(driver)
                    await self._run_apart(command, static_conf)
                    raise DriverLost("back to the slot's own Spark settings")
                await self._run(driver, spare, command)
            finally:
                spare.close()
            await driver.reset(bool(command.spec.get("env")))

    async def _next(self, driver: Driver, spare: Spare) -> Command | None:
        """The next attempt; None if the spare ended meanwhile."""
        while True:
            if driver.exited.done():
                raise DriverLost(driver.why_ended())
            if spare.exited.done():
                return None
            for command in self._commands.values():
                command.started = True
                return command
            self._turn = asyncio.get_running_loop().create_future()
            for exited in (driver.exited, spare.exited):
                exited.add_done_callback(self._look)
            try:
                await self._turn
            finally:
                for exited in (driver.exited, spare.exited):
                    exited.remove_done_callback(self._look)

    def _look(self, _: Any = None) -> None:
        if not self._turn.done():
            self._turn.set_result(None)

    async def _run_apart(self, command: Command, static_conf: dict[str, str]) -> None:
        """Runs an attempt in a JVM of its own, made for its static settings and ended with it."""
        names = ", ".join(sorted(static_conf))
        self._say("replacing", reason=f"the attempt needs Spark settings of its own: {names}", attempt=command.attempt)
        driver = self.launch(static_conf)
        opening = asyncio.ensure_future(self._open_with_spare(driver))
        try:
            await asyncio.wait({opening, command.killed}, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                await self._end(driver)
                return self._ended(command, "killed", error=_killed(command))
            try:
                spare = opening.result()
            except DriverLost as lost:
                await self._end(driver)
                said = self._jvm_log()
                self._keep(command, said)
                message = f"Spark does not start with the settings {names}: {jvm.complaint(said) or lost}"
                return self._ended(command, "failed", error=plain_error("jvm", message, detail=said))
            try:
                await self._run(driver, spare, command)
            except DriverLost:
                pass  # it is ended now in any case
            finally:
                spare.close()
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await self._end(driver)

    async def _open_with_spare(self, driver: Driver) -> Spare:
        await driver.open()
        return await driver.spare()

    def _jvm_log(self) -> str:
        with open(os.path.join(self._config.folder, "jvm.log"), errors="replace") as log:
            return log.read()[-16384:]

    def _keep(self, command: Command, said: str) -> None:
        """The words of a JVM that never ran the attempt, as its stderr: they are all that there is to look at."""
        with contextlib.suppress(OSError):
            os.makedirs(command.dirs.log, exist_ok=True)
        log = self._log(command, "stderr")
        log.write(said.encode())
        log.close()

    async def _run(self, driver: Driver, spare: Spare, command: Command) -> None:
        """Runs one attempt to its end and says how it ended; raises DriverLost if the JVM cannot serve another."""
        if tell := not command.killed.done():
            self._say("running", attempt=command.attempt)  # its process lives, and is told at once
        logs = [self._log(command, "stdout"), self._log(command, "stderr")]
        spare.stdout.sink, spare.stderr.sink = logs[0].write, logs[1].write
        driver.echo = logs[1].write
        try:
            if tell:
                body = {"attempt": command.attempt, "spec": command.spec, "dirs": dataclasses.asdict(command.dirs)}
                try:
                    command.refused = (await spare.ask(body, 60)).get("refused")
                except DriverLost:
                    spare.kill()
                await asyncio.wait({spare.exited, driver.exited, command.killed}, return_when=asyncio.FIRST_COMPLETED)
            await self._finish(driver, spare, command, logs)
        finally:
            driver.echo = None
            for log in logs:
                log.close()

    def _log(self, command: Command, name: str) -> CappedLog:
        path = os.path.join(command.dirs.log, name)
        return CappedLog(path, self._config.log_head_bytes, self._config.log_tail_bytes)

    async def _finish(self, driver: Driver, spare: Spare, command: Command, logs: list[CappedLog]) -> None:
        """Ends what lives of the attempt and says how it ended."""
        killed = not spare.exited.done() and command.killed.done()
        spare.kill()
        await spare.exited
        self._tell_foreign(self._kill_others(driver), logs[1])
        status, found, unreadable = spare.exited.result(), None, None
        if not killed:
            try:
                found = left.report(command.dirs.log) if status == 0 else None
            except left.Unreadable as error:
                unreadable = plain_error("user", str(error))
        if found is not None:
            _complete(logs, spare, driver)
            self._ended(command, "finished", report=found[0], rows=found[1])
            return await self._quiet(driver)
        jvm_lost: dict[str, Any] | None = None
        try:
            await self._quiet(driver)
        except DriverLost as lost:
            # A JVM that just died may be noticed by the broken connection first; one that was asked to end takes its time.
            asked = not killed and _failure(status, command, None).get("condition") == JVM_LOST
            await asyncio.wait({driver.exited}, timeout=5 if asked else 0.2)
            if driver.exited.done():  # from outside: the attempt runs elsewhere, whatever its `restart` says
                kind = "infrastructure" if driver.ended_from_outside() else "jvm"
                jvm_lost = plain_error(kind, driver.why_ended(), retryable=True)
            await self._end(driver)
            raise DriverLost(jvm_lost["message"] if jvm_lost else str(lost)) from lost
        finally:
            _complete(logs, spare, driver)
            if killed:
                self._ended(command, "killed", error=_killed(command))
            else:
                self._ended(command, "failed", error=unreadable or _failure(status, command, jvm_lost))

    async def _quiet(self, driver: Driver) -> None:
        await driver.quiet()
        self._kill_others(driver)  # what a Python worker started, and left its tree, while it still lived

    def _kill_others(self, driver: Driver) -> list[int]:
        """Ends what is below this host and no part of it; returns what could not be ended, each once."""
        self._foreign.intersection_update(procs.below(os.getpid()))
        spared = [driver.pid, *driver.helpers(), *self._archive.pids(), *self._foreign]
        living = procs.kill_below(os.getpid(), spared)
        self._foreign.update(living)
        return living

    def _tell_foreign(self, pids: list[int], log: CappedLog) -> None:
        """They are no reason to lose an attempt that has finished: what a script starts by ``sudo`` is not ours to end."""
        for pid in pids:
            what = " ".join(procs.command_line(pid))[:200] or "its command is not to be seen"
            log.write(f"Millrace: process {pid} ({what}), which this attempt started, lives on: it may not be ended here.\n".encode())

    def _ended(self, command: Command, status: str, report: Any = None, rows: str | None = None, error: Any = None) -> None:
        del self._commands[command.attempt]
        if not self._commands:
            self.busy.clear()
        self._say("ended", attempt=command.attempt, status=status, report=report, rows=rows, error=error)

    def _say(self, what: str, **body: Any) -> None:
        say(self._out, what, **body)


def say(out: int, what: str, **body: Any) -> None:
    """Writes one message to the TaskManager; raises Stopped if it is gone."""
    data = (json.dumps({"is": what, **body}) + "\n").encode()
    try:
        while data:
            data = data[os.write(out, data) :]
    except BrokenPipeError:
        raise Stopped from None


def _static_conf(command: Command) -> dict[str, str]:
    """The Spark settings of an attempt that only a JVM of its own can have; uploaded jars are one of them.

    A jar is copied under its name into the attempt's folder: Spark shows that name, and some libraries look at it.
    """
    _, static_conf, _ = classify_conf(command.spec.get("conf") or {})
    jars = [static_conf["spark.jars"]] if static_conf.get("spark.jars") else []
    for module in command.spec.get("modules") or []:
        source = os.path.join(command.dirs.blobs, os.path.basename(module["sha256"]))
        if module["kind"] == "jar" and os.path.isfile(source):
            target = os.path.join(command.dirs.work, "jars", os.path.basename(module["name"]))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
            jars.append(pathlib.Path(target).as_uri())  # of a list parted by commas, which a folder's name may hold
    return {**static_conf, "spark.jars": ",".join(jars)} if jars else static_conf


def _complete(logs: list[CappedLog], spare: Spare, driver: Driver) -> None:
    """Writes to the logs all that was printed until now."""
    spare.finish_output()
    driver.drain()
    for log in logs:
        log.close()


def _killed(command: Command) -> dict[str, Any]:
    return plain_error("killed", f"The attempt was ended: {command.killed.result()}.")


def _failure(status: int, command: Command, jvm_lost: dict[str, Any] | None) -> dict[str, Any]:
    """The error of an attempt that left no report."""
    if jvm_lost is not None:
        return jvm_lost
    if command.refused is not None:
        return command.refused
    from ..attempt import errors

    try:
        described = left.error(command.dirs.log) if status == FAILED << 8 else None
    except left.Unreadable as error:
        described = plain_error("user", str(error))
    return described or errors.describe_exit(status)


def _bound_own_log() -> None:
    """What this host and what it forks print goes to one file, for as long as it lives."""
    if os.fstat(2).st_size > _OWN_LOG_BYTES:
        os.ftruncate(2, 0)  # it is opened to append


async def _main(out: int, commands: Any) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), commands)
    config = SlotConfig.from_json(json.loads(await reader.readline())["config"])
    try:
        java = jvm.find_java(config.java_home)
        spark_home = jvm.find_spark(config.pyspark_version)
    except jvm.CannotStart as broken:
        say(out, "broken", reason=broken.reason, hint=broken.hint)
        return
    try:
        await _serve(Host(config, java, spark_home, out), reader)
    except Broken as broken:
        say(out, "broken", reason=str(broken), hint=broken.hint)


async def _serve(host: Host, reader: asyncio.StreamReader) -> None:
    """Lets the host live until it is told to stop, its TaskManager is gone, or it cannot go on."""
    driver = host.launch()
    preload()  # while the JVM starts
    lowering = asyncio.ensure_future(_lower_session())
    life = asyncio.ensure_future(host.live(driver))
    stop = asyncio.ensure_future(_listen(reader, host))
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.cancel)
    silence = asyncio.ensure_future(_silence(int(sys.argv[2]), host))
    await asyncio.wait({life, stop, silence}, return_when=asyncio.FIRST_COMPLETED)
    lowering.cancel()
    if life.done():
        life.result()


async def _lower_session() -> None:
    """Late is soon enough: it holds for all that the session has started by then."""
    while not procs.lower_session():
        await asyncio.sleep(procs.TURN_S)


async def _silence(beats: int, host: Host) -> None:
    """Returns when an attempt is here and the TaskManager has been silent for too long: others may have been given the attempt.

    In the host's own working time: when it was starved of processor time or stopped as well, at most two of its steps count of that.
    """
    loop = asyncio.get_running_loop()
    silent_s, patience_s = 0.0, float("inf")

    def heard() -> None:
        nonlocal silent_s, patience_s
        lines = os.read(beats, 1 << 16).split()
        if lines:
            silent_s, patience_s = 0.0, int(lines[-1]) / 1000
        else:
            loop.remove_reader(beats)  # the TaskManager has ended, and so will this host

    loop.add_reader(beats, heard)
    while silent_s < patience_s:
        if not host.busy.is_set():
            await host.busy.wait()
            silent_s = 0.0
        before = loop.time()
        await asyncio.sleep(_STEP_S)
        silent_s += min(loop.time() - before, 2 * _STEP_S)
    print(f"the TaskManager has not been heard for {silent_s:.2f} s: the slot ends", file=sys.stderr, flush=True)


async def _listen(reader: asyncio.StreamReader, host: Host) -> None:
    """Passes on commands until the TaskManager says stop or is gone."""
    while line := await reader.readline():
        try:
            host.order(json.loads(line))
        except Stopped:
            return


def main() -> int:
    """The host's process; returns its exit code."""
    procs.die_with(int(sys.argv[1]), signal.SIGTERM)
    procs.adopt_orphans()
    os.nice(procs.NICENESS)
    # Only this module writes to the TaskManager: what anybody prints goes to the host's stderr.
    commands, out = os.fdopen(os.dup(0), "rb", buffering=0), os.dup(1)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.dup2(2, 1)
    os.close(devnull)
    try:
        asyncio.run(_main(out, commands))
    except (Stopped, KeyboardInterrupt):
        pass
    finally:
        procs.kill_below(os.getpid())
    return 0
