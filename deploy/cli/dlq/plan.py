"""Which letters are meant, and what redrive does with each. Nothing is sent or printed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from millrace.cli.fates import Fate, fate_of

from .inboxes import PassedOver

if TYPE_CHECKING:
    from millrace.client.dead_letters import DeadLetters, Letter, Original


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

    wrong = [text for text in texts if not text.isdecimal()]
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
    if isinstance(letter, PassedOver):
        return Decision(letter, Fate.FOLDED, letter.refusal)
    return Decision(letter, *fate_of(letters, letter, most_repeats, force))


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
