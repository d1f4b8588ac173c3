"""The host: its side of the channel to one running attempt. What comes from there may be written by user code.

An attempt that does not read loses orders and holds up nobody. Its lines are read one by one with a pause after each, so one that writes
without end fills its own socket. The channel of one that sends what no attempt of ours sends is not read any more.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Protocol

from .. import wire

_PAUSE_S = 0.05
_QUESTIONS_MAX = 16  # that wait for an answer
ENDED = "it has just ended"
"""Why a question to an attempt has no answer."""


class Peer(Protocol):
    """The process at the other end; see `children.Child`."""

    def send(self, order: wire.AttemptOrder) -> bool: ...

    async def line(self) -> bytes: ...


class AttemptChannel:
    """Orders to a running attempt, its progress and answers from there. ``report`` sends an event to the TaskManager."""

    def __init__(self, attempt: str, peer: Peer, report: Callable[[wire.Event], None]) -> None:
        self._attempt = attempt
        self._peer = peer
        self._report = report
        self._questions: dict[str, asyncio.TimerHandle] = {}
        self._progress_s = float("-inf")  # when progress was passed on last
        self._closed = False
        self._reading = asyncio.ensure_future(self._read())

    def order(self, order: wire.AttemptOrder) -> None:
        """Passes on an order; a question gets its answer, or why there is none."""
        question = wire.question_of(order)
        if question is None:
            self._peer.send(order)
            return
        if self._closed:
            self._answer(question, None, ENDED)
        elif len(self._questions) >= _QUESTIONS_MAX:
            self._answer(question, None, "it was asked too much at once")
        elif self._peer.send(order):
            loop = asyncio.get_running_loop()
            why = f"its Python process has not answered for {wire.ANSWER_S:g} s: it is stopped, or native code holds it"
            self._questions[question] = loop.call_later(wire.ANSWER_S, self._answer, question, None, why)
        else:
            self._answer(question, None, "its Python process does not read its channel, or has closed it")

    async def _read(self) -> None:
        try:
            while line := await self._peer.line():
                self._take(wire.from_attempt(line))
                await asyncio.sleep(_PAUSE_S)
        except (ValueError, OSError) as error:
            print(f"the channel of {self._attempt} is not read any more: {str(error)[:200]}", file=sys.stderr, flush=True)

    def _take(self, message: wire.AttemptEvent) -> None:
        if message["is"] == "progress":
            now_s = asyncio.get_running_loop().time()
            if now_s >= self._progress_s + wire.PROGRESS_S / 2:  # one that keeps to the rule may be a little early
                self._progress_s = now_s
                self._report({"is": "progress", "attempt": self._attempt, "progress": message["progress"]})
        elif message["question"] in self._questions:
            self._answer(message["question"], message["status"], None)

    def _answer(self, question: str, status: wire.AttemptStatus | None, no_answer: str | None) -> None:
        timer = self._questions.pop(question, None)
        if timer is not None:
            timer.cancel()
        self._report({"is": "status", "attempt": self._attempt, "question": question, "status": status, "no_answer": no_answer})

    def close(self) -> None:
        """The attempt has ended, or is about to: nothing of it is passed on any more."""
        self._closed = True
        self._reading.cancel()
        for question in list(self._questions):
            self._answer(question, None, ENDED)
