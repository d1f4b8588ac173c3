"""Parameters are put into a graph once, and into its texts alone."""

from __future__ import annotations

from millrace.core.jobgraph.model import JobGraph, dump
from tests.core.of_jobgraph import CSV, accepted, graph, problems


def test_an_override_must_name_a_declared_parameter() -> None:
    raw = graph({"a": CSV}, parameters={"data": "/d"})
    assert problems(raw, parameters={"dta": "/e"}) == [
        "parameters: dta is given a value but not declared (did you mean data?)"
    ]


def test_parameters_are_put_into_every_text_of_the_vertices() -> None:
    raw = graph(
        {
            "a": {
                "source": {"format": "${f}", "path": "${data}/$$x/$${y}/$z", "options": {"header": "${h}"}},
                "parallelism": "${n}",
            },
            "b": {"sql": "SELECT '${data}' -- $", "parallelism": 3, "inputs": {"a": "${edge}"}},
        },
        parameters={"data": "/d", "f": "csv", "h": True, "n": 2, "edge": "hash(k)"},
    )
    result = accepted(raw, parameters={"data": "/e", "n": "3"})
    assert dump(result) == {
        "name": "job",
        "parameters": {"data": "/e", "f": "csv", "h": "true", "n": "3", "edge": "hash(k)"},
        "vertices": {
            "a": {
                "source": {"format": "csv", "path": "/e/$x/${y}/$z", "options": {"header": "true"}},
                "parallelism": 3,
            },
            "b": {"sql": "SELECT '/e' -- $", "parallelism": 3, "inputs": {"a": "hash(k)"}},
        },
    }
    assert JobGraph.model_validate(dump(result)) == result


def test_a_value_is_not_looked_into_for_parameters() -> None:
    raw = graph({"a": {"sql": "SELECT '${a}'"}}, parameters={"a": "${a} $$"})
    assert accepted(raw).vertices["a"].sql == "SELECT '${a} $$'"
