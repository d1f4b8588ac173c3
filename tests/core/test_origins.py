"""Which job another one was run again from."""

from __future__ import annotations

import pytest

from millrace.core.jobgraph.model import JobGraph, dump
from millrace.core.jobgraph.validate import validate
from millrace.core.messages.execution import JobOrigin
from millrace.core.origins import again, origin_of, origin_shown

GRAPH = {"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS x"}}}


def test_a_graph_that_is_run_again_says_of_which_job_it_was() -> None:
    stored = {**GRAPH, "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    first = again(stored, "nightly-1")
    assert first == {**GRAPH, "origin": {"job": "nightly-1"}}
    assert again(first, "nightly-2") == {**GRAPH, "origin": {"job": "nightly-2"}}, "the one before, not the first"
    assert origin_shown(first) == JobOrigin(job="nightly-1")
    assert origin_shown(GRAPH) is None


def test_it_is_checked_strictly() -> None:
    found = validate({**GRAPH, "origin": {"job": "nightly-1"}})
    assert isinstance(found, JobGraph) and dump(found)["origin"] == {"job": "nightly-1"}
    for wrong, place in (
        ({"job": "no id!"}, ("origin", "job")),
        ({}, ("origin",)),
        ("nightly-1", ("origin",)),
        ({"job": "a", "of": 1}, ("origin", "of")),
    ):
        problems = validate({**GRAPH, "origin": wrong})
        assert isinstance(problems, list) and [each.place for each in problems] == [place], problems


@pytest.mark.parametrize("stored", [None, "x", {"job": 7}, {}])
def test_what_another_build_stored_there_is_none(stored: object) -> None:
    assert origin_of({"origin": stored}) == {}


def test_a_tenant_of_another_form_is_told_by_its_rule() -> None:
    problems = validate({**GRAPH, "tenant": "a team"})
    assert isinstance(problems, list) and [each.place for each in problems] == [("tenant",)]
    assert problems[0].message.startswith("must be letters, digits, _, . or -")
