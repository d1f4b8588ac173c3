"""Slots of a simulated TaskManager: they take what the real ones take, and report what the real ones report."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import fsspec

from millrace.core.messages.base import Body
from millrace.core.messages.effects import FindAnswer, KillAttempt, LaunchAttempt, OrderAttempt
from millrace.core.messages.processes import (
    BY_DEFAULT,
    Answer,
    Ask,
    DescribeAsk,
    Description,
    LogFile,
    LogFiles,
    LogPiece,
    LogsAsk,
    NoAnswer,
    ProcessStatus,
    Setting,
    SettingsAsk,
    SettingsFound,
    SlotJvm,
    ThreadDump,
    ThreadDumps,
    ThreadsAsk,
    UploadedPiece,
)
from millrace.core.messages.progress import AttemptProgress, AttemptStatus
from millrace.core.messages.slots import (
    AnswerFound,
    AttemptEnded,
    AttemptRunning,
    OrderAnswered,
    SlotBroken,
    SlotProgress,
    SlotReady,
    SlotReplacing,
    SlotsProgressed,
)
from millrace.core.profile import Profile
from services.task_manager.slot.attempt.exchange import folders_of
from services.task_manager.slot.attempt.exchange_files import STAGED
from tests.simulation.behaviour import Behaviour
from tests.simulation.book import Living
from tests.simulation.world import World

USER_ERROR = {"kind": "user", "retryable": True, "message": "ZeroDivisionError: division by zero"}
HOST_ENDED = {"kind": "infrastructure", "retryable": True, "message": "the TaskManager was silent: the slot ended"}
JVM_ENDED = {"kind": "infrastructure", "retryable": True, "message": "the JVM of the slot has ended"}
PROGRESS_MOST = 5  # reports of one attempt
ANALYSIS_ERROR = {"kind": "analysis", "retryable": False, "message": "there is no table t", "line": 1}


@dataclass
class Running:
    spec: dict[str, Any]
    living: Living
    begun: bool = False  # the user's code
    asked_ms: int | None = None  # when it was asked to end
    ends: bool = False  # its end is on its way


class SimulatedSlots:
    """The slots of one TaskManager process, `<id>.<number of its start>`. `post` takes their local facts."""

    def __init__(self, world: World, process: str, count: int, post: Callable[[Body], None]) -> None:
        self._world, self.process, self._post = world, process, post
        self._later: list[tuple[int, int, Callable[[], None]]] = []
        self._numbered = 0
        self._running: dict[int, Running] = {}
        self._started: dict[int, int] = {}  # slot -> how often that was begun
        self._heard_ms, self._patience_ms = 0, 1 << 60
        self.profiles: list[Profile] = []  # by slot
        for slot in range(count):
            self._start(slot, world.timing.start)

    def due_ms(self) -> int | None:
        due_ms = self._later[0][0] if self._later else None
        for running in self._running.values():
            if not running.ends:
                alone_ms = self._heard_ms + self._patience_ms
                return alone_ms if due_ms is None else min(due_ms, alone_ms)
        return due_ms

    def turn(self) -> bool:
        """What is due happens."""
        if self._world.clock.now_ms() >= self._heard_ms + self._patience_ms:
            alone = [(slot, each) for slot, each in self._running.items() if not each.ends]
            for slot, running in alone:
                self._end(slot, running, "failed", error=HOST_ENDED)
            if alone:
                return True
        if not self._later or self._later[0][0] > self._world.clock.now_ms():
            return False
        heapq.heappop(self._later)[2]()
        return True

    def launch(self, effect: LaunchAttempt) -> None:
        living = Living(self.process, effect.slot, effect.attempt)
        spec = effect.spec.json_value()
        _assert_satisfied(effect.attempt, self.profiles[effect.slot], effect.spec.resources)
        over = self._world.has_ended(effect.spec.job)
        late = over and not self._world.is_of_lost_log(effect.spec.job, effect.attempt)
        self._world.book.attempt_started(spec, living, late, self._world.clock.now_ms())
        gone = [] if over else [each for each in read_by(spec) if not self._world.storage.lies(f"{each}/part")]
        assert not gone, f"I17: {effect.attempt} lives, and {gone} is deleted"
        running = self._running[effect.slot] = Running(spec, living)
        self._heard_ms = max(self._heard_ms, self._world.clock.now_ms())
        behaviour = self._world.script(spec)
        if behaviour.ends != "stuck":
            self._after(self._world.timing.launch, lambda: self._runs(effect.slot, running, behaviour))

    def kill(self, effect: KillAttempt) -> None:
        """As the host does: it is asked to end only where code of the user has begun, and is over then, however it ends."""
        running = self._running.get(effect.slot)
        if running is None or running.living.attempt != effect.attempt or running.ends:
            return
        if not effect.within_ms or not running.begun:
            self._kill(effect.slot, running)
        elif running.asked_ms is None:
            running.asked_ms = self._world.clock.now_ms()
            takes_ms = self._world.random.randint(*self._world.timing.asked)
            due_ms = min(takes_ms, effect.within_ms)
            self._after((due_ms, due_ms), lambda: self._obeys(effect.slot, running, takes_ms <= effect.within_ms))

    def _obeys(self, slot: int, running: Running, by_itself: bool) -> None:
        """What it has written until then stays where it is."""
        if self._running.get(slot) is not running or running.ends:
            return
        stage(running.spec, running.living.attempt)
        if by_itself:
            self._end(slot, running, "killed")
        else:
            self._kill(slot, running)

    def _kill(self, slot: int, running: Running) -> None:
        running.ends = True
        self._after(self._world.timing.kill, lambda: self._end(slot, running, "killed"))

    def order(self, effect: OrderAttempt) -> None:
        self._after(self._world.timing.answer, lambda: self._replies(effect))

    def answer(self, effect: FindAnswer) -> None:
        """One in so many has no answer: its logs lie on a disk that hangs."""
        if self._world.random.random() >= self._world.timing.unanswered:
            self._after(self._world.timing.answer, lambda: self._post(AnswerFound(
                question=effect.question, reply_to=effect.reply_to, correlation=effect.correlation,
                task_manager=self.process.rpartition(".")[0], answer=found(effect.ask, len(self._started)),
            )))  # fmt: skip

    def _replies(self, effect: OrderAttempt) -> None:
        running = self._running.get(effect.slot)
        runs = running is not None and running.living.attempt == effect.attempt and not running.ends
        told = {"status": at_work(1)} if runs else {"no_answer": "it has just ended"}
        self._post(OrderAnswered(attempt=effect.attempt, shard=effect.shard, question=effect.question, **told))

    def _progresses(self, slot: int, running: Running, tasks_done: int) -> None:
        """Reports that it goes on, a few times."""
        if self._running.get(slot) is running and not running.ends and tasks_done <= PROGRESS_MOST:
            each = SlotProgress(slot=slot, attempt=running.living.attempt, progress=at_work(tasks_done).progress)
            self._post(SlotsProgressed(attempts=[each]))
            self._after(self._world.timing.progress, lambda: self._progresses(slot, running, tasks_done + 1))

    def jvm_ends(self, slot: int, for_good: bool) -> None:
        """The JVM of a slot dies. `for_good`: it does not start again, until it is repaired."""
        running = self._running.pop(slot, None)
        if running is not None:
            self._world.book.attempt_ended(running.spec, running.living, False)
            if not for_good:
                self._post(AttemptEnded(slot=slot, attempt=running.living.attempt, status="failed", error=JVM_ENDED))
        if for_good:
            self._post(SlotBroken(slot=slot, reason="its JVM does not start any more"))
        else:
            self._post(SlotReplacing(slot=slot, reason="its JVM has ended"))
        self._start(slot, self._world.timing.repair if for_good else self._world.timing.start)

    def _start(self, slot: int, span: tuple[int, int]) -> None:
        """A JVM starts, or is reset. What was under way in the slot before will never be ready: it has one JVM."""
        self._started[slot] = number = self._started.get(slot, 0) + 1

        def ready() -> None:
            if self._started[slot] == number:
                self._post(SlotReady(slot=slot))

        self._after(span, ready)

    def beat(self, patience_ms: int) -> None:
        """The TaskManager is at work; a slot with an attempt ends when it does not hear this for so long."""
        self._heard_ms, self._patience_ms = self._world.clock.now_ms(), patience_ms

    def close(self, timeout_s: float) -> None:
        """They end with their process."""

    def _runs(self, slot: int, running: Running, behaviour: Behaviour) -> None:
        if self._running.get(slot) is not running or running.ends:
            return
        running.begun = True
        self._post(AttemptRunning(slot=slot, attempt=running.living.attempt))
        self._after(self._world.timing.progress, lambda: self._progresses(slot, running, 1))
        if behaviour.ends == "hang":
            return
        span = self._world.timing.run if behaviour.run_ms is None else (behaviour.run_ms, behaviour.run_ms)
        self._after(span, lambda: self._ends(slot, running, behaviour))

    def _ends(self, slot: int, running: Running, behaviour: Behaviour) -> None:
        if self._running.get(slot) is not running or running.ends or running.asked_ms is not None:
            return
        if behaviour.mates and not self._world.book.met(running.spec["job"], running.living, behaviour.mates):
            self._after(self._world.timing.run, lambda: self._ends(slot, running, behaviour))
            return
        if behaviour.ends in ("finish", "fail"):  # who fails may have written all that it was told to
            stage(running.spec, running.living.attempt)
        if behaviour.ends == "finish":
            for output in running.spec["outputs"]:
                if output["edge"] not in ("sink", "result"):
                    self._world.storage.leave(f"{output['folder']}/part", running.living.attempt.encode())
            made = {**report(running.spec), "spent": own_time(running.living.attempt), "progress": in_all(running.living.attempt)}
            self._end(slot, running, "finished", report=behaviour.report or made)
        elif behaviour.ends == "fail":
            self._end(slot, running, "failed", error={**(behaviour.error or USER_ERROR), "progress": in_all(running.living.attempt)})
        else:
            del self._running[slot]
            self._world.book.attempt_ended(running.spec, running.living, False)
            self._post(SlotBroken(slot=slot, reason="its JVM does not start any more"))
            self._start(slot, self._world.timing.repair)

    def _end(self, slot: int, running: Running, status: Any, **told: Any) -> None:
        if self._running.get(slot) is not running:
            return  # its JVM died before it was killed, and it with it
        del self._running[slot]
        if running.asked_ms is not None:
            self._world.book.asked[running.living.attempt] = self._world.clock.now_ms() - running.asked_ms
        self._world.book.attempt_ended(running.spec, running.living, status == "finished")
        self._post(AttemptEnded(slot=slot, attempt=running.living.attempt, status=status, **told))
        if self._world.random.random() < self._world.timing.replaced:
            self._post(SlotReplacing(slot=slot, reason="threads of the attempt stayed"))
            self._start(slot, self._world.timing.start)
        else:
            self._start(slot, self._world.timing.reset)

    def _after(self, span: tuple[int, int], happens: Callable[[], None]) -> None:
        self._numbered += 1
        due_ms = self._world.clock.now_ms() + self._world.random.randint(*span)
        heapq.heappush(self._later, (due_ms, self._numbered, happens))


def _assert_satisfied(attempt: str, has: Profile, asked: dict[str, int]) -> None:
    """Of an attempt that begins in a slot."""
    parts = dict(has.parts())
    missing = {name: number for name, number in asked.items() if number > parts.get(name, 0)}
    assert not missing, f"[R35]: {attempt} asks for {asked}, and runs in a slot that has {has.text}"


def found(ask: Ask, slots: int) -> Answer:
    """What a TaskManager answers that has so many slots and one log."""
    if isinstance(ask, DescribeAsk):
        texts = {name: name for name in ("service", "host", "version", "python", "system")}
        status = ProcessStatus(**{**dict.fromkeys(ProcessStatus.model_fields, 1), **texts})
        return Description(status=status, slots=[SlotJvm(slot=number, no_answer="it has none") for number in range(slots)])
    if isinstance(ask, ThreadsAsk):
        return ThreadDumps(dumps=[ThreadDump(of="the process", text='"main"\n    at main.py:1 main\n')])
    if isinstance(ask, SettingsAsk):
        return SettingsFound(settings=[Setting(name="slots", value=1, origin=BY_DEFAULT)])
    if isinstance(ask, LogsAsk):
        return LogFiles(logs=[LogFile(log="log", bytes=3, modified_ms=1)])
    if ask.log != "log":
        return NoAnswer(kind="not_found", reason=f"there is no log {ask.log}")
    return UploadedPiece(piece=LogPiece(log="log", path="logs/asked/1", start=0, bytes=3, size=3))


def at_work(tasks_done: int) -> AttemptStatus:
    """The status of an attempt that has done so many Spark tasks."""
    progress = AttemptProgress(**{**dict.fromkeys(AttemptProgress.model_fields, 0), "tasks_done": tasks_done, "tasks_total": PROGRESS_MOST})
    return AttemptStatus(elapsed_ms=1, progress=progress, stages=[], stack=["job.py:1 main"])


def report(spec: dict[str, Any]) -> dict[str, Any]:
    """The report of an attempt that does what it is told."""
    if spec["kind"] == "plan":
        pinned = {
            vertex["id"]: {"schema": f"schema of {vertex['id']}", "files": [["/data", 100, 1]], "split_bytes": 50}
            for vertex in spec["vertices"]
            if "source" in vertex and vertex["parallelism"] > 1
        }
        keys = {
            vertex["id"]: ["string" for _ in hashed[0]["keys"]]
            for vertex in spec["vertices"]
            if len(hashed := [each for each in vertex["inputs"].values() if "keys" in each]) > 1
        }
        schemas = {vertex["id"]: f"schema of {vertex['id']}" for vertex in spec["vertices"]}
        return {"pinned": pinned, "schemas": schemas, "key_types": keys}
    outputs = {
        each["vertex"]: {"schema": f"schema of {each['vertex']}", "rows": 1, "bytes": 9} for each in spec["outputs"]
    }
    rows = [[spec["subtask"]]]
    wanted = any(each["edge"] == "result" for each in spec["outputs"])
    result = {"columns": ["subtask"], "types": ["int"], "rows": rows, "truncated": False} if wanted else None
    return {"outputs": outputs, "result": result}


def own_time(attempt: str) -> dict[str, int]:
    """What an attempt reports of its own time, which another clock has measured: drawn by its name, not from what faults are drawn from."""
    chance = random.Random(attempt)
    return {f"{phase}_ms": chance.randint(0, 200) for phase in ("start", "plan", "compute", "exchange")}


def in_all(attempt: str) -> dict[str, Any]:
    """What its Spark has done, drawn as `own_time` is."""
    chance = random.Random(attempt)
    return {**dict.fromkeys(AttemptProgress.model_fields, 0), "rows_read": chance.randint(0, 200), "gc_ms": chance.randint(0, 200)}


def read_by(spec: dict[str, Any]) -> list[str]:
    """The folders with what an attempt reads of others."""
    return [each for vertex in spec["vertices"] for edge in vertex["inputs"].values() for each in folders_of(edge)]


def stage(spec: dict[str, Any], attempt: str) -> None:
    """Writes what a sink's attempt leaves in its staging folder."""
    for output in spec["outputs"]:
        if output["edge"] == "sink":
            with fsspec.open(f"{output['folder']}/part-0.parquet", "wb") as file:
                file.write(attempt.encode())
            fsspec.open(f"{output['folder']}/{STAGED}1", "wb").open().close()
