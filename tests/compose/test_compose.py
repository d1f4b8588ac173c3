"""docker-compose.yml as it is, in a Docker engine: up, the same results, containers killed, networks cut."""

from __future__ import annotations

import json
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deploy.local.flights import flights_folder
from millrace.client import Job
from tests.chaos.history import History, judge
from tests.compose.cluster import Cluster, data_folder, no_engine, sql, submit, until
from tests.end_to_end.test_flights import COLUMNS, by_pandas

WHY_NOT = no_engine()
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(WHY_NOT is not None, reason=f"docker-compose.yml is not tested: {WHY_NOT}"),
    pytest.mark.timeout(1200),
]
JOBS = 50
SLOTS = 2
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The host's folder that is /data in the containers."""
    folder = data_folder(tmp_path_factory.mktemp("compose") / "data")
    for parent in (folder.parent, folder.parent.parent):
        parent.chmod(0o755)
    for file in flights_folder().glob("*.csv"):
        shutil.copy(file, folder)
    return folder


@pytest.fixture(scope="module", autouse=True)
def images() -> None:
    Cluster("millrace-tests").build()


@pytest.fixture(scope="module")
def cluster(data: Path) -> Iterator[Cluster]:
    cluster = Cluster("millrace-tests", DATA=data)
    try:
        cluster.up()
        cluster.first_accepted()
        yield cluster
    finally:
        cluster.down(purge=True)


@pytest.fixture
def ready(cluster: Cluster) -> Cluster:
    """The cluster with every container and every slot."""
    cluster.whole()
    cluster.ready(SLOTS)
    return cluster


def finished_once(cluster: Cluster, jobs: list[Job]) -> None:
    """All of them FINISHED, and etcd and the topics know one end and one counted attempt of each."""
    assert [job.wait().status for job in jobs] == ["FINISHED"] * len(jobs)
    ids = {job.id for job in jobs}

    def cleaned_up() -> dict[str, dict[str, Any]] | None:
        found = {job: value for job, value in cluster.stored().items() if job in ids}
        return found if all(value["state"] == "clean" for value in found.values()) else None

    stored = until("the end of all clean-up", cleaned_up) or {}
    events = [event for event in cluster.topic("job.events") if event["job"] in ids]
    # On a busy machine an attempt may be tried again; what must not happen is that two of them count.
    answers, tried_again = {job: "accepted" for job in ids}, {job: len(events) for job in ids}
    verdict = judge(History(answers, stored, events, tried_again, dead_letters=list(cluster.topic("dead-letters"))))
    assert verdict.violations == []
    assert verdict.accepted == len(jobs)


def test_the_command_line_on_the_host_runs_a_job_with_nothing_shared(ready):
    done = ready.cli("submit", "--wait", str(ROOT / "examples" / "wordcount.py"), "/data/airlines.csv")
    assert done.returncode == 0, done.stdout + done.stderr
    job = ready.client.list().jobs[0].job
    assert "airlines" in ready.cli("logs", job).stdout


def test_the_flights_pipeline_gives_the_same(ready, data):
    parameters = ("-p", "data=/data", "-p", "out=/data/out")
    done = ready.cli("submit", str(ROOT / "examples" / "flights.yaml"), *parameters, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    written = pd.read_parquet(data / "out").sort_values(["weather", "rank"])
    assert written.columns.tolist() == COLUMNS
    assert written.to_numpy().tolist() == by_pandas(flights_folder())


def test_the_web_service_shows_it_on_the_host(ready):
    url = f"http://127.0.0.1:{ready.settings['WEB_PORT']}/api/v1/jobs"
    job = submit(ready.client, [sql(0)])[0].id
    until("the job in the web service's list", lambda: job in urllib.request.urlopen(url, timeout=5).read().decode())


def test_prometheus_scrapes_every_container_and_takes_the_rules(ready):
    profiles = {"COMPOSE_PROFILES": "single,monitoring"}

    def asked(path: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{ready.settings['PROMETHEUS_PORT']}/api/v1/{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                found: dict[str, Any] = json.load(answer)["data"]
                return found
        except OSError:
            return {}

    def scraped() -> dict[str, int]:
        up = [each["labels"]["job"] for each in asked("targets").get("activeTargets", ()) if each["health"] == "up"]
        return {job: up.count(job) for job in up}

    ready.compose("up", "--detach", "--no-build", "--no-deps", "prometheus", **profiles)
    try:
        until("all containers to be scraped", lambda: scraped() == {
            "dispatcher": 2, "resource-manager": 2, "job-master": 2, "task-manager": 2, "web": 1,
        })  # fmt: skip
        rules = [rule for group in asked("rules")["groups"] for rule in group["rules"]]
        until("the rules to be looked at", lambda: all(
            rule["health"] == "ok" for group in asked("rules")["groups"] for rule in group["rules"]
        ))  # fmt: skip
        assert len(rules) > 20
    finally:
        ready.compose("rm", "--force", "--stop", "prometheus", **profiles)


@pytest.mark.parametrize("service", ["dispatcher", "resource-manager", "job-master", "task-manager", "kafka", "etcd"])
def test_any_container_killed_while_jobs_run(ready, service):
    jobs = submit(ready.client, [sql(number) for number in range(JOBS)])
    victim = ready.leader(service)
    count = ready.inspect(victim)["RestartCount"]
    ready.kill(victim)
    finished_once(ready, jobs)
    ready.started_again(victim, count + 1)


@pytest.mark.parametrize("service", ["task-manager", "job-master"])
def test_a_network_that_is_cut_and_heals(ready, service):
    jobs = submit(ready.client, [sql(number) for number in range(JOBS)])
    victim = ready.leader(service)
    ready.cut(victim)
    try:
        done = [job.wait().status for job in jobs[: JOBS // 2]]  # the others' work goes on
    finally:
        ready.heal(victim, service)
    assert set(done) == {"FINISHED"}
    finished_once(ready, jobs)


def test_jobs_survive_down_and_up(ready):
    job = submit(ready.client, [sql(1)])[0]
    assert job.wait().status == "FINISHED"
    ready.down()
    ready.up()
    ready.first_accepted()
    assert ready.client.result(job.id).rows == [[300_001]]


def test_too_little_memory_is_one_line_and_nothing_starts():
    cluster = Cluster("millrace-tests-small", TASK_MANAGER_MB=9_000_000)
    try:
        done = cluster.compose("run", "--rm", "-T", "check", check=False)
        assert done.returncode == 2
        lines = [line for line in done.stderr.splitlines() if line.startswith("check: ")]
        assert len(lines) == 1 and "MB of memory together and Docker has" in lines[0]
        assert cluster.compose("up", "--detach", "--no-build", check=False).returncode != 0
        running = [
            each for each in cluster.compose("ps", "-q").stdout.split() if cluster.inspect(each)["State"]["Running"]
        ]
        assert running == []
    finally:
        cluster.down(purge=True)


def test_a_used_port_is_named_in_one_line():
    cluster = Cluster("millrace-tests-port")
    try:
        with socket.create_server(("127.0.0.1", int(cluster.settings["ETCD_PORT"]))):
            done = cluster.compose("up", "--detach", "--no-build", "--no-deps", "etcd", check=False)
        assert done.returncode != 0
        said = [line for line in done.stderr.splitlines() if cluster.settings["ETCD_PORT"] in line]
        assert said and "address already in use" in said[-1]
    finally:
        cluster.down(purge=True)


@pytest.fixture
def on_spark(data: Path) -> Iterator[Cluster]:
    cluster = Cluster("millrace-tests-spark", COMPOSE_PROFILES="single,spark", TASK_MANAGERS=1, DATA=data)
    try:
        cluster.up()
        cluster.first_accepted()
        cluster.ready(1)
        yield cluster
    finally:
        cluster.down(purge=True)


def test_a_job_runs_on_the_spark_cluster_beside_the_services(on_spark, data):
    graph = {
        "name": "carriers",
        "master": "spark://spark-master:7077",
        "conf": {"spark.executor.memory": "512m", "spark.cores.max": "2"},
        "vertices": {
            "flights": {"source": {"format": "csv", "path": "/data/flights.csv", "options": {"header": True}}},
            "carriers": {"sql": "SELECT carrier, count(*) AS n FROM flights GROUP BY carrier", "inputs": {"flights": "forward"}},
            "out": {"sink": {"format": "parquet", "path": "/data/carriers"}, "inputs": {"carriers": "forward"}},
        },
    }
    assert submit(on_spark.client, [graph])[0].wait().status == "FINISHED"
    counts = pd.read_csv(flights_folder() / "flights.csv").groupby("carrier").size()
    assert dict(pd.read_parquet(data / "carriers").to_numpy().tolist()) == counts.to_dict()


@pytest.fixture
def three_of_each(data: Path) -> Iterator[Cluster]:
    cluster = Cluster("millrace-tests-ha", COMPOSE_PROFILES="ha", DATA=data)
    try:
        cluster.up()
        cluster.first_accepted()
        cluster.ready(SLOTS)
        yield cluster
    finally:
        cluster.down(purge=True)


def test_with_three_of_each_a_broker_and_a_member_may_be_dead(three_of_each):
    with three_of_each.asker() as unknown_ends:
        until("an answer for every partition", lambda: not unknown_ends())
        for service in ("kafka-1", "etcd-2"):
            three_of_each.compose("stop", "--timeout", "0", service)
        until("an answer for every partition", lambda: not unknown_ends())  # and not of a leader that is known to be dead
    finished_once(three_of_each, submit(three_of_each.client, [sql(number) for number in range(5)]))
