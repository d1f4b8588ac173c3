"""`python -m tests.bench.peers`: the same works on Millrace and its peers, by turns."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from deploy.local.downloads import CHECKOUT, only_one

from ..figures import load, machine
from .contest import PEERS, Contest, Plan, versions
from .lanes import WORKS
from .page import note, page, seconds, svg
from .targets import Ratio, ratios
from .turns import Figure, figure_of

BENCH = CHECKOUT / "build" / "bench"
PUBLISHED = CHECKOUT / "docs" / "peers.svg"
LISTED = "\n\n".join([
    "[bold]flights[/bold]: the pipeline of examples/flights.yaml, at parallelism 1 and with 2 subtasks",
    "[bold]queries[/bold]: three queries over Parquet: as one plan, as 2 subtasks with edges, as a script",
    "[bold]small[/bold]: 500 queries of one row, one job each",
    "[bold]first[/bold]: the first run on a slot just offered, and the fifth",
    "[bold]tenfold[/bold]: ten times the rows (30 million: 1 GB of Parquet, made once)",
    "[bold]two[/bold]: two jobs at once, and one after the other",
])  # fmt: skip

app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)


@app.command(
    help="Run the same works on Millrace and its peers, by turns, and compare their results cell by cell.\n\n"
    "Writes build/bench/peers.json, peers.svg and peers.html, a page with bars, targets, and who was left out and why. Each peer "
    "but plain Spark gets an environment of its own below build/bench/peers at its first use (pip, pinned by hash; some minutes, 2 GB). "
    "Stacks of its own are started and deleted, beside any other stack. Exit code 1 if results differ or something broke; a missed "
    "target is marked, no more.\n\n" + LISTED + "\n\n"
    "Examples:\n\n"
    "make bench-peers\n\n"
    'make bench-peers PEERS="session submit" WORK="flights queries" ROUNDS=3\n\n'
    "make bench-peers WORK=small JOBS=50 PEERS=session",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def bench(
    work: Annotated[str, typer.Option(help="The works, by spaces.")] = " ".join(WORKS),
    peers: Annotated[str, typer.Option(help="The peers beside Millrace, by spaces.")] = " ".join(PEERS),
    rounds: Annotated[int, typer.Option(min=1, help="Turns that count, after one to warm up; half of it where a turn takes minutes.")] = 5,
    rows: Annotated[int, typer.Option(min=1000, help="Lines of the tables of the queries.")] = 3_000_000,
    jobs: Annotated[int, typer.Option(min=1, help="One-row queries of the work small.")] = 500,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = BENCH,
    publish: Annotated[bool, typer.Option("--publish", help="Also write docs/peers.svg.")] = False,
    draw: Annotated[Path | None, typer.Option(help="Measure nothing: draw this peers.json again.", show_default=False)] = None,
) -> None:
    if draw is not None:
        _write(json.loads(draw.read_text()), out, publish)
        return
    works, chosen = _chosen("work", work, list(WORKS)), _chosen("peer", peers, list(PEERS))
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))  # between the lines of progress
    os.environ.setdefault("MILLRACE_HOME", str(BENCH / "home"))
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    plan = Plan(tuple(chosen), rounds, rows, jobs, BENCH / "peers" / "run", BENCH / "peers" / "environments", _tell)
    with only_one(BENCH / "peers" / "run.lock"):
        written = _measured(plan, works, out)
    _write(written, out, publish)
    figures = [figure_of(each) for each in written["figures"]]
    _print(figures, ratios(figures))
    _tell(f"page: {out / 'peers.html'}")
    if any(each.wrong for figure in figures for each in figure.left_out):
        _tell("results differ, or something broke: see above")
        raise typer.Exit(1)


def _chosen(what: str, given: str, there: list[str]) -> list[str]:
    names = given.replace(",", " ").split()
    unknown = [name for name in names if name not in there]
    if unknown or (what == "work" and not names):
        raise typer.BadParameter(f"there is no {what} {' '.join(unknown)!r}; there are {', '.join(there)}")
    return [name for name in there if name in names]


def _measured(plan: Plan, works: list[str], out: Path) -> dict[str, Any]:
    """After each work all that was measured so far is written: what takes an hour is not lost by its last minute."""
    written: dict[str, Any] = {
        "settings": {"rounds": plan.rounds, "rows": plan.rows, "jobs": plan.jobs},
        "machine": machine(),
        "versions": versions(plan.peers),
        "load_start": load(),
        "figures": [],
    }
    with Contest(plan) as contest:
        for name in works:
            started = time.monotonic()
            written["figures"] += [figure.written() for figure in WORKS[name](contest)]
            written["load_end"] = load()
            _write(written, out, publish=False)
            _tell(f"{name}: done in {time.monotonic() - started:.0f} s")
    return written


def _write(written: dict[str, Any], out: Path, publish: bool) -> None:
    figures = [figure_of(each) for each in written["figures"]]
    found = ratios(figures)
    written["targets"] = [{**asdict(each), "reached": each.reached} for each in found]
    bars = svg(figures, note(written["machine"]))
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers.json").write_text(json.dumps(written, indent=1) + "\n")
    (out / "peers.svg").write_text(bars)
    (out / "peers.html").write_text(page(figures, found, written["machine"], written["versions"]))
    if publish:
        PUBLISHED.write_text(bars)


def _print(figures: list[Figure], found: list[Ratio]) -> None:
    bars, targets, left = (Table(box=box.SIMPLE_HEAD) for _ in range(3))
    for table, columns in (
        (bars, ("work", "who", "n", "median", "least", "most")),
        (targets, ("work", "Millrace", "beside", "ratio", "at most", "")),
        (left, ("work", "left out", "reason")),
    ):
        for column in columns:
            table.add_column(column, overflow="fold")
    for figure in figures:
        for bar in figure.bars:
            cells = map(seconds, (bar.median, min(bar.seconds), max(bar.seconds)))
            bars.add_row(figure.name, bar.label, str(len(bar.seconds)), *cells)
        for each in figure.left_out:
            left.add_row(figure.name, each.label, each.reason)
    for each in found:
        mark = f"[bold red]{each.verdict}[/]" if each.reached is False else each.verdict
        ratio = "" if each.ratio is None else f"{each.ratio:.2f} x"
        targets.add_row(each.figure, each.ours, each.peer, ratio, f"{each.most:.2f} x", mark)
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in (bars, targets, left):
        console.print(table)


def _tell(line: str) -> None:
    typer.echo(line, err=True)


if __name__ == "__main__":
    app()
