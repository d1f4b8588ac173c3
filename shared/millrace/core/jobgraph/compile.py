"""From a JobGraph to tasks, and from tasks to the specs that attempts are run by. Pure and deterministic.

A **task** is one or more vertices joined by `forward` edges of equal parallelism: one attempt, and one Spark plan, a
subtask. A Plan follows from its graph alone: it is computed again where it is needed, never stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..messages.attempts import (
    AttemptReport,
    AttemptSpec,
    InputEdge,
    InputSpec,
    ModuleSpec,
    OutputEdge,
    OutputSpec,
    QueryPlace,
    VertexSpec,
)
from .model import JobGraph, Vertex
from .problems import Problem

PLAN_TASK = "@plan"  # the task id of a plan attempt; no vertex can be called so
RESULT_ROWS = 1000


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


@dataclass(frozen=True)
class Published:
    """A folded FINISHED: the attempt whose output of a subtask counts, and of each vertex the schema of its rows (Spark's JSON)."""

    attempt: int
    schemas: Mapping[str, str]


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
                found.update(dict.fromkeys((each.task, number) for number in _read(plan, each, subtask)))
    return tuple(sorted(found, key=lambda pair: (plan.tasks[pair[0]].index, pair[1])))


def attempt_spec(
    plan: Plan,
    *,
    job: str,
    task: str,
    subtask: int,
    attempt: int,
    published: Mapping[tuple[str, int], Published],
    planned: AttemptReport | None,
    exchange: str,
    run: str,
) -> AttemptSpec:
    """What one attempt of kind "run" is given.

    published: for each of `producers(plan, task, subtask)`, the attempt that counts. planned: the plan attempt's
    report, None if the plan needs none; the same for all attempts of a run. exchange: the
    folder (path or URL) of exchange data. run: a folder name that no other job and no other life of this job's state
    has or will have (job and generation), for attempt numbers count from 1 in each.
    """
    what = plan.tasks[task]
    report = planned or AttemptReport()

    def read(each: Input, consumer: str) -> InputSpec:
        if each.task is None:
            return InputSpec(edge="chained")
        place = _place_of(plan, report, each, consumer)
        sources = [(number, published[each.task, number]) for number in _read(plan, each, subtask)]
        folders = [
            exchange_folder(plan, exchange=exchange, run=run, task=each.task, subtask=number, attempt=done.attempt)
            for number, done in sources
        ]
        folders = [f"{folder}/{place}" for folder in folders]
        schema = sources[0][1].schemas[each.vertex]
        if each.edge == "hash":
            return InputSpec(
                edge="hash", keys=list(each.keys), share=subtask, shares=what.parallelism, folders=folders, schema=schema
            )
        return InputSpec(edge=each.edge, folders=folders, schema=schema)

    own = exchange_folder(plan, exchange=exchange, run=run, task=task, subtask=subtask, attempt=attempt)
    return AttemptSpec(
        job=job,
        task=task,
        subtask=subtask,
        parallelism=what.parallelism,
        attempt=attempt,
        kind="run",
        vertices=[
            _vertex_spec(plan.graph, vertex, {each.vertex: read(each, vertex) for each in what.inputs[vertex]})
            for vertex in what.vertices
        ],
        outputs=_output_specs(plan, report, what, own, run, f"{subtask}/{attempt}"),
        pinned={vertex: report.pinned[vertex] for vertex in what.vertices if vertex in report.pinned},
        **_job_part(plan.graph),
    )


def plan_spec(plan: Plan, *, job: str, attempt: int) -> AttemptSpec:
    """What the planning attempt is given.

    Its vertices are all of the job's but spark_app, in topological order, each with its own `parallelism`; every input
    is chained, with keys too where the edge is a hash (for the report's key_types).
    """
    vertices = []
    for name in vertex_order(plan.graph.vertices):
        vertex = plan.graph.vertices[name]
        if vertex.kind != "spark_app":
            inputs = {
                alias: InputSpec(edge="chained", keys=list(edge.keys)) if edge.keys else InputSpec(edge="chained")
                for alias, edge in vertex.inputs.items()
            }
            vertices.append(_vertex_spec(plan.graph, name, inputs))
    return AttemptSpec(
        job=job,
        task=PLAN_TASK,
        subtask=0,
        parallelism=1,
        attempt=attempt,
        kind="plan",
        vertices=vertices,
        outputs=[],
        pinned={},
        **_job_part(plan.graph),
    )


def exchange_folder(plan: Plan, *, exchange: str, run: str, task: str, subtask: int, attempt: int) -> str:
    """The folder that holds all exchange output of one attempt; used by no other, before or after."""
    return f"{exchange.rstrip('/')}/{run}/{folder_name(plan.tasks[task])}/{subtask}/{attempt}"


def folder_name(task: Task) -> str:
    """A task's folder name: its id can be longer than a file system takes. Never hidden: it starts with a digit."""
    return f"{task.index}-{task.vertices[-1]}"


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


def _read(plan: Plan, each: Input, subtask: int) -> Sequence[int]:
    """The subtasks of the producing task that one subtask reads."""
    return [subtask] if each.edge == "forward" else range(plan.tasks[each.task or ""].parallelism)


@dataclass(frozen=True)
class _Placed:
    """An output with the name of its folder; a hash output with the types its keys are cast to (None: own ones)."""

    place: str
    output: Output
    key_types: tuple[str, ...] | None
    consumers: tuple[str, ...]


def _placed(report: AttemptReport, task: Task, vertex: str) -> list[_Placed]:
    """The exchange outputs of a vertex, as written: readers that need keys of other types need an output of their own.

    A reader whose keys need not match another input's takes any of them.
    """
    placed: list[_Placed] = []
    for output in task.outputs:
        if output.vertex != vertex or not output.consumers:
            continue
        types: dict[tuple[str, ...] | None, list[str]] = {}
        for consumer in output.consumers:
            given = report.key_types.get(consumer) if output.edge == "hash" else None
            types.setdefault(None if given is None else tuple(given), []).append(consumer)
        if len(types) > 1 and None in types:
            free = types.pop(None)
            next(iter(types.values())).extend(free)
        for key_types, consumers in types.items():
            placed.append(_Placed(f"{len(placed)}-{vertex}", output, key_types, tuple(consumers)))
    return placed


def _place_of(plan: Plan, report: AttemptReport, each: Input, consumer: str) -> str:
    """The folder, within an attempt's, of the output that this input reads."""
    outputs = _placed(report, plan.tasks[each.task or ""], each.vertex)
    return next(output.place for output in outputs if consumer in output.consumers)


def _output_specs(plan: Plan, report: AttemptReport, task: Task, own: str, run: str, attempt: str) -> list[OutputSpec]:
    """own: the attempt's exchange folder; attempt: its name below that of its task."""
    specs: list[OutputSpec] = []
    for vertex in task.vertices:
        for placed in _placed(report, task, vertex):
            output, folder = placed.output, f"{own}/{placed.place}"
            if output.edge == "hash":
                types = None if placed.key_types is None else list(placed.key_types)
                spec = OutputSpec(
                    vertex=vertex, edge="hash", keys=list(output.keys), key_types=types, shares=output.shares, folder=folder
                )
            else:
                spec = OutputSpec(vertex=vertex, edge=output.edge, folder=folder)
            specs.append(spec)
        for output in task.outputs:
            if output.vertex == vertex and output.edge == "result":
                specs.append(OutputSpec(vertex=vertex, edge="result", rows=RESULT_ROWS))
            elif output.vertex == vertex and output.edge == "sink":
                folder = f"{staged_by(plan.graph, task, vertex, run)}/{attempt}"
                name = sink_name(run.partition("/")[0], vertex)
                specs.append(OutputSpec(vertex=vertex, edge="sink", folder=folder, name=name))
    return specs


def sink_name(acceptance: str, sink: str) -> str:
    """What the files that a job publishes for a sink begin with: by it the job's own are told from others'."""
    return f"{acceptance}-{sink}"


def staging_folder(graph: JobGraph, sink: str) -> str:
    """Where attempts of a sink write before publication: a hidden neighbour of its path, so that moving is a rename."""
    target = graph.vertices[sink].sink
    assert target is not None, f"{sink} is no sink"
    return staging_beside(target.path)


def staging_beside(path: str) -> str:
    parent, slash, name = path.rstrip("/").rpartition("/")
    return f"{parent}{slash}.{name}.staging"


def staged_by(graph: JobGraph, task: Task, sink: str, run: str) -> str:
    """The folder in which a task stages for one of its sinks, each attempt below `<subtask>/<attempt>`. Sinks of one task that append to
    one path have the same neighbour: each attempt empties the folder that it stages in, and the rows of the one before would be gone."""
    folder = staging_folder(graph, sink)
    beside = [each.vertex for each in task.outputs if each.edge == "sink" and staging_folder(graph, each.vertex) == folder]
    own = "" if beside[0] == sink else f".{sink}"  # the first has the folder that builds before this one give to all
    return f"{folder}/{run}/{folder_name(task)}{own}"


def _vertex_spec(graph: JobGraph, name: str, inputs: dict[str, InputSpec]) -> VertexSpec:
    vertex: Vertex = graph.vertices[name]
    what = getattr(vertex, vertex.kind)
    own: dict[str, Any] = {vertex.kind: what if isinstance(what, str) else what.model_dump(mode="json")}
    ddl = vertex.source.ddl if vertex.source else vertex.ddl
    return VertexSpec(id=name, schema=ddl, parallelism=vertex.parallelism, inputs=inputs, **own)


def _job_part(graph: JobGraph) -> dict[str, Any]:
    """What every spec of a job carries."""
    part: dict[str, Any] = {
        "conf": dict(graph.conf),
        "modules": [ModuleSpec(name=module.name, sha256=module.sha256, kind=module.kind) for module in graph.modules],
        "parameters": dict(graph.parameters),
    }
    if graph.env:
        part["env"] = dict(graph.env)
    if graph.sources:
        part["sources"] = {
            name: QueryPlace(file=place.file, line=place.line, indent=place.indent) for name, place in graph.sources.items()
        }
    return part
