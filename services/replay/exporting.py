"""Recorded logs written to a file, whole or of one job, with or without their payloads."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from millrace import __version__
from millrace.core.fold import Parked, ScopeState
from millrace.runtime.build import build_of

from .core.folding import Broken
from .core.recorded import BadLog, Log, Recorded, Scope
from .core.redaction import Text, redacted, tokens, walk
from .core.trees import state_hash, tree
from .file import Recording, Writer, add_folded
from .machines import fold_of
from .replaying import PROGRESS_EVERY, Folder, NoSuchJob, NotTheSame, Progress, records_of
from .source import Source, start_of, steadily


@dataclass
class Exported:
    """What was written. `unfolded`: scopes that cannot be folded from the file, and why."""

    records: int
    size_bytes: int
    scopes: list[str]
    unfolded: list[str]


def export(source: Source, path: Path, job: str | None, without_payloads: bool, progress: Progress) -> Exported:
    """Writes the file, then folds what stands in it, so that a later check knows where the fold led. Raises BadLog, NoSuchJob, OSError."""
    return steadily(lambda: _export(source, path, job, without_payloads, progress))


def _export(source: Source, path: Path, job: str | None, without_payloads: bool, progress: Progress) -> Exported:
    token = tokens(secrets.token_bytes(16)) if without_payloads else None
    if token is not None and source.facts.redacted:
        token = None  # its payloads are tokens already
    facts = replace(source.facts, job=job or source.facts.job, redacted=source.facts.redacted or without_payloads)
    if token is not None:
        facts = replace(facts, scopes={name: _without_errors(each, token) for name, each in facts.scopes.items()})
    logs = source.logs()
    writer = Writer(path, facts, __version__, logs)
    try:
        if facts.job is None:
            for scope in facts.scopes.values():
                _put_snapshot(source, scope, logs, writer, token)
        if facts.job is None:
            records = _put_logs(source, logs, writer, token, progress)
        else:
            records = _put_job(source, facts.job, logs, writer, token, progress)
        writer.close()
    except BaseException:
        writer.drop()
        raise
    unfolded = _add_folded(path, progress) if facts.job is None else []
    return Exported(records, path.stat().st_size, list(facts.scopes), unfolded)


def _without_errors(scope: Scope, token: Text) -> Scope:
    """What a record did that is passed over may name what is in it."""
    return replace(scope, parked={at: Parked(each.error and token(each.error)) for at, each in scope.parked.items()})


def _put_snapshot(source: Source, scope: Scope, logs: list[Log], writer: Writer, token: Text | None) -> None:
    """The snapshot from which the fold of a log begins that does not reach back to the first record of its generation."""
    with suppress(BadLog):  # it cannot be folded from anywhere: said when the file is folded
        log = next(each for each in logs if (each.topic, each.partition) == (scope.topic, scope.partition))
        folded: ScopeState = start_of(source, scope, log)
        if log.first > scope.first_offset:
            made = tree(fold_of(scope.name, source.facts.topology).machine, folded)
            writer.snapshot(scope.name, folded.next_offset, walk(made, token) if token else made)


def _put_logs(source: Source, logs: list[Log], writer: Writer, token: Text | None, progress: Progress) -> int:
    total = sum(log.end - log.first for log in logs)
    done = 0

    def counted(log: Log) -> Iterator[Recorded]:
        nonlocal done
        for recorded in source.read(log, log.first):
            yield redacted(recorded, token) if token else recorded
            done += 1
            if done % PROGRESS_EVERY == 0:
                progress("written", done, total)

    for log in logs:
        writer.log(log, counted(log))
    progress("written", total, total)
    return done


def _put_job(
    source: Source, job: str, logs: list[Log], writer: Writer, token: Text | None, progress: Progress
) -> int:
    """The records of one job's story."""
    found = records_of(source, job, progress)
    if not found:
        raise NoSuchJob(job)
    for log in logs:
        own = (each for each in found if (each.topic, each.partition) == (log.topic, log.partition))
        writer.log(log, (redacted(each, token) if token else each for each in own))
    return len(found)


def _add_folded(path: Path, progress: Progress) -> list[str]:
    written, folded, unfolded = Recording(path), {}, []
    for name in written.facts.scopes:
        try:
            folder = Folder(written, name, progress)
            for _ in folder.steps(folder.records()):
                pass
        except (BadLog, Broken, NotTheSame) as failure:
            unfolded.append(f"{name}: {failure}")
            continue
        end = folder.folded
        state = state_hash(folder.machine, end)
        folded[name] = {"end": end.next_offset, "digest": end.digest, "state": state, "build": build_of([folder.machine])}
    written.close()
    add_folded(path, folded)
    return unfolded
