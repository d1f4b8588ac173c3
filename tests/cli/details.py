"""A job in all detail, as a JobMaster describes it: what a test leaves out is as it usually is."""

from __future__ import annotations

from typing import Any

from millrace.core.messages.execution import JobDetail, SubtaskDetail, TaskDetail


def detail(*tasks: TaskDetail) -> JobDetail:
    return JobDetail(job="j", name="n", acceptance="1.1", status="RUNNING", accepted_ms=1_000, since_ms=1_500, tasks=list(tasks))


def task(name: str, *subtasks: dict[str, Any], omitted: int = 0) -> TaskDetail:
    described = [SubtaskDetail.model_validate({"subtask": 0, "state": "RUNNING", "task_manager": "tm", **each}) for each in subtasks]
    return TaskDetail(task=name, parallelism=len(subtasks) + omitted, states={}, omitted=omitted, subtasks=described)
