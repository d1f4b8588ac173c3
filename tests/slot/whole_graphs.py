"""A whole graph in the test's own process: its plan attempt and all its subtasks, one after the other, as a JobMaster would order them.
And the same graph as one chain of queries in one plain session."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace.core.jobgraph.compile import Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.specs import attempt_spec, plan_spec
from millrace.core.jobgraph.validate import validate
from millrace.core.messages.attempts import AttemptReport
from services.task_manager.slot.common.attach import PARTITIONS
from tests.slot.attempts import Attempts


@dataclass
class Ran:
    """What a graph left: of each sink the folders that its subtasks staged, and the rows of the result."""

    plan: Plan
    staged: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    rows: list[list[Any]] = field(default_factory=list)


def compiled(document: dict[str, Any]) -> Plan:
    graph = validate(document)
    assert isinstance(graph, JobGraph), [str(problem) for problem in graph]
    return compile_graph(graph)


def run(attempts: Attempts, document: dict[str, Any], folder: Path) -> Ran:
    """Runs all its attempts; raises what the first of them that fails raises. folder: for what they hand on."""
    ran = Ran(compiled(document))
    plan, planned = ran.plan, None
    if plan.needs_planning:
        planned = AttemptReport.model_validate(attempts.run_spec(plan_spec(plan, job="j", attempt=1).json_value()))
    published: dict[str, Any] = {}
    for name, task in plan.tasks.items():
        its = published[name] = SimpleNamespace(schemas={}, rows={})
        for subtask in range(task.parallelism):
            spec = attempt_spec(
                plan, job="j", task=name, subtask=subtask, attempt=1, published=published, planned=planned, exchange=str(folder), run="j/1"
            ).json_value()
            report = attempts.run_spec(spec)
            for output in spec["outputs"]:
                if output["edge"] == "sink":
                    ran.staged.setdefault(output["vertex"], []).append(output["folder"])
            for vertex, each in report["outputs"].items():
                its.schemas.setdefault(vertex, each["schema"])
            listed = tuple(vertex for vertex, each in report["outputs"].items() if each.get("listed"))
            its.rows[subtask] = SimpleNamespace(attempt=1, listed=listed, kept=None)
            if report["result"] is not None:
                ran.rows += report["result"]["rows"]
    return ran


class PlainChain:
    """The vertices of a graph as DataFrames of one session, each a view for those that read it."""

    def __init__(self, spark: Any, conf: dict[str, str], modules: Path) -> None:
        self.session, self.modules = spark.newSession(), modules
        for key, value in {PARTITIONS: "4", **conf}.items():  # not Spark's 200: each is a task where execution does not adapt
            self.session.conf.set(key, value)
        self.frames: dict[str, Any] = {}

    def add(self, name: str, vertex: dict[str, Any]) -> Any:
        """The DataFrame of a vertex whose inputs are there; of a sink that of its input."""
        inputs = {each: self.frames[each] for each in vertex.get("inputs", {})}
        if source := vertex.get("source"):
            reader = self.session.read.format(source["format"]).options(**source.get("options", {}))
            df = (reader.schema(source["schema"]) if source.get("schema") else reader).load(source["path"])
        elif sql := vertex.get("sql"):
            df = self.session.sql(sql)
        elif python := vertex.get("python"):
            module, _, function = python.partition(":")
            df = runpy.run_path(str(self.modules / f"{module}.py"))[function](*inputs.values())
        else:
            (df,) = inputs.values()
        self.frames[name] = df
        if not vertex.get("sink"):
            df.createOrReplaceTempView(f"`{name}`")
        return df
