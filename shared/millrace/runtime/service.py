"""A control service's process: its scopes, its lease, its end. The one order of starting and stopping."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from millrace import __version__
from millrace.core.balance import given_away
from millrace.core.topics import Topology, second_producer_topics
from millrace.io.etcd.store import EtcdStore
from millrace.io.interfaces import Entry, Store, Unavailable
from millrace.io.kafka.bus import KafkaBus
from millrace.io.storage.store import Storage, StorageError

from . import logs, readings, shut_down, traces
from .asked import Questions
from .beat import TURNED_MOST_MS, Beat
from .build import build_of
from .exposition import watched
from .forked import await_children
from .hosting import Hosted, Surroundings
from .identity import NotProvisioned, OtherCluster, check
from .inspection import Inspector
from .loop import ScopeLoop
from .settings import ServiceSettings
from .signals import on_stop

STOP_MOST_S = 4.0
BALANCE_S = 5.0  # between two looks whether others should lead some of this process's scopes

log = structlog.get_logger("service")


class Closed(Unavailable):
    """The cluster is shut down."""


class TopologyMissing(NotProvisioned):
    """etcd holds no topology: the cluster was not provisioned."""


def store_of(settings: ServiceSettings) -> EtcdStore:
    return EtcdStore(settings.etcd_endpoint, f"/millrace/{settings.cluster}/", answered=readings.etcd_answered)


def read_topology(store: Store) -> Topology:
    """What is fixed for the cluster. Raises Unavailable, TopologyMissing."""
    entry = store.get("topology")
    if entry is None:
        raise TopologyMissing("etcd holds no topology of this cluster: run `python -m deploy.provision` once")
    return Topology(**json.loads(entry.value))


def balance(me: str, loops: Sequence[ScopeLoop]) -> None:
    """Gives one of this process's scopes away if another process leads too few of them."""
    standings = [loop.standing() for loop in loops]
    if None not in standings:
        scope = given_away(me, [each for each in standings if each is not None])
        for loop in loops:
            if loop.scope == scope:
                loop.give_away()


class Process:
    """Runs hosted machines until a signal or a fatal failure. Exit code: 0 after a clean stop, 1 after a failure."""

    def __init__(self, settings: ServiceSettings) -> None:
        self.settings = settings
        self.stopping = threading.Event()
        self.failure: str | None = None
        self.ended: shut_down.Ended | None = None  # the cluster is shut down
        self.wake: Callable[[], None] = lambda: None  # called when `stopping` is set
        logs.configure(
            settings.service, settings.log_format, settings.log_level,
            instance=settings.instance, secrets=[*settings.secret_values(), *traces.secret_values()],
        )  # fmt: skip
        log.info(
            "starts", version=__version__, pid=os.getpid(), runs_on=sys.version.split()[0], settings=settings.describe()
        )
        self.traces = traces.begin(settings)
        self.store = store_of(settings)
        aside = second_producer_topics(settings.service.replace("_", "-"))
        self.bus = KafkaBus(settings.kafka_bootstrap, client_id=settings.instance, on_fatal=self.fatal, aside=aside)
        self.storage = Storage(settings.storage_url)
        self.cluster = self.reopened = ""
        on_stop(self._stop)
        await_children()

    def fatal(self, reason: str) -> None:
        """Ends the process: what it could not do must not be followed by anything [R12]."""
        if self.failure is None:
            self.failure = reason
            log.critical("the process ends", reason=reason)
        self._stop()

    def _shut_down(self, entry: Entry | None) -> None:
        """The process ends with the cluster, and says how that was left."""
        ended = shut_down.parsed(entry)
        if ended is not None and self.ended is None:
            self.ended = ended
            log.info("the cluster is shut down", **ended.shut_down.model_dump())
            self._stop()

    def _stop(self) -> None:
        self.stopping.set()
        self.wake()

    def wait_for_cluster(self) -> Topology:
        """Waits for etcd, Kafka, storage and the provisioning, and says so. SystemExit(0) when asked to stop meanwhile, SystemExit(2) if
        they are not of one cluster [R29]."""
        logged_s = 0.0
        while not self.stopping.is_set():
            try:
                topology = read_topology(self.store)
                self.cluster = check(self.bus, self.store, self.storage, self.settings.cluster)
                ended = shut_down.parsed(self.store.get(shut_down.KEY))
                if ended is None:
                    self.reopened = shut_down.name_of_last(self.store)
                    return topology
                raise Closed(f"{ended}; `python -m deploy.provision`, or `millrace up`, opens it again")
            except OtherCluster as other:
                log.critical("the process ends", reason=str(other))
                print(f"{self.settings.service.replace('_', '-')}: {other}", file=sys.stderr)
                raise SystemExit(2) from None
            except (Unavailable, StorageError) as failure:
                if time.monotonic() - logged_s > 5:
                    logged_s = time.monotonic()
                    log.warning("waiting", reason=str(failure))
                self.stopping.wait(0.1)
        raise SystemExit(0)

    def run(self, hosted: Sequence[Hosted], topology: Topology, stop_also: Callable[[], None] = lambda: None) -> int:
        """Hosts the machines until the end; returns the exit code."""
        loops: list[ScopeLoop] = []
        beat = Beat(self.store, lambda: loops, fatal=self.fatal, shut_down=self._shut_down)
        build = build_of([each.machine for each in hosted])
        around = Surroundings(
            self.bus, self.store, self.storage, topology, self.settings.instance, build, beat.lease, self.fatal,
            cluster=self.cluster,
        )  # fmt: skip
        loops += [ScopeLoop(each, around) for each in hosted]
        health = watched(
            self.settings, lambda: self._health(loops), lambda: readings.of_scopes(loops), lambda: readings.of_kafka(self.bus)
        )
        port = health.start()
        gc.freeze()  # what is loaded stays: else each full collection looks through it, for 60 ms
        beat.start()
        threads = [threading.Thread(target=loop.run, name=loop.scope, daemon=True) for loop in loops]
        for thread in threads:
            thread.start()
        questions = Questions(self.bus, topology, self.settings.instance, self._inspector(loops))
        questions.start()
        self.settings.write_ready(health_port=port)
        while not self.stopping.wait(BALANCE_S):
            balance(self.settings.instance, loops)
        log.info("stops", reason=self.failure or (str(self.ended) if self.ended is not None else "asked to"))
        questions.stop()
        deadline = time.monotonic() + STOP_MOST_S
        for loop in loops:
            loop.stop()
        for thread in threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        code = 1 if self.failure else 0  # who still waits for Kafka or etcd now will fail, and that is no failure of this process
        stop_also()
        beat.stop()
        if time.monotonic() < deadline:  # else etcd hangs, and the lease ends by itself
            beat.release()
        health.stop()
        if self.traces is not None:
            self.traces.stop()
        if not any(thread.is_alive() for thread in threads):  # a thread that uses it while it is closed is not safe
            self.bus.flush(500)
            self.bus.close()
        self.store.close()
        log.info("stopped")
        return code

    def _inspector(self, loops: Sequence[ScopeLoop]) -> Inspector:
        service = self.settings.service.replace("_", "-")

        def scopes() -> dict[str, str]:
            return {each["scope"]: each["role"] for each in self._health(loops)["scopes"]}

        return Inspector(service, self.storage, self.settings.effective, scopes=scopes)

    @staticmethod
    def _health(loops: Sequence[ScopeLoop]) -> dict[str, Any]:
        scopes = [loop.health() for loop in loops]
        late = [scope["scope"] for scope in scopes if scope["turned_ms_ago"] > TURNED_MOST_MS]
        ready = all(scope["role"] != "starting" for scope in scopes)
        return {"status": f"stuck: {', '.join(late)}" if late else "ok", "ready": ready and not late, "scopes": scopes}
