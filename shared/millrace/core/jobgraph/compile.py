"""From a JobGraph to tasks. Pure and deterministic.

A **task** is one or more vertices joined by `forward` edges of equal parallelism: one attempt, and one Spark plan, a
subtask. A Plan follows from its graph alone: it is computed again where it is needed, never stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..messages.attempts import InputEdge, OutputEdge
from .model import JobGraph, Vertex
from .problems import Problem

PLAN_TASK = "@plan"  # the task id of a plan attempt; no vertex can be called so


@dataclass(frozen=True)
class Input:
    """One input of a vertex: `edge` is chained, hash, broadcast or forward; `task` produces it (None: this one)."""

    vertex: str
    edge: InputEdge
    keys: tuple[str, ...]
    task: str | None


@dataclass(frozen=True)
class Output:
    """What a task leaves behind for others: `edge` is hash, broadcast, forward, result or sink.

    `consumers` are the vertices of other tasks that read it; `shares` is the parallelism of those (hash only, else 0).
    """

    vertex: str
    edge: OutputEdge
    keys: tuple[str, ...] = ()
    shares: int = 0
    consumers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """`id` joins the ids of its vertices, in topological order, by "+"; `index` is its place in Plan.tasks."""

    id: str
    index: int
    parallelism: int
    vertices: tuple[str, ...]
    inputs: dict[str, tuple[Input, ...]]  # by vertex of this task, in the order of its `inputs`
    outputs: tuple[Output, ...]
    upstream: tuple[str, ...]  # the tasks that publish what this one reads, in the order of Plan.tasks
    whole: tuple[str, ...]  # those of them of which each subtask reads every subtask: by hash or broadcast
    aligned: tuple[str, ...]  # those of which subtask i reads subtask i: by forward
    readers: tuple[str, ...]  # the tasks that read this one


@dataclass(frozen=True)
class Plan:
    """`tasks` by id, producers before consumers; `result` is the vertex whose first rows are the job's result."""

    graph: JobGraph
    tasks: dict[str, Task]
    result: str | None
    needs_planning: bool  # a plan attempt goes first


def compile_graph(graph: JobGraph) -> Plan:
    """The plan of a valid graph (one that `validate` returned)."""
    order = vertex_order(graph.vertices)
    members = chains(graph.vertices, order)
    task_of = {vertex: task for task, its in members.items() for vertex in its}
    result = result_vertex(graph)
    inputs = {vertex: _inputs(graph, vertex, task_of) for vertex in order}
    upstream = {
        task: {i.task: None for vertex in its for i in inputs[vertex] if i.task is not None}
        for task, its in members.items()
    }
    readers: dict[str, list[str]] = {task: [] for task in members}
    for task, read in upstream.items():
        for other in read:
            readers[other].append(task)
    tasks = {}
    for index, (task, its) in enumerate(members.items()):
        edges = [(i.edge == "forward", i.task) for vertex in its for i in inputs[vertex] if i.task is not None]
        tasks[task] = Task(
            id=task,
            index=index,
            parallelism=graph.vertices[its[0]].parallelism,
            vertices=tuple(its),
            inputs={vertex: inputs[vertex] for vertex in its},
            outputs=_outputs(graph, its, order, task_of, result),
            upstream=tuple(other for other in upstream if other in upstream[task]),
            whole=tuple(dict.fromkeys(other for forward, other in edges if not forward)),
            aligned=tuple(dict.fromkeys(other for forward, other in edges if forward)),
            readers=tuple(readers[task]),
        )
    return Plan(graph, tasks, result, _needs_planning(graph))


def chains(vertices: Mapping[str, Vertex], order: Sequence[str]) -> dict[str, list[str]]:
    """The vertices of each task by its id, producers before consumers. `order`: of the vertices."""
    group = _chain(vertices, order)  # vertex -> the first vertex of its task
    members: dict[str, list[str]] = {}
    for vertex in order:
        members.setdefault(group[vertex], []).append(vertex)
    first = _sort(list(members), _group_edges(vertices, order, group))
    assert first is not None, "chaining made a cycle"
    return {"+".join(members[head]): members[head] for head in first}


def vertex_order(vertices: Mapping[str, Vertex]) -> list[str]:
    """The vertices, producers first; among those that may come next, the one that the graph names first."""
    order = _sort(list(vertices), {name: list(vertex.inputs) for name, vertex in vertices.items()})
    assert order is not None, "a valid graph has no cycle"
    return order


def result_vertex(graph: JobGraph) -> str | None:
    """The vertex whose first rows are the job's result.

    `graph.result` if given, else the only vertex that nobody reads; for a sink, the vertex that it writes. None if
    several vertices are read by nobody, or if the only one is a spark_app.
    """
    read = {producer: None for vertex in graph.vertices.values() for producer in vertex.inputs}
    last = [graph.result] if graph.result else [name for name in graph.vertices if name not in read]
    if len(last) != 1 or graph.vertices[last[0]].kind == "spark_app":
        return None
    vertex = graph.vertices[last[0]]
    return next(iter(vertex.inputs)) if vertex.kind == "sink" else last[0]


def check_unread(graph: JobGraph) -> list[Problem]:
    """Warnings for vertices whose rows nobody gets: nothing reads them, and they are not the job's result."""
    read = {producer for vertex in graph.vertices.values() for producer in vertex.inputs} | {result_vertex(graph)}
    hint = f"name it in `result`, or give it a sink or a reader{'' if graph.result else '; of several last vertices none is the result'}"
    return [
        Problem(("vertices", name), "nothing reads its rows, and they are not the job's result", hint, True)
        for name, vertex in graph.vertices.items()
        if name not in read and vertex.kind not in ("sink", "spark_app")
    ]


def producers(plan: Plan, task: str, subtask: int) -> tuple[tuple[str, int], ...]:
    """The (task, subtask) pairs that must be published before this subtask can start, in the order of Plan.tasks."""
    found: dict[tuple[str, int], None] = {}
    for inputs in plan.tasks[task].inputs.values():
        for each in inputs:
            if each.task is not None:
                found.update(dict.fromkeys((each.task, number) for number in subtasks_read(plan, each, subtask)))
    return tuple(sorted(found, key=lambda pair: (plan.tasks[pair[0]].index, pair[1])))


def _sort(names: Sequence[str], before: Mapping[str, Sequence[str]]) -> list[str] | None:
    """`names` so that `before[x]` precede x, else in their own order; None if there is a cycle."""
    left = {name: len(before.get(name, ())) for name in names}
    after: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        for other in before.get(name, ()):
            after[other].append(name)
    rank = {name: index for index, name in enumerate(names)}
    ready = [rank[name] for name in names if left[name] == 0]
    order = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for other in after[name]:
            left[other] -= 1
            if left[other] == 0:
                heapq.heappush(ready, rank[other])
    return order if len(order) == len(names) else None


def _chain(vertices: Mapping[str, Vertex], order: Sequence[str]) -> dict[str, str]:
    """Vertex -> the first vertex (in `order`) of its task.

    Each forward edge joins two tasks into one unless the tasks would then wait for each other (a diamond with an
    exchange on one side); such an edge stays an exchange.
    """
    group = {vertex: vertex for vertex in order}
    for vertex in order:
        for producer, edge in vertices[vertex].inputs.items():
            if edge.kind != "forward" or group[producer] == group[vertex]:
                continue
            head, gone = sorted((group[producer], group[vertex]), key=order.index)
            joined = {name: head if first == gone else first for name, first in group.items()}
            if _sort(list(dict.fromkeys(joined.values())), _group_edges(vertices, order, joined)) is not None:
                group = joined
    return group


def _group_edges(vertices: Mapping[str, Vertex], order: Sequence[str], group: Mapping[str, str]) -> dict[str, list[str]]:
    """Task -> the tasks it reads. A task that would read its own exchange reads itself: a cycle."""
    edges: dict[str, dict[str, None]] = {}
    for vertex in order:
        for producer, edge in vertices[vertex].inputs.items():
            if edge.kind != "forward" or group[producer] != group[vertex]:
                edges.setdefault(group[vertex], {})[group[producer]] = None
    return {head: list(others) for head, others in edges.items()}


def _inputs(graph: JobGraph, vertex: str, task_of: Mapping[str, str]) -> tuple[Input, ...]:
    inputs = []
    for producer, edge in graph.vertices[vertex].inputs.items():
        chained = task_of[producer] == task_of[vertex]
        inputs.append(
            Input(producer, "chained" if chained else edge.kind, edge.keys, None if chained else task_of[producer])
        )
    return tuple(inputs)


def _outputs(
    graph: JobGraph, members: Sequence[str], order: Sequence[str], task_of: Mapping[str, str], result: str | None
) -> tuple[Output, ...]:
    """One output for each distinct way in which other tasks read a vertex; then the result and the sinks."""
    outputs: list[Output] = []
    for vertex in members:
        readers: dict[tuple[OutputEdge, tuple[str, ...], int], list[str]] = {}
        for consumer in order:
            edge = graph.vertices[consumer].inputs.get(vertex)
            if edge is not None and task_of[consumer] != task_of[vertex]:
                shares = graph.vertices[consumer].parallelism if edge.kind == "hash" else 0
                readers.setdefault((edge.kind, edge.keys, shares), []).append(consumer)
        outputs += [Output(vertex, edge, keys, shares, tuple(consumers)) for (edge, keys, shares), consumers in readers.items()]
        if vertex == result:
            outputs.append(Output(vertex, "result"))
        if graph.vertices[vertex].kind == "sink":
            outputs.append(Output(vertex, "sink"))
    return tuple(outputs)


def _needs_planning(graph: JobGraph) -> bool:
    """Shares of a source and the common key types of co-hashed inputs must be fixed before the first attempt."""
    return any(
        (vertex.kind == "source" and vertex.parallelism > 1)
        or sum(edge.kind == "hash" for edge in vertex.inputs.values()) > 1
        for vertex in graph.vertices.values()
    )


def subtasks_read(plan: Plan, each: Input, subtask: int) -> Sequence[int]:
    """The subtasks of the producing task that one subtask reads."""
    return [subtask] if each.edge == "forward" else range(plan.tasks[each.task or ""].parallelism)
