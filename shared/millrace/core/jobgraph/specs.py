"""From a plan to the specs that attempts are run by, and the folders that they name. Pure and deterministic."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ..messages.attempts import (
    AttemptReport,
    AttemptSpec,
    FolderRuns,
    InputSpec,
    ModuleSpec,
    OutputSpec,
    QueryPlace,
    VertexSpec,
)
from .compile import PLAN_TASK, Input, Output, Plan, Task, subtasks_read, vertex_order
from .model import JobGraph, Vertex, settings_of

RESULT_ROWS = 1000
TIME_ZONE = "spark.sql.session.timeZone"


class Counted(Protocol):
    """Of a subtask that has published: the attempt whose output counts, the vertices of whose files there is a note, and where in the
    exchange it is, if another job's attempt made it."""

    attempt: int
    listed: tuple[str, ...]
    kept: str | None


class Published(Protocol):
    """A task that others read: of each vertex the schema of its rows (Spark's JSON), and its subtasks by number. Read as it is in the
    JobMaster's state: to copy it for each of a thousand readers takes a second for each thousand of its subtasks."""

    @property
    def schemas(self) -> Mapping[str, str]: ...

    @property
    def rows(self) -> Mapping[int, Counted]: ...


@dataclass(frozen=True)
class Whole:
    """What all readers of a whole task have in common. runs: see FolderRuns; listed: the vertices whose files all its subtasks noted."""

    runs: list[list[int]]
    listed: tuple[str, ...]


def whole(task: Published) -> Whole | None:
    """Of a task whose subtasks have all published; None: some of it lies in folders of another job, which are told one by one."""
    rows = [task.rows[number] for number in range(len(task.rows))]
    if any(row.kept is not None for row in rows):
        return None
    runs = [[len(list(its)), attempt] for attempt, its in itertools.groupby(row.attempt for row in rows)]
    return Whole(runs, tuple(vertex for vertex in rows[0].listed if all(vertex in row.listed for row in rows)))


def attempt_spec(
    plan: Plan,
    *,
    job: str,
    task: str,
    subtask: int,
    attempt: int,
    published: Mapping[str, Published],
    planned: AttemptReport | None,
    exchange: str,
    run: str,
    in_short: Callable[[str], Whole | None] = lambda task: None,
) -> AttemptSpec:
    """What one attempt of kind "run" is given.

    published: the tasks that it reads, by id; each of `producers(plan, task, subtask)` has published. planned: the plan attempt's
    report, None if the plan needs none; the same for all attempts of a run. exchange: the
    folder (path or URL) of exchange data. run: a folder name that no other job and no other life of this job's state
    has or will have (job and generation), for attempt numbers count from 1 in each. in_short: `whole` of a task that is read whole,
    where the attempt's TaskManager understands that.
    """
    what = plan.tasks[task]
    report = planned or AttemptReport()

    def read(each: Input, consumer: str) -> InputSpec:
        if each.task is None:
            return _chained(plan, report, each, consumer, subtask)
        place = _place_of(plan, report, each, consumer)
        its = exchange_folder(plan, exchange=exchange, run=run, task=each.task)
        shares: dict[str, Any] = {}
        if each.edge == "hash":
            shares = {"keys": list(each.keys), "share": subtask, "shares": what.parallelism}
        schema, common = published[each.task].schemas[each.vertex], None if each.edge == "forward" else in_short(each.task)
        if common is not None:
            where: dict[str, Any] = {"published": FolderRuns(base=its, place=place, runs=common.runs)}
            listed = each.vertex in common.listed
        else:
            rows, root = published[each.task].rows, exchange.rstrip("/")
            sources = [(number, rows[number]) for number in subtasks_read(plan, each, subtask)]
            where = {"folders": [
                f"{its}/{number}/{row.attempt}/{place}" if row.kept is None else f"{root}/{row.kept}/{place}" for number, row in sources
            ]}  # fmt: skip
            listed = all(each.vertex in row.listed for _, row in sources)
        if listed:
            where["listed"] = True
        return InputSpec(edge=each.edge, **shares, **where, schema=schema)

    own = f"{exchange_folder(plan, exchange=exchange, run=run, task=task)}/{subtask}/{attempt}"  # used by no other, before or after
    return AttemptSpec(
        job=job,
        task=task,
        subtask=subtask,
        parallelism=what.parallelism,
        attempt=attempt,
        kind="run",
        vertices=[
            _vertex_spec(plan, vertex, {each.vertex: read(each, vertex) for each in what.inputs[vertex]})
            for vertex in what.vertices
        ],
        outputs=_output_specs(plan, report, what, own, run, f"{subtask}/{attempt}"),
        pinned={vertex: report.pinned[vertex] for vertex in what.vertices if vertex in report.pinned},
        **_job_part(plan.graph, report.time_zone),
    )


class Pattern(NamedTuple):
    """A spec of kind "run" that differs from those of the task's other attempts in numbers alone: all read the same folders, of a hash edge
    their share. bytes: as JSON."""

    spec: AttemptSpec
    bytes: int

    def of(self, subtask: int, attempt: int) -> Pattern:
        """That of another attempt: what `attempt_spec` gives, in a third of the time."""
        like, moves = self.spec, 1

        def moved(output: OutputSpec) -> OutputSpec:
            place = "" if output.edge == "sink" else "/" + output.folder.rpartition("/")[2]
            task = output.folder.removesuffix(f"/{like.subtask}/{like.attempt}{place}")
            return output.model_copy(update={"folder": f"{task}/{subtask}/{attempt}{place}"})

        vertices = []
        for vertex in like.vertices:
            shared = {name: each for name, each in vertex.inputs.items() if "share" in each.model_fields_set}
            moves += len(shared)
            if shared:
                inputs = {name: each.model_copy(update={"share": subtask}) for name, each in shared.items()}
                vertex = vertex.model_copy(update={"inputs": {**vertex.inputs, **inputs}})
            vertices.append(vertex)
        outputs = [moved(output) if output.folder else output for output in like.outputs]
        folders = sum(1 for output in outputs if output.folder)
        spec = like.model_copy(update={"subtask": subtask, "attempt": attempt, "vertices": vertices, "outputs": outputs})
        longer = (moves + folders) * (len(str(subtask)) - len(str(like.subtask)))
        return Pattern(spec, self.bytes + longer + (1 + folders) * (len(str(attempt)) - len(str(like.attempt))))


def is_pattern(spec: AttemptSpec) -> bool:
    """Whether the specs of the task's other attempts can be made of this one."""
    inputs = [each for vertex in spec.vertices for each in vertex.inputs.values()]
    return spec.kind == "run" and all(each.edge == "chained" or each.published is not None for each in inputs)


def _chained(plan: Plan, report: AttemptReport, each: Input, consumer: str, subtask: int) -> InputSpec:
    """An input of the same attempt. Of a copy that is read by hash the attempt keeps its share."""
    if not each.keys:
        return InputSpec(edge="chained")
    shares = plan.graph.vertices[consumer].parallelism
    if shares == 1:
        return InputSpec(edge="chained", keys=list(each.keys))
    return InputSpec(
        edge="chained", keys=list(each.keys), key_types=report.key_types.get(consumer), share=subtask, shares=shares
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
            vertices.append(_vertex_spec(plan, name, inputs))
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


def exchange_folder(plan: Plan, *, exchange: str, run: str, task: str) -> str:
    """The folder that holds all exchange output of one task, that of each attempt below `<subtask>/<attempt>`."""
    return f"{exchange.rstrip('/')}/{run}/{folder_name(plan.tasks[task])}"


def folder_name(task: Task) -> str:
    """A task's folder name: its id can be longer than a file system takes. Never hidden: it starts with a digit."""
    return f"{task.index}-{task.vertices[-1]}"


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


def places_of(report: AttemptReport, task: Task) -> list[Any]:
    """What a task hands on, and in which folders, as plain values."""
    return [
        [each.place, each.output.edge, list(each.output.keys), each.output.shares, None if each.key_types is None else list(each.key_types)]
        for vertex in task.vertices
        for each in _placed(report, task, vertex)
    ]


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


def _vertex_spec(plan: Plan, name: str, inputs: dict[str, InputSpec]) -> VertexSpec:
    vertex: Vertex = plan.graph.vertices[name]
    what = getattr(vertex, vertex.kind)
    own: dict[str, Any] = {vertex.kind: what if isinstance(what, str) else what.model_dump(mode="json")}
    ddl = vertex.source.ddl if vertex.source else vertex.ddl
    parallelism = vertex.parallelism
    if name in plan.copied:
        own["copied"], parallelism = True, 1  # each reads it whole
    return VertexSpec(id=name, schema=ddl, parallelism=parallelism, inputs=inputs, **own)


def _job_part(graph: JobGraph, time_zone: str | None = None) -> dict[str, Any]:
    """What every spec of a job carries. time_zone: of its plan attempt, unless the job sets one."""
    part: dict[str, Any] = {
        "conf": {**({TIME_ZONE: time_zone} if time_zone else {}), **settings_of(graph)},
        "modules": [ModuleSpec(name=module.name, sha256=module.sha256, kind=module.kind) for module in graph.modules],
        "parameters": dict(graph.parameters),
    }
    if graph.env:
        part["env"] = dict(graph.env)
    if graph.traceparent:
        part["traceparent"] = graph.traceparent
        if graph.tracestate:
            part["tracestate"] = graph.tracestate
    if graph.sources:
        part["sources"] = {
            name: QueryPlace(file=place.file, line=place.line, indent=place.indent) for name, place in graph.sources.items()
        }
    return part
