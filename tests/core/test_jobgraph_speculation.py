"""`speculative` of a graph: true, or a mapping of its numbers; what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.jobgraph.model import JobGraph, Speculation, dump
from millrace.core.jobgraph.validate import validate

GRAPH: dict[str, Any] = {"name": "one", "vertices": {"q": {"sql": "SELECT 1"}}}


@pytest.mark.parametrize(
    ("given", "stored", "rule"),
    [
        (True, {"speculative": {}}, Speculation()),
        ({}, {"speculative": {}}, Speculation()),
        ({"baseline_ratio": 0.5}, {"speculative": {"baseline_ratio": 0.5}}, Speculation(baseline_ratio=0.5)),
        ({"baseline_ratio": "0.5"}, {"speculative": {"baseline_ratio": 0.5}}, Speculation(baseline_ratio=0.5)),  # as YAML has it
        (False, {}, None),
        (None, {}, None),
    ],
)
def test_what_is_stored_reads_back_as_it_was_given(given: Any, stored: dict[str, Any], rule: Speculation | None) -> None:
    graph = validate({**GRAPH, "speculative": given})
    assert isinstance(graph, JobGraph) and graph.speculative == rule
    assert dump(graph) == {**GRAPH, **stored} and JobGraph.model_validate(dump(graph)).speculative == rule


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("yes", "speculative: must be a mapping, not the text 'yes'"),
        ({"ratio": 1}, "speculative.ratio: unknown field ratio (there are baseline_ratio, baseline_multiplier, baseline_lower_bound_ms)"),
        ({"baseline_ratio": 0}, "speculative.baseline_ratio: must be more than 0.0, not 0"),
        ({"baseline_multiplier": 0.5}, "speculative.baseline_multiplier: must be at least 1.0, not 0.5"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(given: Any, says: str) -> None:
    assert list(map(str, validate({**GRAPH, "speculative": given}))) == [says]


def test_a_gang_has_no_second_attempts() -> None:
    [problem] = validate({**GRAPH, "speculative": True, "together": True})
    assert str(problem).startswith("speculative: does not go with together")
    assert isinstance(validate({**GRAPH, "speculative": False, "together": True}), JobGraph)
