"""One slot as the TaskManager drives it: attempts are prepared and ordered, and what its process sends becomes facts."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, cast

import structlog
from pydantic import ValidationError

from millrace.core.faults import fault, infrastructure
from millrace.core.messages.attempts import AttemptSpec
from millrace.core.messages.base import Body
from millrace.core.messages.effects import KillAttempt, LaunchAttempt, OrderAttempt
from millrace.core.messages.processes import JvmStatus
from millrace.core.messages.progress import AttemptProgress, AttemptStatus, Order, ReportOrder
from millrace.core.messages.slots import (
    AttemptEnded,
    AttemptRunning,
    OrderAnswered,
    SlotBroken,
    SlotReady,
    SlotReplacing,
)
from millrace.io.storage.store import Storage, StorageError

from ..slot import wire
from ..slot.attempt_wire import AttemptSpec as SlotSpec
from ..slot.common import left
from ..slot.common.folders import why_kept
from ..traces import AttemptTraces
from .blob_cache import BlobCache
from .keeping import Ending, Folders, Keeping
from .progress import ProgressReports
from .reports import sound
from .spark_work import SparkWork
from .variables import variables

AGAIN_S, BROKEN_AGAIN_S = 1.0, 60.0  # until a slot whose host ended, or that is broken, is started again
FAILED_STARTS_MAX = 3  # of a slot's process, one after the other, before its slot is called broken
LOOKS_MOST, UNANSWERED_MOST = 8, 100  # looks and orders that wait for an answer of the slot's process
LOG_TAIL_CHARS_MAX = 500  # of what it printed last, in a reason

log = structlog.get_logger("slots")


class SlotPort(Protocol):
    """A slot's process; see `slot.client.SlotProcess`. All methods return at once but `close`."""

    def order(self, order: wire.Order) -> None: ...

    def beat(self, patience_ms: int) -> None: ...

    def close(self) -> None: ...


OnEvent = Callable[[wire.Event], None]
OnStatus = Callable[["AttemptStatus | None", "str | None"], None]
"""Takes what a running attempt answers, or why it does not."""
OnLook = Callable[["JvmStatus | None", "str | None", "str | None"], None]
"""Takes how the slot's JVM is, where its threads are, and why nothing is known of it."""
SlotFactory = Callable[[int, OnEvent], SlotPort]
"""Starts the slot of this number; it sends its events from then on, on any thread."""


@dataclass
class Shared:
    """What the lanes of a process share."""

    factory: SlotFactory
    on_fact: Callable[[Body], None]
    attempts: Path
    logs: Path
    findings: Path
    blobs: BlobCache
    storage: Storage
    keeping: Keeping
    progress: ProgressReports
    work: SparkWork
    submit: Callable[[Callable[[], None]], Any]
    """Runs what may take long."""
    later: Callable[[float, Callable[[], None]], None]
    """Runs something after so many seconds."""
    traces: AttemptTraces | None = None
    """Makes spans, where traces are on."""
    closing: bool = False

    def clear(self, effect: LaunchAttempt, folders: Folders) -> None:
        """Nothing of an ended attempt is used any more."""
        for folder in (folders.work, folders.files):
            if why := why_kept(str(folder)):
                log.warning("what an attempt left cannot be removed", attempt=effect.attempt, reason=why)
        if effect.spec.modules:
            self.blobs.release(effect.attempt)


class Lane:
    """One slot: at most one attempt at a time, as the machine sees to."""

    def __init__(self, shared: Shared, number: int) -> None:
        self._shared, self._number = shared, number
        self._lock = threading.RLock()  # a simulated slot answers while it is given an order
        self._process: SlotPort | None = None
        self._effect: LaunchAttempt | None = None  # the attempt that was launched and has not ended
        self._ordered = False  # the process has the order to run it; before, nothing of it lives
        self._running = False  # the process reported that it runs
        self._apart = False  # the slot's JVM has ended for that of the attempt, and is started anew when this has ended
        self._unanswered: dict[str, OnStatus] = {}  # by its question to the process; orders that have no answer yet
        self._looks: dict[str, OnLook] = {}  # the same of looks at the JVM
        self._broken = False
        self._failed_starts = 0
        self._count = itertools.count(1)
        self._folders = Folders(Path(), Path(), Path())  # of this attempt

    def start(self) -> None:
        try:
            self._broken = False
            self._process = self._shared.factory(self._number, self._on_event)
        except OSError as error:
            self._report(SlotBroken(slot=self._number, reason=f"its process cannot be started: {error}"))
            self._shared.later(BROKEN_AGAIN_S, self._start_again)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()

    def launch(self, effect: LaunchAttempt) -> None:
        name = f"{self._number}-{next(self._count)}"
        folders = Folders(self._shared.attempts / name, self._shared.logs / name, self._shared.attempts / f"{name}.files")
        with self._lock:
            self._effect, self._folders, self._ordered, self._running, self._apart = effect, folders, False, False, False
        if effect.spec.modules:
            self._shared.blobs.hold(effect.attempt, _files_of(effect))
            self._shared.submit(lambda: self._prepare(effect, folders))
        else:
            self._prepare(effect, folders)  # no file is touched here: what the attempt starts with takes no turn of another thread

    def kill(self, effect: KillAttempt) -> None:
        with self._lock:
            launched = self._effect
            if launched is None or launched.attempt != effect.attempt:
                return
            if not self._ordered:  # it ends now: what makes it ready may wait for storage
                killed = Ending("killed", error=fault("killed", effect.why))
                self._end(launched, killed, reusable=self._process is not None)
            elif self._process is not None:
                self._process.order({"do": "kill", "attempt": effect.attempt, "why": effect.why, "within_ms": effect.within_ms})

    def order(self, effect: OrderAttempt) -> None:
        def answered(status: AttemptStatus | None, no_answer: str | None) -> None:
            self._report(OrderAnswered(
                attempt=effect.attempt, shard=effect.shard, question=effect.question, status=status, no_answer=no_answer
            ))  # fmt: skip

        self._order(effect.attempt, f"{effect.shard}.{effect.question}", effect.order, answered)

    @property
    def running(self) -> str | None:
        """The name of the running attempt."""
        effect = self._effect
        return effect.attempt if effect is not None and self._running else None

    def ask_attempt(self, attempt: str, on_status: OnStatus) -> None:
        """Asks a running attempt what it does. An answer comes in any case."""
        self._order(attempt, f"own.{next(self._count)}", ReportOrder(), on_status)

    def look(self, on_look: OnLook, *, threads: bool) -> None:
        """Looks at the JVM. An answer comes in any case."""
        if len(self._looks) >= LOOKS_MOST:  # nothing more is put into the pipe of a process that hangs
            on_look(None, None, f"its slot's process has not answered {LOOKS_MOST} looks")
            return
        question = f"look.{next(self._count)}"
        with self._lock:
            self._looks[question] = on_look
            process = self._process
        if process is not None:
            process.order({"do": "look", "question": question, "threads": threads})
        else:
            self._seen(question, None, None, "the slot's process is being started again")

    def _order(self, attempt: str, question: str, order: Order, on_status: OnStatus) -> None:
        if len(self._unanswered) >= UNANSWERED_MOST:  # the oldest: its answer was lost, or comes too late
            self._answered(next(iter(self._unanswered)), None, "its slot's process has not answered")
        with self._lock:
            self._unanswered[question] = on_status
            process, launched = self._process, self._effect is not None and self._effect.attempt == attempt
            if process is not None and launched and self._ordered:
                asked = cast(wire.AttemptOrder, {**order.model_dump(), "question": question})
                process.order({"do": "order", "attempt": attempt, "order": asked})
                return
        self._answered(question, None, "its slot makes it ready" if launched else "it has just ended")

    def _answered(self, question: str, reported: wire.AttemptStatus | None, no_answer: str | None) -> None:
        """Passes on the answer to an order, once. What an attempt sends may be written by user code: the slot's host has looked at it, and
        so do we."""
        on_status = self._unanswered.pop(question, None)
        if on_status is None:
            return
        status: AttemptStatus | None = None
        if reported is not None:
            try:
                status = AttemptStatus.model_validate(reported)
            except ValidationError:
                no_answer = "it answers what cannot be read"
        on_status(status, no_answer)

    def _seen(self, question: str, seen: wire.JvmStatus | None, threads: str | None, no_answer: str | None) -> None:
        """The same of a look. User code can change what a JVM says of itself."""
        on_look = self._looks.pop(question, None)
        if on_look is None:
            return
        jvm: JvmStatus | None = None
        if seen is not None:
            try:
                jvm = JvmStatus.model_validate(seen)
            except ValidationError:
                threads, no_answer = None, "its JVM answers what cannot be read"
        on_look(jvm, threads, no_answer)

    def beat(self, patience_ms: int) -> None:
        process = self._process
        if process is not None and self._ordered and self._effect is not None:
            process.beat(patience_ms)

    # preparing, on a thread of its own where there is something to fetch

    def _prepare(self, effect: LaunchAttempt, folders: Folders) -> None:
        """Makes an attempt ready and orders it. It may end before: then nothing is done for it any more, and what was done is cleared."""
        ending, reusable = Ending("failed", error=infrastructure("the slot's process is being started again")), False
        try:
            spec, folders = self._made_ready(effect, folders)
            if self._order_to_run(effect, spec, folders):
                return
        except (OSError, StorageError) as error:
            ending, reusable = Ending("failed", error=self._shared.keeping.unprepared(error)), True
        except Exception as error:  # a spec that makes no sense must not hold the slot for ever
            log.exception("an attempt cannot be prepared", attempt=effect.attempt)
            ending, reusable = Ending("failed", error=infrastructure(f"{type(error).__name__}: {error}")), True
        self._end(effect, ending, reusable=reusable)
        self._shared.submit(lambda: self._shared.clear(effect, folders))

    def _made_ready(self, effect: LaunchAttempt, folders: Folders) -> tuple[AttemptSpec, Folders]:
        folders = replace(folders, log=self._shared.keeping.log_folder(effect, folders.log))
        traces = self._shared.traces
        spec = effect.spec if traces is None else traces.given(effect)
        if files := _files_of(effect):
            folders.files.mkdir(mode=0o700, parents=True)
        for sha256 in files:
            if self._effect is effect:
                self._shared.blobs.give(spec.job, effect.acceptance, sha256, folders.files / sha256)
        for module in spec.modules:
            if module.kind == "env" and self._effect is effect:
                given = variables(self._shared.storage, spec.job, effect.acceptance, module.sha256)
                spec = spec.model_copy(update={"env": {**spec.env, **given}})
        return spec, folders

    def _order_to_run(self, effect: LaunchAttempt, spec: AttemptSpec, folders: Folders) -> bool:
        """Whether the slot's process has the order now."""
        with self._lock:
            if self._effect is not effect or self._process is None:
                return False
            self._folders, self._ordered = folders, True
            dirs: wire.RunDirs = {
                "work": str(folders.work), "log": str(folders.log), "blobs": str(folders.files),
                "findings": str(self._shared.findings), "mark": self._shared.keeping.mark,
            }  # fmt: skip
            order: wire.Run = {"do": "run", "attempt": effect.attempt, "spec": cast(SlotSpec, spec.json_value()), "dirs": dirs}
            self._process.order(order)
            return True

    # what the process sends, on its thread

    def _on_event(self, event: wire.Event) -> None:
        try:
            self._handle(event)
        except Exception:
            log.exception("an event of a slot is lost", slot=self._number, event_=str(event)[:500])

    def _handle(self, event: wire.Event) -> None:
        effect = self._effect
        if event["is"] == "ready":
            self._failed_starts = 0
            self._report(SlotReady(slot=self._number))
        elif event["is"] == "running":
            self._running = True
            self._report(AttemptRunning(slot=self._number, attempt=event["attempt"]))
        elif event["is"] == "ended":
            if effect is not None and effect.attempt == event["attempt"]:
                self._end(effect, Ending(event["status"], event["report"], event["rows"], sound(event["error"])))
        elif event["is"] == "progress":
            if effect is not None and effect.attempt == event["attempt"]:
                progress = AttemptProgress.model_validate(event["progress"])
                self._shared.work.note(self._number, progress)
                self._shared.progress.note(self._number, effect.attempt, progress)
        elif event["is"] == "status":
            self._answered(event["question"], event["status"], event["no_answer"])
        elif event["is"] == "looked":
            self._seen(event["question"], event["jvm"], event["threads"], event["no_answer"])
        elif event["is"] == "replacing":
            self._apart = bool(event["attempt"])
            if not self._apart:
                self._report(SlotReplacing(slot=self._number, reason=event["reason"]))
        elif event["is"] == "broken":
            self._break(" ".join(filter(None, (event["reason"], event["hint"]))))
        elif event["is"] == "gone":
            self._gone(event["code"], event["log_tail"])

    def _break(self, reason: str) -> None:
        self._broken = True
        log.error("a slot is broken", slot=self._number, reason=reason)
        self._report(SlotBroken(slot=self._number, reason=reason))

    def _gone(self, code: int, log_tail: str) -> None:
        """The slot's process ended: with this one, because it is broken, or because something killed it."""
        if self._shared.closing:
            return
        self._process = None
        why = f"the slot's process ended with {code}"
        for question in list(self._unanswered):
            self._answered(question, None, why)
        for question in list(self._looks):
            self._seen(question, None, None, why)
        effect = self._effect
        if effect is not None:
            error = infrastructure(f"the slot's process ended with {code}")
            self._end(effect, Ending("failed", error=error), reusable=False)
        if not self._broken:
            self._failed_starts += 1
            log.warning("a slot's process ended", slot=self._number, code=code, log_tail=log_tail)
            if self._failed_starts >= FAILED_STARTS_MAX:  # nobody would see that it never becomes ready
                last = log_tail[-LOG_TAIL_CHARS_MAX:] or "its log is empty; the log of the TaskManager may tell more"
                self._break(f"Its process ended {self._failed_starts} times before it was ready, the last time with {code}: {last}")
            else:
                self._report(SlotReplacing(slot=self._number, reason=f"its process ended with {code}"))
        self._shared.later(BROKEN_AGAIN_S if self._broken else AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        if not self._shared.closing:
            self.start()

    def _end(self, effect: LaunchAttempt, ending: Ending, *, reusable: bool = True) -> None:
        """Keeps what an ended attempt leaves, and reports the end once."""
        with self._lock:
            if self._effect is not effect:
                return
            self._effect = None
            folders, ordered, untouched = self._folders, self._ordered, not (self._running or self._apart)
        self._shared.progress.drop(self._number)
        traces = self._shared.traces
        noted = b"" if traces is None else left.spark(str(folders.log))
        kept = self._shared.keeping.keep(effect, ending, folders)
        outcome = kept.report or kept.error
        self._shared.work.end(self._number, outcome.progress if outcome is not None else None)
        self._report(AttemptEnded(
            slot=self._number, attempt=effect.attempt, status=kept.status, report=kept.report, error=kept.error
        ))  # fmt: skip
        if untouched and reusable:
            # It may have ended before the process took it: then no reset follows, and no event that the slot is ready.
            self._report(SlotReady(slot=self._number))
        if traces is not None:
            self._shared.submit(lambda: traces.ended(effect, noted))
        if ordered:  # else it is still made ready: whoever does that clears what it made
            self._shared.submit(lambda: self._shared.clear(effect, folders))

    def _report(self, body: Body) -> None:
        self._shared.on_fact(body)


def _files_of(effect: LaunchAttempt) -> list[str]:
    """The hashes of what goes to the attempt as files, each once."""
    return list(dict.fromkeys(module.sha256 for module in effect.spec.modules if module.kind != "env"))
