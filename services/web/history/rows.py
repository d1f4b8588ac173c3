"""Rows of the table of jobs, those of subtasks on disk: a job may have thousands, and few are looked at."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, MutableMapping

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

    def update(self, rows: Mapping[str, Row]) -> None:  # type: ignore[override]  # of a mapping alone
        subtasks = {key: row for key, row in rows.items() if "/" in key}
        packed = [(key, json.dumps(row, separators=(",", ":"))) for key, row in subtasks.items()]
        self._disk.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", packed)
        self._jobs.update((key, row) for key, row in rows.items() if key not in subtasks)

    def on(self, task_manager: str) -> set[str]:
        """The jobs of which an attempt was there. SQLite looks through the text itself: to unpack that of each row takes many times as
        long, and whoever asks holds the view."""
        named = f'"task_manager":{json.dumps(task_manager)}'
        found = self._disk.execute("SELECT DISTINCT substr(key, 1, instr(key, '/') - 1) FROM rows WHERE instr(row, ?)", (named,))
        return {job for (job,) in found}

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
