"""The master of a job: what is one, and what is checked of a job that has one."""

from __future__ import annotations

import pytest

from millrace.core.jobgraph.compile import compile_graph
from millrace.core.jobgraph.model import DEFAULT_LIMITS, JobGraph, dump
from millrace.core.jobgraph.specs import attempt_spec
from millrace.core.jobgraph.validate import validate
from millrace.edge.requests import check_graph
from millrace.edge.spark_conf import classify_conf, is_master, is_remote

ONE = {"name": "one", "vertices": {"a": {"sql": "SELECT 1 AS b"}}}
MASTERS = [
    "local", "local[4]", "local[*]", "local[*,3]", "local[2, 3]", "spark://host:7077", "spark://a.b:1,c-d:2", "spark://[::1]:7077",
    "yarn", "k8s://https://10.0.0.1:6443", "k8s://host", "k8s://https://host:443/proxy/path",
]  # fmt: skip
NONE = [
    "", "local[0]", "local[-1]", "local[two]", "LOCAL", "local-cluster[2,1,1024]", "spark://host", "spark:/host:7077", "spark://",
    "spark://host:7077,", "spark://h:7077 --conf x=y", "spark://h:7077\n", "yarn-cluster", "mesos://h:5050", "k8s://", "sc://host:15002",
]  # fmt: skip


@pytest.mark.parametrize("master", MASTERS)
def test_a_master_reaches_each_attempt_as_a_setting_that_needs_a_jvm(master: str) -> None:
    assert is_master(master) and is_remote(master) == (not master.startswith("local"))
    graph = validate({**ONE, "master": master})
    assert isinstance(graph, JobGraph) and dump(graph)["master"] == master
    plan = compile_graph(graph)
    spec = attempt_spec(plan, job="j", task="a", subtask=0, attempt=1, published={}, planned=None, exchange="e", run="r")
    assert classify_conf(dict(spec.conf)) == ({}, {"spark.master": master}, {})
    assert not check_graph({**ONE, "master": master}, {}, DEFAULT_LIMITS).problems


@pytest.mark.parametrize("master", NONE)
def test_what_is_no_master_is_refused_at_its_place(master: str) -> None:
    assert not is_master(master)
    if master:
        problem = check_graph({**ONE, "master": master}, {}, DEFAULT_LIMITS).problems[0]
        assert problem.place == ("master",) and f"{master!r} is no master: a master is local[N], spark://HOST:PORT" in problem.message
    problem = check_graph({**ONE, "conf": {"spark.master": master}}, {}, DEFAULT_LIMITS).problems[0]
    assert problem.place == ("conf", "spark.master")


def test_two_masters_are_one_too_many() -> None:
    found = check_graph({**ONE, "master": "yarn", "conf": {"spark.master": "spark://h:1"}}, {}, DEFAULT_LIMITS).problems
    assert [(each.place, each.message) for each in found] == [
        (("conf", "spark.master"), "is not the job's master, yarn: leave one of them out")
    ]
    assert not check_graph({**ONE, "master": "yarn", "conf": {"spark.master": "yarn"}}, {}, DEFAULT_LIMITS).problems


def test_executors_of_a_cluster_have_sizes_and_those_of_a_slot_have_not() -> None:
    conf = {"spark.executor.memory": "2g", "spark.cores.max": "8", "spark.dynamicAllocation.enabled": "true", "spark.driver.memory": "2g"}
    on_slot = check_graph({**ONE, "conf": conf}, {}, DEFAULT_LIMITS)
    assert [each.place[1] for each in on_slot.warnings] == list(conf)
    on_cluster = check_graph({**ONE, "conf": conf, "master": "spark://h:7077"}, {}, DEFAULT_LIMITS)
    assert (on_cluster.problems, [each.place[1] for each in on_cluster.warnings]) == ((), ["spark.driver.memory"])
    threads = check_graph({**ONE, "conf": conf, "master": "local[4]"}, {}, DEFAULT_LIMITS)
    assert [each.place[1] for each in threads.warnings] == list(conf)
