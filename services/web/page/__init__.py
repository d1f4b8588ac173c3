"""The page: server-rendered HTML over the tables of the web service. It changes nothing by itself; actions go as anyone's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter

from millrace.io.interfaces import Entry

from ..commands import Commands
from ..follow import Follows
from ..kept import Kept
from ..processes import Processes
from ..view import View
from .actions import actions
from .cluster_actions import cluster_actions
from .processes import process_pages
from .reads import Reads
from .rescaling import rescaling
from .routes import pages, past_pages
from .schedules import schedule_pages
from .shell import Shell

if TYPE_CHECKING:
    from ..access.login import Login


def page(
    view: View,
    follows: Callable[[], Follows],
    commands: Commands,
    processes: Processes,
    stored: Callable[[str], Entry | None],
    cluster: str = "default",
    stack: str = "",
    login: Login | None = None,
    spark_history: str = "",
    kept: Kept | None = None,
) -> APIRouter:
    """All screens and forms; of a history those of jobs alone.

    stored: what etcd holds of a job, by its key. stack: the option that names the stack in commands. login: None where everybody may do
    everything. spark_history: the address of a Spark history server. kept: what jobs left in storage; None: in that of `processes`."""
    shell = Shell(view, follows, cluster, stack, login.form_key if login is not None else b"")
    reads = Reads(commands, kept or Kept(view, commands, processes.storage, stored), stored, spark_history)
    router = APIRouter()
    if login is not None:
        from .login import logins

        router.include_router(logins(shell, login))
    if view.past:
        router.include_router(past_pages(shell, view, reads))
        return router
    router.include_router(pages(shell, view, reads))
    router.include_router(process_pages(shell, view, processes))
    router.include_router(schedule_pages(shell, commands, stack))
    router.include_router(actions(shell, view, commands, reads, stack))
    router.include_router(rescaling(shell, commands, stack))
    router.include_router(cluster_actions(shell, view, commands, stack))
    return router
