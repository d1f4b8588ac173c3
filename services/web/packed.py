"""Rows in memory, those of subtasks that have ended as bytes: most rows are such, and few of them are looked at."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, MutableMapping

from millrace.core.states import ENDED_EXECUTION

from .core.facts import Row


class Packed(MutableMapping[str, Row]):
    """As dictionaries they take four times as much. `marshal` packs and unpacks one in two microseconds; its bytes never leave the
    process, so it does not matter that each Python has its own."""

    def __init__(self) -> None:
        self._rows: dict[str, Row | bytes] = {}

    def __getitem__(self, key: str) -> Row:
        row = self._rows[key]
        return marshal.loads(row) if isinstance(row, bytes) else row

    def __setitem__(self, key: str, row: Row) -> None:
        ended = "/" in key and row is not None and row.get("state") in ENDED_EXECUTION  # Faust sets None for one that is gone
        self._rows[key] = marshal.dumps(row) if ended else row

    def naming(self, text: str) -> Iterator[Row]:
        """Rows in which this text may stand: of those that are packed, no other one."""
        there = text.encode(errors="surrogatepass")
        for row in self._rows.values():
            if not isinstance(row, bytes):
                yield row
            elif there in row:
                yield marshal.loads(row)

    def __delitem__(self, key: str) -> None:
        del self._rows[key]

    def clear(self) -> None:
        self._rows.clear()

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
