"""What a TaskManager answers that is asked about itself: its process, and its slots' JVMs and attempts, each of which may be silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from millrace.core.messages.base import Body
from millrace.core.messages.effects import FindAnswer
from millrace.core.messages.processes import (
    Answer,
    Ask,
    DescribeAsk,
    Description,
    JvmStatus,
    NoAnswer,
    Setting,
    SlotJvm,
    ThreadDump,
    ThreadDumps,
    ThreadsAsk,
)
from millrace.core.messages.slots import AnswerFound
from millrace.core.topics import TASK_MANAGER
from millrace.io.storage.store import Storage
from millrace.runtime.inspection import Answers, Inspector, fitted, own_threads
from millrace.runtime.own_logs import FileLog, Log, own_logs

from ..slot.wire import ANSWER_S
from .lane import Lane

SEEN_S = 1.0
"""What was seen so long ago is seen still: each look costs a process beside the JVM."""
OF_SLOTS = ("host.log", "host.log.1", "jvm.log", "jvm.log.1", "jvm.log.tail")
SILENT = "its slot has not answered in time"
T = TypeVar("T")


class Inspecting:
    """Answers questions, each by one AnswerFound. `slots`: the folder with one for each slot; `settings`: what it runs with."""

    def __init__(
        self, name: str, lanes: Sequence[Lane], slots: Path, storage: Storage, settings: Callable[[], list[Setting]],
        on_fact: Callable[[Body], None],
    ) -> None:  # fmt: skip
        self._name, self._lanes, self._on_fact = name, lanes, on_fact
        self._process = Inspector(TASK_MANAGER, storage, settings, lambda: {**own_logs(), **slot_logs(slots, len(lanes))})
        self._answers = Answers(self._find)
        self._seen: tuple[float, Answer] | None = None

    def answer(self, effect: FindAnswer) -> None:
        """Waits for nothing."""
        question, reply_to, correlation = effect.question, effect.reply_to, effect.correlation

        def found(answer: Answer) -> None:
            self._on_fact(AnswerFound(
                question=question, reply_to=reply_to, correlation=correlation, task_manager=self._name, answer=answer
            ))  # fmt: skip

        self._answers.give(effect.ask, found)

    def _find(self, ask: Ask) -> Answer:
        if isinstance(ask, ThreadsAsk):
            return self._threads(ask.slot)
        if not isinstance(ask, DescribeAsk):
            return self._process.answer(ask)
        seen = self._seen
        if seen is None or time.monotonic() - seen[0] > SEEN_S:
            seen = self._seen = time.monotonic(), Description(status=self._process.status(), slots=self._jvms())
        return seen[1]

    def _jvms(self) -> list[SlotJvm]:
        awaited = Awaited[SlotJvm]()
        for number in range(len(self._lanes)):
            self._look(number, awaited.expect(SlotJvm(slot=number, no_answer=SILENT)))
        return awaited.wait(ANSWER_S)

    def _look(self, number: int, seen: Callable[[SlotJvm], None]) -> None:
        def on_look(jvm: JvmStatus | None, _: str | None, why: str | None) -> None:
            seen(SlotJvm(slot=number, jvm=jvm, no_answer=None if jvm is not None else why or SILENT))

        self._lanes[number].look(on_look, threads=False)

    def _threads(self, only: int | None) -> Answer:
        """Of all slots, or of one. Each JVM and each attempt is asked at once, and nobody waits for one longer than for another."""
        if only is not None and not 0 <= only < len(self._lanes):
            return NoAnswer(kind="not_found", reason=f"there is no slot {only}: there are {len(self._lanes)}, counted from 0")
        awaited = Awaited[ThreadDump]()
        for number in [only] if only is not None else range(len(self._lanes)):
            self._ask_threads(number, awaited)
        own = [own_threads()] if only is None else []
        return ThreadDumps(dumps=fitted([*own, *awaited.wait(ANSWER_S)]))

    def _ask_threads(self, number: int, awaited: Awaited[ThreadDump]) -> None:
        lane = self._lanes[number]
        jvm, attempt = f"the JVM of slot {number}", lane.running
        seen = awaited.expect(_dump(jvm, None, SILENT))
        lane.look(lambda _, text, why: seen(_dump(jvm, text, why)), threads=True)
        if attempt is not None:
            of = f"attempt {attempt} in slot {number}"
            answered = awaited.expect(_dump(of, None, SILENT))
            lane.ask_attempt(attempt, lambda status, why: answered(_dump(of, None if status is None else _python(status.stack), why)))


class Awaited(Generic[T]):
    """Answers that come on other threads, in the order in which they are expected."""

    def __init__(self) -> None:
        self._found: list[T] = []
        self._missing = 0
        self._changed = threading.Condition()

    def expect(self, otherwise: T) -> Callable[[T], None]:
        """What takes an answer, once. `otherwise` stands for one that does not come."""
        place = len(self._found)
        self._found.append(otherwise)
        self._missing += 1

        def came(answer: T) -> None:
            with self._changed:
                self._found[place] = answer
                self._missing -= 1
                self._changed.notify()

        return came

    def wait(self, within_s: float) -> list[T]:
        """All that have come, within this time."""
        with self._changed:
            self._changed.wait_for(lambda: not self._missing, within_s)
            return list(self._found)


def slot_logs(folder: Path, slots: int) -> Mapping[str, Log]:
    """The logs of the slots' hosts and JVMs that there are."""
    paths = {f"slot-{number}.{name}": folder / str(number) / name for number in range(slots) for name in OF_SLOTS}
    return {name: FileLog(path) for name, path in paths.items() if path.is_file()}


def _dump(of: str, text: str | None, why: str | None) -> ThreadDump:
    return ThreadDump(of=of, text=text) if text is not None else ThreadDump(of=of, no_answer=why or SILENT)


def _python(stack: Sequence[str]) -> str:
    """The main Python thread of an attempt, as other threads are written."""
    return "\n".join(['"MainThread"', *(f"    at {line}" for line in reversed(stack))]) + "\n"
