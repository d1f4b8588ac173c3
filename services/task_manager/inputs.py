"""The one ordered input of a TaskManager: what its threads put, and its loop takes."""

from __future__ import annotations

import queue
from dataclasses import dataclass

from millrace.core.clocks import OwnMs
from millrace.core.messages.base import Body
from millrace.core.messages.records import Fact
from millrace.io.interfaces import Received

STOPPED, FAILED, AGAIN = 0, 1, 75  # exit codes: asked to, broken, start it again (as a new incarnation)
BATCH_MOST = 200


@dataclass(frozen=True)
class Ending:
    """Why the TaskManager ends, and its exit code."""

    reason: str
    code: int


@dataclass(frozen=True)
class InboxRead:
    """All that stood in the inbox at this moment, when its end was asked for, is in the queue before this."""

    asked_ms: OwnMs


class WakeUp:
    """Somebody wants the loop to look around."""


Item = Received | Fact | Ending | InboxRead | WakeUp


class Inputs:
    """A queue. Every method but `taken` is callable from any thread, before the loop runs, too."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self.put = self._queue.put
        self.empty = self._queue.empty

    def post(self, body: Body) -> None:
        """A local fact."""
        self.put(Fact(body=body))

    def wake(self) -> None:
        """Ends the loop's wait."""
        self.put(WakeUp())

    def end(self, reason: str, code: int) -> None:
        """Ends the TaskManager once all that was put before is folded."""
        self.put(Ending(reason, code))

    def taken(self, patience_ms: int) -> list[Item]:
        """What is there, at most a batch; waits for it so long."""
        items: list[Item] = []
        try:
            items.append(self._queue.get(patience_ms > 0, patience_ms / 1000 if patience_ms > 0 else None))
            while len(items) < BATCH_MOST:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return items
