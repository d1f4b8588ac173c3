"""A client's question that the Dispatcher passed on is answered by whoever knows."""

from __future__ import annotations

from collections.abc import Iterator

from .machine import Output, Publish, Say
from .messages.client import Reply
from .messages.jobs import QuestionAnswered
from .topics import DISPATCHER


def answered(reply_to: str, number: int, reply: Reply) -> Iterator[Output]:
    """The reply goes to the client; the Dispatcher learns that its question `number` has one. 0: a Dispatcher of 0.1.0 numbers none."""
    yield Publish("client.replies", reply_to, reply)
    if number:
        yield Say(DISPATCHER, QuestionAnswered(number=number))
