"""The journal of one incarnation: each record as it was folded, for `millrace replay`.

Truth lies in the process; the journal tells afterwards how it came about. Files `<incarnation>.<part>.jsonl`, each with a head (what the
machine is, the folded state where the file begins) and one line a record. Only the last parts and incarnations are kept.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import structlog
import zstandard

from millrace.core.fold import ScopeState
from millrace.core.machine import Machine
from millrace.core.topics import Topology
from millrace.runtime.snapshots import freeze, thaw

from .core.machine import TaskManager

PART_BYTES = 16 << 20
PARTS_KEPT = 2  # of one incarnation
INCARNATIONS_KEPT = 3

log = structlog.get_logger("journal")


class Journal:
    """Writes the journal below `folder`. A disk that is full costs the journal, never the TaskManager."""

    def __init__(self, folder: Path, name: str, topology: Topology, part_bytes: int = PART_BYTES) -> None:
        self._folder, self._name, self._topology, self._part_bytes = folder, name, topology, part_bytes
        self._file: TextIO | None = None
        self._part = self._size = 0

    def begin(self, machine: Machine, folded: ScopeState) -> None:
        """Opens the first part of a new incarnation, and deletes what is too old."""
        self._machine = machine
        self._guarded(lambda: self._open(folded))

    def write(self, folded: ScopeState, stamp_ms: int, record: str) -> None:
        """Adds the record (its JSON, one line) that is folded next."""
        if self._file is not None:
            self._guarded(lambda: self._write(folded, stamp_ms, record))

    def flush(self) -> None:
        if self._file is not None:
            self._guarded(self._file.flush)

    def close(self) -> None:
        if self._file is not None:
            self._guarded(self._file.close)
            self._file = None

    def _write(self, folded: ScopeState, stamp_ms: int, record: str) -> None:
        if self._size >= self._part_bytes:
            self._part += 1
            self._open(folded)
        assert self._file is not None
        self._size += self._file.write(f'{{"n":{folded.next_offset},"stamp_ms":{stamp_ms},"record":{record}}}\n')

    def _open(self, folded: ScopeState) -> None:
        if self._file is not None:
            self._file.close()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{folded.generation}.{self._part}.jsonl"
        head = {
            "name": self._name,
            "incarnation": folded.generation,
            "topology": asdict(self._topology),
            "folded": base64.b64encode(freeze(self._machine, folded)).decode(),
        }
        self._file = open(path, "w", encoding="utf-8", opener=_private)
        self._size = self._file.write(json.dumps(head) + "\n")
        self._clean(folded.generation)

    def _clean(self, incarnation: int) -> None:
        parts: dict[int, list[int]] = {}
        for path in self._folder.iterdir():
            found = re.fullmatch(r"(\d+)\.(\d+)\.jsonl", path.name)
            if found:
                parts.setdefault(int(found[1]), []).append(int(found[2]))
        kept = {incarnation, *sorted(parts)[-INCARNATIONS_KEPT:]}
        for each, numbers in parts.items():
            for number in numbers if each not in kept else sorted(numbers)[:-PARTS_KEPT]:
                (self._folder / f"{each}.{number}.jsonl").unlink(missing_ok=True)

    def _guarded(self, do: Callable[[], Any]) -> None:
        try:
            do()
        except OSError as error:
            log.warning("the journal ends here", reason=str(error), folder=str(self._folder))
            self._file = None


def _private(path: str, flags: int) -> int:
    """Records may carry parameters of jobs: their owner alone reads them."""
    return os.open(path, flags, 0o600)


@dataclass(frozen=True)
class Part:
    """A part of a journal: whose it is, the folded state where it begins, and its whole records."""

    name: str
    incarnation: int
    topology: Topology
    folded: ScopeState
    records: list[tuple[int, int, bytes]]
    """(number, stamp in ms, the record's JSON)."""


def read(path: Path) -> Part:
    """Raises OSError, and ValueError for what is no journal."""
    with open(path, "rb") as lines:
        try:
            head = json.loads(next(lines, b""))
            topology = Topology(**head["topology"])
            machine = TaskManager(head["name"], topology.shards)
            folded = thaw(machine, base64.b64decode(head["folded"]))
            # A line without an end: the process was killed while it wrote.
            records = [_record(line) for line in lines if line.endswith(b"\n")]
            return Part(head["name"], head["incarnation"], topology, folded, records)
        except (ValueError, KeyError, TypeError, zstandard.ZstdError) as error:
            raise ValueError(f"{path} is no journal of a TaskManager: {error}") from None


def _record(line: bytes) -> tuple[int, int, bytes]:
    """The record's own bytes stand last in its line."""
    head, _, record = line.rstrip(b"\n").partition(b',"record":')
    value = json.loads(head + b"}")
    return value["n"], value["stamp_ms"], record[:-1]
