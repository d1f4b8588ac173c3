"""A page of the jobs: those that filters allow, sorted, from a cursor on.

A cursor is the place behind a page's last row in the order, not a number of rows: jobs that come or go meanwhile move no page. So it is
with TaskManagers and slots.
"""

from __future__ import annotations

import base64
import binascii
import heapq
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.core.messages.client import state_of

from .core.facts import Row
from .core.jobs import Jobs, summary

Key = tuple[Any, str]
TEXTS = ("name", "status", "job")


class BadCursor(ValueError):
    """No cursor of this listing."""


def part(rows: Sequence[Row], by: Sequence[str], limit: int, cursor: str) -> tuple[list[Row], str | None]:
    """So many rows behind a cursor, in the order of these fields, which no two rows have alike; and the cursor of the next part.
    Raises BadCursor."""
    found = sorted(([row[name] for name in by], n) for n, row in enumerate(rows))
    if cursor:
        what, *after = _read(cursor, 1 + len(by))
        if what != ",".join(by) or any(type(each) is not type(one) for key, _ in found[:1] for each, one in zip(after, key, strict=True)):
            raise BadCursor("it is none of this listing")
        found = [each for each in found if each[0] > after] if found else []
    page = found[:limit]
    return [rows[n] for _, n in page], _written([",".join(by), *page[-1][0]]) if len(found) > limit else None


def _written(values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _read(cursor: str, length: int) -> list[Any]:
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        values = None
    if not isinstance(values, list) or len(values) != length:
        raise BadCursor("it is none of this service's")
    return values


@dataclass(frozen=True)
class Listing:
    """What is asked for. `states`: any of them. Times are those of acceptance. `sort`: a field, with - before it from the greatest on."""

    states: Sequence[str] = ()
    name: str = ""
    task_manager: str = ""
    since_ms: int | None = None
    until_ms: int | None = None
    sort: str = "-accepted_ms"
    limit: int = 100
    cursor: str = ""

    def page(self, jobs: Jobs) -> tuple[list[Row], int, str | None]:
        """Its jobs, how many there are on all pages, and the cursor of the next one. Raises BadCursor."""
        field, down = self.sort.removeprefix("-"), self.sort.startswith("-")
        missing = "" if field in TEXTS else 0
        found = [((row.get(field) or missing, row["job"]), row) for row in self._allowed(jobs)]
        after = self._after() if self.cursor else None
        left = found if after is None else [each for each in found if (each[0] < after if down else each[0] > after)]
        pick: Callable[..., list[tuple[Key, Row]]] = heapq.nlargest if down else heapq.nsmallest
        picked = pick(self.limit + 1, left)  # no two have the same key
        page = picked[: self.limit]
        more = self._cursor(page[-1][0]) if len(picked) > self.limit else None
        return [summary(row) for _, row in page], len(found), more

    def _allowed(self, jobs: Jobs) -> Iterable[Row]:
        if not (self.states or self.name or self.task_manager or self.since_ms is not None or self.until_ms is not None):
            return jobs.rows()
        there, name = jobs.on(self.task_manager) if self.task_manager else None, self.name.lower()
        return [
            row for row in jobs.rows()
            if (not self.states or state_of(row["status"], row["waiting"], row.get("running_ms")) in self.states)
            and name in row["name"].lower()
            and (self.since_ms is None or (row["accepted_ms"] or 0) >= self.since_ms)
            and (self.until_ms is None or (row["accepted_ms"] or 0) < self.until_ms)
            and (there is None or row["job"] in there)
        ]  # fmt: skip

    def _cursor(self, key: Key) -> str:
        return _written([self.sort, *key])

    def _after(self) -> Key:
        sort, value, job = _read(self.cursor, 3)
        kind = str if self.sort.removeprefix("-") in TEXTS else int
        if sort != self.sort or not isinstance(value, kind) or not isinstance(job, str):
            raise BadCursor(f"it is none of a listing sorted by {self.sort}")
        return value, job
