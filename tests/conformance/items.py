"""What the tests of Apache Flink 2.3 assert, and which test here shows the same: docs/conformance.md is made of this.

A selection from Flink's own test suites, by their names there. What a test elsewhere asserts already is not asserted twice: the row names
that test. What does not apply, or has no feature here yet, has its reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A behaviour. `flink`: the class of its tests there; `names`: of these tests; `here`: what holds here."""

    flink: str
    names: str
    here: str
    tests: tuple[str, ...]
    """`test_x.py:test_y`, or a transcript."""


@dataclass(frozen=True)
class Without:
    """A behaviour without a test here. `why` begins with "none: " where the thing itself is not there by design, else with "not there
    yet: "; `feature` is what would have to come."""

    flink: str
    names: str
    why: str


HEAD = ("in Flink", "here", "tests")


def rows_of(items: tuple[Item, ...]) -> Iterator[tuple[str, str, str]]:
    for item in items:
        yield f"{item.flink}: {item.names}", item.here, " ".join(f"`{each}`" for each in item.tests)


def rows_without(items: tuple[Without, ...]) -> Iterator[tuple[str, str]]:
    for item in items:
        yield f"{item.flink}: {item.names}", item.why
