"""Rows of the table of jobs, those of subtasks on disk: a job may have thousands, and few are looked at."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, MutableMapping

from ..core.facts import Row


class PackedRows(MutableMapping[str, Row]):
    """The view holds it, and its lock. What is on disk is in a file without a name, and goes with the process."""

    def __init__(self) -> None:
        self._jobs: dict[str, Row] = {}
        self._disk = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._disk.execute("PRAGMA journal_mode=OFF")
        self._disk.execute("CREATE TABLE rows (key TEXT PRIMARY KEY, row TEXT) WITHOUT ROWID")

    def __getitem__(self, key: str) -> Row:
        if "/" not in key:
            return self._jobs[key]
        found = self._disk.execute("SELECT row FROM rows WHERE key = ?", (key,)).fetchone()
        if found is None:
            raise KeyError(key)
        row: Row = json.loads(found[0])
        return row

    def __setitem__(self, key: str, row: Row) -> None:
        if "/" in key:
            self._disk.execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (key, json.dumps(row, separators=(",", ":"))))
        else:
            self._jobs[key] = row

    def __delitem__(self, key: str) -> None:
        if "/" not in key:
            del self._jobs[key]
        elif not self._disk.execute("DELETE FROM rows WHERE key = ?", (key,)).rowcount:
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield from self._jobs
        for (key,) in self._disk.execute("SELECT key FROM rows").fetchall():
            yield key

    def __len__(self) -> int:
        return len(self._jobs) + int(self._disk.execute("SELECT count(*) FROM rows").fetchone()[0])
