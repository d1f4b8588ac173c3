"""The specs of the flights' attempts, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from millrace.core.jobgraph.compile import Plan, compile_graph, producers
from millrace.core.jobgraph.model import JobGraph, Sink, Source, SparkApp
from millrace.core.jobgraph.specs import attempt_spec, plan_spec
from millrace.core.jobgraph.validate import validate
from millrace.core.messages.attempts import AttemptReport, SinkSpec, SourceSpec, SparkAppSpec, VertexSpec
from tests.core.of_jobgraph import Published, published

FLIGHTS = {
    "name": "flight-delays",
    "parameters": {"data": "/data"},
    "vertices": {
        "flights": {
            "source": {"format": "csv", "path": "${data}/f.csv", "options": {"header": True}},
            "parallelism": 2,
        },
        "weather": {"source": {"format": "csv", "path": "${data}/w.csv", "schema": "origin STRING, t TIMESTAMP"}},
        "airlines": {"source": {"format": "csv", "path": "${data}/a.csv"}},
        "joined": {
            "sql": "SELECT 1",
            "parallelism": 2,
            "inputs": {"flights": "hash(origin, t)", "weather": "hash(origin, t)", "airlines": "broadcast"},
        },
        "delays": {"sql": "SELECT 2", "inputs": {"joined": "hash(carrier)"}},
        "ranked": {"python": "ranking:rank", "inputs": {"delays": "forward"}, "schema": "x INT"},
        "report": {
            "sink": {"format": "parquet", "path": "${data}/out/", "mode": "overwrite"},
            "inputs": {"ranked": "forward"},
        },
    },
    "modules": [{"name": "ranking.py", "sha256": "0" * 64, "kind": "py"}],
    "conf": {"spark.sql.ansi.enabled": True},
}
JOB_PART = {
    "conf": {"spark.sql.ansi.enabled": "true"},
    "modules": [{"name": "ranking.py", "sha256": "0" * 64, "kind": "py"}],
    "parameters": {"data": "/data"},
}
PLANNED = {
    "pinned": {"flights": {"schema": "FS", "files": [["/data/f.csv", 10, 1]], "split_bytes": 5},
               "weather": {"schema": "WS", "files": [["/data/w.csv", 6, 1]]},
               "airlines": {"schema": "AS", "files": [["/data/a.csv", 3, 1]]}},
    "schemas": {},
    "key_types": {"joined": ["string", "timestamp"]},
}


def flights() -> Plan:
    graph = validate(FLIGHTS)
    assert isinstance(graph, JobGraph)
    return compile_graph(graph)


def spec(
    plan: Plan, task: str, subtask: int, attempt: int, reads: dict[str, Published]
) -> dict[str, Any]:
    return attempt_spec(
        plan,
        job="job-1",
        task=task,
        subtask=subtask,
        attempt=attempt,
        published=reads,
        planned=AttemptReport.model_validate(PLANNED),
        exchange="/x/",
        run="job-1-g3",
    ).json_value()


def test_the_spec_of_a_source() -> None:
    assert spec(flights(), "flights", 1, 2, {}) == {
        "job": "job-1",
        "task": "flights",
        "subtask": 1,
        "parallelism": 2,
        "attempt": 2,
        "kind": "run",
        "vertices": [
            {
                "id": "flights",
                "source": {"format": "csv", "path": "/data/f.csv", "options": {"header": "true"}, "schema": None},
                "schema": None,
                "parallelism": 2,
                "inputs": {},
            }
        ],
        "outputs": [
            {
                "vertex": "flights",
                "edge": "hash",
                "keys": ["origin", "t"],
                "key_types": ["string", "timestamp"],
                "shares": 2,
                "folder": "/x/job-1-g3/0-flights/1/2/0-flights",
            }
        ],
        "pinned": {"flights": {"schema": "FS", "files": [["/data/f.csv", 10, 1]], "split_bytes": 5}},
        **JOB_PART,
    }


def test_the_spec_of_a_join_reads_the_attempts_that_count() -> None:
    plan = flights()
    assert producers(plan, "joined", 1) == (("flights", 0), ("flights", 1))
    found = spec(plan, "joined", 1, 4, {"flights": published({"flights": "FS"}, 1, 7)})
    assert found["vertices"] == [
        {
            "id": "weather",
            "source": {"format": "csv", "path": "/data/w.csv", "options": {}, "schema": "origin STRING, t TIMESTAMP"},
            "schema": "origin STRING, t TIMESTAMP",
            "parallelism": 1,
            "copied": True,
            "inputs": {},
        },
        {
            "id": "airlines",
            "source": {"format": "csv", "path": "/data/a.csv", "options": {}, "schema": None},
            "schema": None,
            "parallelism": 1,
            "copied": True,
            "inputs": {},
        },
        {
            "id": "joined",
            "sql": "SELECT 1",
            "schema": None,
            "parallelism": 2,
            "inputs": {
                "flights": {
                    "edge": "hash",
                    "keys": ["origin", "t"],
                    "share": 1,
                    "shares": 2,
                    "folders": ["/x/job-1-g3/0-flights/0/1/0-flights", "/x/job-1-g3/0-flights/1/7/0-flights"],
                    "schema": "FS",
                },
                "weather": {"edge": "chained", "keys": ["origin", "t"], "key_types": ["string", "timestamp"], "share": 1, "shares": 2},
                "airlines": {"edge": "chained"},
            },
        },
    ]
    assert found["pinned"] == {
        "weather": {"schema": "WS", "files": [["/data/w.csv", 6, 1]]},
        "airlines": {"schema": "AS", "files": [["/data/a.csv", 3, 1]]},
    }
    assert found["outputs"] == [
        {
            "vertex": "joined",
            "edge": "hash",
            "keys": ["carrier"],
            "key_types": None,
            "shares": 1,
            "folder": "/x/job-1-g3/1-joined/1/4/0-joined",
        }
    ]


def test_the_spec_of_a_chain_with_sink_and_result() -> None:
    plan = flights()
    found = spec(plan, "delays+ranked+report", 0, 1, {"joined": published({"joined": "JS"}, 1, 1)})
    assert [(vertex["id"], vertex["schema"], vertex["inputs"]) for vertex in found["vertices"]] == [
        (
            "delays",
            None,
            {
                "joined": {
                    "edge": "hash",
                    "keys": ["carrier"],
                    "share": 0,
                    "shares": 1,
                    "folders": ["/x/job-1-g3/1-joined/0/1/0-joined", "/x/job-1-g3/1-joined/1/1/0-joined"],
                    "schema": "JS",
                }
            },
        ),
        ("ranked", "x INT", {"delays": {"edge": "chained"}}),
        ("report", None, {"ranked": {"edge": "chained"}}),
    ]
    assert found["vertices"][2]["sink"] == {
        "format": "parquet",
        "path": "/data/out/",
        "mode": "overwrite",
        "options": {},
    }
    assert found["outputs"] == [
        {"vertex": "ranked", "edge": "result", "rows": 1000},
        {"vertex": "report", "edge": "sink", "folder": "/data/.out.staging/job-1-g3/2-report/0/1", "name": "job-1-g3-report"},
    ]


def test_the_planning_spec_has_all_vertices_chained() -> None:
    found = plan_spec(flights(), job="job-1", attempt=2).json_value()
    assert {name: part for name, part in found.items() if name != "vertices"} == {
        "job": "job-1",
        "task": "@plan",
        "subtask": 0,
        "parallelism": 1,
        "attempt": 2,
        "kind": "plan",
        "outputs": [],
        "pinned": {},
        **JOB_PART,
    }
    assert [
        (vertex["id"], vertex["parallelism"], vertex["schema"], vertex["inputs"]) for vertex in found["vertices"]
    ] == [
        ("flights", 2, None, {}),
        ("weather", 1, "origin STRING, t TIMESTAMP", {}),
        ("airlines", 1, None, {}),
        (
            "joined",
            2,
            None,
            {
                "flights": {"edge": "chained", "keys": ["origin", "t"]},
                "weather": {"edge": "chained", "keys": ["origin", "t"]},
                "airlines": {"edge": "chained"},
            },
        ),
        ("delays", 1, None, {"joined": {"edge": "chained", "keys": ["carrier"]}}),
        ("ranked", 1, "x INT", {"delays": {"edge": "chained"}}),
        ("report", 1, None, {"ranked": {"edge": "chained"}}),
    ]


def test_all_attempts_have_the_time_zone_in_which_the_job_was_planned() -> None:
    zone = "spark.sql.session.timeZone"

    def conf(**graph: Any) -> dict[str, str]:
        plan = compile_graph(JobGraph.model_validate({**FLIGHTS, **graph}))
        planned = AttemptReport.model_validate({**PLANNED, "time_zone": "Europe/Paris"})
        where = {"exchange": "/x", "run": "r", "published": {}, "planned": planned}
        return attempt_spec(plan, job="j", task="flights", subtask=0, attempt=1, **where).conf

    assert conf() == {"spark.sql.ansi.enabled": "true", zone: "Europe/Paris"}
    assert conf(conf={zone: "UTC"}) == {zone: "UTC"}, "what the job says goes first"


@pytest.mark.parametrize("given, of_graph, of_spec", [
    ({"format": "csv", "path": "/a", "options": {"header": "true"}, "schema": "a INT"}, Source, SourceSpec),
    ({"format": "parquet", "path": "/out", "mode": "append", "options": {}}, Sink, SinkSpec),
    ({"script": "etl.py", "args": ["--day", "1"]}, SparkApp, SparkAppSpec),
])  # fmt: skip
def test_an_attempt_is_given_what_the_graph_says_of_a_vertex(
    given: dict[str, Any], of_graph: type[BaseModel], of_spec: type[BaseModel]
) -> None:
    fields = {field.alias or name for name, field in of_spec.model_fields.items()}
    assert fields == {field.alias or name for name, field in of_graph.model_fields.items()} == set(given)
    spec = of_spec.model_validate(of_graph.model_validate(given).model_dump(mode="json"))
    assert spec.model_dump_json() == of_graph.model_validate(given).model_dump_json()
    later = {**given, "later": 1}
    assert of_spec.model_validate(later).model_dump(mode="json") == later, "a TaskManager bears what a later build says"


def test_a_vertex_of_a_spec_is_no_free_object() -> None:
    with pytest.raises(ValidationError):
        VertexSpec(id="v", parallelism=1, inputs={}, source={"format": "csv", "path": ["/a"]})  # type: ignore[arg-type]  # that is the point
