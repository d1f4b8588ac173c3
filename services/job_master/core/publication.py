"""What a job leaves behind: results of counted attempts, sinks published once. Publication is the folding of FINISHED."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from millrace.core.bounded import bytes_of
from millrace.core.faults import fault
from millrace.core.jobgraph.compile import PLAN_TASK, Plan
from millrace.core.jobgraph.specs import RESULT_ROWS, sink_name, staged_by
from millrace.core.machine import Do, Output
from millrace.core.messages.attempts import AttemptReport, Fault, ResultRows
from millrace.core.messages.effects import PublishSink
from millrace.core.messages.execution import ResultParts

from .execution_graph import kept_progress
from .state import Job

REPORTS_BYTES_MAX = 8 << 20  # of what the attempts of one job reported
RESULT_BYTES = 256 * 1024  # of rows inside a message; each of many subtasks may bring a small part


def publish_sinks(job: Job, plan: Plan) -> Iterator[Output]:
    """Every task has finished: each sink is moved to its path, by an effect that is idempotent."""
    for task in plan.tasks.values():
        for output in task.outputs:
            if output.edge != "sink" or output.vertex in job.sinks:
                continue
            job.sinks[output.vertex] = False
            sink = plan.graph.vertices[output.vertex].sink
            assert sink is not None
            folder = staged_by(plan.graph, task, output.vertex, f"{job.acceptance}/{job.life}")
            staged = [f"{folder}/{index}/{row.attempt}" for index, row in sorted(job.tasks[task.id].rows.items())]
            effect = PublishSink(
                job=job.id,
                vertex=output.vertex,
                path=sink.path,
                mode=sink.mode,
                staged=staged,
                name=sink_name(job.acceptance, output.vertex),
                life=job.life,
            )
            yield Do(f"sink/{sink.path}", effect)


def keep_report(job: Job, plan: Plan, task: str, index: int, report: AttemptReport) -> None:
    """Keeps what a finished subtask reported. Its schemas are its task's: of 25,600 subtasks each would else have a copy [R30]."""
    done, row = job.tasks[task], job.tasks[task].rows[index]
    schemas, planned, result = _kept_parts(plan, task, report)
    if planned is not None:
        job.planned = planned
        job.kept_bytes += planned.json_bytes()
    if result is not None:
        job.results[index] = result
        job.kept_bytes += result.json_bytes()
    if schemas and not done.schemas:
        done.schemas, done.schemas_of = schemas, index
        job.kept_bytes += bytes_of(schemas)
    if report.files is not None:
        row.files = (report.files.kept or 0, report.files.bytes or 0, report.files.left_out or 0)
    row.progress = kept_progress(report.progress)
    outputs = report.outputs if task != PLAN_TASK else {}
    row.outputs = {vertex: (each.rows, each.bytes) for vertex, each in outputs.items() if vertex in plan.graph.vertices}
    row.listed = tuple(vertex for vertex in row.outputs if outputs[vertex].listed)


def forget_result(job: Job, plan: Plan, task: str, index: int) -> None:
    """The subtask runs again: its part of the result does not count any more."""
    if plan.result in plan.tasks[task].vertices and (result := job.results.pop(index, None)) is not None:
        job.kept_bytes -= result.json_bytes()


def forget_schemas(job: Job, task: str) -> None:
    """None of its subtasks counts any more: the next one that finishes says what columns it has. All that read the others runs again."""
    done = job.tasks[task]
    if not done.finished and done.schemas:
        job.kept_bytes -= bytes_of(done.schemas)
        done.schemas, done.schemas_of = {}, 0


def reports_too_large(job: Job, plan: Plan, task: str, report: AttemptReport) -> Fault | None:
    """The error of an attempt that reports more than the job may still keep: a report can be 700 KB, and there can be thousands [R30]."""
    schemas, planned, result = _kept_parts(plan, task, report)
    more = 0 if job.tasks[task].schemas or not schemas else bytes_of(schemas)
    more += sum(each.json_bytes() for each in (planned, result) if each is not None)
    if job.kept_bytes + more <= REPORTS_BYTES_MAX:
        return None
    message = (
        f"The schemas, lists of files and results reported by the job's attempts take more than {REPORTS_BYTES_MAX} bytes: make fewer or"
        " narrower columns, or read fewer files (a folder instead of many)"
    )
    return fault("user", message, condition="REPORTS_TOO_LARGE")


def _kept_parts(
    plan: Plan, task: str, report: AttemptReport
) -> tuple[dict[str, str], AttemptReport | None, ResultRows | None]:
    """What is kept of a report: the schemas of its outputs, of a planning attempt all, of the result's vertex its rows."""
    if task == PLAN_TASK:
        return {}, report, None
    its = plan.tasks[task].vertices
    schemas = {vertex: report.outputs[vertex].spark_schema for vertex in its if vertex in report.outputs}
    return {vertex: schema for vertex, schema in schemas.items() if schema}, None, report.result if plan.result in its else None


def columns_differ(job: Job, task: str, index: int, report: AttemptReport) -> Fault | None:
    """The error of an attempt whose columns are not those of its task's first finished subtask, as after a pivot of its own rows.
    All subtasks' rows are read by one schema: columns that it lacks would be lost silently."""
    done = job.tasks[task]
    for vertex, one in done.schemas.items():
        other = report.outputs[vertex].spark_schema if vertex in report.outputs else ""
        if not one or not other or one == other:
            continue
        try:
            was, now = _columns(one), _columns(other)
        except (ValueError, KeyError, TypeError):  # of a redacted log only equality is known
            continue
        if was == now:
            continue
        names = dict.fromkeys(name for name, kind in [*was, *now] if (name, kind) not in was or (name, kind) not in now)
        what = f"differ in {', '.join(names)}" if names else "have them in another order"
        hint = "make them the same whatever the rows, or use parallelism 1"
        first, second = sorted((done.schemas_of, index))
        message = f"Subtasks {first} and {second} of {vertex!r} made different columns: they {what}; {hint}"
        return fault("user", message, condition="COLUMNS_DIFFER", vertex=vertex)
    return None


def _columns(schema: str) -> list[tuple[str, Any]]:
    """Name and type of each column of a schema (Spark's JSON)."""
    return [(field["name"], _bare(field["type"])) for field in json.loads(schema)["fields"]]


def _bare(kind: Any) -> Any:
    """A type without what may differ where the types do not."""
    if isinstance(kind, list):
        return [_bare(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    extra = ("nullable", "containsNull", "valueContainsNull", "metadata")
    return {key: _bare(value) for key, value in kind.items() if key not in extra}


def all_published(job: Job) -> bool:
    """Whether every sink whose publication has begun is published."""
    return all(job.sinks.values())


def result(job: Job) -> ResultRows | ResultParts | None:
    """The job's result, its subtasks' parts one after the other, at most RESULT_ROWS rows and RESULT_BYTES where inline.

    A part that was too large for a message is named by its path on the blob server.
    """
    parts = [job.results[index] for index in sorted(job.results)]
    if not parts:
        return None
    if any(part.path is not None for part in parts):
        return ResultParts(parts=_bounded(parts))
    first, rows = parts[0], [row for part in parts for row in part.rows or ()]
    kept, size = 0, _bytes([first.columns, first.types])
    if size > RESULT_BYTES:
        return ResultRows(columns=[], types=[], rows=[], truncated=True)
    for row in rows[:RESULT_ROWS]:
        size += _bytes(row)
        if size > RESULT_BYTES:
            break
        kept += 1
    cut = len(rows) > kept or any(part.truncated for part in parts)
    return ResultRows(columns=first.columns, types=first.types, rows=rows[:kept], truncated=cut)


def _bounded(parts: list[ResultRows]) -> list[ResultRows]:
    """The parts that fit into RESULT_BYTES, those by path as just that; the last one is marked if some are left out."""
    kept: list[ResultRows] = []
    size = 0
    for part in parts:
        short = part if part.path is None else ResultRows(path=part.path)
        size += _bytes(short.json_value())
        if size > RESULT_BYTES:
            kept[-1:] = [last.model_copy(update={"truncated": True}) for last in kept[-1:]]
            break
        kept.append(short)
    return kept


def _bytes(value: Any) -> int:
    """How long it is as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode())
