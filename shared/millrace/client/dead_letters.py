"""Dead letters: what the Dispatcher could not use, from parking to another try.

A letter's number is its offset on `dead-letters`. What became of it stands there, too: whoever sends its record again writes a
`DeadLetterRedriven` behind it, so that no try is forgotten and an interrupted one goes on where it stood.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import re
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Message
from pydantic_core import from_json

from millrace.core.messages.base import Body
from millrace.core.messages.events import SUBMISSION, DeadLetter, DeadLetterRedriven
from millrace.io.interfaces import Unavailable as NoAnswer
from millrace.io.kafka.bus import headers_of

from .errors import MillraceError, OutcomeUnknown, Refused, Unavailable
from .link import REQUESTS, Link, wall_ms
from .topic_log import TopicLog

LETTERS = "dead-letters"
LOOK_BACK_MS = 7 * 24 * 3600 * 1000  # as long as client.commands keeps what the letter is about
LOOK_S = 3.0
DIGITS_MOST = 9
STEP = 500
"""Records that are read before a letter, for those before it, and for the last times that its record was sent."""
FACT = b"DeadLetterRedriven"
LETTER, ORIGIN, REPEATS, BY = (f"millrace-redrive-{name}" for name in ("letter", "origin", "repeats", "by"))
"""Headers of a record that was sent again: the letter's number, where the record was first, the how manieth try, who."""

B = TypeVar("B", bound=Body)


class Gone(MillraceError):
    """The whole record is nowhere any more; the letter has its first bytes."""


@dataclass(frozen=True)
class Original:
    """A parked record as it was written. `place`: where it was found. Without key and headers where only the letter has it."""

    value: bytes
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    place: str

    @property
    def repeats(self) -> int:
        """How often it had been sent again when it was parked, by its headers."""
        found = dict(self.headers).get(REPEATS, b"0")
        return int(found) if found.isdigit() and len(found) <= DIGITS_MOST else 0  # whoever wrote the record wrote them, too


def kind_of(reason: str) -> str:
    """A letter's reason without what differs from record to record: for counting, and for who must see nothing of the record."""
    first_clause = re.sub(r"'[^']*'", "'...'", reason.split(": ")[0].split("; ")[0])
    return re.sub(r"(?<![\w-])\d+", "N", re.sub(r" of job \S+", "", first_clause))


@dataclass
class Letter:
    """A dead letter. `redriven`: its record was sent again, as it says; `repeats`: how often that had happened before."""

    number: int
    letter: DeadLetter
    redriven: DeadLetterRedriven | None = None
    repeats: int = 0
    value: Any = field(init=False)
    """What its first bytes tell of the record: as much of its JSON as there is; None if it is no JSON."""

    def __post_init__(self) -> None:
        self.value = None
        with suppress(ValueError):
            self.value = from_json(self.head, allow_partial="trailing-strings")

    @property
    def place(self) -> str:
        """Its number, as people write it."""
        return str(self.number)

    @property
    def name(self) -> str:
        """What it is called among letters and records of inboxes."""
        return f"letter {self.number}"

    @property
    def topic(self) -> str:
        """Where the record was."""
        return self.letter.topic

    @property
    def offset(self) -> int:
        """... and at which offset."""
        return self.letter.offset

    @property
    def reason(self) -> str:
        """Why it was parked."""
        return self.letter.reason

    @property
    def at_ms(self) -> int:
        """When it was parked."""
        return self.letter.at_ms

    @property
    def size_bytes(self) -> int:
        """Of the whole record."""
        return self.letter.size_bytes

    @property
    def head(self) -> bytes:
        """The first bytes of the record: up to 4 KiB."""
        return base64.b64decode(self.letter.head_base64)

    @property
    def type(self) -> str | None:
        """The type that the record names."""
        return "SubmitJob" if self._submission else self._text("type")

    @property
    def job(self) -> str | None:
        """The job that the record is about. Of a submission the reason tells it: its first bytes may end before they do."""
        return self._submission["job"] if self._submission else self._text("job")

    @property
    def kind(self) -> str:
        """Its reason without what differs from record to record."""
        return kind_of(self.letter.reason)

    @property
    def is_conflict(self) -> bool:
        """Whether its id is another job's: then it will be refused again, however often it is sent."""
        return self._submission is not None and self._submission["kind"] == "conflict"

    @property
    def _submission(self) -> re.Match[str] | None:
        return SUBMISSION.match(self.letter.reason)

    def _text(self, name: str) -> str | None:
        found = self.value.get(name) if isinstance(self.value, dict) else None
        return found if isinstance(found, str) else None


class _Found:
    """Letters among records of the topic, and what became of them."""

    def __init__(self, records: Iterable[Message], later: _Found | None = None) -> None:
        """`later`: what was found behind these records."""
        self.facts = 0
        self._letters: dict[int, Letter] = {}
        self._tries: dict[tuple[str, int, int], int] = {}  # where a record was sent to again -> the how manieth time
        self._redriven: dict[int, DeadLetterRedriven] = {}
        for message in records:
            letter = _body(DeadLetter, message.value() or b"")
            if letter is not None:
                number = message.offset() or 0
                self._letters[number] = Letter(number, letter)
            else:
                self._take(message)
        if later is not None:
            self._letters |= later._letters
            self._tries |= later._tries
            self._redriven |= later._redriven
            self.facts += later.facts

    def __len__(self) -> int:
        return len(self._letters)

    def follow(self, records: Iterable[Message]) -> None:
        """What became of these letters. Others are not looked at."""
        for message in records:
            if FACT in (message.value() or b""):
                self._take(message)

    def letters(self) -> Iterator[Letter]:
        """Oldest first."""
        return map(self._with_redrive, self._letters.values())

    def letter(self, number: int) -> Letter | None:
        """One of them."""
        return self._with_redrive(self._letters[number]) if number in self._letters else None

    def _take(self, message: Message) -> None:
        fact = _body(DeadLetterRedriven, message.value() or b"")
        if fact is not None:
            self.facts += 1
            self._tries[fact.topic, fact.partition, fact.offset] = fact.repeats
            self._redriven[fact.letter] = fact

    def _with_redrive(self, letter: Letter) -> Letter:
        """A record may be parked again before it is written down that it was sent."""
        letter.redriven = self._redriven.get(letter.number)
        letter.repeats = self._tries.get((letter.letter.topic, letter.letter.partition, letter.letter.offset), 0)
        return letter


@dataclass(frozen=True)
class Page:
    """Letters, the newest first. `total`: how many are kept, at most: of what was not read for the page it is not known what is a letter.
    `more`: there are older ones."""

    letters: list[Letter]
    total: int
    more: bool


class DeadLetters(TopicLog):
    """The dead letters of the cluster that `link` is connected to. Every call may raise Unavailable."""

    def __init__(self, link: Link) -> None:
        super().__init__(link, LETTERS)

    def read(self, since_ms: int | None = None, first: int | None = None) -> list[Letter]:
        """All letters that are kept, oldest first, with what became of them; those parked since a moment, or from a number on."""
        if first is None:
            return list(_Found(self._records(since_ms)).letters())
        begins, end = self._marks(LETTERS, 0)
        return list(_Found(self._between(max(begins, first), end)).letters()) if first < end else []

    def page(self, below: int | None, most: int) -> Page:
        """The newest letters, at most so many, of those below a number. Of what was parked before them little is read, and of what was
        parked later what became of them alone is kept."""
        first, end = self._marks(LETTERS, 0)
        begins = ends = end if below is None else min(end, max(first, below))
        found = _Found(())
        while begins > first and len(found) <= most:
            begins, before = max(first, begins - STEP), begins
            found = _Found(self._between(begins, before), found)
        found.follow(self._between(ends, end) if ends < end else ())
        letters = list(found.letters())
        return Page(letters[: -most - 1 : -1], end - first - found.facts, len(letters) > most)

    def one(self, number: int) -> Letter | None:
        """The letter of this number, if it is kept."""
        first, end = self._marks(LETTERS, 0)
        if not first <= number < end:
            return None
        found = _Found(self._between(max(first, number - STEP), number + 1))
        found.follow(self._between(number + 1, end) if number + 1 < end else ())
        return found.letter(number)

    def last_about(self, job: str) -> Letter | None:
        """The newest letter about a job; one is looked for among those of the last week, while there is time."""
        until_s, found = time.monotonic() + LOOK_S, None
        for message in self._records(wall_ms() - LOOK_BACK_MS):
            letter = _body(DeadLetter, message.value() or b"")
            if letter is not None and (parked := Letter(message.offset() or 0, letter)).job == job:
                found = parked
            if time.monotonic() > until_s:
                break
        return found

    def end(self) -> int:
        """The number that the next letter will get, or what is written about one."""
        return self._marks(LETTERS, 0)[1]

    def original(self, letter: Letter) -> Original:
        """The whole record. Raises Gone, with the reason."""
        parked = letter.letter
        where = f"{parked.topic}[{parked.partition}] at offset {parked.offset}"
        message = self._at(parked.topic, parked.partition, parked.offset)
        if message is not None and _fits(parked, message.value() or b""):
            headers = tuple((name, value or b"") for name, value in headers_of(message))
            return Original(message.value() or b"", message.key(), headers, where)
        if _fits(parked, letter.head):
            return Original(letter.head, None, (), "the letter itself")
        why = "another record stands there now" if message is not None else "it was deleted there"
        raise Gone(
            f"letter {letter.number} keeps the first {len(letter.head)} of {parked.size_bytes} bytes; the rest was in {where}, and {why}"
        )

    def redrive(self, letter: Letter, original: Original, by: str | None = None) -> DeadLetterRedriven:
        """Sends the record again as it was, and writes down that it was. `by`: who asks for it; without it this user and this machine.
        Raises Refused for what Kafka does not take, and OutcomeUnknown where it may have been sent.

        Nothing of the record is changed: its job's id makes a second acceptance of the same job harmless.
        """
        parked = letter.letter
        if parked.topic != REQUESTS:
            raise Refused(f"letter {letter.number} was on {parked.topic}: only records of {REQUESTS} are sent again")
        repeats, who = max(letter.repeats, original.repeats) + 1, f"{getpass.getuser()}@{socket.gethostname()}" if by is None else by
        kept = [(name, value) for name, value in original.headers if name not in (LETTER, REPEATS, BY)]
        if ORIGIN not in dict(kept):
            kept.append((ORIGIN, f"{parked.topic}/{parked.partition}/{parked.offset}".encode()))
        added = {LETTER: letter.number, REPEATS: repeats, BY: who}
        headers = [*kept, *((name, str(value).encode()) for name, value in added.items())]
        try:
            offset = self._link.publish(parked.topic, original.value, key=original.key, headers=headers)
        except Unavailable as failure:
            raise OutcomeUnknown(f"letter {letter.number} may have been sent again: {failure}") from None
        fact = DeadLetterRedriven(
            letter=letter.number, topic=parked.topic, partition=0, offset=offset, repeats=repeats, by=who, at_ms=wall_ms()
        )
        letter.redriven = fact
        try:
            self._link.publish(LETTERS, fact.model_dump_json().encode(), key=parked.topic.encode())
        except (Unavailable, Refused) as failure:
            raise OutcomeUnknown(f"letter {letter.number} was sent again, but that may not be written down: {failure}") from None
        return fact

    def must_reach(self, number: int) -> None:
        """Raises Refused where there are not yet so many letters."""
        end = self.end()
        if number > end:
            raise Refused(f"the next letter will be number {end}: none below {number} can be deleted yet")

    def purge(self, below: int) -> None:
        """Deletes all letters with a lower number, for good. Raises Refused for one that is not there yet."""
        self.must_reach(below)
        try:
            self._admin.delete_below(LETTERS, 0, below)
        except NoAnswer as failure:
            raise Unavailable(str(failure)) from None


def _fits(letter: DeadLetter, value: bytes) -> bool:
    return len(value) == letter.size_bytes and hashlib.sha256(value).hexdigest() == letter.sha256


def _body(kind: type[B], value: bytes) -> B | None:
    """The message, also from a later build that says more in it; None if it is another one."""
    with suppress(ValueError, RecursionError):
        raw = json.loads(value)
        if isinstance(raw, dict) and raw.get("type") == kind.__name__:
            return kind.model_validate(raw, extra="ignore")
    return None
