"""The program of the client library: the commands about jobs, and what becomes of errors. `deploy.cli` adds the others."""

from __future__ import annotations

import inspect
import os
import re
import signal
import sys
import threading
from collections.abc import Callable

import typer

from . import blocking, cluster, jobs
from .again import run_again
from .audit import audit
from .backfill import backfill
from .exits import Exit, code_of, message_of
from .files import files
from .inspect import inspect as inspect_job
from .process import describe, services, settings
from .repair import repair
from .rescale import rescale
from .schedules import schedule
from .schema import schema
from .submit import SubmitCommand, submit
from .validate import validate

app = typer.Typer(
    name="millrace",
    help="Run PySpark jobs on a Millrace cluster.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(cls=SubmitCommand, rich_help_panel="Jobs")(submit)
app.command("run-again", rich_help_panel="Jobs")(run_again)
app.add_typer(schedule, rich_help_panel="Jobs")
PANELS: dict[str, list[Callable[..., None]]] = {
    "Jobs": [
        repair, backfill, jobs.list_jobs, jobs.queue, jobs.show, jobs.result, jobs.logs, inspect_job, rescale, jobs.cancel, jobs.events,
        files, validate,
    ],
    "The cluster": [
        cluster.taskmanagers, cluster.slots, blocking.block, blocking.unblock, blocking.blocked, services, describe, settings,
        cluster.deregister, cluster.shutdown, audit, schema,
    ],
}
for panel, commands in PANELS.items():
    for command in commands:
        app.command(command.__name__.removesuffix("_jobs"), rich_help_panel=panel)(command)


def unwrap(commands: typer.Typer) -> None:
    """Lets the paragraphs of every help text flow: Typer breaks all but the first where their source is broken."""
    for command in commands.registered_commands:
        command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.getdoc(command.callback) or "")
    for group in commands.registered_groups:
        assert group.typer_instance is not None
        unwrap(group.typer_instance)


unwrap(app)


def _print_version(asked: bool) -> None:
    if asked:
        from millrace import __version__

        typer.echo(f"millrace {__version__}")
        raise typer.Exit


@app.callback()
def _millrace(
    version: bool = typer.Option(
        False, "--version", help="Print the version and end.", is_eager=True,
        callback=_print_version,  # and not the body: without a command that is not reached
    ),  # fmt: skip
) -> None:
    pass


def run() -> None:
    """Runs a command; an error is one sentence, and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was started with this one closed: what opens a file next must not get its number
            setattr(sys, name, open(os.devnull, "w"))
        getattr(sys, name).reconfigure(errors="replace")  # a row that the terminal's encoding cannot show
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it was started to ignore it
        signal.signal(signal.SIGINT, _interrupt)
    sys.exit(guarded(app))


_interrupted = threading.Event()


def _interrupt(*_: object) -> None:
    _interrupted.set()
    raise KeyboardInterrupt


def guarded(program: Callable[[], object]) -> int:
    """The exit code of a program of this command line; errors that a user can do something about are printed."""
    try:
        program()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as failure:
        if _interrupted.is_set():  # a library has made another error of it, as pydantic does while it builds a model
            return Exit.INTERRUPTED
        code = code_of(failure)
        if code is None:
            raise
        print(message_of(failure), file=sys.stderr)
        return code
    return 0

