"""From a JobGraph to tasks. Pure and deterministic.

A **task** is one or more vertices whose rows need no exchange: one attempt, and one Spark plan, a subtask. `forward` edges join
them. Between vertices of parallelism 1 any edge does: one share of a `hash`, and a `broadcast` to one reader, are just the rows.
A source of files that few subtasks read by `broadcast` or `hash` is read by each of them: a **copy** of its vertex is part of their task.
A Plan follows from its graph alone: it is computed again where it is needed, never stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..messages.attempts import InputEdge, OutputEdge
from ..profile import Profile, largest
from .model import JobGraph, Vertex
from .problems import Problem

PLANNER = 1
"""The number of this planner. A job keeps the one that it began with: its tasks are in snapshots. 0: builds before 0.2."""

PLAN_TASK = "@plan"  # the task id of a plan attempt; no vertex can be called so
COPIED_FORMATS = frozenset(("avro", "csv", "json", "orc", "parquet", "text", "xml"))  # of files, whose list can be pinned
COLUMNAR_FORMATS = frozenset(("orc", "parquet"))  # of those, the ones that are far cheaper to read than to write
COPIES_MOST = {"broadcast": 16, "hash": 4}
SCANS_MOST = 8  # of a source of several subtasks, by all its readers together
"""More subtasks would read a large file more often than handing it over once costs; by hash each would leave out most of what it read."""


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
    """`id` joins the ids of its vertices but copies, in topological order, by "+"; `index` is its place in Plan.tasks.
    Where a job was rescaled, it is a number that no other task of the job has had: it names folders."""

    id: str
    index: int
    parallelism: int
    vertices: tuple[str, ...]  # copies of sources first
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
    copied: tuple[str, ...]  # the sources that are read whole by each subtask of a reader
    needs_planning: bool  # a plan attempt goes first
    profiles: dict[str, Profile]  # by task, and PLAN_TASK: what its slots must have
    profile: Profile | None  # the same of all slots; None: they differ


def compile_graph(graph: JobGraph, planner: int = PLANNER) -> Plan:
    """The plan of a valid graph (one that `validate` returned). Raises ValueError for a planner that this build has not."""
    if not 0 <= planner <= PLANNER:
        raise ValueError(f"planner {planner} is of another build; this one has 0 to {PLANNER}")
    forward_only = planner == 0
    order = vertex_order(graph.vertices)
    result = result_vertex(graph.vertices, graph.result)
    members = chains(graph.vertices, order, result, forward_only)
    home = {vertex: task for task, its in members.items() for vertex in its.own}
    inputs = {vertex: _inputs(graph.vertices, vertex, home, result, forward_only) for vertex in order if vertex in home}
    upstream = {
        task: {i.task: None for vertex in its.own for i in inputs[vertex] if i.task is not None}
        for task, its in members.items()
    }
    readers: dict[str, list[str]] = {task: [] for task in members}
    for task, read in upstream.items():
        for other in read:
            readers[other].append(task)
    tasks = {}
    for index, (task, its) in enumerate(members.items()):
        edges = [(i.edge == "forward", i.task) for vertex in its.own for i in inputs[vertex] if i.task is not None]
        tasks[task] = Task(
            id=task,
            index=index,
            parallelism=graph.vertices[its.own[0]].parallelism,
            vertices=(*its.copies, *its.own),
            inputs={vertex: () for vertex in its.copies} | {vertex: inputs[vertex] for vertex in its.own},
            outputs=_outputs(graph, its.own, inputs, home, result),
            upstream=tuple(other for other in upstream if other in upstream[task]),
            whole=tuple(dict.fromkeys(other for forward, other in edges if not forward)),
            aligned=tuple(dict.fromkeys(other for forward, other in edges if forward)),
            readers=tuple(readers[task]),
        )
    copied = tuple(dict.fromkeys(each for its in members.values() for each in its.copies))
    profiles = {name: largest(profile_of(graph, each) for each in task.vertices) for name, task in tasks.items()}
    profiles[PLAN_TASK] = profile_of(graph)
    needs_planning = bool(copied) or _shares_something(graph, forward_only)
    kinds = dict.fromkeys(profile for name, profile in profiles.items() if name != PLAN_TASK or needs_planning)
    profile = largest(kinds) if len(kinds) == 1 or graph.together else None  # who starts together gets slots that serve each
    return Plan(graph, tasks, result, copied, needs_planning, profiles, profile)


def profile_of(graph: JobGraph, vertex: str = "") -> Profile:
    """What a slot must have for a vertex, or for the job: each part that the vertex does not give is the job's."""
    own, its = graph.resources, graph.vertices[vertex].resources if vertex else None
    if its is None:
        return Profile.of(own.memory_mb, own.cores, own.extras)
    return Profile.of(its.memory_mb or own.memory_mb, its.cores or own.cores, own.extras if its.extras is None else its.extras)


@dataclass(frozen=True)
class Members:
    """The vertices of a task, producers before consumers. `copies`: the sources that each subtask reads whole, by itself."""

    copies: tuple[str, ...]
    own: tuple[str, ...]


def chains(
    vertices: Mapping[str, Vertex], order: Sequence[str], result: str | None, forward_only: bool = False
) -> dict[str, Members]:
    """The members of each task by its id. `order`: of the vertices. `result`: see `result_vertex`."""
    copied = {name: copies_of(vertices, name, result, forward_only) for name in order}
    read = {name: [each for each in vertices[name].inputs if each not in copied[name]] for name in order}
    gone = {each for its in copied.values() for each in its} - {each for its in read.values() for each in its} - {result}
    read = {name: its for name, its in read.items() if name not in gone}
    joined = {name: [each for each in its if _is_same_rows(vertices, each, name, forward_only)] for name, its in read.items()}
    group = _chain(read, joined)  # vertex -> the first vertex of its task
    members: dict[str, list[str]] = {}
    for vertex in read:
        members.setdefault(group[vertex], []).append(vertex)
    first = _sort(list(members), _group_edges(read, group, joined))
    assert first is not None, "chaining made a cycle"
    return {
        "+".join(members[head]): Members(
            tuple(dict.fromkeys(each for vertex in members[head] for each in copied[vertex])), tuple(members[head])
        )
        for head in first
    }


def copies_of(
    vertices: Mapping[str, Vertex], consumer: str, result: str | None = None, forward_only: bool = False
) -> tuple[str, ...]:
    """The sources that each subtask of this vertex reads whole, by itself, and of a `hash` edge keeps its share. All read the same rows,
    for the files are pinned; to hand them over would cost an attempt and a copy, and Spark could leave out neither columns nor rows.
    `result`: see `result_vertex`."""
    if forward_only:
        return ()
    vertex = vertices[consumer]
    return tuple(name for name in vertex.inputs if _reads_itself(vertices, name, vertex) and (
        vertices[name].parallelism == 1 or name != result and _is_cheap_to_copy(vertices, name)
    ))  # fmt: skip


def _reads_itself(vertices: Mapping[str, Vertex], name: str, reader: Vertex) -> bool:
    """Whether these subtasks are several, and few enough, and what they read is files."""
    source = vertices[name].source
    few = 1 < reader.parallelism <= COPIES_MOST.get(reader.inputs[name].kind, 0)
    return few and source is not None and source.format.lower() in COPIED_FORMATS


def _is_cheap_to_copy(vertices: Mapping[str, Vertex], name: str) -> bool:
    """Of a source of several subtasks: whether it is read faster than handed over, by each of its readers."""
    source = vertices[name].source
    readers = [vertex for vertex in vertices.values() if name in vertex.inputs]
    return (
        source is not None
        and source.format.lower() in COLUMNAR_FORMATS
        and max(vertex.parallelism for vertex in [vertices[name], *readers]) <= COPIES_MOST["hash"]
        and sum(each.parallelism for each in readers) <= SCANS_MOST
        and all(_reads_itself(vertices, name, each) for each in readers)
    )


def vertex_order(vertices: Mapping[str, Vertex]) -> list[str]:
    """The vertices, producers first; among those that may come next, the one that the graph names first."""
    order = _sort(list(vertices), {name: list(vertex.inputs) for name, vertex in vertices.items()})
    assert order is not None, "a valid graph has no cycle"
    return order


def result_vertex(vertices: Mapping[str, Vertex], named: str | None) -> str | None:
    """The vertex whose first rows are the job's result.

    The one that the graph has `named` so, else the only vertex that nobody reads; for a sink, the vertex that it writes. None if
    several vertices are read by nobody, or if the only one is a spark_app.
    """
    read = {producer: None for vertex in vertices.values() for producer in vertex.inputs}
    last = [named] if named else [name for name in vertices if name not in read]
    if len(last) != 1 or vertices[last[0]].kind == "spark_app":
        return None
    vertex = vertices[last[0]]
    return next(iter(vertex.inputs)) if vertex.kind == "sink" else last[0]


def check_unread(graph: JobGraph) -> list[Problem]:
    """Warnings for vertices whose rows nobody gets: nothing reads them, and they are not the job's result."""
    read = {producer for vertex in graph.vertices.values() for producer in vertex.inputs} | {result_vertex(graph.vertices, graph.result)}
    hint = f"name it in `result`, or give it a sink or a reader{'' if graph.result else '; of several last vertices none is the result'}"
    return [
        Problem(("vertices", name), "nothing reads its rows, and they are not the job's result", hint, True)
        for name, vertex in graph.vertices.items()
        if name not in read and vertex.kind not in ("sink", "spark_app")
    ]


def producers(plan: Plan, task: str, subtask: int) -> tuple[tuple[str, int], ...]:
    """The (task, subtask) pairs that must be published before this subtask can start, in the order of Plan.tasks."""
    what = plan.tasks[task]
    return tuple(
        (other, number)
        for other in what.upstream
        for number in (range(plan.tasks[other].parallelism) if other in what.whole else (subtask,))
    )


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


def _is_same_rows(vertices: Mapping[str, Vertex], producer: str, consumer: str, forward_only: bool) -> bool:
    """Whether each subtask of the consumer reads just the rows of one subtask of the producer, so that both can be one plan."""
    alone = vertices[producer].parallelism == vertices[consumer].parallelism == 1 and not forward_only
    return alone or vertices[consumer].inputs[producer].kind == "forward"


def _chain(read: Mapping[str, Sequence[str]], joined: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Vertex -> the first vertex of its task. read: the producers of each vertex, producers first. joined: those of them whose rows need
    no exchange.

    Each such edge joins two tasks into one unless the tasks would then wait for each other (a diamond with an
    exchange on one side); such an edge stays an exchange.
    """
    order = list(read)
    group = {vertex: vertex for vertex in order}
    for vertex in order:
        for producer in joined[vertex]:
            if group[producer] == group[vertex]:
                continue
            head, gone = sorted((group[producer], group[vertex]), key=order.index)
            tried = {name: head if first == gone else first for name, first in group.items()}
            if _sort(list(dict.fromkeys(tried.values())), _group_edges(read, tried, joined)) is not None:
                group = tried
    return group


def _group_edges(
    read: Mapping[str, Sequence[str]], group: Mapping[str, str], joined: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Task -> the tasks it reads. A task that would read its own exchange reads itself: a cycle."""
    edges: dict[str, dict[str, None]] = {}
    for vertex, producers in read.items():
        for producer in producers:
            if producer not in joined[vertex] or group[producer] != group[vertex]:
                edges.setdefault(group[vertex], {})[group[producer]] = None
    return {head: list(others) for head, others in edges.items()}


def _inputs(
    vertices: Mapping[str, Vertex], vertex: str, home: Mapping[str, str], result: str | None, forward_only: bool
) -> tuple[Input, ...]:
    copied = copies_of(vertices, vertex, result, forward_only)
    inputs = []
    for producer, edge in vertices[vertex].inputs.items():
        chained = producer in copied or home[producer] == home[vertex]
        inputs.append(Input(producer, "chained" if chained else edge.kind, edge.keys, None if chained else home[producer]))
    return tuple(inputs)


def _outputs(
    graph: JobGraph, members: Sequence[str], inputs: Mapping[str, Sequence[Input]], home: Mapping[str, str], result: str | None
) -> tuple[Output, ...]:
    """One output for each distinct way in which other tasks read a vertex; then the result and the sinks."""
    outputs: list[Output] = []
    for vertex in members:
        readers: dict[tuple[OutputEdge, tuple[str, ...], int], list[str]] = {}
        for consumer, each in ((consumer, each) for consumer, its in inputs.items() for each in its):
            if each.vertex == vertex and each.task is not None and each.edge != "chained":
                shares = graph.vertices[consumer].parallelism if each.edge == "hash" else 0
                readers.setdefault((each.edge, each.keys, shares), []).append(consumer)
        outputs += [Output(vertex, edge, keys, shares, tuple(consumers)) for (edge, keys, shares), consumers in readers.items()]
        if vertex == result:
            outputs.append(Output(vertex, "result"))
        if graph.vertices[vertex].kind == "sink":
            outputs.append(Output(vertex, "sink"))
    return tuple(outputs)


def _shares_something(graph: JobGraph, forward_only: bool) -> bool:
    """Shares of a source and the common key types of co-hashed inputs must be fixed before the first attempt. One share has all keys."""
    return any(
        (vertex.kind == "source" and vertex.parallelism > 1)
        or ((vertex.parallelism > 1 or forward_only) and sum(edge.kind == "hash" for edge in vertex.inputs.values()) > 1)
        for vertex in graph.vertices.values()
    )


def subtasks_read(plan: Plan, each: Input, subtask: int) -> Sequence[int]:
    """The subtasks of the producing task that one subtask reads."""
    return [subtask] if each.edge == "forward" else range(plan.tasks[each.task or ""].parallelism)
