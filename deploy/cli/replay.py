"""`millrace replay ...`: what happened, read and folded again from the records. Nothing here sends or performs anything."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.connection import StackOption, places
from millrace.cli.exits import Exit
from millrace.cli.times import stamp_ms

if TYPE_CHECKING:
    from services.replay.replaying import At
    from services.replay.source import Source

app = typer.Typer(
    help="Read what happened: the records of every service, and the state that they lead to.\n\n"
    "Every service decides only by the records of its inbox, so that its state at any place is those records folded again. All of "
    "these commands read the running cluster, or with [bold]--file[/bold] what was exported of one (or a TaskManager's journal, "
    "WORK/ID/journal/*.jsonl); none sends or changes anything.\n\n"
    "[bold]millrace replay story JOB[/bold]: what became of a job, step by step, and because of what\n\n"
    "[bold]millrace replay show --scope job-master/0 -n 50[/bold]: the last records of an inbox\n\n"
    "[bold]millrace replay state dispatcher --at 12:30:05 --path state.live[/bold]: what it knew then\n\n"
    "[bold]millrace replay diff resource-manager 1200 1260[/bold]: what changed between two offsets, by which records\n\n"
    "[bold]millrace replay export incident.zip[/bold], then [bold]millrace replay verify --file incident.zip[/bold]: keep it, and "
    "prove that it folds to the same words\n\n"
    "A scope is dispatcher, resource-manager, job-master/SHARD or task-manager/ID. A place is an offset (the state after it), a time "
    "(12:30:05.250 or 2026-01-31T12:30:05, local) or 'end'. "
    "A time of day is the last such one: before now, or before the end of the file.\n\n"
    "Exit codes: 0; 1 a difference was found, or the job is not known; 2 the log cannot be folded as asked; 3 the cluster does not answer.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

FileOption = Annotated[
    Path | None,
    typer.Option("--file", "-f", metavar="FILE", help="Read this export, or journal, and not the cluster.", show_default=False),
]
ScopeArgument = Annotated[str, typer.Argument(metavar="SCOPE", help="dispatcher, resource-manager, job-master/0, ...", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
PLACE = "An offset, a time, or 'end'."
LATE_MS = 60_000  # of a living scope, which ticks, no place is so far behind the last record


@app.command()
def show(
    file: FileOption = None,
    scope: Annotated[str | None, typer.Option(help="Only this scope's inbox, or this topic, such as job.events.")] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Only records about this job.")] = None,
    types: Annotated[str | None, typer.Option("--type", metavar="TYPE,...", help="Only these, such as Elected,StartJob.")] = None,
    since: Annotated[str | None, typer.Option("--from", metavar="PLACE", help="From here on: an offset or a time.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="PLACE", help="Up to here.")] = None,
    last: Annotated[int | None, typer.Option("-n", "--last", min=1, help="Only the last so many.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Ticks, probes, greetings and heartbeats too.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what is written from now on.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One line of JSON a record, with all that it holds.")] = False,
    stack: StackOption = "default",
) -> None:
    """Show records, in the order of their times."""
    from .replay_shown import Filter, print_records

    if follow and (file is not None or to is not None):
        raise typer.BadParameter("--follow has no end: not with --to" if to else "a file does not grow: --follow is for the live cluster")
    with opened(file, stack) as source:
        wanted = Filter(source, scope, job, types, place(since, source) if since else None, place(to, source) if to else None, everything)
        if not print_records(wanted.records(last, follow), as_json):
            print(f"no record is such; {wanted.extent()}", file=sys.stderr)


@app.command()
def state(
    scope: ScopeArgument,
    file: FileOption = None,
    at: Annotated[str, typer.Option("--at", metavar="PLACE", help=PLACE)] = "end",
    path: Annotated[str, typer.Option(metavar="PATH", help="Only this part, such as state.jobs.JOB.tasks.")] = "",
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Show all that a scope knew at a place, as a tree."""
    from .replay_shown import moment, print_tree, progress

    with opened(file, stack) as source:
        from services.replay.core.trees import part
        from services.replay.replaying import state_at

        wanted = place(at, source)
        with progress() as on_progress:
            offset, tree = state_at(source, scope, wanted, on_progress)
        shown = part(tree, path)
    if as_json:
        print(json.dumps({"scope": scope, "offset": offset, "path": path, "state": shown}, indent=1, ensure_ascii=False))
    else:
        print_tree(f"{scope} after offset {offset}" + (f", {path}" if path else ""), shown)
    if wanted.stamp_ms is not None and wanted.stamp_ms - tree["stamp_ms"] > LATE_MS:
        newest = moment(tree["stamp_ms"])
        print(f"note: it has no later record than that, which is of {newest}; {at} is {moment(wanted.stamp_ms)}", file=sys.stderr)


@app.command()
def diff(
    scope: ScopeArgument,
    first: Annotated[str, typer.Argument(metavar="FROM", help=PLACE, show_default=False)],
    second: Annotated[str, typer.Argument(metavar="TO", help=PLACE)] = "end",
    file: FileOption = None,
    path: Annotated[str, typer.Option(metavar="PATH", help="Only this part, such as state.jobs.JOB.")] = "state",
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Show what changed in a scope between two places, and by which records."""
    from .replay_shown import print_changes, progress

    with opened(file, stack) as source:
        from services.replay.replaying import changes

        with progress() as on_progress:
            start, end, found = changes(source, scope, place(first, source), place(second, source), path, on_progress)
    print_changes(scope, start, end, found, as_json)


@app.command()
def story(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id.", show_default=False)],
    file: FileOption = None,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Tell what became of a job: each step from its submission to its end, when, where, and which step led to it."""
    from .replay_shown import print_story, progress

    with opened(file, stack) as source:
        from services.replay.replaying import NoSuchJob, story_of

        with progress() as on_progress:
            found = story_of(source, job, on_progress)
        if found is None:
            raise NoSuchJob(job)
    print_story(found, as_json)


@app.command()
def verify(
    file: FileOption = None,
    scope: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Fold everything again and compare: each tick's digest, every word said, and the state. The first difference is explained."""
    from .replay_shown import print_report, progress

    with opened(file, stack) as source:
        from services.replay.replaying import verify as check

        with progress() as on_progress:
            report = check(source, scope, on_progress)
    print_report(report, as_json)
    if report.difference is not None:
        raise typer.Exit(Exit.FAILED)


@app.command("export")
def export_(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.", show_default=False)],
    file: FileOption = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Only the records about this job: to show and tell, not to fold.")] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Without what its jobs' owners wrote: queries, paths, parameters, settings, rows, errors.")
    ] = False,
    stack: StackOption = "default",
) -> None:
    """Write all logs of the cluster to one file, which every replay command reads, and a test can use.

    The file is folded once it is written, so that `verify` knows where it led. With --redact all texts become tokens, equal ones equal
    tokens; ids of jobs, names of vertices and TaskManagers, states and times stay: it can still be folded, but digests are not compared.
    """
    from .replay_shown import progress

    with opened(file, stack) as source:
        from services.replay.exporting import export

        if out.exists():
            _end(f"{out} is there already: name another file", Exit.INVALID)
        try:
            with progress() as on_progress:
                done = export(source, out, job, redact, on_progress)
        except OSError as failure:
            _end(f"{out} cannot be written: {failure.strerror or failure}", Exit.INVALID)
    print(f"{out}: {done.records:,} records, {done.size_bytes / 1e6:.1f} MB")
    for line in done.unfolded:
        print(f"note: it cannot be folded: {line}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What replay export wrote.", show_default=False)],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="FOLDER", help="Copy it here when it is good; tests/replay/recordings is verified by every test run."),
    ] = None,
    stack: StackOption = "default",
) -> None:
    """Check that an export can be folded and folds to the same words; then copy it to where tests find it."""
    with opened(file, stack) as source:
        source.facts.whole()
    if to is not None and (to / file.name).exists():
        _end(f"{to / file.name} is there already: rename one of them", Exit.INVALID)
    verify(file=file, stack=stack)
    if to is not None:
        try:
            to.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to / file.name)
        except OSError as failure:
            _end(f"it cannot be copied to {to}: {failure.strerror or failure}", Exit.INVALID)
        print(f"copied to {to / file.name}")


@contextmanager
def opened(file: Path | None, stack: str) -> Iterator[Source]:
    """The file, or the live cluster; what goes wrong with it is said in one sentence, with its exit code."""
    from millrace.io.interfaces import Unavailable
    from millrace.io.storage.store import StorageError
    from services.replay.core.folding import Broken
    from services.replay.core.recorded import BadLog
    from services.replay.replaying import NoSuchJob, NotTheSame, open_file

    source: Source | None = None
    try:
        source = open_file(file) if file is not None else _live(stack)
        yield source
    except (BadLog, StorageError) as failure:
        _end(str(failure), Exit.INVALID)
    except (Broken, NoSuchJob, NotTheSame) as failure:
        _end(str(failure), Exit.FAILED)
    except Unavailable as failure:
        _end(f"{failure}; is the stack up (millrace up), and is this its address?", Exit.UNAVAILABLE)
    except BrokenPipeError:
        sys.stderr.close()  # who read has seen enough
    finally:
        if source is not None:
            source.close()


def _live(stack: str) -> Source:
    where = places(stack)
    from millrace.io.etcd.store import EtcdStore
    from millrace.io.kafka.logs import KafkaLogs
    from millrace.io.storage.store import Storage
    from services.replay.live import Live

    kafka = KafkaLogs(where.kafka, client_id="millrace-replay")
    store = EtcdStore(where.etcd, f"/millrace/{where.cluster}/")
    return Live(kafka, store, Storage(where.storage) if where.storage else None, where.cluster)


def _end(reason: str, code: int) -> None:
    print(f"millrace: {reason}", file=sys.stderr)
    raise typer.Exit(code)


def place(text: str, source: Source) -> At:
    """A time of day is the last such one that the source knows of. Raises typer.BadParameter."""
    from services.replay.replaying import At

    if text == "end":
        return At()
    if text.isdecimal():
        return At(offset=int(text))
    with contextlib.suppress(ValueError):
        return At(stamp_ms=stamp_ms(text, source.newest_ms()))
    raise typer.BadParameter(f"{text!r} is no place: give an offset, a time such as 12:30:05 or 2026-01-31T12:30:05.250, or 'end'")
