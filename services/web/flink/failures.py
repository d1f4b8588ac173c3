"""How a job ended, and what failed in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query

from millrace.core.faults import decision_text
from millrace.core.messages.attempts import Decided
from millrace.core.states import ENDED_JOB, JobStatus

from . import shapes
from .errors import Reply
from .source import Attempt, Job, Source, Task, duration
from .throwables import throwable

SHOWN = 20  # failures, unless another number is asked for
APPLICATION_STATUS: dict[str, str] = {status.value: status.value for status in ENDED_JOB} | {JobStatus.FINISHED.value: "SUCCEEDED"}


def router(source: Source) -> APIRouter:
    api = APIRouter(tags=["jobs"])

    @api.get("/jobs/{job}/exceptions", response_model=shapes.Failures)
    async def exceptions(
        job: str,
        most: Annotated[int, Query(alias="maxExceptions", ge=0, description="How many are listed, the newest first.")] = SHOWN,
        labels: Annotated[str, Query(alias="failureLabelFilter", description="Only with these labels: `KEY:VALUE,...`.")] = "",
    ) -> Reply:
        """What failed, the newest first; of a failed job its cause first."""
        wanted = [each.partition(":")[::2] for each in labels.split(",") if each]
        found = [
            each for each in history(await source.job(job)) if all(each["failureLabels"].get(key) == value for key, value in wanted)
        ]
        body: shapes.Failures = {"exceptionHistory": {"entries": found[:most], "truncated": len(found) > most}}
        return Reply(body)

    @api.get("/jobs/{job}/execution-result", response_model=shapes.ExecutionResult)
    async def result(job: str) -> Reply:
        """How it ended; IN_PROGRESS until it has."""
        return Reply(execution_result(await source.job(job)))

    return api


def history(job: Job) -> list[shapes.Failure]:
    """The attempts that failed, the newest first, each with those that failed while the job restarted, or failed, for it. The last one is
    the cause of a failed job, and stands for it."""
    failed = [(attempt.times.get("FAILED", 0), task, attempt) for task, attempt in job.attempts() if attempt.row["error"]]
    failed.sort(key=lambda each: (decided_of(each[2]).get("number") or 0, each[0]), reverse=True)
    cause = job.row["cause"] if job.state == "FAILED" else None
    if cause and not any(_is_of(cause, task, attempt) for _, task, attempt in failed):
        known: list[shapes.ConcurrentFailure] = [_entry(fault_of(failed[0][2]), *failed[0])] if failed else []
        return [_alone(_entry(cause, job.end_ms, None, None), known), *_each(failed[1:])]
    return list(_each(failed))


def _each(failed: list[tuple[int, Task, Attempt]]) -> Iterator[shapes.Failure]:
    roots = {decided_of(attempt).get("number") for _, _, attempt in failed}
    others: dict[int, list[shapes.ConcurrentFailure]] = {}
    for at_ms, task, attempt in failed:
        entry = _entry(fault_of(attempt), at_ms, task, attempt)
        decided = decided_of(attempt)
        root: int = decided.get("concurrent_with") or 0
        if root and root in roots:
            others.setdefault(root, []).insert(0, entry)  # before its root, for the newest come first
        else:
            yield _alone(entry, others.pop(decided.get("number", 0), []))


def _alone(entry: shapes.ConcurrentFailure, others: list[shapes.ConcurrentFailure]) -> shapes.Failure:
    return {**entry, "concurrentExceptions": others}


def _is_of(cause: Mapping[str, Any], task: Task, attempt: Attempt) -> bool:
    """Whether it is the fault of this attempt."""
    number = (cause.get("decided") or {}).get("number")
    if number:
        return bool(number == decided_of(attempt).get("number"))
    place = (cause.get("task"), cause.get("subtask"), cause.get("attempt"))
    return place == (task.name, attempt.subtask, attempt.row["attempt"])


def fault_of(attempt: Attempt) -> Mapping[str, Any]:
    fault: Mapping[str, Any] = attempt.row["error"]
    return fault


def decided_of(attempt: Attempt) -> Mapping[str, Any]:
    """What was decided on its failure; empty: an earlier build decided it."""
    decided: Mapping[str, Any] = fault_of(attempt).get("decided") or {}
    return decided


def _entry(fault: Mapping[str, Any], at_ms: int, task: Task | None, attempt: Attempt | None) -> shapes.ConcurrentFailure:
    entry: shapes.ConcurrentFailure = {
        "exceptionName": exception_name(fault), "stacktrace": readable(fault), "timestamp": at_ms,
        "failureLabels": {"kind": str(fault.get("kind") or "unknown"), "retryable": str(bool(fault.get("retryable"))).lower()},
    }  # fmt: skip
    if task is not None and attempt is not None:
        number, of = attempt.subtask + 1, len(task.subtasks)
        entry["taskName"] = f"{task.name} ({number}/{of}) - execution #{attempt.number}"
        entry["endpoint"] = entry["taskManagerId"] = attempt.task_manager
    return entry


def exception_name(fault: Mapping[str, Any]) -> str:
    return str(fault.get("condition") or fault.get("kind") or "unknown")


def readable(fault: Mapping[str, Any]) -> str:
    """The error and the user's line, in the place of a Java stack."""
    lines = [f"{exception_name(fault)}: {fault.get('message') or ''}"]
    if fault.get("vertex") is not None:
        lines.append(f"\tin vertex {fault['vertex']}")
    if fault.get("file") is not None or fault.get("line") is not None:
        where = ":".join(str(fault[name]) for name in ("file", "line", "column") if fault.get(name) is not None)
        lines.append(f"\tat {where}")
    if fault.get("frame"):
        lines.append(f"\tat {fault['frame']}")
    if fault.get("decided"):
        lines.append(f"\tthen {decision_text(Decided.model_validate(fault['decided']))}")
    return "\n".join(lines)


def execution_result(job: Job) -> shapes.ExecutionResult:
    if not job.has_ended:
        return {"status": {"id": "IN_PROGRESS"}}
    result: shapes.JobResult = {
        "id": job.id,
        "application-id": job.id,
        "name": job.name,
        "application-status": APPLICATION_STATUS[job.state],
        "accumulator-results": {},
        "net-runtime": duration(job.start_ms, job.end_ms, job.wall_ms),
        "start-time": job.start_ms,
        "end-time": job.end_ms,
    }
    if job.state == "FAILED":
        cause: Mapping[str, Any] = job.row["cause"] or {"message": "the job failed; its archive has the cause"}
        result["failure-cause"] = throwable(exception_name(cause), str(cause.get("message") or ""), readable(cause))
    if job.state == "CANCELED":
        result["failure-cause"] = throwable("org.apache.flink.runtime.client.JobCancellationException", "Job was cancelled.")
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}
