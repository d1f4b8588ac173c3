"""What a job leaves behind: results of counted attempts, sinks published once. Publication is the folding of FINISHED."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.core.jobgraph.compile import PLAN_TASK, RESULT_ROWS, Plan, sink_name, staged_by
from millrace.core.machine import Do, Output
from millrace.core.messages.effects import PublishSink

from .state import Job

KEPT_BYTES = 8 << 20  # of what the attempts of one job reported
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


def keep_report(job: Job, plan: Plan, task: str, index: int, report: Mapping[str, Any]) -> None:
    """Keeps what a finished subtask reported. Its schemas are its task's: of 25,600 subtasks each would else have a copy [R30]."""
    done, row = job.tasks[task], job.tasks[task].rows[index]
    schemas, planned, result = _kept_parts(plan, task, report)
    if planned is not None:
        job.planned = planned
        job.kept_bytes += bytes_of(planned)
    if result is not None:
        job.results[index] = result
        job.kept_bytes += bytes_of(result)
    if schemas and not done.schemas:
        done.schemas, done.schemas_of = schemas, index
        job.kept_bytes += bytes_of(schemas)
    if isinstance(left := report.get("files"), dict):
        row.files = (_number(left.get("kept")) or 0, _number(left.get("bytes")) or 0, _number(left.get("left_out")) or 0)
    outputs = report.get("outputs") or {} if task != PLAN_TASK else {}
    row.outputs = {v: (_number(outputs[v].get("rows")), _number(outputs[v].get("bytes"))) for v in outputs if v in plan.graph.vertices}


def reports_too_large(job: Job, plan: Plan, task: str, report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The error of an attempt that reports more than the job may still keep: a report can be 700 KB, and there can be thousands [R30]."""
    schemas, planned, result = _kept_parts(plan, task, report)
    kept = [each for each in ({} if job.tasks[task].schemas else schemas, planned, result) if each]
    if job.kept_bytes + sum(map(bytes_of, kept)) <= KEPT_BYTES:
        return None
    message = (
        f"The schemas, lists of files and results that the job's attempts told take more than {KEPT_BYTES} bytes: make fewer or"
        " narrower columns, or read fewer files (a folder instead of many)"
    )
    return {"kind": "user", "retryable": False, "condition": "REPORTS_TOO_LARGE", "message": message}


def _kept_parts(
    plan: Plan, task: str, report: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any] | None, dict[str, Any] | None]:
    """What is kept of a report: the schemas of its outputs, of a planning attempt all, of the result's vertex its rows."""
    if task == PLAN_TASK:
        return {}, dict(report), None
    its = plan.tasks[task].vertices
    outputs = report.get("outputs") or {}
    schemas = {vertex: outputs[vertex]["schema"] for vertex in its if "schema" in outputs.get(vertex, {})}
    result = report.get("result") if plan.result in its else None
    return schemas, None, dict(result) if result is not None else None


def bytes_of(kept: Mapping[str, Any]) -> int:
    """What it costs to keep."""
    return len(json.dumps(kept, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def columns_differ(job: Job, task: str, index: int, outputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The error of an attempt whose columns are not those of its task's first finished subtask, as after a pivot of its own rows.
    All subtasks' rows are read by one schema: columns that it lacks would be lost silently."""
    done = job.tasks[task]
    for vertex, one in done.schemas.items():
        other = outputs.get(vertex, {}).get("schema")
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
        return {"kind": "user", "retryable": False, "condition": "COLUMNS_DIFFER", "message": message, "vertex": vertex}
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


def _bounded(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts that fit into RESULT_BYTES, those by path as just that; the last one is marked if some are left out."""
    kept: list[dict[str, Any]] = []
    size = 0
    for part in parts:
        short = {"path": part["path"]} if "path" in part else part
        size += len(json.dumps(short, ensure_ascii=False).encode())
        if size > RESULT_BYTES:
            kept[-1:] = [{**last, "truncated": True} for last in kept[-1:]]
            break
        kept.append(short)
    return kept


def result(job: Job) -> dict[str, Any] | None:
    """The job's result, its subtasks' parts one after the other, at most RESULT_ROWS rows and RESULT_BYTES where inline.

    A part that was too large for a message is named by its path on the blob server.
    """
    parts = [job.results[index] for index in sorted(job.results)]
    if not parts:
        return None
    if any("path" in part for part in parts):
        return {"parts": _bounded(parts)}
    rows = [row for part in parts for row in part["rows"]]
    kept, size = 0, len(json.dumps([parts[0]["columns"], parts[0]["types"]], ensure_ascii=False).encode())
    if size > RESULT_BYTES:
        return {"columns": [], "types": [], "rows": [], "truncated": True}
    for row in rows[:RESULT_ROWS]:
        size += len(json.dumps(row, ensure_ascii=False).encode())
        if size > RESULT_BYTES:
            break
        kept += 1
    return {
        "columns": parts[0]["columns"],
        "types": parts[0]["types"],
        "rows": rows[:kept],
        "truncated": len(rows) > kept or any(part.get("truncated") for part in parts),
    }
