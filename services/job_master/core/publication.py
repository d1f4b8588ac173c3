"""What a job leaves behind: results of counted attempts, sinks published once. Publication is the folding of FINISHED."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.core.jobgraph.compile import RESULT_ROWS, Plan, sink_name, staged_by
from millrace.core.machine import Do, Output
from millrace.core.messages.effects import PublishSink

from .state import Job

RESULT_BYTES = 256 * 1024  # of rows inside a message; each of many subtasks may bring a small part


def publish(job: Job, plan: Plan) -> Iterator[Output]:
    """Every task has finished: each sink is moved to its path, by an effect that a repeat finds done."""
    for task in plan.tasks.values():
        for output in task.outputs:
            if output.edge != "sink" or output.vertex in job.sinks:
                continue
            job.sinks[output.vertex] = False
            sink = plan.graph.vertices[output.vertex].sink
            assert sink is not None
            folder = staged_by(plan.graph, task, output.vertex, f"{job.acceptance}/{job.life}")
            staged = [f"{folder}/{index}/{subtask.attempt}" for index, subtask in enumerate(job.tasks[task.id])]
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


def other_columns(job: Job, task: str, index: int, outputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The error of an attempt whose columns are not those of a finished subtask of its task (a pivot of its own rows, types guessed
    from them). All subtasks' rows are read by one schema: columns that it lacks would be lost without a word."""
    done = next(((i, subtask.outputs) for i, subtask in enumerate(job.tasks[task]) if subtask.outputs), None)
    for vertex, output in done[1].items() if done else ():
        one, other = output.get("schema"), outputs.get(vertex, {}).get("schema")
        if not one or not other or one == other:
            continue
        try:
            was, now = _columns(one), _columns(other)
        except (ValueError, KeyError, TypeError):  # of a redacted log only equality can be told
            continue
        if was == now:
            continue
        names = dict.fromkeys(name for name, kind in [*was, *now] if (name, kind) not in was or (name, kind) not in now)
        what = f"differ in {', '.join(names)}" if names else "have them in another order"
        hint = "make them the same whatever the rows, or use parallelism 1"
        message = f"Subtasks {done[0]} and {index} of {vertex!r} made different columns: they {what}; {hint}"
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


def published(job: Job) -> bool:
    return all(job.sinks.values())


def _bounded(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts that fit into RESULT_BYTES, those by path as just that; the last one says if some are left out."""
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
