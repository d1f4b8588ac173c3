"""Questions to the processes of services: read from their topic by each process, whether it leads or not, and answered by who is meant.

They are in no log that anybody folds, for they decide nothing: who starts, or was away, begins at the end.
"""

from __future__ import annotations

import threading

import structlog
from pydantic import ValidationError

from millrace.core.answering import reply_of
from millrace.core.messages.processes import Answer, AskProcess
from millrace.core.messages.records import encode
from millrace.core.topics import PROCESS_QUESTIONS, Topology
from millrace.io.interfaces import Bus, OffsetGone, Received, Unavailable

from . import envelope
from .inspection import Answers, Inspector

TURN_MS = 2_000
AGAIN_S = 1.0

log = structlog.get_logger("questions")


class Questions:
    """Reads from when it is started until it is stopped, on a thread of its own."""

    def __init__(self, bus: Bus, topology: Topology, process: str, inspector: Inspector, *, alone: bool = False) -> None:
        """`alone`: nobody else uses the bus, and serves it."""
        self._bus, self._topology, self._process, self._alone = bus, topology, process, alone
        self._answers = Answers(inspector.answer)
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="questions", daemon=True).start()

    def stop(self) -> None:
        """Waits for nothing."""
        self._stopping.set()

    def _run(self) -> None:
        logged = ""
        while not self._stopping.is_set():
            try:
                self._read()
            except (Unavailable, OffsetGone) as failure:  # nothing is lost by it but questions
                if str(failure) != logged:
                    logged = str(failure)
                    log.warning("questions are not read now", reason=logged)
                self._stopping.wait(AGAIN_S)

    def _read(self) -> None:
        reader = self._bus.reader(PROCESS_QUESTIONS, 0, self._bus.end(PROCESS_QUESTIONS, 0))
        try:
            while not self._stopping.is_set():
                for received in reader.poll(TURN_MS):
                    self._take(received)
                if self._alone:
                    self._bus.serve()
        finally:
            reader.close()

    def _take(self, received: Received) -> None:
        """Strangers write here: what is no question is passed over."""
        try:
            asked = AskProcess.model_validate_json(received.value)
        except ValidationError:
            log.info("a record that is no question", offset=received.offset)
            return
        if asked.process in ("", self._process) and asked.reply_to:
            self._answers.give(asked.ask, lambda answer: self._send(asked, answer, received.offset))

    def _send(self, asked: AskProcess, answer: Answer, offset: int) -> None:
        reply = reply_of(self._process, asked.correlation, answer)
        partition = self._topology.partition("client.replies", asked.reply_to)
        headers = envelope.of_answer(self._process, offset, reply.type)
        self._bus.append("client.replies", partition, encode(reply), key=asked.reply_to.encode(), headers=headers)
