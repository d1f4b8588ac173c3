"""The host: the life of one slot. It has a JVM and a spare process, gives that an attempt, ends both, and begins anew.

When it reports that an attempt ended, ``failed`` or ``killed``, nothing of that lives or writes any more.
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
from ..common.attach import APP_NAME
from ..common.conf import MASTER, classify_conf, is_remote
from ..common.config import Dirs, SlotConfig
from ..common.faults import JVM_LOST, fault, not_ready
from ..common.folders import why_kept
from . import archive
from .attempts import Attempts, OrderedAttempt
from .channel import ENDED, AttemptChannel
from .children import ChildLost, Children, Spare
from .driver import Driver, DriverLost
from .ending import complete, failure
from .looks import Looks
from .out import Out, Stopped
from .output import CappedLog
from .preload import Broken

_FAILED_STARTS_MAX = 2
_SPARES_LOST_MAX = 3
_OWN_LOG_BYTES = 4 << 20
_NAMES_CHARS = 300
_DRIVER = "driver-"
_FOLDER_HINT = "Free space on its disk, or give the TaskManager a work folder that it may write to."


class Host:
    """One slot: a driver, a spare process, at most one attempt."""

    def __init__(self, config: SlotConfig, java: str, spark_home: str, out: Out) -> None:
        self._config = config
        self._java = java
        self._spark_home = spark_home
        self._out = out
        self._children = Children(asyncio.get_running_loop())
        self.attempts = Attempts()
        self._looks = Looks(self._children, out.send)
        self._archive = archive.Archive(config, java, spark_home)
        self._foreign: set[int] = set()
        """What attempts left running that this user may not end; each is reported once."""

    def launch(self, static_conf: dict[str, str] | None = None) -> Driver:
        """A driver whose JVM is being started. Raises Broken."""
        folder = os.path.join(self._config.folder, _DRIVER + os.urandom(4).hex())
        try:
            for name in os.listdir(self._config.folder):  # of JVMs that no longer live; what cannot be removed is in nobody's way
                if name.startswith(_DRIVER):
                    why_kept(os.path.join(self._config.folder, name))
            driver = Driver(self._config, self._children, folder, static_conf or {})
            driver.launch(self._java, self._spark_home, self._archive.options())
        except OSError as error:
            raise Broken(f"The slot cannot use its folder {self._config.folder}: {error}", _FOLDER_HINT) from None
        return driver

    def order(self, order: wire.Order) -> None:
        """Takes one order of the TaskManager; ``kill`` of an attempt that has ended means nothing."""
        if order["do"] == "run":
            killed = asyncio.get_running_loop().create_future()
            self.attempts.put(OrderedAttempt(order["attempt"], order["spec"], Dirs(**order["dirs"]), killed))
        elif order["do"] == "kill":
            attempt = self.attempts.find(order["attempt"])
            if attempt and attempt.kill(order["why"] or "it was cancelled", order.get("within_ms", 0) / 1000) and not attempt.started:
                self._ended(attempt, "killed", error=attempt.killed_error())
        elif order["do"] == "order":
            self._pass_on(order["attempt"], order["order"])
        elif order["do"] == "look":
            self._looks.order(order)
        elif order["do"] == "stop":
            raise Stopped

    def _pass_on(self, name: str, order: wire.AttemptOrder) -> None:
        attempt = self.attempts.find(name)
        if attempt and attempt.channel:
            attempt.channel.order(order)
        elif (question := wire.question_of(order)) is not None:
            why = "its Python process has not begun" if attempt else ENDED
            self._out.offer({"is": "status", "attempt": name, "question": question, "status": None, "no_answer": why})

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
                attempt = await self._next(driver, spare)
                if attempt is None:
                    spares_lost += 1
                    if spares_lost == _SPARES_LOST_MAX:
                        raise DriverLost(f"{spares_lost} spare processes ended by themselves")
                    continue
                try:
                    static_conf = _static_conf(attempt, self._config.master)
                except OSError as error:  # the attempt's trouble, not the slot's
                    self._ended(attempt, "failed", error=not_ready(error))
                    continue
                if static_conf:
                    spare.close()
                    await self._end(driver)
                    await self._run_apart(attempt, static_conf)
                    raise DriverLost("back to the slot's own Spark settings")
                await self._run(driver, spare, attempt)
            finally:
                spare.close()
            await driver.reset(bool(attempt.spec.get("env")))

    async def _next(self, driver: Driver, spare: Spare) -> OrderedAttempt | None:
        """The next attempt; None if the spare ended meanwhile. Raises DriverLost."""
        if self.attempts.empty:
            await driver.warm()
        while True:
            async with self._looks.at(driver):
                attempt = await self.attempts.first(driver.exited, spare.exited)
            if driver.exited.done():
                raise DriverLost(driver.why_ended())
            if attempt is None:
                return None
            if self.attempts.find(attempt.name) is attempt:  # it may have been killed while looks were being ended
                attempt.started = True
                return attempt

    async def _run_apart(self, attempt: OrderedAttempt, static_conf: dict[str, str]) -> None:
        """Runs an attempt in a JVM of its own, made for its static settings and ended with it."""
        names = ", ".join(sorted(static_conf))
        why = f"the attempt needs Spark settings of its own: {names}"
        self._out.send({"is": "replacing", "reason": why, "attempt": attempt.name})
        driver = self.launch({**static_conf, APP_NAME: _app_name(attempt)})
        opening = asyncio.ensure_future(self._open_with_spare(driver))
        try:
            ends: set[asyncio.Future[Any]] = {opening, attempt.killed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                await self._end(driver)
                return self._ended(attempt, "killed", error=attempt.killed_error())
            try:
                spare = opening.result()
            except DriverLost as lost:
                await self._end(driver)
                printed = self._jvm_log()
                self._keep(attempt, printed)
                return self._ended(attempt, "failed", error=_no_start(static_conf, printed, lost))
            try:
                await self._run(driver, spare, attempt)
            except DriverLost:
                pass  # it is ended now in any case
        finally:
            opening.cancel()
            [opened] = await asyncio.gather(opening, return_exceptions=True)
            if not isinstance(opened, BaseException):  # also one that came while its JVM was being ended
                opened.close()
            await self._end(driver)

    async def _open_with_spare(self, driver: Driver) -> Spare:
        await driver.open()
        return await driver.spare()

    def _jvm_log(self) -> str:
        with open(os.path.join(self._config.folder, "jvm.log"), errors="replace") as log:
            return log.read()[-16384:]

    def _keep(self, attempt: OrderedAttempt, printed: str) -> None:
        """Keeps what a JVM printed that never ran the attempt, as its stderr: it is all that there is to look at."""
        with contextlib.suppress(OSError):
            if attempt.dirs.have_storage():
                os.makedirs(attempt.dirs.log, exist_ok=True)
        log = self._log(attempt, "stderr")
        log.write(printed.encode())
        log.close()

    async def _run(self, driver: Driver, spare: Spare, attempt: OrderedAttempt) -> None:
        """Runs one attempt to its end and reports how it ended; raises DriverLost if the JVM cannot serve another."""
        if begins := not attempt.killed.done():
            self._out.send({"is": "running", "attempt": attempt.name})  # its process lives
        logs = [self._log(attempt, "stdout"), self._log(attempt, "stderr")]
        spare.stdout.sink, spare.stderr.sink = logs[0].write, logs[1].write
        try:
            if begins:
                at = attempt.dirs
                dirs: wire.RunDirs = {
                    "work": at.work, "log": at.log, "blobs": at.blobs, "findings": at.findings, "mark": at.mark
                }  # fmt: skip
                try:
                    await driver.pause(attempt.killed)
                    driver.echo = logs[1].write
                    took: wire.Took = await spare.ask({"attempt": attempt.name, "spec": attempt.spec, "dirs": dirs}, 60)
                    attempt.refused = took.get("refused")
                    attempt.channel = AttemptChannel(attempt.name, spare, self._out.offer)
                except (ChildLost, DriverLost) as lost:  # before any code of the user
                    message = f"The attempt did not begin: {lost}"
                    attempt.refused = fault("infrastructure", message, retryable=True)
                    spare.kill()
                ends: set[asyncio.Future[Any]] = {spare.exited, driver.exited, attempt.killed}
                async with self._looks.at(driver):
                    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    if attempt.killed.done():
                        await attempt.ask_to_end(spare.exited, driver.exited)
                if attempt.channel:
                    attempt.channel.close()
            await self._finish(driver, spare, attempt, logs)
        finally:
            driver.echo = None
            for log in logs:
                log.close()

    def _log(self, attempt: OrderedAttempt, name: str) -> CappedLog:
        path = os.path.join(attempt.dirs.log, name)
        return CappedLog(path, self._config.log_head_bytes, self._config.log_tail_bytes)

    async def _finish(self, driver: Driver, spare: Spare, attempt: OrderedAttempt, logs: list[CappedLog]) -> None:
        """Ends what lives of the attempt and reports how it ended."""
        killed = attempt.killed.done() and (attempt.channel is None or attempt.asked or not spare.exited.done())
        spare.kill()
        await spare.exited
        self._note_foreign(self._kill_others(driver), logs[1])
        status, found, unreadable = spare.exited.result(), None, None
        if not killed:
            try:
                found = left.report(attempt.dirs.log) if status == 0 else None
            except left.Unreadable as error:
                unreadable = fault("user", str(error))
        if found is not None:
            complete(logs, spare, driver)
            stopped = await driver.stop_context()
            self._ended(attempt, "finished", report=found[0], rows=found[1])
            return None if stopped else await self._quiet(driver)
        jvm_lost: Fault | None = None
        try:
            await self._quiet(driver)
            await driver.stop_context()
        except DriverLost as lost:
            # A JVM that just died may be noticed by the broken connection first; one that was asked to end takes its time.
            asked = not killed and failure(status, attempt, None).get("condition") == JVM_LOST
            await asyncio.wait({driver.exited}, timeout=5 if asked else 0.2)
            if driver.exited.done():  # from outside: the attempt runs elsewhere, whatever its `restart` says
                kind: FaultKind = "infrastructure" if driver.ended_from_outside() else "jvm"
                jvm_lost = fault(kind, driver.why_ended(), retryable=True)
            await self._end(driver)
            raise DriverLost(jvm_lost["message"] if jvm_lost else str(lost)) from lost
        finally:
            complete(logs, spare, driver)
            if killed:
                self._ended(attempt, "killed", error=attempt.killed_error())
            else:
                self._ended(attempt, "failed", error=unreadable or failure(status, attempt, jvm_lost))

    async def _quiet(self, driver: Driver) -> None:
        await driver.quiet()
        self._kill_others(driver)  # what a Python worker started, and left its tree, while it still lived

    def _kill_others(self, driver: Driver) -> list[int]:
        """Ends what is below this host and no part of it; returns what could not be ended, each once."""
        if self._foreign:  # a look at all processes takes some of the time between two small jobs
            self._foreign.intersection_update(procs.below(os.getpid()))
        spared = [driver.pid, *driver.helpers(), *self._archive.pids(), *self._foreign]
        living = procs.kill_below(os.getpid(), spared)
        self._foreign.update(living)
        return living

    def _note_foreign(self, pids: list[int], log: CappedLog) -> None:
        """Names in the log what lives on. It is no reason to lose an attempt that has finished: what a script starts by ``sudo`` is not
        ours to end."""
        for pid in pids:
            what = " ".join(procs.command_line(pid))[:200] or "its attempt is not to be seen"
            log.write(f"Millrace: process {pid} ({what}), which this attempt started, lives on: it may not be ended here.\n".encode())

    def _ended(
        self,
        attempt: OrderedAttempt,
        status: wire.EndStatus,
        report: left.Unchecked | None = None,
        rows: str | None = None,
        error: Fault | left.Unchecked | None = None,
    ) -> None:
        self.attempts.remove(attempt)
        self._out.send({
            "is": "ended", "attempt": attempt.name, "status": status, "report": report, "rows": rows, "error": error
        })  # fmt: skip


def _static_conf(attempt: OrderedAttempt, master: str) -> dict[str, str]:
    """The Spark settings of an attempt that only a JVM of its own can have; uploaded jars are one of them. `master`: the slot's own.

    A jar is copied under its name into the attempt's folder: Spark shows that name, and some libraries look at it.
    An event log without a place of its own is written to the attempt's folder, whose files are kept with the job.
    """
    _, static_conf, _ = classify_conf(attempt.spec["conf"])
    if static_conf.get(MASTER) == master:
        del static_conf[MASTER]
    if static_conf.get("spark.eventLog.enabled", "").lower() == "true" and "spark.eventLog.dir" not in static_conf:
        folder = pathlib.Path(attempt.dirs.work, "spark-events")
        folder.mkdir(parents=True, exist_ok=True)
        static_conf["spark.eventLog.dir"] = folder.as_uri()
    jars = [static_conf["spark.jars"]] if static_conf.get("spark.jars") else []
    for module in attempt.spec["modules"]:
        source = os.path.join(attempt.dirs.blobs, os.path.basename(module["sha256"]))
        if module["kind"] == "jar" and os.path.isfile(source):
            target = os.path.join(attempt.dirs.work, "jars", os.path.basename(module["name"]))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
            jars.append(pathlib.Path(target).as_uri())  # of a list parted by commas, which a folder's name may hold
    return {**static_conf, "spark.jars": ",".join(jars)} if jars else static_conf


def _app_name(attempt: OrderedAttempt) -> str:
    """What a Spark cluster's page and its history call the application of one attempt: the job's own `spark.app.name`, or job and task."""
    spec = attempt.spec
    which = f" {spec['subtask']}" if spec["parallelism"] > 1 else ""
    return spec["conf"].get(APP_NAME) or f"{spec['job']}: {spec['task']}"[:_NAMES_CHARS] + which


def _no_start(static_conf: dict[str, str], printed: str, lost: DriverLost) -> Fault:
    """The fault of an attempt whose own JVM, which printed `printed`, did not come up."""
    names = ", ".join(sorted(static_conf))
    listed = names if len(names) <= _NAMES_CHARS else f"{names[:_NAMES_CHARS]}..."  # what is wrong comes after them
    wrong, master = jvm.complaint(printed), static_conf.get(MASTER, "local")
    if wrong or not is_remote(master):
        return fault("jvm", f"Spark does not start with the settings {listed}: {wrong or lost}", detail=printed)
    lines = str(lost).splitlines()
    reason = next((line[2:] for line in lines if line.startswith(": ")), lines[0])  # of a Java exception, after the words of Py4J
    return fault("jvm", f"Spark does not start on {master}: {reason}", retryable=True, condition="NO_SPARK_CLUSTER", detail=printed)


def _bound_own_log() -> None:
    """What this host and what it forks print goes to one file, for as long as it lives."""
    if os.fstat(2).st_size > _OWN_LOG_BYTES:
        os.ftruncate(2, 0)  # it is opened to append
