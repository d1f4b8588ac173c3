"""`millrace agent`: runs TaskManagers of a cluster on this host, as its ResourceManager asks for them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

Readable = {"exists": True, "dir_okay": False, "resolve_path": True, "metavar": "FILE"}


def agent(
    config: Annotated[
        Path, typer.Option(help="Settings of its TaskManagers, as python -m services.task_manager takes them.", **Readable)
    ],
    token_file: Annotated[
        Path, typer.Option(help="Has the token that the ResourceManager's setting agent_token has.", **Readable)
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; for a ResourceManager elsewhere, one that it reaches.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port there; 0 takes a free one.")] = 0,
    logs: Annotated[
        Path, typer.Option(file_okay=False, resolve_path=True, metavar="FOLDER", help="Logs of its TaskManagers.")
    ] = Path("logs"),
    most: Annotated[int, typer.Option(min=1, max=1000, help="TaskManagers at most.")] = 16,
) -> None:
    """Run TaskManagers on this host when a cluster's slots are short, and stop them when they are idle.

    In the foreground until Ctrl-C or SIGTERM, which ends its TaskManagers too. The ResourceManager is given the addresses of all agents,
    one for each host, in the setting agents, with provider: process. It starts the next TaskManager where most room is. An agent
    serves the cluster that asks it first, and refuses any other one: LOGS/cluster has its uuid.
    """
    from deploy.agent import Agent, TaskManagerProcess
    from deploy.agent_http import served
    from deploy.local.downloads import CHECKOUT
    from deploy.local.processes import CUT_LOGS_S, Child, cut_log, put_aside, spawn
    from millrace.io.addresses import SHORTEST_TOKEN, is_loopback, joined
    from millrace.io.http.server import CannotListen, HttpServer
    from millrace.runtime.signals import on_stop

    token = token_file.read_text().strip()
    if not token or (not is_loopback(host) and len(token) < SHORTEST_TOKEN):
        message = f"it must have a token, of {SHORTEST_TOKEN} characters at least where other machines reach the agent"
        raise typer.BadParameter(message, param_hint="--token-file")
    logs.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}

    children: dict[str, Child] = {}

    def start(name: str) -> TaskManagerProcess:
        log, before = logs / f"{name}.log", children.get(name)
        put_aside(log, before.exit_code() if before is not None else None)
        command = [sys.executable, "-m", "services.task_manager", "--config", str(config), "--id", name, "--instance", name]
        # The next agent lists none of those that this one leaves: what takes its time to end, or hangs, would be there twice
        children[name] = spawn(command, log=log, env=env, cwd=logs, death_signal=signal.SIGKILL)
        return TaskManagerProcess(children[name])

    runs = Agent(start, most=most, claim=logs / "cluster")
    stopping = threading.Event()
    on_stop(stopping.set)
    try:
        number = HttpServer(served(runs, token), host, port, name="agent").start()
    except CannotListen as failure:
        raise typer.BadParameter(str(failure), param_hint="--port") from None
    typer.echo(f"agent at http://{joined(host, number)}; Ctrl-C stops it, and its TaskManagers", err=True)
    while not stopping.wait(CUT_LOGS_S):
        for child in list(children.values()):
            cut_log(child.log)
    runs.end()
