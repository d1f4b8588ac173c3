"""When a task of one job is the same as a task of another: what a repaired job had finished is kept by that. Pure and deterministic."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..messages.attempts import AttemptReport
from .compile import Plan, Task
from .model import JobGraph, Module, Vertex, settings_of
from .specs import places_of

FORMAT = 1
"""Of what attempts hand to each other. A build that reads other files, or of the same rows makes others, has another number."""
CODE = ("python", "spark_app")


class Definition(NamedTuple):
    """Two digests. `files` is apart: whoever repairs may say that a change of them does not matter."""

    what: str
    files: str


def definitions(plan: Plan, planned: AttemptReport | None) -> dict[str, Definition]:
    """Of each task. planned: what the plan attempt reported; it decides which rows and columns a task hands on."""
    report = planned or AttemptReport()
    found: dict[str, Definition] = {}
    for task in plan.tasks.values():
        upstream = [found[other].what for other in task.upstream]
        found[task.id] = Definition(_digest(_what(plan, task, report, upstream)), _digest(_files(plan.graph, task.vertices)))
    return found


def planning(plan: Plan) -> str:
    """Digest of all that the plan attempt looks at."""
    graph = plan.graph
    vertices = {name: _written(vertex) for name, vertex in graph.vertices.items()}
    order = [[name, list(vertex.inputs)] for name, vertex in graph.vertices.items()]
    return _digest([FORMAT, vertices, order, settings_of(graph), dict(graph.parameters), _files(graph, graph.vertices), plan.result])


def _written(vertex: Vertex) -> dict[str, Any]:
    """What it does. Where it runs makes no difference."""
    return vertex.model_dump(mode="json", exclude_defaults=True, exclude={"resources"})


def _digest(value: Any) -> str:
    """Of any text, also half of a surrogate pair in a file's name."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _what(plan: Plan, task: Task, report: AttemptReport, upstream: list[str]) -> list[Any]:
    graph = plan.graph
    vertices = [[name, _written(graph.vertices[name])] for name in task.vertices]
    read = [[name, [[each.vertex, each.edge, list(each.keys)] for each in task.inputs[name]]] for name in task.vertices]
    pinned = [[name, report.pinned[name].json_value()] for name in task.vertices if name in report.pinned]
    types = [[name, report.key_types[name]] for name in task.vertices if name in report.key_types]
    parameters = dict(graph.parameters) if _has_code(graph, task.vertices) else {}
    return [
        FORMAT, task.id, task.parallelism, vertices, read, places_of(report, task), pinned, types, settings_of(graph),
        report.time_zone, parameters, upstream,
    ]  # fmt: skip


def _has_code(graph: JobGraph, vertices: Iterable[str]) -> bool:
    return any(graph.vertices[name].kind in CODE for name in vertices)


def _files(graph: JobGraph, vertices: Iterable[str]) -> list[Any]:
    """What the code of these vertices may read: the file that each names, and all that no vertex names. Without code jars alone."""
    its = list(vertices)
    if not _has_code(graph, its):
        return [[each.name, each.sha256] for each in graph.modules if each.kind == "jar"]
    named = {name: _entry(graph, name) for name in graph.vertices}
    own = {named[name] for name in its}
    others = {each for each in named.values() if each not in own}
    return [_listed(each) for each in graph.modules if each.name not in others or each.kind in ("jar", "env")] + [dict(graph.env)]


def _listed(module: Module) -> list[str]:
    return [module.name, module.sha256, module.kind]


def _entry(graph: JobGraph, name: str) -> str:
    """The name of the file in which the code of a vertex begins; empty: it has none."""
    vertex = graph.vertices[name]
    if vertex.spark_app is not None:
        return vertex.spark_app.script
    return f"{vertex.python.partition(':')[0].partition('.')[0]}.py" if vertex.python is not None else ""
