"""`python -m tests.bench [NAME ...]`: measures Millrace beside its peers."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Annotated

import structlog
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from deploy.local.downloads import CHECKOUT

from . import (
    burst,
    compose,
    failover,
    growing,
    handover,
    idle,
    job_files,
    many,
    memory,
    outages,
    overload,
    pipeline,
    recovery,
    replay,
    running,
    scale,
    slot,
    sql,
    standbys,
    up,
    web,
)
from .figures import Figure, Row, measure

FIGURES = {
    figure.name: figure
    for figure in (
        Figure("running", "submit -> RUNNING at a connected client, beside the bare chain of hops", running.measure),
        Figure("sql", "one trivial sql job, submit -> result, beside spark-submit", sql.measure),
        Figure("slot", "what one trivial query costs its slot: process, attach, run, report, reset", slot.measure),
        Figure("flights", "the flights pipeline, beside the same steps in a warm session", pipeline.measure),
        Figure("burst", "submissions accepted and stored a second, beside raw produce and puts", burst.measure),
        Figure("overload", "five times the peak for a minute: what gets done, memory, and how soon it is over", overload.measure),
        Figure("many", "500 real jobs at once on 2 slots, beside the queries in a warm session", many.measure),
        Figure("files", "an archive of a job on its way to attempts, beside a copy of the file", job_files.measure),
        Figure("up", "millrace up to the first job accepted and the first result", up.measure),
        Figure("compose", "docker compose up to the first job accepted, beside its Kafka and etcd alone", compose.measure),
        Figure("growing", "slots short -> RUNNING on a new TaskManager, beside one that is started by hand", growing.measure),
        Figure("memory", "resident memory of each service, idle and after 5,000 jobs", memory.measure),
        Figure("failover", "a leader or a TaskManager killed, asked to end, stopped -> all goes on", failover.measure),
        Figure("replay", "the state at the end of a long inbox, and the story of one job among many, from Kafka", replay.measure),
        Figure("standbys", "the same jobs with a standby for each service, beside a stack without", standbys.measure),
        Figure("handover", "every leader asked to end while another build waits, 100 tasks running", handover.measure),
        Figure("recovery", "all control services killed with 10,000 jobs; the fold beside a snapshot", recovery.measure),
        Figure("outages", "Kafka, etcd killed or paused, all cores busy -> nobody is blamed for it", outages.measure),
        Figure("web", "the web service beside the bare hop, Flink's REST and dashboard, and a cluster without it", web.measure, web.PARTS),
        Figure("scale", "the runtime at its limits: wide graphs, long queues, many TaskManagers and jobs; CPU", scale.measure, scale.PARTS),
        Figure("idle", "processor and disk of an idle stack, beside Kafka and etcd alone", idle.measure),
    )
}
LISTED = "\n\n".join(
    f"[bold]{figure.name}[/bold]: {figure.what}" + "".join(f" {figure.name}/{part}" for part in figure.parts)
    for figure in FIGURES.values()
)

app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)


@app.command(
    help="Measure Millrace, each figure next to a peer in the same run; ratios are what counts.\n\n"
    "Prints a table, and writes each figure with its raw samples and the machine's facts to build/bench/NAME.json. Stacks of its "
    "own are started and deleted in MILLRACE_HOME, or build/bench/home without it. Exit code 1 if a figure could not be "
    "measured; one that misses what it must reach is marked, no more.\n\n" + LISTED,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME ...]", help="The figures to measure, or NAME/PART; all without.", show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few samples: to see that it works, not for figures.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = CHECKOUT / "build" / "bench",
) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # between the lines of progress
    chosen = [_figure(name) for name in names or FIGURES]
    os.environ.setdefault("MILLRACE_HOME", str(CHECKOUT / "build" / "bench" / "home"))
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    table = _table(quick)
    failed = []
    for figure in chosen:
        started = time.monotonic()
        try:
            found, noisy = measure(figure, quick, out.absolute(), _tell)
        except Exception:
            traceback.print_exc()
            failed.append(figure.name)
            continue
        for row in found.rows:
            table.add_row(*_cells(row, noisy))
        _tell(f"{figure.name}: done in {time.monotonic() - started:.0f} s, {out / figure.name}.json")
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    if failed:
        _tell(f"could not be measured: {', '.join(failed)}")
        raise typer.Exit(1)


def _figure(name: str) -> Figure:
    whole, _, part = name.partition("/")
    if whole not in FIGURES:
        raise typer.BadParameter(f"there is no figure {whole}; there are {', '.join(FIGURES)}")
    if part and part not in FIGURES[whole].parts:
        raise typer.BadParameter(f"{whole} has no part {part}; there are {', '.join(FIGURES[whole].parts) or 'none'}")
    return FIGURES[whole].part(part) if part else FIGURES[whole]


def _table(quick: bool) -> Table:
    title = "quick: too few samples for figures" if quick else None
    table = Table(title=title, box=box.SIMPLE_HEAD, show_lines=False)
    for column in ("figure", "n", "p50", "p99 or total", "peer", "ratio", "at least", ""):
        table.add_column(column, justify="right" if column == "n" else "left")
    return table


def _cells(row: Row, noisy: bool) -> list[str]:
    mark = {True: "reached", False: "[bold red]MISSED[/]", None: ""}[row.reached]
    if noisy:
        mark += " (noisy: the machine was busy)"
    return [row.figure, f"{row.n:,}", row.p50, row.second, row.peer, row.ratio, row.least, mark]


def _tell(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    app()
