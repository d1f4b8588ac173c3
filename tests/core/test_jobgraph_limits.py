"""Limits hold at their value, and what is far beyond them is refused cheaply and briefly."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.core.jobgraph.model import DEFAULT_LIMITS
from millrace.core.jobgraph.problems import HINTED_MOST, MOST_PROBLEMS, nearest
from tests.core.of_jobgraph import CSV, accepted, graph, problems

HASH = "0" * 64


@pytest.mark.parametrize(
    ("limits", "raw", "expected"),
    [
        ({"vertices": 1}, graph({"a": CSV, "b": CSV}), ["vertices: 2 are more than the 1 allowed"]),
        (
            {"edges": 1},
            graph({"a": CSV, "b": CSV, "c": {"sql": "x", "inputs": {"a": "forward", "b": "forward"}}}),
            ["vertices: 2 inputs in all are more than the 1 allowed"],
        ),
        (
            {"parallelism": 2},
            graph({"a": {**CSV, "parallelism": 3}}),
            ["vertices.a.parallelism: must be at most 2, not 3"],
        ),
        (
            {"sql_bytes": 3},
            graph({"a": {"sql": "\u00e9\u00e9"}}),
            ["vertices.a.sql: 4 bytes are more than the 3 allowed"],
        ),
        ({"parameters": 0}, graph({"a": CSV}, parameters={"a": "b"}), ["parameters: 1 are more than the 0 allowed"]),
        ({"modules": 0}, graph({"a": CSV}, modules=[{}]), ["modules: 1 are more than the 0 allowed"]),
        ({"depth": 3}, graph({"a": CSV}), ["the graph is nested more than 3 deep"]),
        ({"input_bytes": 20}, graph({"a": CSV}), ["the graph is larger than the 20 bytes allowed"]),
        (
            {"input_bytes": 1000},
            graph({"a": {"sql": "${p}" * 100}}, parameters={"p": "x" * 100}),
            ["with parameters put in, the graph is larger than the 1000 bytes allowed"],
        ),
    ],
)
def test_limits(limits: dict[str, int], raw: object, expected: list[str]) -> None:
    assert problems(raw, limits=replace(DEFAULT_LIMITS, **limits)) == expected


def test_limits_are_reached_not_only_passed() -> None:
    limits = replace(DEFAULT_LIMITS, vertices=2, edges=1, parallelism=1, sql_bytes=1, parameters=1, modules=1)
    raw = graph(
        {"a": CSV, "b": {"sql": "x", "inputs": {"a": "forward"}}},
        parameters={"a": "b"},
        modules=[{"name": "m.py", "sha256": HASH}],
    )
    accepted(raw, limits=limits)


HUGE: dict[str, object] = {
    "many unknown fields": graph({"a": CSV}, **{f"field{i}": 1 for i in range(60_000)}),
    "many unknown fields in a vertex": graph({"a": {f"sq{i}": 1 for i in range(60_000)}}),
    "many vertices": graph({f"v{i}": {} for i in range(60_000)}),
    "many inputs": graph({"a": {"sql": "x", "inputs": {f"v{i}": "forward" for i in range(60_000)}}}),
    "many dangling inputs": graph({"a": {"sql": "x", "inputs": {f"v{i}": "forward" for i in range(1000)}}}),
    "many parameters": graph({"a": CSV}, parameters={f"v{i}": "forward" for i in range(60_000)}),
    "many unknown parameters": graph({"a": {"sql": "".join(f"${{a{i}}}" for i in range(60_000))}}),
    "many unclosed parameters": graph({"a": {"sql": "${" * 500_000}}, parameters={"a": "b"}),
    "a long edge": graph({"a": CSV, "b": {"sql": "x", "inputs": {"a": "hash(" + "a " * 200_000}}}),
    "an edge of many columns": graph(
        {"a": CSV, "b": {"sql": "x", "inputs": {"a": f"hash({', '.join(f'c{i}' for i in range(100_000))}, c7)"}}}
    ),
    "a long key": graph({"a": CSV}, **{"x" * 600_000: 1}),
    "a long id": graph({"x" * 600_000: CSV}),
    "a dense graph": graph(
        {f"v{i}": {"sql": "x", "inputs": {f"v{j}": "forward" for j in range(i)}} for i in range(44)}
        | {f"w{i}": {"sql": "x", "inputs": {f"w{(i + 1) % 54}": "forward"}} for i in range(54)}
    ),
}


@pytest.mark.parametrize("case", HUGE)
@pytest.mark.timeout(60)
def test_a_huge_graph_is_refused_briefly(case: str) -> None:
    """What a stranger can send costs little to refuse: the time-out is met only if cost outgrows the input."""
    result = problems(HUGE[case])
    assert 1 <= len(result) <= MOST_PROBLEMS + 1
    assert sum(len(line) for line in result) < 300_000


def test_only_the_first_problems_are_listed() -> None:
    result = problems(graph({"a": CSV}, **{f"field{i}": 1 for i in range(200)}))
    assert len(result) == MOST_PROBLEMS + 1
    assert result[-1] == f"there are more problems than the {MOST_PROBLEMS} listed"


def test_long_words_are_not_compared() -> None:
    assert nearest("delay", ["x" * 70, "delays"]) == "delays"
    assert nearest("y" * 1000, ["y" * 65]) is None


def test_for_the_first_wrong_names_alone_the_nearest_is_looked_for() -> None:
    reads = {f"v{n}": {"sql": "SELECT 1 FROM delay", "inputs": {"delay": "forward"}} for n in range(HINTED_MOST + 10)}
    told = [each for each in problems(graph({"delays": CSV, **reads})) if "no vertex is called delay" in each]
    assert ["did you mean delays?" in each for each in told] == [True] * HINTED_MOST + [False] * 10
    assert all("delays, v0" in each for each in told[HINTED_MOST:])
