"""`python -m services.web`: the one place where the web service's parts are put together."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog

from millrace import __version__
from millrace.client import Millrace
from millrace.client.audit import TOPIC as AUDIT
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.http.server import HttpServer, keep_renewed
from millrace.io.interfaces import Unavailable
from millrace.io.kafka.bus import KafkaBus
from millrace.io.kafka.logs import KafkaLogs
from millrace.io.storage.store import Storage
from millrace.runtime import logs
from millrace.runtime.asked import Questions
from millrace.runtime.exposition import watched
from millrace.runtime.identity import OtherCluster, check
from millrace.runtime.inspection import Inspector
from millrace.runtime.service import read_topology, store_of
from millrace.runtime.signals import on_stop

from . import parcel
from .access.audit import Recorder
from .access.guard import login_of
from .access.tokens import BadTokens
from .app import application
from .commands import TIMEOUT_S, Commands
from .ending import Ending
from .follow import Following, Follows
from .kept import Kept
from .middleware import REQUESTS_MOST, STREAMS_MOST
from .page import page
from .processes import Processes
from .settings import WebSettings
from .state import readings
from .view import View
from .worker import TOPICS, make, places, read_again

if TYPE_CHECKING:
    pass

STOP_MOST_S = 3.0
LOOK_S = 0.5
FILES_OF_ITS_OWN = 200
SWITCH_S = 0.001
"""For so long one thread keeps the other from going on: one folds facts, the other answers. Python's own 5 ms are an event's whole way."""

log = structlog.get_logger("web")


def main() -> int:
    sys.setswitchinterval(SWITCH_S)
    settings = WebSettings.load_or_exit()
    logs.configure(
        settings.service, settings.log_format, settings.log_level,
        instance=settings.instance, secrets=settings.secret_values(),
    )  # fmt: skip
    log.info("starts", version=__version__, pid=os.getpid(), settings=settings.describe())
    stopping = Ending()
    on_stop(stopping.set)
    store, kafka = store_of(settings), KafkaLogs(settings.kafka_bootstrap, client_id=settings.instance)
    try:
        topology = _await_cluster(store, kafka, settings, stopping)
    except OtherCluster as other:
        store.close()
        return _ends(str(other))
    if topology is None:
        store.close()
        return 0
    access = settings.access
    try:
        login = login_of(access)
    except BadTokens as bad:
        store.close()
        return _ends(str(bad))
    parcel.sweep(f"{settings.kafka_bootstrap} {settings.instance}")
    app, view = make(settings, topology)
    following = Following(view, places(topology), kafka.ends)
    following.start()
    health = watched(settings, lambda: _health(app, view, following.state()), lambda: readings(view, following.state))
    commands = Commands(lambda: _client(settings), lambda: following.state().kafka_away, recorder=Recorder(must=login is not None))
    storage = Storage(settings.storage_url)
    processes, kept = Processes(commands, storage, settings.instance), Kept(view, commands, storage, store.get)
    bus = KafkaBus(settings.kafka_bootstrap, client_id=settings.instance, on_fatal=_no_more_answers)
    questions = Questions(bus, topology, settings.instance, Inspector(settings.service, storage, settings.effective), alone=True)
    questions.start()
    shown = {f"millrace.{name}": str(value) for name, value in settings.describe().items()}
    stack = f" --stack {settings.stack}" if settings.stack else ""
    screens = page(view, following.state, commands, processes, store.get, settings.cluster, stack, login, settings.spark_history, kept)
    api = application(
        view, following.state, commands, settings.host, settings.allowed_hosts, shown, settings.flink_dashboard,
        storage, screens, login, access, settings.spark_history, processes, store.get,
        settings.metrics_fetch_interval_ms, kept,
    )  # fmt: skip
    unchecked = login is None and access.requests_per_s is None  # else each request is somebody's, and counted
    server = HttpServer(
        api, settings.host, settings.port, name="api", most_connections=_most_connections(), certificate=access.certificate, key=access.key,
        again=api.state.answers.again if unchecked else None, fatal=stopping.fail,
    )  # fmt: skip
    try:
        ports = {"health_port": health.start(), "port": server.start()}
        if access.certificate:
            keep_renewed(server, stopping)
        asyncio.run(_work(app, stopping, lambda: settings.write_ready(**ports), following))
    except Exception as failure:
        stopping.fail(f"{type(failure).__name__}: {failure}")
    server.stop()
    questions.stop()
    commands.close()
    bus.close()
    store.close()
    health.stop()
    following.stop()
    log.info("stopped")
    return 1 if stopping.failed else 0


def _most_connections() -> int:
    """As many as there may be streams and requests at once, if the system allows so many."""
    wanted = STREAMS_MOST + 2 * REQUESTS_MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = max(soft, wanted + FILES_OF_ITS_OWN)
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return min(wanted, max(files - FILES_OF_ITS_OWN, files // 2))


def _ends(reason: str) -> int:
    log.critical("the process ends", reason=reason)
    print(f"web: {reason}", file=sys.stderr)
    return 2


def _no_more_answers(reason: str) -> None:
    log.error("this process answers no questions about itself any more", reason=reason)


def _client(settings: WebSettings) -> Millrace:
    return Millrace(settings.kafka_bootstrap, token=settings.blob_token.get_secret_value(), timeout_s=TIMEOUT_S)


def _await_cluster(store: EtcdStore, kafka: KafkaLogs, settings: WebSettings, stopping: threading.Event) -> Topology | None:
    """Waits for etcd, Kafka and the provisioning, and says so; then what is there. None: asked to stop meanwhile. Raises OtherCluster."""
    logged_s = 0.0
    while not stopping.is_set():
        try:
            topology = read_topology(store)
            check(kafka, store, None, settings.cluster)
            for topic in (*TOPICS, AUDIT):
                kafka.log_id(topic)
            return topology
        except Unavailable as failure:
            if time.monotonic() - logged_s > 5:
                logged_s = time.monotonic()
                log.warning("waiting", reason=str(failure))
            stopping.wait(0.1)
    return None


async def _work(app: Any, stopping: Ending, ready: Callable[[], None], following: Following) -> None:
    """Runs the worker until it is asked to stop, and reads again what it passed over. Raises what ended it, if it ends by itself."""
    starting = asyncio.ensure_future(app.start())
    while not starting.done() and not stopping.is_set():  # a Kafka that hangs is waited for, and for longer than anybody waits for an end
        await asyncio.wait({starting}, timeout=LOOK_S)
    if starting.done():
        starting.result()
        ready()
    while not stopping.is_set() and not app.crashed:
        await asyncio.sleep(LOOK_S)
        try:
            following.went_back(await asyncio.wait_for(read_again(app.consumer, following.passed_over()), LOOK_S))
        except Exception as failure:  # Kafka hangs, or it joins its group anew at this moment: it is said again, a little later
            log.warning("what was passed over is not read yet", reason=repr(failure))
    log.info("stops", reason=repr(app.crash_reason) if app.crashed else "a part failed" if stopping.failed else "asked to")
    try:
        await asyncio.wait_for(app.stop(), STOP_MOST_S)
    except asyncio.TimeoutError:
        log.warning("the worker did not stop in time: it reads some records again when it is started")
    if app.crashed:
        raise RuntimeError(f"the worker failed: {app.crash_reason!r}")


def _health(app: Any, view: View, follows: Follows) -> dict[str, Any]:
    _, as_of = view.ask(lambda _: None)
    status = "the worker failed" if app.crashed else follows.trouble or "ok"
    return {"status": status, "ready": view.ready, "as_of": as_of, "last_fold_s": round(follows.folded_s, 1)}


if __name__ == "__main__":
    sys.exit(main())
