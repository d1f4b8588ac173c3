"""Which letters are meant, and what redrive does with each. Nothing is sent or printed here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import typer

from .inboxes import PassedOver

if TYPE_CHECKING:
    from millrace.client.dead_letters import DeadLetters, Letter, Original


class Fate(Enum):
    """What redrive does with a letter: sends it, or leaves it for this reason."""

    SEND = "send"
    SENT = "sent already"
    OFTEN = "sent too often"
    GONE = "gone"
    WRONG = "still wrong"
    ELSEWHERE = "not a client's"
    FOLDED = "of an inbox"


@dataclass(frozen=True)
class Decision:
    """What redrive does with a letter, and why. `original`: the record to send."""

    letter: Letter | PassedOver
    fate: Fate
    why: str = ""
    original: Original | None = None


@dataclass(frozen=True)
class Filter:
    """Which letters are meant; None: any."""

    reason: str | None = None
    topic: str | None = None
    job: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None

    def keeps(self, each: Letter | PassedOver) -> bool:
        """Whether it is one of them."""
        return (
            (self.reason is None or self.reason.lower() in each.reason.lower())
            and (self.topic is None or each.topic == self.topic)
            and (self.job is None or each.job == self.job)
            and (self.since_ms is None or each.at_ms >= self.since_ms)
            and (self.until_ms is None or each.at_ms < self.until_ms)
        )


def numbered(letters: Iterable[Letter], texts: list[str]) -> list[Letter]:
    """The letters with these numbers. Raises typer.BadParameter, NotFound."""
    from millrace.client import NotFound

    wrong = [text for text in texts if not text.isdigit()]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is no letter: give a number or a place, such as job-master/0@57, as list prints it")
    numbers = [int(text) for text in texts]
    by_number = {each.number: each for each in letters}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise NotFound(f"there is no letter {missing[0]} (any more): millrace dlq list tells those that are kept")
    return [by_number[number] for number in dict.fromkeys(numbers)]


def decide(letters: DeadLetters, letter: Letter | PassedOver, most_repeats: int, force: bool) -> Decision:
    """What redrive does with a letter. Its record is read from Kafka for that. force: send also what is still wrong."""
    from millrace.client.dead_letters import Gone
    from millrace.client.link import REQUESTS

    if isinstance(letter, PassedOver):
        return Decision(letter, Fate.FOLDED, letter.refusal)
    if letter.topic != REQUESTS:
        return Decision(letter, Fate.ELSEWHERE, f"it was on {letter.topic}")
    if letter.redriven is not None:
        return Decision(letter, Fate.SENT, f"to offset {letter.redriven.offset}")
    try:
        original = letters.original(letter)
    except Gone as gone:
        return Decision(letter, Fate.GONE, str(gone))
    repeats = max(letter.repeats, original.repeats)
    if repeats >= most_repeats:
        return Decision(letter, Fate.OFTEN, f"{repeats} times")
    wrong = None if force else still_wrong(letter, original.value)
    return Decision(letter, Fate.SEND, "", original) if wrong is None else Decision(letter, Fate.WRONG, wrong)


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


@dataclass(frozen=True)
class Group:
    """Letters that were parked for one reason and have one fate; `example`: the first of them, with why."""

    letters: int
    kind: str
    fate: Fate
    example: str


def groups(decisions: Iterable[Decision]) -> list[Group]:
    """The decisions by reason and fate, the largest group first."""
    counts: Counter[tuple[str, Fate]] = Counter()
    examples: dict[tuple[str, Fate], str] = {}
    for each in decisions:
        key = each.letter.kind, each.fate
        counts[key] += 1
        examples.setdefault(key, each.letter.name + (f": {each.why}" if each.why else ""))
    return [Group(n, kind, fate, examples[kind, fate]) for (kind, fate), n in counts.most_common()]


def tries(every: Iterable[Letter], letter: Letter) -> list[Letter]:
    """All letters of one record, oldest first: a record that is sent again may be parked again."""
    every = list(every)
    before = {(e.redriven.topic, e.redriven.partition, e.redriven.offset): e for e in every if e.redriven}
    after = {(e.letter.topic, e.letter.partition, e.letter.offset): e for e in every}
    return [*reversed(list(_earlier(before, letter))), letter, *_later(after, letter)]


def _earlier(before: dict[tuple[str, int, int], Letter], letter: Letter) -> Iterator[Letter]:
    while (described := letter.letter) and (found := before.get((described.topic, described.partition, described.offset))):
        if found.number >= letter.number:  # of a topic that was made anew, whose offsets began again
            return
        yield (letter := found)


def _later(after: dict[tuple[str, int, int], Letter], letter: Letter) -> Iterator[Letter]:
    while (fact := letter.redriven) and (found := after.get((fact.topic, fact.partition, fact.offset))):
        if found.number <= letter.number:
            return
        yield (letter := found)
