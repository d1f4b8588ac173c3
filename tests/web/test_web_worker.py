"""The web process on a real Kafka and etcd: facts are seen, tables outlive it, it ends when asked."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from deploy.local.downloads import CHECKOUT
from deploy.local.etcd import EtcdServer
from deploy.local.kafka import KafkaBroker
from deploy.provision import provision
from millrace.core.topics import Topology
from millrace.io.etcd.store import EtcdStore
from millrace.io.kafka.admin import KafkaAdmin
from services.web.__main__ import _work
from services.web.ending import Ending
from services.web.follow import Following
from services.web.settings import WebSettings
from services.web.view import View
from services.web.worker import make

LIMIT_S = 90.0
NUMBERS = itertools.count(1)  # of facts, over all tests: what ended first is forgotten first
TASKS = [{"task": "a", "vertices": ["a"], "parallelism": 1}]


def until(what: str, found: Callable[[], Any], shown: Callable[[], Any] = lambda: "") -> Any:
    deadline = time.monotonic() + LIMIT_S
    while not (value := found()):
        assert time.monotonic() < deadline, f"waited {LIMIT_S:.0f} s in vain for {what} {shown()}"
        time.sleep(0.02)
    return value


class Web:
    """A web process, started as a service is, and what is said to it."""

    def __init__(self, kafka: str, etcd: str, folder: Path) -> None:
        self._kafka, self._etcd, self._folder = kafka, etcd, folder
        self._producer = Producer({"bootstrap.servers": kafka, "acks": "all", "log_level": 0})

    def start(self) -> None:
        ready, log = self._folder / "ready.json", self._folder / "web.log"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "services.web", "--kafka-bootstrap", self._kafka, "--etcd-endpoint", self._etcd]
        command += ["--ready-file", str(ready), "--retained-jobs", "2", "--log-format", "json"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "shared")])}
        with open(log, "ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, cwd=self._folder, env=env)
        until("the web service", lambda: ready.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, log.read_text()[-3000:]
        port = json.loads(ready.read_text())["port"]
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LIMIT_S, trust_env=False)
        until("its tables", lambda: self.health()["status"] == "ok")

    def health(self) -> dict[str, Any]:
        answer = self._http.get("/healthz")
        shown: dict[str, Any] = answer.json()
        assert answer.status_code == (200 if shown["status"] == "ok" else 503)
        return shown

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> dict[str, Any]:
        shown: dict[str, Any] = self._http.get(f"/api/v1/{path}").json()
        return shown

    def shown(self) -> dict[str, Any]:
        """All but as of when: a partition of which nothing is kept is not in that any more."""
        jobs = self.get("jobs")["jobs"]
        return {"jobs": [self.get(f"jobs/{each['job']}")["job"] for each in jobs], "slots": self.get("slots")["slots"]}

    def as_of(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.get("overview")["as_of"]
        return shown

    def say(self, topic: str, subject: str, type: str, **body: Any) -> None:
        number = next(NUMBERS)
        value = json.dumps({"type": type, "version": 1, "at_ms": 1_700_000_000_000 + number, "count": 1, **body})
        partition = Topology().partition(topic, subject)
        self._producer.produce(
            topic, value, key=subject, partition=partition, headers=[("ce_id", f"dispatcher/1/{number}".encode())]
        )
        assert self._producer.flush(LIMIT_S) == 0

    def job(self, job: str, end: bool = True) -> None:
        self.say("job.events", job, "JobAccepted", job=job, name="n", tasks=TASKS)
        place = {"task": "a", "subtask": 0, "attempt": 1, "task_manager": "tm", "slot": 0}
        self.say("job.events", job, "AttemptStateChanged", job=job, state="RUNNING", **place)
        if end:
            self.say("job.events", job, "JobCanceled", job=job, archive=None)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path_factory.mktemp("broker") / "kafka") as kafka:
        yield kafka


@pytest.fixture(scope="module")
def servers(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Kafka and etcd of their own: topics bear their real names."""
    with EtcdServer(tmp_path_factory.mktemp("servers") / "etcd") as etcd:
        provision(KafkaAdmin(broker.bootstrap), EtcdStore(etcd.endpoint, "/millrace/default/"), Topology())
        yield broker.bootstrap, etcd.endpoint


@pytest.fixture(scope="module")
def process(servers: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One for all tests; the first finds it with nothing in its tables."""
    web = Web(*servers, tmp_path_factory.mktemp("web"))
    try:
        web.start()
        yield web
    finally:
        web.kill()


@pytest.fixture
def web(process: Web) -> Web:
    if process.process.poll() is not None:  # a test before failed
        process.start()
    return process


def test_facts_are_seen_tables_outlive_a_kill_and_what_was_forgotten_stays_so(web: Web) -> None:
    joined = {"task_manager": "tm", "incarnation": 3, "host": "h", "slots": 1, "states": ["FREE"]}
    web.say("cluster.events", "tm", "TaskManagerJoined", **joined)
    for job in ("one", "two", "three"):  # on three partitions; the first to end is forgotten
        web.job(job)
        until(job, lambda job=job: [j for j in web.get("jobs")["jobs"] if (j["job"], j["status"]) == (job, "CANCELED")])
    web.job("lives", end=False)
    until("lives", lambda: web.get("slots")["slots"][0]["job"] == "lives")
    assert [job["job"] for job in web.get("jobs")["jobs"]] == ["lives", "three", "two"]
    assert [web.get(f"jobs?task_manager={name}")["total"] for name in ("tm", "t")] == [3, 0]
    before, as_of = web.shown(), web.as_of()
    for end in (web.kill, lambda: (web.process.terminate(), web.process.wait(LIMIT_S))):
        end()
        web.start()
        until("the same, once it has read again what the tables had not stored", lambda: web.shown() == before)
        until("the same as_of, also where no row is kept", lambda: web.as_of() == as_of, lambda: f"{as_of}: {web.as_of()}")
    web.say("job.events", "lives", "JobCanceled", job="lives", archive=None)
    until("its end", lambda: web.get("jobs/lives")["job"]["status"] == "CANCELED")
    assert [job["job"] for job in web.get("jobs")["jobs"]] == ["lives", "three"]


@pytest.mark.long
def test_it_ends_when_asked_and_what_happened_meanwhile_is_seen_after(web: Web) -> None:
    web.process.terminate()
    assert web.process.wait(LIMIT_S) == 0
    web.job("meanwhile")
    web.start()
    until("the job", lambda: web.get("jobs/meanwhile").get("job", {}).get("status") == "CANCELED")


def test_bytes_that_are_no_fact_are_passed_over(web: Web) -> None:
    web.say("job.events", "bad", "JobAccepted")
    for value, headers in ((b"[" * 100_000, []), (b"{}", [("ce_id", None)])):
        for partition in range(Topology().job_event_partitions):
            web._producer.produce("job.events", value, partition=partition, headers=headers)
    assert web._producer.flush(LIMIT_S) == 0
    web.job("good")
    until("the good one", lambda: web.get("jobs/good").get("job", {}).get("status") == "CANCELED")
    admin = KafkaAdmin(web._kafka)
    ends = {str(n): admin.offsets("job.events", n)[1] - 1 for n in range(Topology().job_event_partitions)}
    until("all, else it would be said not to follow", lambda: web.as_of()["offsets"]["job.events"] == ends, lambda: f"{ends}")


@pytest.mark.long
def test_a_stopped_broker_is_told_by_the_health_check_until_it_is_back(web: Web, broker: KafkaBroker) -> None:
    web.job("before")
    until("the job", lambda: web.get("jobs/before").get("job", {}).get("status") == "CANCELED")
    broker.stop()
    try:
        # A record of before that is not read yet is a reason, too, and may be told first.
        said = "Kafka has not answered for "
        degraded = until("the reason", lambda: (found := web.health())["status"] == "degraded" and said in found["reason"] and found)
        assert degraded["reason"].startswith(said)
        assert web.health()["last_fold_s"] >= degraded["last_fold_s"] > 1, "it grows"
        assert web.get("jobs/before")["job"]["status"] == "CANCELED", "what is known is shown all the same"
    finally:
        broker.start()
    until("it follows again", lambda: web.health()["status"] == "ok")
    web.job("after")
    until("what is said now", lambda: web.get("jobs/after").get("job", {}).get("status") == "CANCELED")


# The thread of the library's consumer may be in the middle of joining its group when the loop that it reports to ends.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_ends_when_asked_also_while_it_starts_and_kafka_hangs(servers: tuple[str, str], broker: KafkaBroker) -> None:
    app, _ = make(WebSettings(kafka_bootstrap=servers[0], etcd_endpoint=servers[1]), Topology())
    stopping = Ending()
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        threading.Timer(1, stopping.set).start()
        work = _work(app, stopping, lambda: pytest.fail("it has not started"), Following(View({}, {}, 1), [], dict))
        asyncio.run(asyncio.wait_for(work, LIMIT_S))  # while Kafka still hangs
    finally:
        os.kill(broker.pid, signal.SIGCONT)
