"""What can be done with recorded logs: the state at a place, what changed between two, one job's story, a check of all of it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millrace.core.fold import Diverged, OutboxRecord, ScopeState
from millrace.runtime.build import build_of

from .core import trees
from .core.checking import Check, Checked, Difference
from .core.folding import Folding
from .core.recorded import BadLog, Facts, Log, Recorded, title
from .core.story import ALWAYS, Scan, Story, compose, logs_of
from .file import Recording
from .machines import fold_of
from .source import Source, log_of, start_of, steadily

Progress = Callable[[str, int, int], None]
"""Told what is gone through, how many of it are done, and how many there are."""
PROGRESS_EVERY = 2_000


class NotTheSame(Exception):
    """The fold leads to other words than a tick names: `replay verify` finds where."""


class NoSuchJob(Exception):
    """No record is about it."""

    def __init__(self, job: str) -> None:
        super().__init__(f"no record names a job {job!r}: it is not known here, or its records are deleted")


@dataclass(frozen=True)
class At:
    """A place in a log: an offset, or a moment in Unix milliseconds; neither: the end."""

    offset: int | None = None
    stamp_ms: int | None = None

    def last(self, source: Source, log: Log) -> int:
        """The offset of the last record up to the place. Raises BadLog: the log has none."""
        if self.stamp_ms is not None:
            offset = source.offset_at(log, self.stamp_ms + 1) - 1
        else:
            offset = log.end - 1 if self.offset is None else self.offset
        if offset >= log.end:
            raise BadLog(f"{log.name} ends at offset {log.end - 1}: there is no offset {offset} yet")
        if offset < log.first:
            raise BadLog(f"{log.name} has no record up to there: its records begin at offset {log.first}")
        return offset


def open_file(path: Path) -> Source:
    """An exported file or a part of a TaskManager's journal. Raises BadLog."""
    if path.is_dir():
        parts = sorted(path.glob("*.jsonl"), key=lambda part: part.stat().st_mtime)
        such = f", such as {parts[-1].name}" if parts else ""
        raise BadLog(f"{path} is a folder: name a file of replay export, or a part (.jsonl) of a TaskManager's journal{such}")
    if path.suffix == ".jsonl":
        from .journal import JournalPart  # with what a TaskManager imports, for which a command would wait

        return JournalPart(path)
    return Recording(path)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """A fold makes no cycles, and to look for them through a large state again and again takes time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Folder:
    """Folds one scope of a source, from a start as near as can be to the first offset asked for."""

    def __init__(self, source: Source, name: str, progress: Progress, at: At | None = None) -> None:
        """`at`: the first place whose state is asked for; None: all of the log is folded, from as early as it can be."""
        source.facts.whole()
        self.source, self.scope, self._progress = source, source.facts.scope(name), progress
        self.log = log_of(source, self.scope)
        last = None if at is None else at.last(source, self.log)
        folded = start_of(source, self.scope, self.log, last)
        self.folding = Folding(fold_of(name, source.facts.topology), folded, self.scope, source.facts.redacted)

    @property
    def folded(self) -> ScopeState:
        return self.folding.folded

    @property
    def machine(self) -> Any:
        return self.folding.fold.machine

    def records(self, last: int | None = None) -> Iterator[Recorded]:
        """The records that come next, up to `last` (None: the end), with progress. Raises BadLog: the log ends before."""
        end = self.log.end if last is None else last + 1
        first = self.folded.next_offset
        if first >= end:
            return
        for recorded in self.source.read(self.log, first, ids=False):
            if recorded.offset >= end:
                break
            yield recorded
            if recorded.offset % PROGRESS_EVERY == 0:
                self._progress(self.scope.name, recorded.offset - first, end - first)
        self._progress(self.scope.name, end - first, end - first)
        if self.folded.next_offset < end:
            raise BadLog(
                f"{self.log.name} should go on to offset {end - 1}, and ends at {self.folded.next_offset - 1}: it is cut off; "
                "the state up to there can be shown"
            )

    def to(self, at: At) -> int:
        """Folds on to a place; its offset. Raises BadLog, Broken, NotTheSame."""
        last = at.last(self.source, self.log)
        with _without_collecting():
            for _ in self.steps(self.records(last)):
                pass
        return last

    def steps(self, records: Iterable[Recorded]) -> Iterator[Any]:
        try:
            yield from self.folding.steps(records)
        except Diverged as failure:
            why = " ".join(self.other_builds()) or "this log is not what it was"
            raise NotTheSame(f"{failure}: {why}; replay verify tells where they part") from None

    def other_builds(self) -> list[str]:
        """What is to be known where another build than this one has written the log."""
        own = build_of([self.machine])
        # Behind the + stands a digest of the code: a recording outlives many of one version.
        return [
            f"{self.scope.name} was led by build {build} from offset {offset} on, and this is build {own}: it may fold otherwise, for old "
            "inboxes replay with their own build [27]"
            for build, offset in self.folding.builds.items()
            if build.partition("+")[0] != own.partition("+")[0]
        ]


def state_at(source: Source, name: str, at: At, progress: Progress) -> tuple[int, dict[str, Any]]:
    """(offset, the scope's state after it, as a tree)."""

    def found() -> tuple[int, dict[str, Any]]:
        folder = Folder(source, name, progress, at)
        offset = folder.to(at)
        return offset, trees.tree(folder.machine, folder.folded)

    return steadily(found)


@dataclass
class Change:
    """What differs at a path, and the records whose folding changed it, in order."""

    path: str
    before: Any
    after: Any
    records: list[Recorded]


def changes(source: Source, name: str, first: At, second: At, path: str, progress: Progress) -> tuple[int, int, list[Change]]:
    """(offset, offset, what the records between led to). Two folds: the second one looks only at what differs in the end."""
    return steadily(lambda: _changes(source, name, first, second, path, progress))


def _changes(source: Source, name: str, first: At, second: At, path: str, progress: Progress) -> tuple[int, int, list[Change]]:
    folder = Folder(source, name, progress, first)
    start = folder.to(first)
    before = trees.tree(folder.machine, folder.folded)
    end = second.last(source, folder.log)
    if end < start:
        raise BadLog(f"the first place, offset {start}, lies behind the second, offset {end}: name the earlier one first")
    folder.to(At(end))
    after = trees.tree(folder.machine, folder.folded)
    try:
        top = trees.split(after, path)
    except BadLog:
        top = trees.split(before, path)
    found, paths = [], []
    for each, was, now in trees.differences(trees.part_at(before, top), trees.part_at(after, top), top):
        found.append(Change(".".join(each), was, now, []))
        paths.append(each)
    folder = Folder(source, name, progress, first)
    folder.to(At(start))
    last = [trees.value_at(folder.folded, each) for each in paths]
    for step in folder.steps(folder.records(end)):
        for number, each in enumerate(paths):
            value = trees.value_at(folder.folded, each)
            if value != last[number]:
                last[number] = value
                found[number].records.append(step.recorded)
    return start, end, found


def story_of(source: Source, job: str, progress: Progress) -> Story | None:
    """The story of a job; None: nothing is known of it."""
    return compose(job, steadily(lambda: records_of(source, job, progress)))


def records_of(source: Source, job: str, progress: Progress) -> list[Recorded]:
    """The records of a job's story, log by log; none where nothing is known of it, whoever was elected meanwhile."""
    scan, found = Scan(job), []
    logs = logs_of(job, source.logs(), source.facts.topology)
    with _without_collecting():
        for recorded in source.scan(logs, lambda: scan.words):
            if scan.take(recorded):
                found.append(recorded)
                progress(f"logs, at {recorded.log}: records found", len(found), len(found))
    return found if any(title(each).type not in ALWAYS for each in found) else []


@dataclass
class Report:
    """What a check found. `notes`: what could not be checked, and why. `difference`: the first one, explained."""

    scopes: list[Checked]
    notes: list[str] = field(default_factory=list)
    difference: tuple[Checked, Difference] | None = None
    cause: Recorded | None = None
    now: OutboxRecord | None = None


def verify(source: Source, scope: str | None, progress: Progress) -> Report:
    """Folds each scope (or one) and compares every tick's digest and the state where a snapshot or the export tells what it was; then all
    that stands in all logs with what is said now. Raises BadLog, Broken."""
    return steadily(lambda: _verify(source, scope, progress))


def _verify(source: Source, scope: str | None, progress: Progress) -> Report:
    facts = source.facts
    facts.whole()
    check, notes = Check(facts.redacted), []
    with _without_collecting():
        for name in [facts.scope(scope).name] if scope else facts.scopes:
            folder = Folder(source, name, progress)
            _fold_checked(check, folder, source)
            notes += folder.other_builds()
    logs = source.logs()
    total = sum(log.end - log.first for log in logs)
    done = 0
    for log in logs:
        for recorded in source.read(log, log.first):
            check.compare(recorded)
            done += 1
            if done % PROGRESS_EVERY == 0:
                progress("compared", done, total)
    progress("compared", total, total)
    check.close(logs)
    report = Report(list(check.scopes.values()), [*notes, *_notes(check, facts)], check.first)
    if report.difference is not None:
        _explain(report, source)
    return report


def _fold_checked(check: Check, folder: Folder, source: Source) -> None:
    """The scope's fold, with its state compared where a snapshot, or the export, tells what it was."""
    scope, machine = folder.scope, folder.machine
    at_snapshots = [offset for offset in source.snapshots(scope) if offset > folder.folded.next_offset]
    for _ in check.fold(folder.folding, folder.records()):
        if folder.folded.next_offset in at_snapshots and not source.facts.redacted:
            was = source.snapshot(scope, folder.folded.next_offset)
            if trees.state_hash(machine, was) != trees.state_hash(machine, folder.folded):
                check.scopes[scope.name].differs(_other_state(machine, was, folder.folded))
    checked = check.scopes[scope.name]
    checked.state = trees.state_hash(machine, folder.folded)
    known = source.folded.get(scope.name) if isinstance(source, Recording) else None
    if known is None or known.get("build") != build_of([machine]):
        return  # another build's state may have other fields
    if checked.difference is None and known["state"] != checked.state:
        why = f"the state at the end has the hash {checked.state[:16]}, and had {known['state'][:16]} when it was exported"
        checked.differs(Difference(checked.end - 1, (why,)))


def _other_state(machine: Any, was: ScopeState, now: ScopeState) -> Difference:
    found = [
        f"{'.'.join(path)}: was {before!r}, is {after!r}"[:200]
        for path, before, after in trees.differences(trees.tree(machine, was), trees.tree(machine, now))
    ]
    return Difference(now.next_offset - 1, ("the folded state is not that of the snapshot at this offset", *found[:8]))


def _notes(check: Check, facts: Facts) -> list[str]:
    notes = []
    if facts.redacted:
        notes.append("payloads are redacted: digests are not compared, and outputs without their payloads")
    if check.unfolded:
        notes.append(f"{check.unfolded} records said by TaskManagers, or in earlier lives of the scopes, are not compared")
    uncovered = sum(each.uncovered for each in check.scopes.values())
    if uncovered:
        notes.append(f"{uncovered} outputs are not compared: the logs they were said to do not reach back so far")
    earlier = sum(each.earlier for each in check.scopes.values())
    if earlier:
        notes.append(f"{earlier} records are not compared: they were said before the snapshots from which the folds begin")
    later = sum(each.later for each in check.scopes.values())
    if later:
        notes.append(f"{later} records were said after the end of what was folded")
    return notes


def _explain(report: Report, source: Source) -> None:
    """Folds the scope of the first difference once more, up to it, for the words of then and now."""
    assert report.difference is not None
    checked, difference = report.difference
    folder = Folder(source, checked.scope, lambda *_: None)
    for recorded in source.read(folder.log, difference.offset, ids=False):
        report.cause = recorded if recorded.offset == difference.offset else None
        break
    if difference.seq is None:
        return
    if difference.offset < folder.folded.next_offset:
        report.now = folder.folded.outbox.get(difference.seq)
        return
    for step in folder.steps(folder.records(difference.offset)):
        report.now = next((each for each in step.result.said if each.seq == difference.seq), report.now)
