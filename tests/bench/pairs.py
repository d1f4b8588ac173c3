"""`python -m tests.bench.pairs CHECKOUT`: another checkout's build and this one beside each other, one job at a time.

`builds` measures one, then the other: what a machine does meanwhile is in one of them alone. Here both stacks stand, and rest while the
other one has a few jobs. So a machine that gets slower, or does other things for a minute, is slower for both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from deploy.local.downloads import CHECKOUT

from .builds import table
from .figures import p50

WORKER = """
import sys
from tests.bench.clusters import cluster
from tests.bench.running import submit

simulated = sys.argv[1] == "simulated"
with cluster("pairs", lambda *said: print(*said, file=sys.stderr), slots=2 if simulated else 1, simulated=simulated) as running:
    for line in sys.stdin:
        found = []
        for _ in range(int(line)):
            found.append(submit(running))
            if not simulated:
                running.settle()
        print(found, flush=True)
"""
"""Runs in each checkout, with its own code. Line by line it is told how many jobs to submit."""
WARM_UP, AT_A_TURN = 40, 3
REST_S = 0.06  # what follows the end of a job is over when the other stack has one
ACCEPTED, RUNNING = "submit -> accepted", "submit -> RUNNING"

app = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False)


class Side:
    """One of the two: a process that runs its checkout's code, and its stack."""

    def __init__(self, checkout: Path, home: Path, slots: str) -> None:
        command = [str(checkout / ".venv/bin/python"), "-c", WORKER, slots]
        environment = {**os.environ, "MILLRACE_HOME": str(home), "PYTHONPATH": f"{checkout}:{checkout / 'shared'}"}
        self._checkout = checkout
        # Ctrl-C reaches the measuring process alone; this one ends its stack when nothing more comes.
        self._process = subprocess.Popen(
            command, cwd=checkout, env=environment, text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.accepted_ms: list[float] = []
        self.running_ms: list[float] = []

    def submit(self, jobs: int) -> list[list[float]]:
        """Seconds until each was accepted, and until RUNNING was seen."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{jobs}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the stack of {self._checkout} has ended: what it has printed says why")
        found: list[list[float]] = json.loads(line.replace("(", "[").replace(")", "]"))
        return found

    def turn(self) -> None:
        """A few jobs; the first one finds what the processor has forgotten meanwhile, and does not count."""
        for accepted_s, running_s in self.submit(AT_A_TURN)[1:]:
            self.accepted_ms.append(1000 * accepted_s)
            self.running_ms.append(1000 * running_s)

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


@app.command(
    help="Measure another checkout's code and this one's beside each other: from a submission to its answer, and to RUNNING.\n\n"
    "The other checkout has a .venv of its own: `make setup` there makes it. Exit codes: 0, 130 after Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def pairs(
    other: Annotated[Path, typer.Argument(metavar="CHECKOUT", help="The other checkout.", exists=True, file_okay=False)],
    turns: Annotated[int, typer.Option(min=1, max=10_000, help="How often each is asked, for two jobs that count.")] = 150,
    real: Annotated[bool, typer.Option("--real", help="Real slots: one each.")] = False,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        try:
            for number, checkout in enumerate((other.resolve(), CHECKOUT)):
                print(f"the stack of {checkout} starts", file=sys.stderr, flush=True)
                side = Side(checkout, Path(folder) / str(number), "real" if real else "simulated")
                sides.append(side)
                side.submit(WARM_UP)
            for number in range(turns):
                if number % 25 == 0:
                    print(f"turn {number} of {turns}", file=sys.stderr, flush=True)
                for side in sides if number % 2 else sides[::-1]:
                    side.turn()
                    time.sleep(REST_S)
        finally:
            for side in sides:
                side.close()
    before, after = (found(side) for side in sides)
    Console(width=None if sys.stdout.isatty() else 200).print(table(before, after))


def found(side: Any) -> dict[str, list[tuple[float, str]]]:
    """As `builds` has what it has measured."""
    return {ACCEPTED: [(round(p50(side.accepted_ms), 1), "ms")], RUNNING: [(round(p50(side.running_ms), 1), "ms")]}


if __name__ == "__main__":
    app()
