"""What `millrace replay` prints."""

from __future__ import annotations

import datetime
import heapq
import itertools
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import typer
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from millrace.cli.tables import WIDE, print_json, table
from millrace.cli.words import printable
from services.replay.core.checking import explain
from services.replay.core.recorded import CHANGELOGS, Log, Recorded, parse, title
from services.replay.core.story import Scan, Story
from services.replay.core.trees import MISSING
from services.replay.replaying import At, Change, Report, records_of
from services.replay.source import Source

SILENT_S = 1.0  # of a fold, before its progress is shown
ENTRIES_MOST = 40  # of one branch of a tree
TEXT_MOST = 160
LEFT_OUT = ("Tick", "Probe", "Hello", "TaskManagerHeartbeat", "JobMasterHeartbeat")


def moment(stamp_ms: int) -> str:
    """In the local time zone, to the millisecond."""
    return datetime.datetime.fromtimestamp(stamp_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Tells on stderr how far it is, once it takes longer than a moment: a line that renews itself on a terminal, else one now and then."""
    console, started = Console(stderr=True), time.monotonic()
    printed_at = started

    def on_progress(what: str, done: int, total: int) -> None:
        nonlocal printed_at
        now = time.monotonic()
        if now - printed_at < (0.2 if console.is_terminal else 5.0) or now - started < SILENT_S:
            return
        printed_at = now
        line = f"{what}: {done:,} of {total:,}"
        console.print(line, end="\r" if console.is_terminal else "\n", highlight=False)

    yield on_progress
    if console.is_terminal and printed_at != started:
        console.print(" " * 60, end="\r")


class Filter:
    """Which records are shown."""

    def __init__(
        self, source: Source, scope: str | None, job: str | None, types: str | None, since: At | None, to: At | None, everything: bool
    ) -> None:
        self.source, self.job, self.since, self.to = source, job, since, to
        self._records: list[Recorded] = []  # of the job, until now
        self.types = [each.strip() for each in types.split(",")] if types else None
        self.everything = everything or self.types is not None
        self.logs = [log for log in self._chosen(scope) if everything or scope is not None or log.topic not in CHANGELOGS]
        for at in (since, to):
            if at is not None and at.offset is not None and len(self.logs) != 1:
                raise typer.BadParameter("an offset is one of a single log: name it with --scope, or give a time")

    def _chosen(self, scope: str | None) -> list[Log]:
        logs = self.source.logs()
        if scope is None:
            return logs
        known = self.source.facts.scopes.get(scope)
        inbox = (known.topic, known.partition) if known else None
        if inbox is None and scope.startswith("task-manager/"):
            inbox = self.source.facts.topology.inbox(scope)
        found = [log for log in logs if log.topic == scope or (log.topic, log.partition) == inbox]
        if not found:
            names = [*self.source.facts.scopes, *dict.fromkeys(log.topic for log in logs)]
            raise typer.BadParameter(f"there is no scope and no topic {scope!r}; there are {', '.join(names)}")
        return found

    def extent(self) -> str:
        """What there is to choose from."""
        if len(self.logs) == 1:
            log = self.logs[0]
            return f"{log.name} has offsets {log.first} to {log.end - 1}" if log.end > log.first else f"{log.name} is empty"
        return f"{sum(log.end - log.first for log in self.logs):,} records are in {len(self.logs)} logs"

    def records(self, last: int | None, follow: bool) -> Iterable[Recorded]:
        if self.job is not None:
            found: Iterable[Recorded] = self._of_job(self.job)
        else:
            found = heapq.merge(*(self._of_log(log) for log in self.logs), key=lambda each: each.stamp_ms)
        shown: Iterable[Recorded] = filter(self._is_shown, found)
        if last is not None:
            shown = deque(shown, last)
        return itertools.chain(shown, self._following()) if follow else shown

    def _of_log(self, log: Log) -> Iterator[Recorded]:
        first, end = self._bounds(log)
        return itertools.takewhile(lambda each: each.offset < end, self.source.read(log, first))

    def _of_job(self, job: str) -> Iterable[Recorded]:
        bounds = {(log.topic, log.partition): self._bounds(log) for log in self.logs}

        def within(each: Recorded) -> bool:
            first, end = bounds.get((each.topic, each.partition), (0, 0))
            return first <= each.offset < end

        self._records = records_of(self.source, job, lambda *_: None)
        return sorted(filter(within, self._records), key=lambda each: each.stamp_ms)

    def _bounds(self, log: Log) -> tuple[int, int]:
        first = log.first
        if self.since is not None and self.since.offset is not None:
            first = max(first, self.since.offset)
        elif self.since is not None and self.since.stamp_ms is not None:
            first = self.source.offset_at(log, self.since.stamp_ms)
        if self.to is None or self.to == At():
            return first, log.end
        return first, self.to.offset + 1 if self.to.offset is not None else self.source.offset_at(log, (self.to.stamp_ms or 0) + 1)

    def _is_shown(self, recorded: Recorded) -> bool:
        if self.everything and self.types is None:
            return True
        kind = title(recorded).type
        return kind in self.types if self.types is not None else kind not in LEFT_OUT

    def _following(self) -> Iterator[Recorded]:
        chosen, scan = {(log.topic, log.partition) for log in self.logs}, Scan(self.job) if self.job else None
        if scan is not None:
            for each in self._records:
                scan.take(each)  # it names what is the job's, and later records that name nothing else
        for each in self.source.follow():  # type: ignore[attr-defined]  # only what lives can be followed
            named = scan is None or (any(word in each.value for word in scan.words) and scan.take(each))
            if named and (each.topic, each.partition) in chosen and self._is_shown(each):
                yield each


def print_records(records: Iterable[Recorded], as_json: bool) -> int:
    """How many there were."""
    count = 0
    for each in records:
        count += 1
        if as_json:
            print(json.dumps(each._asdict() | {"value": _value(each.value)}), flush=True)
            continue
        kind, detail, sender, job = title(each)
        about = f"job {job}" if job and f"job {job}" not in detail else ""
        words = " ".join(filter(None, (f"from {sender}" if sender else "", about, detail)))
        print(f"{moment(each.stamp_ms)}  {each.place:<32} {kind:<22} {words}".rstrip(), flush=True)
    return count


def _value(value: bytes) -> Any:
    found = parse(value)
    return value.decode(errors="replace") if found is None else found


def print_tree(name: str, value: Any) -> None:
    """A tree; long branches are cut, and say so."""
    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)
    root = Tree(Text(name, "bold"))
    _grow(root, value)
    console.print(root)


def _grow(branch: Tree, value: Any) -> None:
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    if not isinstance(value, (dict, list)):
        branch.add(Text(_leaf(value)))
        return
    for name, inner in items[:ENTRIES_MOST]:
        if isinstance(inner, (dict, list)) and inner:
            _grow(branch.add(Text(printable(str(name)), "bold")), inner)
        else:
            branch.add(Text.assemble((printable(str(name)), "bold"), f": {_leaf(inner)}"))
    if len(items) > ENTRIES_MOST:
        branch.add(Text(f"... and {len(items) - ENTRIES_MOST:,} more: name one with --path, or see all with --json", "dim"))


def _leaf(value: Any) -> str:
    if value is MISSING:
        return "(absent)"
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))
    return text if len(text) <= TEXT_MOST else f"{text[: TEXT_MOST - 3]}..."


def print_changes(scope: str, start: int, end: int, changes: list[Change], as_json: bool) -> None:
    if as_json:
        print_json({"scope": scope, "from": start, "to": end, "changes": [_change(each) for each in changes]})
        return
    print(f"{scope}: {len(changes)} change{'s' * (len(changes) != 1)} between offset {start} and {end}")
    for each in changes:
        print(f"{printable(each.path)}: {_leaf(each.before)} -> {_leaf(each.after)}")
        for recorded in each.records[-3:]:
            kind, detail, sender, _ = title(recorded)
            words = " ".join(filter(None, (kind, f"from {sender}" if sender else "", detail)))
            print(f"    by {moment(recorded.stamp_ms)} offset {recorded.offset} {words}"[:WIDE])
        if before := each.records[:-3]:
            print(f"    and {len(before)} record{'s' * (len(before) != 1)} before")


def _change(change: Change) -> dict[str, Any]:
    return {
        "path": change.path,
        **{name: value for name, value in (("before", change.before), ("after", change.after)) if value is not MISSING},
        "records": [
            {"offset": each.offset, "stamp_ms": each.stamp_ms, "type": title(each).type} for each in change.records
        ],
    }


def print_story(story: Story, as_json: bool) -> None:
    if as_json:
        print_json(asdict(story))
        return
    attempts = f"{story.attempts} attempt{'s' * (story.attempts != 1)}"
    print(f"job {story.job}: {story.status}, {attempts}, {story.took_ms / 1000:.3f} s, from {moment(story.steps[0].stamp_ms)}")
    rows = [("step", "at, s", "after", "because of", "record", "what", "")]
    for each in story.steps:
        since, gap = f"{each.since_ms / 1000:.3f}", f"+{each.gap_ms / 1000:.3f}"
        rows.append((str(each.number), since, gap, str(each.because or ""), each.place, each.type, each.detail))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:  # a line each, however long: for grep and cut
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_report(report: Report, as_json: bool) -> None:
    found = report.difference
    lines = list(explain(found[1], report.cause, report.now)) if found is not None else []
    if as_json:
        scopes = [
            {
                "scope": each.scope, "generation": each.generation, "first": each.first, "end": each.end, "ticks": each.ticks,
                "said": len(each.outputs), "compared": len(each.found), "effects": each.effects, "digest": each.digest, "state": each.state,
                "difference": each.difference.offset if each.difference else None,
            }
            for each in report.scopes
        ]  # fmt: skip
        first = {"scope": found[0].scope, "offset": found[1].offset, "lines": lines} if found else None
        print_json({"scopes": scopes, "notes": report.notes, "first_difference": first})
        return
    rows = [
        (each.scope, each.generation, f"{each.first} - {each.end - 1}", each.ticks, len(each.outputs), len(each.found), each.effects,
         each.state[:16], "none" if each.difference is None else f"at offset {each.difference.offset}")
        for each in report.scopes
    ]  # fmt: skip
    table(("scope", "generation", "offsets", "ticks", "said", "compared", "effects", "state", "difference"), rows)
    for note in report.notes:
        print(f"note: {note}")
    if found is None:
        print("0 differences")
        return
    print(f"first difference: {found[0].scope}, offset {found[1].offset}")
    for line in lines:
        print(f"  {line}")
