"""A job that was submitted, as a client holds it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millrace.core.messages.attempts import Fault, ResultRows
from millrace.core.messages.client import Problem
from millrace.core.states import ENDED_BY

from .events import Buffer, Event, follow_buffer, rows_in

if TYPE_CHECKING:
    from .api import Millrace
    from .results import Result


@dataclass(frozen=True)
class Ending:
    """How a job ended; `cause` says why it FAILED."""

    job: str
    status: str
    ended_ms: int | None
    archive: str | None
    cause: Fault | None = None


class Job:
    """An accepted job. `status` is what it was when it was accepted; `warnings` are about its graph."""

    def __init__(
        self, millrace: Millrace, job: str, status: str, warnings: list[Problem], buffer: Buffer | None
    ) -> None:
        self.id, self.status, self.warnings = job, status, warnings
        self._millrace, self._buffer = millrace, buffer
        self._rows: ResultRows | None = None  # of its end's event, which carries them if they are few

    def events(self) -> Iterator[Event]:
        """Its events from the first on, as they come; ends with its end."""
        for event in self._events():
            if event["type"] in ENDED_BY:
                self._rows = rows_in(event)
            yield event

    def _events(self) -> Iterator[Event]:
        given = 0
        if self._buffer is not None:
            buffer, self._buffer = self._buffer, None
            for event in follow_buffer(buffer):
                given += 1
                yield event
            if not buffer.lost:
                return
        yield from itertools.islice(self._millrace.follow(self.id), given, None)

    def wait(self, timeout_s: float | None = None) -> Ending:
        """Waits for its end."""
        return self._millrace.wait(self.id, timeout_s)

    def cancel(self) -> None:
        """Asks for its end. Raises Refused if it FINISHED or FAILED."""
        self._millrace.cancel(self.id)

    def result(self) -> Result:
        """Waits for its end; its rows. Raises NotFinished. Events that nobody has taken are taken."""
        if self._buffer is not None:  # they come in any case; nothing needs to be asked then
            for _ in self.events():
                pass
        if self._rows is not None:
            return self._millrace.rows(self._rows)
        self.wait()
        return self._millrace.result(self.id)


@dataclass
class Submitting:
    """A submission on its way; `result()` waits for the answer."""

    job: str
    _ask: Callable[[], Job] = field(repr=False)

    def result(self) -> Job:
        """The accepted job. Raises Rejected (Invalid, Conflict, TooLate, Busy), OutcomeUnknown, Unavailable."""
        return self._ask()
