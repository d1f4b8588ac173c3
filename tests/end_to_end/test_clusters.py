"""Clusters do not mix [R29]: stacks one after the other over the same sinks, another one's storage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from deploy.local.errors import LocalError
from deploy.local.stack import Options
from tests.end_to_end.running import RunningStack

MODES = ("append", "error", "overwrite")


def ended(stack: RunningStack, folder: Path, day: str) -> dict[str, dict[str, Any]]:
    """How a job of each mode ends that writes the day."""
    jobs = {}
    for mode in MODES:
        sink = {"sink": {"format": "text", "path": str(folder / mode), "mode": mode}, "inputs": {"day": "forward"}}
        jobs[mode] = stack.submit({"name": mode, "vertices": {"day": {"sql": f"SELECT '{day}' AS value"}, "out": sink}}, job=mode)
    for job in jobs.values():
        stack.client.wait(job.id)  # for as long as its slot takes to be warm
    return {mode: job.end for mode, job in jobs.items()}


def rows(folder: Path) -> dict[str, list[str]]:
    files = {mode: [*(folder / mode).rglob("*-part-*")] for mode in MODES}
    return {mode: sorted(line for file in found for line in file.read_text().split()) for mode, found in files.items()}


@pytest.mark.long
def test_a_fresh_stack_over_the_sinks_of_a_purged_one_leaves_the_right_rows(
    stacks_home: Path, tmp_path: Path
) -> None:
    """Its logs begin at 0 again, so that its jobs were accepted under the names of the first one's."""
    options, left = Options(slots=1, task_managers=1, heap_mb=512), tmp_path / "left"
    with RunningStack("days", options) as monday:
        assert {end["type"] for end in ended(monday, tmp_path, "Monday").values()} == {"JobFinished"}
        assert rows(tmp_path) == dict.fromkeys(MODES, ["Monday"])
        shutil.copytree(monday.stack.folder / "storage", left)
    stack = monday.stack
    assert not stack.down(purge=True)
    with RunningStack("days", options) as tuesday:
        ends = ended(tuesday, tmp_path, "Tuesday")
        assert {mode: end["type"] for mode, end in ends.items()} == {
            "append": "JobFinished", "error": "JobFailed", "overwrite": "JobFinished",
        }  # fmt: skip
        assert "is there already (mode: error)" in ends["error"]["cause"]["message"]
        assert rows(tmp_path) == {"append": ["Monday", "Tuesday"], "error": ["Monday"], "overwrite": ["Tuesday"]}
    storage = stack.folder / "storage"
    assert (storage / "owner.json").read_text() != (left / "owner.json").read_text()
    shutil.rmtree(storage)
    shutil.copytree(left, storage)
    with pytest.raises(LocalError, match=r"does not start: .*: storage .* belongs to cluster 'default' .*, and this is cluster 'default'"):
        stack.up(None, lambda step: None, foreground=True)
