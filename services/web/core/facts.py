"""A public fact as the tables take it, and which facts are new."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

Row = dict[str, Any]
Rows = MutableMapping[str, Row]
"""Rows by key. A row is never changed in place: it is replaced by a new one, so that whoever keeps the rows sees each change."""


@runtime_checkable
class Ended(Protocol):
    """Rows of jobs that have ended, each attempt of which counts."""

    def on(self, task_manager: str) -> set[str]:
        """The jobs of which an attempt was on this TaskManager."""
        ...


@runtime_checkable
class Naming(Protocol):
    """Rows that are packed: a text is found in them sooner than they are unpacked."""

    def naming(self, text: str) -> Iterator[Row]:
        """Those in which this text may stand, and no other one that is packed."""
        ...


@dataclass(frozen=True, slots=True)
class Fact:
    """One record of `job.events` or `cluster.events`."""

    topic: str
    partition: int
    offset: int
    stamp_ms: int
    """The broker's stamp."""
    life: int
    """The life of the scope that said it: the second part of its `ce_id`; 0 without one."""
    body: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.body["type"])


def is_news(row: Mapping[str, Any] | None, fact: Fact) -> bool:
    """Whether the row does not hold this fact yet. A fact is known by its subject's row, its kind and its number there [R16]: a leader
    that took over, or a record that is read twice, says nothing new. A scope born anew counts from one again, in a later life."""
    known = row["seen"].get(fact.kind) if row is not None else None
    return known is None or [fact.life, fact.body.get("count", 1)] > known


def noted(row: Mapping[str, Any] | None, fact: Fact, **changes: Any) -> Row:
    """The row with these changes, this fact among those that it holds, and where the fact stood."""
    before = dict(row or {})
    seen = {**before.get("seen", {}), fact.kind: [fact.life, fact.body.get("count", 1)]}
    return {**before, **changes, "seen": seen, "as_of": place_of(fact)}


def place_of(fact: Fact) -> list[int]:
    """Where the fact stood, as a row keeps it."""
    return [fact.partition, fact.offset, fact.stamp_ms]


def shown(row: Mapping[str, Any]) -> Row:
    """The row without what is there for the fold alone."""
    return {name: value for name, value in row.items() if name not in ("seen", "as_of", "life")}
