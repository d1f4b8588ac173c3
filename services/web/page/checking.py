"""A graph as it is typed: what is wrong with it, at which line, and the plan of it as far as it can be read. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millrace.core.jobgraph.compile import Plan, compile_graph
from millrace.core.jobgraph.model import DEFAULT_LIMITS, Edge, JobGraph, as_text
from millrace.core.jobgraph.problems import MOST_PROBLEMS, Problem
from millrace.core.jobgraph.validate import environment_problems
from millrace.edge.files import module_kind
from millrace.edge.requests import check_graph
from millrace.edge.yaml_file import read_yaml

from . import layout
from .words import count, printable

TEXT_MOST = 256 << 10
PLACEHOLDER = "0" * 64
"""Stands for the hash of a file that is not uploaded yet."""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong."""

    line: int
    column: int
    message: str
    hint: str
    place: str
    is_warning: bool


@dataclass(frozen=True)
class PlannedBox:
    """A task, or a vertex of a graph that cannot be planned yet."""

    id: str
    name: str
    kinds: str
    parallelism: int
    is_wrong: bool


@dataclass(frozen=True)
class Checked:
    """What there is to tell of a text."""

    text: str
    raw: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()
    boxes: tuple[PlannedBox, ...] = ()
    edges: tuple[tuple[str, str, str], ...] = ()
    """Producer, reader, and how rows go."""
    picture: layout.Picture | None = None
    runs_as: str = ""
    name: str = ""

    @property
    def errors(self) -> int:
        """Mistakes that stop a submission."""
        return sum(not each.is_warning for each in self.mistakes)

    @property
    def lines(self) -> list[tuple[int, str, list[Mistake]]]:
        """The text with what is wrong in each line."""
        found: dict[int, list[Mistake]] = {}
        for each in self.mistakes:
            found.setdefault(each.line, []).append(each)
        return [(n, line, found.get(n, [])) for n, line in enumerate(self.text.split("\n"), 1)]


def checked(text: str, files: Mapping[str, str] | Sequence[str] = ()) -> Checked:
    """`files`: names of what goes along, with their hashes where they are known. Nothing on this machine is looked at."""
    text = text.replace("\r\n", "\n")
    if len(text.encode(errors="replace")) > TEXT_MOST:
        return Checked("", mistakes=(Mistake(1, 1, f"the text is larger than the {TEXT_MOST} bytes allowed", "", "", False),))
    if not text.strip():
        return Checked(text)
    document = read_yaml(text)
    problems = list(document.problems)
    raw = document.value if isinstance(document.value, dict) else {}
    if not raw and not problems:
        problems.append(Problem((), "a graph is a mapping with name and vertices"))
    problems += environment_problems(raw.get("env"))
    raw, env = _without_env(raw)
    _attach(raw, files)
    graph: JobGraph | None = None
    if raw and not problems:
        result = check_graph(raw, {}, DEFAULT_LIMITS)
        problems += [*result.problems, *result.warnings]
        graph = result.graph if not result.problems else None
    problems.sort(key=document.position)
    mistakes = tuple(_mistake(each, *document.position(each)) for each in problems[:MOST_PROBLEMS])
    boxes, edges, runs_as = _planned(compile_graph(graph)) if graph is not None else _read(raw, mistakes)
    picture = None
    if 0 < len(boxes) <= 60:
        upstream = {box.id: [producer for producer, reader, _ in edges if reader == box.id] for box in boxes}
        picture = layout.drawn(_acyclic(upstream), {box.id: 1 for box in boxes}, 96)
    return Checked(text, raw, env, mistakes, boxes, edges, picture, runs_as, str(raw.get("name") or ""))


def _mistake(problem: Problem, line: int, column: int) -> Mistake:
    place = problem.place[:-1] if problem.place[-1:] == ("again",) else problem.place
    where = ".".join(str(part) for part in place)
    return Mistake(line, column, printable(problem.message), printable(problem.hint or ""), printable(where), problem.warning)


def _without_env(raw: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The variables go apart: a graph stands in topics, where values are for everybody."""
    env = raw.get("env")
    if not isinstance(env, dict):
        return dict(raw), {}
    texts = {str(name): as_text(value) for name, value in env.items()}
    graph = {name: value for name, value in raw.items() if name != "env"}
    return graph, {name: text for name, text in texts.items() if isinstance(text, str)}


def _attach(raw: dict[str, Any], files: Mapping[str, str] | Sequence[str]) -> None:
    hashes = dict(files) if isinstance(files, Mapping) else dict.fromkeys(files, PLACEHOLDER)
    if not hashes:
        return
    given = [each for each in raw.get("modules") or () if not (isinstance(each, str) and each in hashes)]
    raw["modules"] = [*given, *({"name": name, "sha256": sha256, "kind": module_kind(name)} for name, sha256 in hashes.items())]


def _planned(plan: Plan) -> tuple[tuple[PlannedBox, ...], tuple[tuple[str, str, str], ...], str]:
    boxes, edges = [], []
    for task in plan.tasks.values():
        name = task.vertices[0] if len(task.vertices) == 1 else f"{len(task.vertices)} in one plan"
        kinds = ", ".join(task.vertices) if len(task.vertices) > 1 else plan.graph.vertices[task.vertices[0]].kind
        boxes.append(PlannedBox(task.id, name, kinds, task.parallelism, False))
        how: dict[str, list[str]] = {}
        for inputs in task.inputs.values():
            for each in inputs:
                if each.task is not None:
                    how.setdefault(each.task, []).append(str(Edge(each.edge, each.keys)) if each.edge != "chained" else "")
        edges += [(producer, task.id, " + ".join(dict.fromkeys(some))) for producer, some in how.items()]
    subtasks = sum(task.parallelism for task in plan.tasks.values())
    return tuple(boxes), tuple(edges), f"{count(len(plan.tasks), 'task')}, {count(subtasks, 'subtask')}"


def _read(raw: Mapping[str, Any], mistakes: Sequence[Mistake]) -> tuple[tuple[PlannedBox, ...], tuple[tuple[str, str, str], ...], str]:
    """As much as can be read of a graph that is wrong: a box for each vertex."""
    vertices = raw.get("vertices")
    if not isinstance(vertices, dict):
        return (), (), ""
    boxes, edges = [], []
    for name, vertex in vertices.items():
        vertex = vertex if isinstance(vertex, dict) else {}
        kinds = [kind for kind in ("source", "sql", "python", "sink", "spark_app") if kind in vertex]
        is_wrong = any(each.place == f"vertices.{name}" or each.place.startswith(f"vertices.{name}.") for each in mistakes)
        parallelism = vertex.get("parallelism")
        boxes.append(PlannedBox(name, name, ", ".join(kinds), parallelism if isinstance(parallelism, int) else 1, is_wrong))
        inputs = vertex.get("inputs")
        for producer, edge in (inputs.items() if isinstance(inputs, dict) else ()):
            if producer in vertices and producer != name:
                edges.append((producer, name, str(edge)[:40]))
    return tuple(boxes), tuple(edges), ""


def _acyclic(upstream: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Producers first; what would close a circle is left out."""
    ordered: dict[str, list[str]] = {}
    left = dict(upstream)
    while left:
        ready = [name for name, read in left.items() if all(each in ordered for each in read)] or [next(iter(left))]
        for name in ready:
            ordered[name] = [each for each in left.pop(name) if each in ordered]
    return ordered
