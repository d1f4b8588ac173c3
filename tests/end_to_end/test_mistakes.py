"""What a user sees of each typical mistake in a job that runs: see `tests/mistakes`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.end_to_end.running import RunningStack
from tests.mistakes.scene import ON_A_STACK, play


@pytest.mark.parametrize("file", ON_A_STACK, ids=lambda file: file.stem)
def test_a_mistake_of_a_running_job_is_told_as_it_is_written(
    file: Path, running: RunningStack, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def runs(job: str) -> int:
        detail = running.client.show(job).detail
        assert detail is not None
        return max(subtask.attempt for task in detail.tasks for subtask in task.subtasks)

    play(file, tmp_path, {"MILLRACE_HOME": os.environ["MILLRACE_HOME"]}, request, runs)
