"""Writes down who gave which command: before it is sent, and what came of it after."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TypeVar

import structlog

from millrace.client import Millrace, MillraceError, OutcomeUnknown, Refused, Unavailable
from millrace.core.messages.audit import CommandAnswered, CommandRequested, Outcome, Verb

from .who import Who

DETAIL_MOST = 500
T = TypeVar("T")
log = structlog.get_logger("web")


class NotRecorded(Unavailable):
    """The command could not be written down, so it was not sent."""


class Recorder:
    """For any number of threads."""

    def __init__(self, must: bool) -> None:
        """`must`: no command is sent before its record is in Kafka. Without a login there is nobody to hold to anything, and no command
        waits for it."""
        self._must = must

    def recorded(self, who: Who, verb: Verb, target: str, command: Callable[[Millrace], T]) -> Callable[[Millrace], T]:
        """The command, with its records. Raises NotRecorded beside what it raises itself.

        If this process dies in between, the first record has no second: what came of the command is not known, and that is what the
        audit says. Were it written after the command alone, such a command would be in no record at all."""

        def send(client: Millrace) -> T:
            audit, id = client.audit(), secrets.token_hex(8)
            requested = CommandRequested(
                command=id, request=who.request, name=who.name, role=who.role, how=who.how, address=who.address, verb=verb, target=target,
                at_ms=_wall_ms(),
            )  # fmt: skip
            if self._must:
                try:
                    audit.write(requested)
                except (Unavailable, Refused) as failure:
                    raise NotRecorded(f"nothing was sent, for it could not be recorded who gives the command: {failure}") from None
            else:
                audit.note(requested, _lost)

            def answered(outcome: Outcome, detail: str) -> None:
                text = detail.partition("\n")[0][:DETAIL_MOST]
                audit.note(CommandAnswered(command=id, outcome=outcome, detail=text, at_ms=_wall_ms()), _lost)

            try:
                answer = command(client)
            except Exception as failure:
                unknown = isinstance(failure, OutcomeUnknown) or is_sent_on(failure)
                unknown = unknown or not (isinstance(failure, MillraceError) or hasattr(failure, "status_code"))
                answered("unknown" if unknown else "refused", str(getattr(failure, "detail", "") or failure))
                raise
            answered("done", str(getattr(answer, "status", answer if isinstance(answer, str) else "")))
            return answer

        return send


def is_sent_on(failure: Exception) -> bool:
    """Whether a part that is silent was asked for it: it may be done when that is back."""
    return isinstance(failure, Unavailable) and failure.silent not in (None, "dispatcher")


def _lost(reason: str) -> None:
    log.error("a record of the audit is lost", reason=reason)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
