"""The whole program: the commands of the client library, and those of a checkout."""

from __future__ import annotations

from millrace.cli.app import app, guarded, run, unwrap

from . import doctor, replay, stack_commands, token
from .agent import agent
from .application import run_application
from .dlq.commands import dlq
from .history import history

__all__ = ["app", "guarded", "run"]

app.info.help = (
    "Run PySpark jobs on a Millrace cluster.\n\nStart a local one with [bold]millrace up[/bold], then "
    "[bold]millrace submit examples/hello.yaml --wait[/bold]."
)
app.add_typer(dlq, rich_help_panel="The cluster")
app.add_typer(replay.app, name="replay", rich_help_panel="The cluster")
app.add_typer(token.app, name="token", rich_help_panel="The cluster")
stack_commands.register(app)
app.command("run-application", rich_help_panel="Jobs")(run_application)
app.command(rich_help_panel="The cluster")(history)
app.command(rich_help_panel="The cluster")(agent)
for command in (doctor.doctor, doctor.bundle):
    app.command(rich_help_panel="Operating")(command)
unwrap(app)
