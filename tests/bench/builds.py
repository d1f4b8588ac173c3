"""`python -m tests.bench.builds CHECKOUT [NAME ...]`: measures another checkout's build and this one by turns, in one run."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from deploy.local.downloads import CHECKOUT

from .figures import p50

NAMES = ("running", "burst", "sql", "flights", "memory", "idle")
RATE = "a second"  # of which more is better
Found = dict[str, list[tuple[float, str]]]

app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)


@app.command(
    help="Measure the same figures with another checkout's code and with this one's, by turns.\n\n"
    "The other checkout has a .venv of its own: `make setup` there makes it. Each figure is measured by its checkout's own benchmark, "
    "in a MILLRACE_HOME of its own. Prints the medians of all rounds, and how many times the other build's the new one is: below 1 is "
    "better for times and sizes, above 1 for rates. After Ctrl-C it prints what it has. Exit codes: 0, 1 if a figure could not be "
    "measured, 130 after Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def builds(
    other: Annotated[Path, typer.Argument(metavar="CHECKOUT", help="The other checkout.", exists=True, file_okay=False)],
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME ...]", help=f"Figures; {' '.join(NAMES)} without.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="How often each is measured.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Few samples: to see that it works, not for figures.")] = False,
) -> None:
    found: tuple[Found, Found] = {}, {}
    failed = []
    turns = itertools.product(names or NAMES, range(rounds), enumerate((other.resolve(), CHECKOUT)))
    code = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        for name, number, (which, checkout) in turns:
            code = 130  # until it is measured
            print(f"{name}: round {number + 1} of {rounds}, {checkout}", file=sys.stderr, flush=True)
            rows = _measured(checkout, name, quick, Path(folder) / str(which))
            if rows is None:
                failed.append(f"{name} in {checkout}")
            for label, value, unit in rows or ():
                found[which].setdefault(label, []).append((value, unit))
            code = 0
    Console(width=None if sys.stdout.isatty() else 200).print(table(*found))
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    raise typer.Exit(code or int(bool(failed)))


def _measured(checkout: Path, name: str, quick: bool, folder: Path) -> list[tuple[str, float, str]] | None:
    """Label, value and unit of each row; None if it could not be measured."""
    command = [str(checkout / ".venv/bin/python"), "-m", "tests.bench", name, "--out", str(folder), *(["--quick"] if quick else [])]
    home = folder.with_name(f"home{folder.name}")
    environment = {**os.environ, "MILLRACE_HOME": str(home)}
    # Ctrl-C reaches this process alone, which lets that one stop its stack.
    process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if process.returncode:
        return None
    return rows_of(json.loads((folder / f"{name.replace('/', '-')}.json").read_text())["rows"])


def rows_of(rows: list[dict[str, str]]) -> list[tuple[str, float, str]]:
    """Label, value and unit of each row of a figure; a row whose value is no number is left out."""
    found = []
    for row in rows:
        if match := re.search(r"(\d[\d,]*\.?\d*) ?(.*)", row["p50"]):
            found.append((row["figure"], float(match[1].replace(",", "")), match[2]))
    return found


def table(before: Found, after: Found) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("figure", "other build", "this build", "ratio", ""):
        table.add_column(column)
    for label in {**before, **after}:
        old, new = ([value for value, _ in side.get(label, ())] for side in (before, after))
        unit = (before.get(label) or after[label])[0][1]
        ratio = f"{p50(new) / p50(old):.2f} x" if old and new and p50(old) else ""
        middles = (f"{p50(each):,g} {unit}" if each else "-" for each in (old, new))
        table.add_row(label, *middles, ratio, "more is better" if RATE in unit else "")
    return table


if __name__ == "__main__":
    app()
