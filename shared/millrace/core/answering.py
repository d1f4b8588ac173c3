"""Clients' questions that others than the Dispatcher answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from .machine import Output, Publish, Say
from .messages import client, processes
from .messages.base import Reply
from .messages.jobs import QuestionAnswered
from .topics import DISPATCHER


class Question(Protocol):
    """Of a client, as the Dispatcher forwards it, or as it is kept."""

    @property
    def reply_to(self) -> str: ...

    @property
    def correlation(self) -> str: ...

    @property
    def number(self) -> int: ...


def answered(reply_to: str, number: int, reply: Reply) -> Iterator[Output]:
    """The reply goes to the client; the Dispatcher learns that its question `number` has one. 0: a Dispatcher of 0.1.0 numbers none."""
    yield Publish("client.replies", reply_to, reply)
    if number:
        yield Say(DISPATCHER, QuestionAnswered(number=number))


def refuse(asked: Question, kind: client.RefusalKind, reason: str, silent: str | None = None) -> Iterator[Output]:
    """The client is told why there is no other answer. `silent`: who would have given one."""
    reply = client.RequestRefused(correlation=asked.correlation, kind=kind, reason=reason, silent=silent)
    return answered(asked.reply_to, asked.number, reply)


def reply_of(process: str, correlation: str, answer: processes.Answer) -> Reply:
    """What a client is told that asked a process about itself."""
    match answer:
        case processes.Description():
            return processes.ProcessDescribed(correlation=correlation, process=process, status=answer.status, scopes=answer.scopes)
        case processes.ThreadDumps():
            return processes.ThreadsDumped(correlation=correlation, process=process, dumps=answer.dumps)
        case processes.LogFiles():
            return processes.LogsListed(correlation=correlation, process=process, logs=answer.logs)
        case processes.UploadedPiece():
            return processes.LogUploaded(correlation=correlation, process=process, piece=answer.piece)
        case processes.SettingsFound():
            return processes.SettingsListed(correlation=correlation, process=process, settings=answer.settings)
    return client.RequestRefused(correlation=correlation, kind=answer.kind, reason=answer.reason)
