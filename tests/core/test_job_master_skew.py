"""Hash edges of which one share has far more rows: what a JobMaster counts, judges and tells."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.core.machine import Output, Publish, stored_fields
from millrace.core.messages.attempts import OutputReport
from millrace.core.messages.events import EdgeSkewed
from millrace.core.messages.execution import SkewedEdge
from millrace.core.skew import skew_advice, skew_line, skewed_share
from services.job_master.core.execution_graph import describe
from services.job_master.core.skew import forget
from services.job_master.core.state import HashedRows, State
from tests.core.of_job_master import Shard, kinds

M = 1_000_000
GRAPH: dict[str, Any] = {
    "name": "skewed",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x", "parallelism": 2},
        "b": {"sql": "SELECT x FROM a", "parallelism": 4, "inputs": {"a": "hash(x)"}},
    },
}


def report(*rows: int, key: str | None = "17", heavy: int = 0, **changes: Any) -> dict[str, Any]:
    heaviest = [{"share": 1, "key": [key], "rows_about": heavy}] if heavy else []
    hashed = {"keys": ["x"], "share_rows": list(rows), "share_bytes": [8 * each for each in rows], "heaviest": heaviest, **changes}
    return {"report": {"outputs": {"a": {"schema": "{}", "rows": sum(rows), "bytes": 9, "hashed": [hashed]}}}}


NONE = {"report": {"outputs": {"a": {"schema": "{}", "rows": 5, "bytes": 9}}}}
"""Of few rows."""


def told(outputs: list[Output]) -> list[SkewedEdge]:
    return [each.body.edge for each in outputs if isinstance(each, Publish) and isinstance(each.body, EdgeSkewed)]


@pytest.fixture
def shard() -> Shard:
    shard = Shard()
    shard.start(GRAPH)
    shard.offer("a1", "a2")
    return shard


@pytest.mark.parametrize(
    ("rows", "share"),
    [
        ([9 * M, M], 0),
        ([4 * M, M], None),  # two shares of few keys are as far apart
        ([M, M, 12 * M, M], 2),
        ([4 * M, M, M, M], None),
        ([2 * M, 2 * M, 2 * M, 0], None),  # three keys
        ([4 * M, 4 * M, 0, 0], 0),  # half of the subtasks have nothing to do
        ([5 * M, 40 * M, 5 * M, 40 * M, 5 * M, 5 * M, 5 * M, 5 * M], 1),  # two heavy keys do not hide each other
        ([10_000, 10, 10, 10], None),  # whatever their ratio: it is done in no time
        ([0, 0], None),
    ],
)
def test_a_share_is_skewed_if_that_costs_something(rows: list[int], share: int | None) -> None:
    assert skewed_share(rows, [each * 8 for each in rows]) == share


def test_few_large_rows_count_by_their_bytes() -> None:
    assert skewed_share([100_000, 10, 10, 10], [900 << 20, 1, 1, 1]) == 0


def test_an_edge_is_told_once_all_of_its_writers_have_finished(shard: Shard) -> None:
    assert not told(shard.told("a1", "FINISHED", **report(1_000, 4 * M, 1_000, 0, heavy=3_900_000)))
    kind = TypeAdapter(State)
    stored = kind.dump_json(shard.state, include={*stored_fields(State)})
    assert kind.dump_json(kind.validate_json(stored), include={*stored_fields(State)}) == stored and b"3900000" in stored
    said = shard.told("a2", "FINISHED", **report(1_000, 5 * M, 1_000, 0, heavy=4_900_000))
    [edge] = told(said)
    assert edge == SkewedEdge(
        task="a", vertex="a", keys=["x"], readers=["b"], subtask=1, shares=4, shares_empty=1, rows=9 * M, rows_in_all=9 * M + 4_000,
        bytes=72 * M, bytes_in_all=72 * M + 32_000, heaviest=[{"key": ["17"], "rows": 8_800_000}],
    )  # fmt: skip
    assert kinds(said).index("event EdgeSkewed") > kinds(said).index("event AttemptStateChanged FINISHED")
    assert describe(None, shard.job).json_value()["skewed"] == [edge.json_value()]


def test_an_even_edge_is_not_told(shard: Shard) -> None:
    shard.told("a1", "FINISHED", **report(0, 8 * M, M, M))
    assert not told(shard.told("a2", "FINISHED", **report(8 * M, 0, 8 * M, 8 * M))), "together they are even"
    assert "skewed" not in describe(None, shard.job).json_value()


def test_who_has_few_rows_reports_nothing_and_counts(shard: Shard) -> None:
    shard.told("a1", "FINISHED", **NONE)
    assert len(told(shard.told("a2", "FINISHED", **report(1_000, 4 * M, 1_000, 0)))) == 1


def test_keys_are_the_same_whoever_found_them(shard: Shard) -> None:
    shard.told("a1", "FINISHED", **report(1_000, 4 * M, 1_000, 0, key=None, heavy=3 * M))
    [edge] = told(shard.told("a2", "FINISHED", **report(1_000, 4 * M, 1_000, 0, key="NULL", heavy=2 * M)))
    assert [(each.key, each.rows) for each in edge.heaviest] == [([None], 3 * M), (["NULL"], 2 * M)]


@pytest.mark.parametrize(
    "changes",
    [
        {"share_rows": [9 * M]}, {"keys": ["y"]}, {"share_rows": [-1, 9 * M, 0, 0]}, {"share_rows": "many"},
        {"share_rows": [True, 9 * M, 0, 0]},
    ],  # fmt: skip
)
def test_what_is_no_count_of_each_share_counts_nothing(shard: Shard, changes: dict[str, Any]) -> None:
    shard.told("a1", "FINISHED", **report(1, 9 * M, 1, 1, **changes))
    assert not told(shard.told("a2", "FINISHED", **NONE))


def test_of_a_task_of_which_a_subtask_ran_again_nothing_is_told(shard: Shard) -> None:
    """Both of its attempts would be counted."""
    shard.told("a1", "FINISHED", **report(1_000, 4 * M, 1_000, 0))
    shard.told("a2", "FINISHED", **report(1_000, 4 * M, 1_000, 0))
    edges = list(shard.job.skewed)
    shard.offer("b1")
    folder = "/x/acc-j/1/0-a/0/1/0-a"
    lost = {"kind": "infrastructure", "retryable": True, "condition": "EXCHANGE_LOST", "lost": folder, "message": "gone"}
    shard.told("b1", "FAILED", attempt="j/1-b/0/1.1", error=lost)
    assert shard.job.hashed["a"].is_over and shard.job.skewed == edges
    shard.job.hashed["a"] = HashedRows(2)
    shard.job.tasks["a"].finished = 1
    forget(shard.job, "a")
    assert shard.job.hashed["a"] == HashedRows(is_over=True)


def test_a_task_that_runs_again_as_a_whole_is_told_once() -> None:
    shard = Shard()
    shard.start({**GRAPH, "restart": {"scope": "full", "attempts": 3, "delay_ms": 0}})
    shard.offer("a1", "a2")
    shard.told("a1", "FINISHED", **report(1_000, 4 * M, 1_000, 0))
    shard.told("a2", "FAILED", error={"kind": "user", "retryable": True, "message": "no"})
    assert shard.job.hashed == {}, "what was counted runs again, with all others"


@pytest.mark.parametrize(
    ("changes", "line", "advice"),
    [
        (
            {"heaviest": [{"key": ["17"], "rows": 8 * M}]},
            "a -> b by x: subtask 1 of 4 gets 90 % of the rows (9,000,000 of 10,000,000); x = 17 has about 89 % of them",
            "aggregate before this edge",
        ),
        (
            {"heaviest": [{"key": [None], "rows": 9 * M}], "shares_empty": 2},
            "a -> b by x: subtask 1 of 4 gets 90 % of the rows, 2 of the others none (9,000,000 of 10,000,000);"
            " x = NULL has about 100 % of them",
            "if rows without a key are needed at all",
        ),
        (
            {"heaviest": [{"key": ["1"], "rows": 3 * M}, {"key": ["2"], "rows": 2 * M}]},
            "a -> b by x: subtask 1 of 4 gets 90 % of the rows (9,000,000 of 10,000,000); several keys fall together:"
            " x = 1 has about 33 % of them, x = 2 has about 22 % of them",
            "add a column",
        ),
        (
            {"keys": ["x", "y"], "heaviest": [{"key": ["1", None], "rows": 9 * M}]},
            "a -> b by x, y: subtask 1 of 4 gets 90 % of the rows (9,000,000 of 10,000,000); (x, y) = (1, NULL) has about 100 % of them",
            "aggregate before this edge",
        ),
    ],
)
def test_people_are_told_what_and_what_helps(changes: dict[str, Any], line: str, advice: str) -> None:
    plain = {"task": "a", "vertex": "a", "keys": ["x"], "readers": ["b"], "subtask": 1, "shares": 4, "rows": 9 * M, "rows_in_all": 10 * M}
    edge = SkewedEdge.model_validate({**plain, "bytes": 9, "bytes_in_all": 10, **changes})
    assert skew_line(edge) == line
    assert skew_advice(edge).startswith(advice)


def test_a_report_without_it_is_as_before() -> None:
    assert OutputReport(schema="{}", rows=1).json_value() == {"schema": "{}", "rows": 1}
