"""What sending a dead letter's record again would do, found before anything is sent: for `millrace dlq` and for the page."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from millrace.client.dead_letters import DeadLetters, Letter, Original

REPEATS_MOST = 3


class Fate(Enum):
    """What redrive does with a letter: sends it, or leaves it for this reason."""

    SEND = "send"
    SENT = "sent already"
    OFTEN = "sent too often"
    GONE = "gone"
    WRONG = "still wrong"
    ELSEWHERE = "not a client's"
    FOLDED = "of an inbox"


class Found(NamedTuple):
    """The fate of a letter, and why; of one that is sent, by force, why it will be parked again. `original`: the record to send."""

    fate: Fate
    why: str = ""
    original: Original | None = None


def fate_of(letters: DeadLetters, letter: Letter, most_repeats: int = REPEATS_MOST, force: bool = False) -> Found:
    """What redrive does with a letter. Its record is read from Kafka for that. force: send also what is still wrong."""
    from millrace.client.dead_letters import Gone
    from millrace.client.link import REQUESTS

    if letter.topic != REQUESTS:
        return Found(Fate.ELSEWHERE, f"it was on {letter.topic}")
    if letter.redriven is not None:
        return Found(Fate.SENT, f"to offset {letter.redriven.offset}")
    try:
        original = letters.original(letter)
    except Gone as gone:
        return Found(Fate.GONE, str(gone))
    repeats = max(letter.repeats, original.repeats)
    if repeats >= most_repeats:
        return Found(Fate.OFTEN, f"{repeats} times")
    wrong = still_wrong(letter, original.value)
    return Found(Fate.SEND, wrong or "", original) if wrong is None or force else Found(Fate.WRONG, wrong)


def still_wrong(letter: Letter, value: bytes) -> str | None:
    """Why a record would be parked again, or refused with nobody to hear it; None: by letter and record nothing is wrong."""
    from millrace.core.jobgraph.model import DEFAULT_LIMITS
    from millrace.core.jobgraph.parse import Refused
    from millrace.core.messages.client import SubmitJob
    from millrace.edge.requests import check_graph, decode

    if letter.is_conflict:
        return "its id is another job's, and stays so: publish it under another id"
    try:
        request = decode(value, DEFAULT_LIMITS)
    except Refused as refused:
        return str(refused)
    if isinstance(request, SubmitJob):
        if request.accept_before_ms is not None and request.accept_before_ms * 1_000_000 < time.time_ns():
            return "its accept_before_ms has passed: it would be rejected as late; publish it with a later one, or with none"
        found = check_graph(request.graph, request.parameters, DEFAULT_LIMITS)
        if found.problems:
            return str(found.problems[0])
    return None
