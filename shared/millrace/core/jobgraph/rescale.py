"""Another parallelism for vertices of a stored graph: what may be set, and the graph that comes of it. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .model import DEFAULT_LIMITS, Limits
from .problems import HINTED_MOST, Problem, did_you_mean
from .validate import see, vertex_problems


@dataclass(frozen=True)
class Bounds:
    """What parallelism a vertex has, and may have: 1 to `most`. `group`: the first of the vertices that have one parallelism, for `forward`
    joins them. `why`: what keeps it at 1; None: nothing."""

    parallelism: int
    most: int
    group: str
    why: str | None


def bounds_of(graph: Mapping[str, Any], limits: Limits = DEFAULT_LIMITS) -> dict[str, Bounds]:
    """Of each vertex of a stored graph, in the graph's order."""
    seen = see(graph.get("vertices"))
    group = _groups({name: [alias for alias, edge in each.edges.items() if edge and edge.kind == "forward"] for name, each in seen.items()})
    why: dict[str, str] = {}
    for name, each in seen.items():
        problem = next(vertex_problems(replace(each, parallelism=2), limits), None)
        if problem is not None:
            alone = list(group.values()).count(group[name]) == 1
            why.setdefault(group[name], problem.message if alone else f"{name}: {problem.message}")
    return {
        name: Bounds(each.parallelism or 1, 1 if group[name] in why else limits.parallelism, group[name], why.get(group[name]))
        for name, each in seen.items()
    }


def _groups(forward: Mapping[str, list[str]]) -> dict[str, str]:
    """Vertex -> the first vertex, in the graph's order, of those that edges by `forward` join with it."""
    head = {name: name for name in forward}

    def first(name: str) -> str:
        while head[name] != name:
            name = head[name]
        return name

    place = {name: number for number, name in enumerate(forward)}
    for name, others in forward.items():
        for other in others:
            one, two = sorted((first(name), first(other)), key=place.__getitem__)
            head[two] = one
    return {name: first(name) for name in forward}


def changed(
    bounds: Mapping[str, Bounds], vertices: Mapping[str, int], every: int | None = None, limits: Limits = DEFAULT_LIMITS
) -> dict[str, int] | list[Problem]:
    """Vertex -> its new parallelism, of all that get another one; or all that is wrong. `every`: of each vertex that may have several
    subtasks; `vertices` goes before it, and takes along what `forward` joins with them."""
    problems: list[Problem] = []
    given: dict[str, tuple[str, int]] = {}  # group -> who asked for it, and how many
    for name, number in vertices.items():
        place = ("vertices", name)
        its = bounds.get(name)
        if its is None:
            hint = did_you_mean(name, list(bounds), f"vertices are {', '.join(bounds)}") if len(problems) < HINTED_MOST else None
            problems.append(Problem(place, f"no vertex is called {name}", hint))
        elif number > limits.parallelism:
            problems.append(Problem(place, f"must be at most {limits.parallelism}, not {number}"))
        elif number > its.most:
            problems.append(Problem(place, f"stays at 1, not {number}: {its.why}"))
        elif given.setdefault(its.group, (name, number))[1] != number:
            other, theirs = given[its.group]
            problems.append(Problem(place, f"has {number}, and {other} has {theirs}: forward needs equal parallelism"))
    if every is not None and every > limits.parallelism:
        problems.append(Problem(("parallelism",), f"must be at most {limits.parallelism}, not {every}"))
    elif every is not None and not any(each.most > 1 for each in bounds.values()):
        problems.append(Problem(("parallelism",), "no vertex of this job can have several subtasks"))
    if problems:
        return problems
    target = {
        name: given[its.group][1] if its.group in given else every if every is not None and its.most > 1 else its.parallelism
        for name, its in bounds.items()
    }
    return {name: number for name, number in target.items() if number != bounds[name].parallelism}


def with_parallelism(graph: Mapping[str, Any], parallelism: Mapping[str, int]) -> dict[str, Any]:
    """The stored graph with these; vertices that it has not are left out."""
    vertices = graph.get("vertices")
    if not parallelism or not isinstance(vertices, dict):
        return dict(graph)
    return {**graph, "vertices": {name: _with(vertex, parallelism.get(name)) for name, vertex in vertices.items()}}


def _with(vertex: Any, number: int | None) -> Any:
    """As `dump` would write it: without what is left at its default."""
    if number is None or not isinstance(vertex, dict):
        return vertex
    return {name: value for name, value in {**vertex, "parallelism": number}.items() if (name, value) != ("parallelism", 1)}
