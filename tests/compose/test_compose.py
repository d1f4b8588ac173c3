"""docker-compose.yml as it is, in a Docker engine: up, the same results, containers killed, networks cut."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from deploy.local.flights import flights_folder
from tests.compose.cluster import NEEDS_AN_ENGINE, SLOTS, Cluster, finished_once, sql, submit, until
from tests.end_to_end.test_flights import COLUMNS, by_pandas

pytestmark = NEEDS_AN_ENGINE
JOBS = 50
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def cluster(images: None, data: Path) -> Iterator[Cluster]:
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

    def shown() -> bool:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return job in answer.read().decode()
        except OSError:  # it answers 503 until its tables are read
            return False

    until("the job in the web service's list", shown)


def test_prometheus_scrapes_every_container_and_takes_the_rules(ready):
    profiles = {"COMPOSE_PROFILES": "single,monitoring"}

    def asked(path: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{ready.settings['PROMETHEUS_PORT']}/api/v1/{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
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

        def looked_at() -> int:
            rules = [rule["health"] for group in asked("rules").get("groups", ()) for rule in group["rules"]]
            return len(rules) if set(rules) == {"ok"} else 0

        assert until("the rules to be looked at", looked_at) > 20
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


@pytest.mark.usefixtures("images")
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


@pytest.mark.usefixtures("images")
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
