"""The profiles of docker-compose.yml that start more than the default: each alone, for together they would share two cores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from deploy.local.flights import flights_folder
from tests.compose.cluster import NEEDS_AN_ENGINE, SLOTS, Cluster, finished_once, sql, submit, until

pytestmark = NEEDS_AN_ENGINE


@pytest.fixture
def on_spark(images: None, data: Path) -> Iterator[Cluster]:
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
def three_of_each(images: None, data: Path) -> Iterator[Cluster]:
    cluster = Cluster("millrace-tests-ha", COMPOSE_PROFILES="ha", DATA=data)
    try:
        cluster.up()
        cluster.first_accepted()
        cluster.whole()  # the questions are asked in the container of the web service
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
