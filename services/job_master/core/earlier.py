"""Jobs as snapshots of 0.1.0 hold them, in today's shape [R27]. To be deleted once nobody upgrades from there.

A task was the list of all its subtasks; each had its time of retry, its failures and the schemas of its outputs.
"""

from __future__ import annotations

from typing import Any

from millrace.core.bounded import bytes_of
from millrace.core.jobgraph.compile import Plan
from millrace.core.messages.attempts import Fault
from millrace.core.states import ExecutionState

from .failover import KEPT_FAILURES_JOB, shortened


def is_earlier(job: dict[str, Any]) -> bool:
    """Whether a job, as JSON, is of that shape."""
    return any(isinstance(task, list) for task in job.get("tasks", {}).values())


def today(job: dict[str, Any], plan: Plan | None) -> dict[str, Any]:
    """The job of that shape in today's. plan: None for a graph that cannot be read."""
    tasks = {name: _task(name, subtasks, plan) for name, subtasks in job["tasks"].items()}
    if plan is not None:
        finished = [name for name, task in tasks.items() if task["finished"] == task["parallelism"]]
        for name in plan.tasks:
            tasks[name]["blocked"] = sum(other not in finished for other in plan.tasks[name].whole)
    subtasks = [(name, index, row) for name, rows in job["tasks"].items() for index, row in enumerate(rows)]
    failures = [
        {**failure, "task": name, "subtask": index, "error": shortened(Fault.model_validate(failure["error"])).json_value()}
        for name, index, row in subtasks
        for failure in row["failures"]
    ]
    kept = [job["planned"], *job["results"].values(), *(task["schemas"] for task in tasks.values())]
    return {
        **job,
        "tasks": tasks,
        "failures": sorted(failures, key=lambda failure: failure["at_ms"])[-KEPT_FAILURES_JOB:],
        "kept_bytes": sum(bytes_of(each) for each in kept if each),
        "running_ms": min((row["deployed_ms"] for _, _, row in subtasks if row["deployed_ms"]), default=0),
    }


def _task(name: str, subtasks: list[dict[str, Any]], plan: Plan | None) -> dict[str, Any]:
    rows, retry = {}, {}
    schemas: dict[str, str] = {}
    schemas_of = 0
    its = plan.tasks[name].vertices if plan is not None and name in plan.tasks else ()
    for index, subtask in enumerate(subtasks):
        row = dict(subtask)
        retry_ms, outputs = row.pop("retry_ms"), row["outputs"]
        del row["failures"]
        if row["state"] == ExecutionState.CREATED and row["attempt"]:
            retry[index] = retry_ms or 0
        elif row["state"] in (ExecutionState.CREATED, ExecutionState.CANCELED) and not row["attempt"]:
            continue  # it has not run, and does not
        if outputs is not None:
            row["outputs"] = {vertex: (output.get("rows"), output.get("bytes")) for vertex, output in outputs.items()}
            if not schemas and any("schema" in outputs.get(vertex, {}) for vertex in its):
                schemas = {vertex: outputs[vertex]["schema"] for vertex in its if "schema" in outputs.get(vertex, {})}
                schemas_of = index
        rows[index] = row
    return {
        "parallelism": len(subtasks),
        "finished": sum(row["state"] == ExecutionState.FINISHED for row in rows.values()),
        "rows": rows,
        "ready": [index for index, row in rows.items() if row["state"] == ExecutionState.SCHEDULED],
        "retry": retry,
        "schemas": schemas,
        "schemas_of": schemas_of,
    }
