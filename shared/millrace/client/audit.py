"""The audit: who gave which command over HTTP, and what came of it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from millrace.core.messages.audit import CommandAnswered, CommandRequested

from .link import Link
from .topic_log import TopicLog

TOPIC = "audit.events"


@dataclass
class Command:
    """One that somebody gave. `answered` None: what came of it is not known, or not yet."""

    requested: CommandRequested
    answered: CommandAnswered | None = None


class Audit(TopicLog):
    """The audit of the cluster that `link` is connected to. Every call but `note` may raise Unavailable."""

    def __init__(self, link: Link) -> None:
        super().__init__(link, TOPIC)

    def write(self, body: CommandRequested) -> None:
        """Returns when Kafka has it. Raises Refused for what Kafka does not take."""
        self._link.publish(TOPIC, body.model_dump_json().encode(), key=body.command.encode())

    def note(self, body: CommandRequested | CommandAnswered, failed: Callable[[str], None]) -> None:
        """Waits for nothing; `failed` is told, perhaps by another thread, if Kafka does not get it."""
        self._link.send(TOPIC, body.model_dump_json().encode(), body.command.encode(), failed)

    def read(
        self, since_ms: int | None = None, most: int = 1000, only: Callable[[CommandRequested], bool] = lambda _: True
    ) -> list[Command]:
        """The newest `most` commands since then that `only` wants, oldest first. What is no such record is passed over: strangers may
        write here, too."""
        found: OrderedDict[str, Command] = OrderedDict()
        for message in self._records(since_ms):
            body = _body(message.value() or b"")
            if isinstance(body, CommandRequested) and only(body):
                found.setdefault(body.command, Command(body))
                if len(found) > most:
                    found.popitem(last=False)
            elif isinstance(body, CommandAnswered) and body.command in found:
                found[body.command].answered = body
        return list(found.values())


def _body(value: bytes) -> CommandRequested | CommandAnswered | None:
    """Also from a later build that says more in it."""
    with suppress(ValueError, RecursionError, TypeError):
        raw = json.loads(value)
        if isinstance(raw, dict) and raw.get("type") == "CommandRequested":
            return CommandRequested.model_validate(raw, extra="ignore")
        if isinstance(raw, dict) and raw.get("type") == "CommandAnswered":
            return CommandAnswered.model_validate(raw, extra="ignore")
    return None
