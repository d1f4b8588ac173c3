"""Values for tests of what running attempts report."""

from __future__ import annotations

from millrace.core.messages.progress import AttemptProgress, AttemptStatus, StageStatus


def progress(tasks_done: int = 0, **more: int) -> AttemptProgress:
    return AttemptProgress(**{**dict.fromkeys(AttemptProgress.model_fields, 0), "tasks_done": tasks_done, **more})


def status(tasks_done: int = 0) -> AttemptStatus:
    stage = StageStatus(stage=3, name="count at job.py:4", tasks_done=tasks_done, tasks_total=5)
    return AttemptStatus(elapsed_ms=1500, progress=progress(tasks_done), stages=[stage], stack=["job.py:4 main"])
