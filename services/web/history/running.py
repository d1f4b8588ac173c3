"""The one place where the parts of a history are put together."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable

import structlog

from millrace import __version__
from millrace.io.addresses import joined
from millrace.io.http.server import CannotListen, HttpServer, keep_renewed
from millrace.io.storage.store import Storage, StorageError
from millrace.runtime import logs
from millrace.runtime.signals import on_stop

from ..access.guard import login_of
from ..access.tokens import BadTokens
from ..app import application
from ..commands import Commands
from ..ending import Ending
from ..kept import Kept
from ..middleware import REQUESTS_MOST, STREAMS_MOST
from ..page import page
from ..processes import Processes
from ..view import View
from .archives import Archives
from .client import Past
from .rows import PackedRows
from .settings import HistorySettings
from .spark_events import SparkEvents

log = structlog.get_logger("history")


def run(settings: HistorySettings, up: Callable[[str], None] = lambda url: None) -> int:
    """Serves until it is asked to end; `up` is given the address. The exit code, with the reason on standard error if it cannot begin."""
    try:
        return _run(settings, up)
    except (BadTokens, CannotListen, StorageError) as bad:
        log.critical("the process ends", reason=str(bad))
        print(f"history: {bad}", file=sys.stderr)
        return 2


def _run(settings: HistorySettings, up: Callable[[str], None]) -> int:
    """Raises BadTokens, CannotListen, StorageError."""
    logs.configure(
        settings.service, settings.log_format, settings.log_level, instance=settings.instance, secrets=settings.secret_values(),
    )  # fmt: skip
    log.info("starts", version=__version__, pid=os.getpid(), settings=settings.describe())
    stopping = Ending()
    on_stop(stopping.set)
    storage = Storage(settings.storage_url)
    view = View(PackedRows(), {}, settings.retained_jobs, past=re.sub(r"(?<=://)[^/@\s]*@", "***@", storage.url))
    events = SparkEvents(storage, settings.spark_events) if settings.spark_events is not None else None
    archives = Archives(view, storage, settings.retained_jobs, events)
    commands = Commands(lambda: Past(view, storage))
    shown = {f"millrace.{name}": str(value) for name, value in settings.describe().items()}
    access, login = settings.access, login_of(settings.access)
    processes, kept = Processes(commands, storage), Kept(view, commands, storage)
    screens = page(
        view, archives.state, commands, processes, lambda key: None, settings.cluster, login=login, spark_history=settings.spark_history,
        kept=kept,
    )  # fmt: skip
    api = application(
        view, archives.state, commands, settings.host, settings.allowed_hosts, shown, settings.flink_dashboard, storage, screens,
        login, access, settings.spark_history, processes, kept=kept,
    )  # fmt: skip
    server = HttpServer(
        api, settings.host, settings.port, name="api", most_connections=STREAMS_MOST + 2 * REQUESTS_MOST,
        certificate=access.certificate, key=access.key, fatal=stopping.fail,
    )  # fmt: skip
    port = server.start()
    if access.certificate:
        keep_renewed(server, stopping)
    settings.write_ready(port=port)
    up(f"http{'s' if access.certificate else ''}://{joined(settings.host, port)}")
    try:
        wait_s = 0.0
        while not stopping.wait(wait_s):
            wait_s = archives.look(stopping.is_set)
    except Exception as failure:
        stopping.fail(f"{type(failure).__name__}: {failure}", trace=True)
    server.stop()
    commands.close()
    archives.close()
    log.info("stopped")
    return 1 if stopping.failed else 0
