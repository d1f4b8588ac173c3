"""`millrace run-application`: one job with a cluster of its own, which ends with it."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from millrace.cli.environment import EnvFileOption, EnvOption, variables
from millrace.cli.exits import Exit
from millrace.cli.options import pairs

if TYPE_CHECKING:
    from deploy.local.stack import Options, Stack
    from millrace.edge.graph_file import Loaded

PREFIX = "application-"
KEPT = "kept"
"""A file in the folder of a cluster that is to stay."""
YOUNG_S = 300.0  # a folder without a supervisor
CANCEL_S = 20.0  # for the job's end, when it is interrupted; what still runs then is killed


def run_application(
    graph: Annotated[Path, typer.Argument(metavar="GRAPH.yaml", help="What to run.", show_default=False)],
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A value for the graph's ${NAME}; may be repeated."),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="Slots: so many attempts run at once.")] = 2,
    cores: Annotated[int | None, typer.Option(min=1, max=64, help="Threads of each slot (default: as many as cores).")] = None,
    heap_mb: Annotated[int | None, typer.Option(min=512, help="Heap of each slot's JVM, in MB (default: by the machine's memory).")] = None,
    python: Annotated[str | None, typer.Option(help="Python that runs it; it needs PySpark 4.2 (default: millrace's own).")] = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Neither progress nor what it writes, only the result and errors.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the folder, with logs, results and what happened.")] = False,
) -> None:
    """Run a graph with Kafka, etcd and services of its own, which end with it.

    Shows how it goes, then its result. Ports and folders are its own, so any number may run side by side. Ctrl-C and SIGTERM cancel the
    job, and end all. Nothing is left behind: no process, and no folder unless --keep. What sinks have published stays where it is.

    Exit codes: 0 FINISHED, 1 FAILED, 2 the graph is wrong, 3 the services do not start or do not answer, 4 outcome unknown, 5 CANCELED,
    130 interrupted. Of a script that ended with an exit code of its own: that one.
    """
    from deploy.local.errors import LocalError
    from deploy.local.java import find_java
    from deploy.local.stack import Options, Stack, home
    from millrace.cli.submit import check_loaded
    from millrace.edge.graph_file import load_graph

    parameters = pairs(parameter, "-p")
    loaded = load_graph(graph, parameters, env=variables(env, env_file))
    check_loaded(loaded)  # what cannot work is said before anything is started
    find_java()
    _sweep(home() / "stacks")
    local = Stack(f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}")  # a number alone may come back: in a container it does each time
    options = Options(slots=slots, cores=cores, heap_mb=heap_mb, python=python or "")
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _interrupt)
    try:
        code = _run(local, options, loaded, parameters, quiet)
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    except LocalError as failure:
        raise LocalError(f"{failure}{'' if keep else ' Its folder is deleted; with --keep it stays.'}", failure.detail) from failure
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it ends already
        if keep and local.folder.exists():
            (local.folder / KEPT).touch()  # before it is down: others delete what nobody holds
        local.down(purge=not keep)
        if keep and local.folder.exists():
            print(f"kept: {local.folder}; look at it: millrace history --storage {local.folder / 'storage'}", file=sys.stderr)
    raise typer.Exit(code)


def _run(local: Stack, options: Options, loaded: Loaded, parameters: dict[str, str], quiet: bool) -> int:
    """The exit code that tells how the job ended."""
    from millrace.cli.connection import ANSWER_S
    from millrace.cli.submit import follow, send
    from millrace.client import Millrace

    report: Callable[[str], None] = _print_nothing if quiet else _print_line
    facts = local.up(options, report, foreground=True)
    for warning in facts.get("warnings", []):
        report(f"note: {warning}")
    with Millrace(facts["kafka_bootstrap"], token=local.token(), timeout_s=ANSWER_S) as millrace:  # whatever the environment names
        job = send(millrace, loaded, parameters, None, True)
        code = follow(millrace, job, local.name, lives_on=False, graph=loaded.raw, quiet=quiet)
        if code == Exit.INTERRUPTED:
            from millrace.client import MillraceError

            try:
                millrace.cancel(job.id)
                _print_line(f"job {job.id} is {millrace.wait(job.id, CANCEL_S).status}")
            except (MillraceError, TimeoutError) as failure:
                _print_line(f"job {job.id} ends with its services: {failure}")
    return code


def _sweep(stacks: Path) -> None:
    """Deletes the folders of applications that were killed with SIGKILL: nobody could then."""
    import psutil

    for folder in stacks.glob(f"{PREFIX}*"):
        number = folder.name.removeprefix(PREFIX).partition("-")[0]
        gone = number.isdecimal() and (int(number) == os.getpid() or not psutil.pid_exists(int(number)))  # ours has no folder yet
        if gone and not (folder / KEPT).exists() and not _runs(folder.name):
            _delete_unless_held(folder)


def _delete_unless_held(folder: Path) -> None:
    """Its supervisor holds the lock. Another container, or host, may share the folder: process numbers of there say nothing here."""
    with suppress(OSError):
        if not (folder / "lock").exists() and time.time() - folder.stat().st_mtime < YOUNG_S:
            return  # its supervisor comes
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _interrupt(*_: object) -> NoReturn:
    """Not by raising SIGINT: what a shell starts in the background ignores that."""
    raise KeyboardInterrupt


def _runs(name: str) -> bool:
    from deploy.local.stack import Stack

    return Stack(name).supervisor() is not None


def _print_nothing(line: str) -> None: ...


def _print_line(line: str) -> None:
    typer.echo(line, err=True)
