"""The host: the life of one slot. It has a JVM and a spare process, gives that an attempt, ends both, and begins anew.

When it says that an attempt ended, ``failed`` or ``killed``, nothing of that lives or writes any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shutil
from typing import Any

from .. import wire
from ..attempt_wire import Fault, FaultKind
from ..common import jvm, left, procs
from ..common.conf import classify_conf
from ..common.config import Dirs, SlotConfig
from ..common.faults import JVM_LOST, fault, not_ready
from . import archive
from .children import Children, DriverLost, Spare
from .driver import Driver
from .ending import complete, failure
from .inbox import Command, Inbox
from .out import Out, Stopped
from .output import CappedLog
from .preload import Broken
from .talk import Talk

_FAILED_STARTS_MAX = 2
_SPARES_LOST_MAX = 3
_OWN_LOG_BYTES = 4 << 20
_NAMES_CHARS = 300
_FOLDER_HINT = "Free space on its disk, or give the TaskManager a work folder that it may write to."


class Host:
    """One slot: a driver, a spare process, at most one attempt."""

    def __init__(self, config: SlotConfig, java: str, spark_home: str, out: Out) -> None:
        self._config = config
        self._java = java
        self._spark_home = spark_home
        self._out = out
        self._children = Children(asyncio.get_running_loop())
        self.inbox = Inbox()
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

    def order(self, order: wire.Order) -> None:
        """Takes one order of the TaskManager; ``kill`` of an attempt that has ended means nothing."""
        if order["do"] == "run":
            killed = asyncio.get_running_loop().create_future()
            self.inbox.put(Command(order["attempt"], order["spec"], Dirs(**order["dirs"]), killed))
        elif order["do"] == "kill":
            command = self.inbox.find(order["attempt"])
            if command and not command.killed.done():
                command.killed.set_result(order["why"] or "it was cancelled")
                if not command.started:
                    self._ended(command, "killed", error=command.killed_error())
        elif order["do"] == "tell":
            self._tell(order["attempt"], order["order"])
        elif order["do"] == "stop":
            raise Stopped

    def _tell(self, attempt: str, order: wire.AttemptOrder) -> None:
        command = self.inbox.find(attempt)
        if command and command.talk:
            command.talk.order(order)
        elif order["do"] == "report":
            silent = "its Python process has not begun" if command else "it has just ended"
            self._out.offer({"is": "status", "attempt": attempt, "question": order["question"], "status": None, "silent": silent})

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
                hint = f"The JVM's log is {self._config.folder}/jvm.log."
                return self._out.send({"is": "broken", "reason": reason, "hint": hint})
            self._out.send({"is": "replacing", "reason": reason, "attempt": None})
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
                self._out.send({"is": "ready", "slot": self._config.slot, "application_id": driver.application_id})
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
        """The next attempt; None if the spare ended meanwhile. Raises DriverLost."""
        command = await self.inbox.first(driver.exited, spare.exited)
        if driver.exited.done():
            raise DriverLost(driver.why_ended())
        if command is not None:
            command.started = True
        return command

    async def _run_apart(self, command: Command, static_conf: dict[str, str]) -> None:
        """Runs an attempt in a JVM of its own, made for its static settings and ended with it."""
        names = ", ".join(sorted(static_conf))
        why = f"the attempt needs Spark settings of its own: {names}"
        self._out.send({"is": "replacing", "reason": why, "attempt": command.attempt})
        driver = self.launch(static_conf)
        opening = asyncio.ensure_future(self._open_with_spare(driver))
        try:
            ends: set[asyncio.Future[Any]] = {opening, command.killed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                await self._end(driver)
                return self._ended(command, "killed", error=command.killed_error())
            try:
                spare = opening.result()
            except DriverLost as lost:
                await self._end(driver)
                said = self._jvm_log()
                self._keep(command, said)
                listed = names if len(names) <= _NAMES_CHARS else f"{names[:_NAMES_CHARS]}..."  # what is wrong comes after them
                message = f"Spark does not start with the settings {listed}: {jvm.complaint(said) or lost}"
                return self._ended(command, "failed", error=fault("jvm", message, detail=said))
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
            self._out.send({"is": "running", "attempt": command.attempt})  # its process lives, and is told at once
        logs = [self._log(command, "stdout"), self._log(command, "stderr")]
        spare.stdout.sink, spare.stderr.sink = logs[0].write, logs[1].write
        driver.echo = logs[1].write
        try:
            if tell:
                dirs: wire.RunDirs = {"work": command.dirs.work, "log": command.dirs.log, "blobs": command.dirs.blobs}
                try:
                    took: wire.Took = await spare.ask({"attempt": command.attempt, "spec": command.spec, "dirs": dirs}, 60)
                    command.refused = took.get("refused")
                    command.talk = Talk(command.attempt, spare, self._out.offer)
                except DriverLost:
                    spare.kill()
                ends: set[asyncio.Future[Any]] = {spare.exited, driver.exited, command.killed}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if command.talk:
                    command.talk.close()
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
                unreadable = fault("user", str(error))
        if found is not None:
            complete(logs, spare, driver)
            self._ended(command, "finished", report=found[0], rows=found[1])
            return await self._quiet(driver)
        jvm_lost: Fault | None = None
        try:
            await self._quiet(driver)
        except DriverLost as lost:
            # A JVM that just died may be noticed by the broken connection first; one that was asked to end takes its time.
            asked = not killed and failure(status, command, None).get("condition") == JVM_LOST
            await asyncio.wait({driver.exited}, timeout=5 if asked else 0.2)
            if driver.exited.done():  # from outside: the attempt runs elsewhere, whatever its `restart` says
                kind: FaultKind = "infrastructure" if driver.ended_from_outside() else "jvm"
                jvm_lost = fault(kind, driver.why_ended(), retryable=True)
            await self._end(driver)
            raise DriverLost(jvm_lost["message"] if jvm_lost else str(lost)) from lost
        finally:
            complete(logs, spare, driver)
            if killed:
                self._ended(command, "killed", error=command.killed_error())
            else:
                self._ended(command, "failed", error=unreadable or failure(status, command, jvm_lost))

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

    def _ended(
        self,
        command: Command,
        status: wire.EndStatus,
        report: left.Unchecked | None = None,
        rows: str | None = None,
        error: Fault | left.Unchecked | None = None,
    ) -> None:
        self.inbox.remove(command)
        self._out.send({
            "is": "ended", "attempt": command.attempt, "status": status, "report": report, "rows": rows, "error": error
        })  # fmt: skip


def _static_conf(command: Command) -> dict[str, str]:
    """The Spark settings of an attempt that only a JVM of its own can have; uploaded jars are one of them.

    A jar is copied under its name into the attempt's folder: Spark shows that name, and some libraries look at it.
    """
    _, static_conf, _ = classify_conf(command.spec["conf"])
    jars = [static_conf["spark.jars"]] if static_conf.get("spark.jars") else []
    for module in command.spec["modules"]:
        source = os.path.join(command.dirs.blobs, os.path.basename(module["sha256"]))
        if module["kind"] == "jar" and os.path.isfile(source):
            target = os.path.join(command.dirs.work, "jars", os.path.basename(module["name"]))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
            jars.append(pathlib.Path(target).as_uri())  # of a list parted by commas, which a folder's name may hold
    return {**static_conf, "spark.jars": ",".join(jars)} if jars else static_conf


def _bound_own_log() -> None:
    """What this host and what it forks print goes to one file, for as long as it lives."""
    if os.fstat(2).st_size > _OWN_LOG_BYTES:
        os.ftruncate(2, 0)  # it is opened to append
