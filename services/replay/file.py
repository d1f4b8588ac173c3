"""Exported logs in one file: a zip archive that any tool opens.

    recording.json               format, build, cluster, topology, scopes (generation, log, first offset, parked records), logs
    snapshots/<scope>/<offset>   the folded state from which a log that starts too late is folded on, as JSON
    logs/<topic>/<partition>     one line a record: offset, stamp in ms, key, id, value, divided by tabs
    folded.json                  where the fold of each scope led when it was exported: end, digest of all outputs, hash of the state

A value stands as it was written, byte for byte, or as base64 behind a `~` where it would break the line.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from millrace.core.fold import Parked, ScopeState
from millrace.core.topics import Topology

from .core.recorded import BadLog, Facts, Log, Recorded, Scope
from .core.trees import planted
from .machines import fold_of

FORMAT = 1
HEAD, FOLDED = "recording.json", "folded.json"
BUFFER = 1 << 20


class Recording:
    """An exported file; see `Source`."""

    def __init__(self, path: Path) -> None:
        """Raises BadLog: it is none, is damaged, or of another format."""
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
            head = json.loads(self._zip.read(HEAD))
            folded = json.loads(self._zip.read(FOLDED)) if FOLDED in self._zip.namelist() else {}
        except OSError as failure:
            raise BadLog(f"{path} cannot be read: {failure.strerror or failure}") from None
        except (zipfile.BadZipFile, KeyError, ValueError, zlib.error) as failure:
            raise BadLog(f"{path} is no file of replay export, or it is cut off or damaged: {failure}") from None
        if not isinstance(head, dict) or not isinstance(folded, dict):
            raise BadLog(f"{path} is no file of replay export: its {HEAD} is no object")
        if head.get("format") != FORMAT:
            raise BadLog(
                f"{path} has the format {head.get('format')}, as build {head.get('build')} writes it; this build reads format {FORMAT}: "
                "read it with that build"
            )
        try:
            self.build: str = head["build"]
            self.folded: dict[str, dict[str, Any]] = folded
            self.facts = Facts(
                head["cluster"], Topology(**head["topology"]), {each["name"]: _scope(each) for each in head["scopes"]},
                head["job"], head["redacted"],
            )  # fmt: skip
            self._logs = [Log(**each) for each in head["logs"]]
        except (AttributeError, KeyError, TypeError, ValueError) as failure:
            raise BadLog(f"{path}: its {HEAD} is not whole: {failure}") from None

    def logs(self) -> list[Log]:
        return self._logs

    def read(self, log: Log, first: int, ids: bool = True) -> Iterator[Recorded]:
        for line in self._lines(log):
            recorded = _parsed(log, line)
            if recorded.offset >= first:
                yield recorded

    def scan(self, logs: Sequence[Log], words: Callable[[], Sequence[bytes]]) -> Iterator[Recorded]:
        sought = words()
        for log in logs:
            for line in self._lines(log):
                if any(word in line for word in sought):
                    yield _parsed(log, line)
                    sought = words()

    def offset_at(self, log: Log, stamp_ms: int) -> int:
        return next((each.offset for each in self.read(log, log.first) if each.stamp_ms >= stamp_ms), log.end)

    def newest_ms(self) -> int:
        """Of the last record that is here: an export of one job has not its logs' last ones."""
        last = ((log, line) for log in self._logs for line in deque(self._lines(log), 1))
        return max((_parsed(log, line).stamp_ms for log, line in last), default=0)

    def snapshots(self, scope: Scope) -> Sequence[int]:
        folder = f"snapshots/{scope.name}/"
        return sorted(int(name[len(folder) :]) for name in self._zip.namelist() if name.startswith(folder))

    def snapshot(self, scope: Scope, offset: int) -> ScopeState:
        name = f"snapshots/{scope.name}/{offset}"
        with self._guarded(name):
            made = json.loads(self._zip.read(name))
        try:
            return planted(fold_of(scope.name, self.facts.topology).machine, made)
        except ValidationError as failure:
            raise BadLog(
                f"{self.path}: build {self.build} wrote the snapshot {name}, which this build cannot read "
                f"({failure.error_count()} fields differ): replay it with that build"
            ) from None

    def close(self) -> None:
        self._zip.close()

    def _lines(self, log: Log) -> Iterator[bytes]:
        name = _entry(log)
        with self._guarded(name), self._zip.open(name) as file, io.BufferedReader(file, BUFFER) as lines:  # type: ignore[type-var]  # a zip's file is raw enough
            yield from lines

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except KeyError:
            raise BadLog(f"{self.path} does not hold {name}") from None
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as failure:
            raise BadLog(f"{self.path}: {name} is cut off or damaged: {failure}") from None


class Writer:
    """Writes a recording; it stands at its path when it is whole, and not before."""

    def __init__(self, path: Path, facts: Facts, build: str, logs: Sequence[Log]) -> None:
        self._path, self._new = path, path.with_name(f"{path.name}.new")
        self._zip = zipfile.ZipFile(self._new, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        scopes = [
            {**asdict(each), "parked": {str(at): [parked.error] for at, parked in each.parked.items()}} for each in facts.scopes.values()
        ]
        self._put(HEAD, {
            "format": FORMAT, "build": build, "cluster": facts.cluster, "topology": asdict(facts.topology), "scopes": scopes,
            "logs": [asdict(log) for log in logs], "job": facts.job, "redacted": facts.redacted,
        })  # fmt: skip

    def snapshot(self, scope: str, offset: int, tree: Mapping[str, Any]) -> None:
        self._put(f"snapshots/{scope}/{offset}", tree)

    def log(self, log: Log, records: Iterable[Recorded]) -> None:
        with self._zip.open(_info(_entry(log)), "w") as file:
            for each in records:
                file.write(_line(each))

    def close(self) -> None:
        self._zip.close()
        self._new.replace(self._path)

    def drop(self) -> None:
        """Leaves nothing."""
        self._zip.close()
        self._new.unlink(missing_ok=True)

    def _put(self, name: str, value: Any) -> None:
        self._zip.writestr(_info(name), json.dumps(value, separators=(",", ":"), ensure_ascii=False))


def add_folded(path: Path, folded: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds where the fold of each scope led."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr(_info(FOLDED), json.dumps(folded, separators=(",", ":")))


def _info(name: str) -> zipfile.ZipInfo:
    """Without the time of day: equal recordings are equal files."""
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _entry(log: Log) -> str:
    return f"logs/{log.topic}/{log.partition}"


def _scope(head: dict[str, Any]) -> Scope:
    return Scope(**{**head, "parked": {int(at): Parked(*error) for at, error in head["parked"].items()}})


def _line(each: Recorded) -> bytes:
    value = each.value if b"\n" not in each.value and not each.value.startswith(b"~") else b"~" + base64.b64encode(each.value)
    return b"%d\t%d\t%s\t%s\t%s\n" % (each.offset, each.stamp_ms, _text(each.key), _text(each.id), value)


def _text(text: str) -> bytes:
    """A key or an id may be a stranger's: no tab and no line's end stays in it."""
    return text.encode("unicode_escape") if any(c in text for c in "\t\n\r\\") else text.encode()


def _parsed(log: Log, line: bytes) -> Recorded:
    try:
        offset, stamp_ms, key, id, value = line[:-1].split(b"\t", 4)
        value = base64.b64decode(value[1:]) if value[:1] == b"~" else value
        return Recorded(log.topic, log.partition, int(offset), int(stamp_ms), _untext(key), value, _untext(id))
    except ValueError:
        raise BadLog(f"{log.name}: the line {line[:60]!r} is no record: the file was changed by hand") from None


def _untext(text: bytes) -> str:
    return text.decode("unicode_escape") if b"\\" in text else text.decode()
