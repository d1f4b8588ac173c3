"""A slot's process without Spark: it sends what a real one sends, at once or when a test has it so."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from services.task_manager.slot import wire
from services.task_manager.slot.common import left
from services.task_manager.slot.common.faults import fault

OnEvent = Callable[[dict[str, Any]], None]


def empty_report(spec: dict[str, Any]) -> dict[str, Any]:
    return {"outputs": {vertex["id"]: {"schema": '{"type":"struct","fields":[]}'} for vertex in spec.get("vertices", ())}, "result": None}


class SimulatedSlot:
    """Looks like `services.task_manager.slot.client.SlotProcess`.

    `prompt`: every attempt runs and finishes as soon as it is ordered, with `report(spec)`, and the slot is ready again.
    Otherwise the test says what happens by `ready`, `start`, `end`, and so on. As in a real slot, an attempt may be ordered
    before the slot is ready, a kill of an attempt that was not started ends it at once, and nothing happens after `close`.
    """

    def __init__(
        self,
        number: int,
        on_event: OnEvent,
        *,
        prompt: bool = True,
        report: Callable[[dict[str, Any]], dict[str, Any]] = empty_report,
    ) -> None:
        self.number, self.on_event, self.prompt, self.report = number, on_event, prompt, report
        self.attempt: str | None = None
        self.started = self.closed = False
        self.mark = ""
        self.dirs: tuple[str, str, str] = ("", "", "")
        self.spec: dict[str, Any] = {}
        self.kills: list[tuple[str, str]] = []
        self.passed_on: list[wire.OrderAttempt] = []
        self.looks: list[wire.Look] = []
        self.beats: list[int] = []
        if prompt:
            self.ready()

    def ready(self) -> None:
        self._send("ready", slot=str(self.number), application_id="simulated")

    def order(self, order: wire.Order) -> None:
        if order["do"] == "run":
            dirs = order["dirs"]
            self.mark = dirs["mark"]
            self.run(order["attempt"], order["spec"], dirs["work"], dirs["log"], dirs["blobs"])
        elif order["do"] == "kill":
            self.kill(order["attempt"], order["why"])
        elif order["do"] == "order":
            self.passed_on.append(order)
        elif order["do"] == "look":
            self.looks.append(order)
            if self.prompt:
                self.seen(order, None, None, "it has no JVM")

    def seen(self, order: wire.Look, jvm: Any, threads: Any = None, no_answer: Any = None) -> None:
        self._send("looked", question=order["question"], jvm=jvm, threads=threads, no_answer=no_answer)

    def run(self, attempt: str, spec: dict[str, Any], work: str, log: str, blobs: str) -> None:
        assert self.attempt is None, f"{attempt} was ordered while {self.attempt} has not ended"
        self.attempt, self.started, self.dirs, self.spec = attempt, False, (work, log, blobs), spec
        for folder in (work, log):
            os.makedirs(folder, exist_ok=True)
        if self.prompt:
            self.start()
            self.end("finished", report=self.report(spec))
            self.ready()

    def start(self) -> None:
        self.started = True
        self._send("running", attempt=self.attempt)

    def end(self, status: str, report: Any = None, error: Any = None) -> None:
        """As a host sends it: what user code may have written was looked at, and the rows of a result go apart."""
        attempt, self.attempt = self.attempt, None
        rows = None
        if isinstance(report, dict):
            try:
                report, rows = left.parted(report)
            except left.Unreadable as unreadable:
                status, report, error = "failed", None, fault("user", str(unreadable))
        self._send("ended", attempt=attempt, status=status, report=report, rows=rows, error=error)

    def kill(self, attempt: str, why: str) -> None:
        self.kills.append((attempt, why))
        if attempt == self.attempt and not self.started:
            self.killed(why)

    def beat(self, patience_ms: int) -> None:
        self.beats.append(patience_ms)

    def killed(self, why: str = "it was cancelled") -> None:
        self.end("killed", error={"kind": "killed", "retryable": False, "message": why})

    def replace(self, reason: str = "old", attempt: str | None = None) -> None:
        self._send("replacing", reason=reason, attempt=attempt)

    def break_(self, reason: str = "no disk") -> None:
        self._send("broken", reason=reason, hint="Free some space.")
        self.gone(1)

    def gone(self, code: int = -9, log_tail: str = "") -> None:
        self._send("gone", code=code, log_tail=log_tail)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.on_event({"is": "gone", "code": 0, "log_tail": ""})

    def _send(self, what: str, **body: Any) -> None:
        if not self.closed:
            self.on_event({"is": what, **body})
