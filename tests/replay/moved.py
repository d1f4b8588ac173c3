"""`python -m tests.replay.moved IN OUT OLD=NEW ...`: a recording with places of the machine that made it replaced by others.

Machines copy paths and host names, so that what they say of them is replaced alike; only what a tick tells of all words before it is
made anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from millrace.core.messages.records import Tick, decode
from services.replay.core.folding import Folding
from services.replay.core.recorded import Recorded
from services.replay.exporting import export
from services.replay.file import Recording, Writer
from services.replay.machines import fold_of
from services.replay.source import start_of


def move(source: Recording, out: Path, places: Mapping[str, str]) -> None:
    """Raises BadLog where the recording cannot be folded."""
    inboxes = {(scope.topic, scope.partition): scope for scope in source.facts.scopes.values()}
    writer = Writer(out, source.facts, source.build, source.logs())
    for log in source.logs():
        records = (_replaced(each, places) for each in source.read(log, log.first))
        scope = inboxes.get((log.topic, log.partition))
        if scope is not None:
            folding = Folding(fold_of(scope.name, source.facts.topology), start_of(source, scope, log), scope, redacted=True)
            records = _with_digests(records, folding)
        writer.log(log, records)
    writer.close()


def _replaced(recorded: Recorded, places: Mapping[str, str]) -> Recorded:
    value = recorded.value
    for old, new in places.items():
        value = value.replace(old.encode(), new.encode())
    return recorded._replace(value=value)


def _with_digests(records: Iterator[Recorded], folding: Folding) -> Iterator[Recorded]:
    for each in records:
        record, digest = decode(each.value), folding.folded.ticked_digest
        for _ in folding.steps([each]):
            pass
        if isinstance(record, Tick):
            each = each._replace(value=each.value.replace(f'"digest":"{record.digest}"'.encode(), f'"digest":"{digest}"'.encode()))
        yield each


def main(source: Path, out: Path, *places: str) -> None:
    moved = out.with_suffix(".moved")
    move(Recording(source), moved, dict(each.split("=", 1) for each in places))
    out.unlink(missing_ok=True)
    print(export(Recording(moved), out, None, False, lambda *_: None))
    moved.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
