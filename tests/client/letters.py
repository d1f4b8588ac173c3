"""Dead letters in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from millrace.client.dead_letters import DeadLetters
from millrace.client.link import Link
from millrace.core.messages.events import DeadLetter, DeadLetterRedriven


def parked(at: int = 3) -> DeadLetter:
    """What is said of a record at an offset."""
    return DeadLetter(
        topic="client.commands", partition=0, offset=at, reason="no message", at_ms=7, size_bytes=1, sha256="0" * 64, head_base64="eA=="
    )


def redriven(letter: int, to: int = 50, repeats: int = 1) -> DeadLetterRedriven:
    """What is said of a letter whose record was sent again, to an offset."""
    return DeadLetterRedriven(letter=letter, topic="client.commands", partition=0, offset=to, repeats=repeats, by="x", at_ms=8)


class Topic(DeadLetters):
    """`first`: the offset of the first record. Notes what is read."""

    def __init__(self, records: Sequence[bytes], first: int = 0) -> None:
        super().__init__(cast(Link, None))
        self.records, self.first, self.were_read = list(records), first, list[int]()

    def _marks(self, topic: str, partition: int) -> tuple[int, int]:
        return self.first, self.first + len(self.records)

    def _between(self, first: int, end: int) -> Iterator[Any]:
        for offset in range(first, end):
            self.were_read.append(offset)
            value = self.records[offset - self.first]
            yield SimpleNamespace(offset=lambda offset=offset: offset, value=lambda value=value: value)
