"""`python -m tests.chaos`: a stack with standbys under load and hostile requests, killed at random; nothing may be lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from deploy.local.downloads import CHECKOUT

from .run import run

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command(context_settings={"help_option_names": ["-h", "--help"]})
def chaos(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long faults are done.")] = 3.0,
    seed: Annotated[
        int | None, typer.Option(help="What faults and jobs are drawn from; drawn and printed without.")
    ] = None,
    spark: Annotated[bool, typer.Option("--spark", help="Slots with Spark; without, attempts only take time.")] = False,
    grows: Annotated[
        bool, typer.Option("--grows", help="Agents start and stop the TaskManagers as slots are short; agents are killed, too.")
    ] = False,
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Export all logs at the end, for millrace replay.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Go on until so many jobs were accepted, and send them faster.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack's folder also when all is well.")] = False,
) -> None:
    """Start a stack of its own with a standby for each service, give it jobs, also hostile ones, and kill, stop and cut off its parts.

    Then everything is left alone, every accepted job must end, every hostile request must be answered or parked, what
    was recorded in public is checked, no process may have ended by itself, and all inboxes must fold again to the same
    words. The same seed does the same things in the same order; when they meet what is not the seed's. Exit code 1 if
    anything was lost, doubled or contradictory, or ended a process: the evidence is printed, and the stack's folder is left.
    """
    if spark and grows:
        raise typer.BadParameter("the slots of TaskManagers that come and go are without Spark", param_hint="--grows")
    os.environ.setdefault("MILLRACE_HOME", str(CHECKOUT / "build" / "chaos"))
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    started = time.monotonic()

    def say(line: str) -> None:
        typer.echo(f"{time.monotonic() - started:7.1f} s  {line}")

    more = (" --spark" if spark else "") + (" --grows" if grows else "") + (f" --jobs {jobs}" if jobs else "")
    say(f"seed {seed}: python -m tests.chaos --minutes {minutes:g} --seed {seed}{more}")
    passed = run(minutes, seed, spark, say, keep, jobs, record, grows)
    say("nothing was lost or doubled" if passed else f"FAILED with seed {seed}")
    raise typer.Exit(0 if passed else 1)


if __name__ == "__main__":
    app()
