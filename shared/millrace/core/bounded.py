"""What fits into one record [R15]. A record is counted in bytes: a character of a name may take four, or six as an escape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic_core import to_json

P = TypeVar("P")
LISTED_BYTES_MOST = 600_000
"""Of the list in an answer, which is one record."""


def fitting(parts: Iterable[P], most: int = LISTED_BYTES_MOST) -> list[P]:  # [R15]
    """The first of these that as JSON take at most `most` bytes together."""
    kept: list[P] = []
    for part in parts:
        most -= len(to_json(part)) + 1  # a comma
        if most < 0:
            break
        kept.append(part)
    return kept


def fields_fitting(value: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Those fields, in their order, that as JSON take at most `most` bytes together; one that does not fit is left out."""
    kept: dict[str, Any] = {}
    for name, field in value.items():
        size = len(to_json({name: field}))
        if size <= most:
            kept[name], most = field, most - size
    return kept


def bytes_of(kept: Mapping[str, Any]) -> int:
    """What it costs to keep, as JSON."""
    return len(to_json(kept))


def batches(sized: Iterable[tuple[P, int]], most: int) -> Iterator[list[P]]:
    """All of these, in as few lists of at most `most` bytes as their order allows. Each comes with its size. A part that is larger has a
    list of its own."""
    batch: list[P] = []
    left = most
    for part, size in sized:
        if batch and size > left:
            yield batch
            batch, left = [], most
        batch.append(part)
        left -= size
    if batch:
        yield batch
