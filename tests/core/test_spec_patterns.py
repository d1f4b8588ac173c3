"""The specs of a task's attempts are made of one of them: what comes of that is what each would be by itself."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.jobgraph.compile import Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.specs import Pattern, attempt_spec, is_pattern, whole
from millrace.core.jobgraph.validate import validate
from millrace.core.machine import Ticked
from millrace.core.messages.attempts import AttemptReport, AttemptSpec
from millrace.core.messages.jobs import CancelStartedJob, JobRetired
from millrace.core.messages.records import encode
from tests.core.of_job_master import PLANNED, TWO
from tests.core.of_jobgraph import published
from tests.core.test_folder_runs import Short, begun
from tests.core.test_job_master_resetting import CHAIN, lost, specs, word

WIDE = {
    "name": "wide",
    "vertices": {
        "a": {"source": {"format": "csv", "path": "/data/a.csv", "schema": "x INT"}, "parallelism": 12},
        "small": {"source": {"format": "csv", "path": "/data/s.csv", "schema": "x INT"}},
        "b": {"sql": "SELECT 1", "parallelism": 12, "inputs": {"a": "hash(x)", "small": "hash(x)"}},
        "c": {"sql": "SELECT 1", "parallelism": 128, "inputs": {"b": "hash(x)", "a": "broadcast"}},
        "out": {"sink": {"format": "parquet", "path": "/data/out", "mode": "append"}, "parallelism": 128, "inputs": {"c": "forward"}},
    },
}
REPORT = {"pinned": {"a": {"schema": "A", "files": [["/data/a.csv", 10, 1]], "splits": 12, "split_bytes": 1}}, "key_types": {"b": ["int"]}}
FILES = {"pinned": {"s": {"schema": "{}", "files": [["/data/x.csv", 9, 1]], "splits": 2}}, "schemas": {"s": "{}"}}
READ = {"small": published({"small": "S"}, 2), "a": published({"a": "A"}, *[1] * 12), "b": published({"b": "B"}, *[1] * 11, 7)}


def plan() -> Plan:
    graph = validate(WIDE)
    assert isinstance(graph, JobGraph), graph
    return compile_graph(graph)


def spec(task: str, subtask: int, attempt: int) -> AttemptSpec:
    return attempt_spec(
        plan(), job="j", task=task, subtask=subtask, attempt=attempt, published=READ, planned=AttemptReport.model_validate(REPORT),
        exchange="/x", run="1.5/1", in_short=lambda name: whole(READ[name]),
    )  # fmt: skip


@pytest.mark.parametrize("task", ["a", "b", "c+out"])
@pytest.mark.parametrize("like", [(0, 1), (10, 10), (11, 3)])
def test_the_spec_of_another_attempt_is_what_it_would_be_by_itself(task: str, like: tuple[int, int]) -> None:
    first = spec(task, *like)
    pattern = Pattern(first, first.json_bytes())
    assert is_pattern(first)
    for subtask, attempt in ((0, 1), (1, 1), (9, 10), (11, 123), *(((100, 1), (127, 2)) if task == "c+out" else ())):
        own, made = spec(task, subtask, attempt), pattern.of(subtask, attempt)
        assert encode(made.spec) == encode(own) and made.spec == own
        assert made.bytes == own.json_bytes() == len(encode(own))


def test_a_spec_with_folders_one_by_one_is_no_pattern() -> None:
    own = attempt_spec(
        plan(), job="j", task="c+out", subtask=3, attempt=1, published=READ, planned=AttemptReport.model_validate(REPORT), exchange="/x",
        run="1.5/1",
    )  # fmt: skip
    assert not is_pattern(own)


class Forgetful(Short):
    """It makes each spec anew, as a replica that has just begun."""

    def __call__(self, *given: Any, **more: Any) -> list[Any]:
        self.state.patterns = {}
        return super().__call__(*given, **more)


@pytest.mark.parametrize("graph", [TWO, CHAIN, PLANNED], ids=["two", "chain", "planned"])
def test_who_has_no_pattern_deploys_the_same(graph: dict[str, Any]) -> None:
    """Through a retry and the loss of rows, by which producers run again."""
    said = []
    for kind in (Short, Forgetful):
        shard = kind()
        shard.start(graph)
        told = [shard.offer("a1")]
        if graph is PLANNED:
            told.append(shard.told("a1", "FINISHED", report=FILES))
        else:
            told.append(word(shard, "a1", "FINISHED"))
        told.append(shard.offer("a2", "a3"))
        for allocation in ("a2", "a3"):
            if allocation in shard.job.slots:
                told.append(shard.told(allocation, "FAILED", error=lost("0-a/0/1/0-a")))
        shard.now += 60_000
        told += [shard(Ticked(), ""), shard.offer("a4", "a5", "a6")]
        said.append(told)
    assert said[0] == said[1]
    assert any(specs(each) for each in said[0][2:])


def test_a_pattern_goes_with_its_job() -> None:
    shard, _ = begun()
    assert [*shard.state.patterns] == [("acc-j", "b")]
    shard(CancelStartedJob(job="j"))
    for allocation in list(shard.job.slots):
        word(shard, allocation, "CANCELED")
    shard(JobRetired(job="j", acceptance="acc-j"))
    assert shard.state.patterns == {}
