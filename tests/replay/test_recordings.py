"""Recordings fold to the same words as then, with today's build."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from services.replay.core.checking import explain
from services.replay.core.recorded import BadLog
from services.replay.replaying import open_file, verify
from tests.replay.conftest import Change, silent

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted([*(Path(__file__).parent / "recordings").glob("*.zip"), *(ROOT / "examples" / "incidents").glob("*.zip")])
WHAT_TO_DO = """
This build folds recorded inboxes otherwise than the build that wrote them. A build may (its name is made of its code, and a
cluster comes to it by a handover at a snapshot [27]), but it must be wanted. If it is, record anew:
    python -m tests.replay.simulated tests/replay/recordings/simulated.zip
    python -m tests.replay.record build/real.zip   # on real Kafka, etcd and Spark, as python -m tests.chaos --record FILE
    python -m tests.replay.moved build/real.zip examples/incidents/leader-killed.zip "$PWD/build/replay=/var/lib" "$PWD=/opt/millrace"
    python -m tests.replay.page   # writes what the commands of its page print now; read it again
Old recordings replay with the build that wrote them.
"""


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_recording_folds_to_the_same_words(path: Path) -> None:
    try:
        report = verify(open_file(path), None, silent)
    except BadLog as failure:
        pytest.fail(f"{failure}\n{WHAT_TO_DO}")
    if report.difference is not None:
        lines = [f"{path.name}: {report.difference[0].scope}", *explain(report.difference[1], report.cause, report.now)]
        pytest.fail("\n".join([*lines, WHAT_TO_DO]))
    assert sum(len(each.found) for each in report.scopes) > 100


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_one_byte_of_one_decision_is_found_with_its_offset(path: Path, change: Change) -> None:
    """The slot that the ResourceManager gave away."""
    with zipfile.ZipFile(path) as read:
        part, line = next(
            (name, line) for name in read.namelist() if name.startswith("logs/task-manager.commands/")
            for line in read.read(name).decode().splitlines() if '"type":"AllocateSlot"' in line
        )  # fmt: skip
    at, said = line.partition("\t")[0], json.loads(line.split("\t", 4)[4])
    slot = said["body"]["slot"]
    changed = change(path, part, rf'(^{at}\t.*"slot":){slot}', rf"\g<1>{slot + 1}")
    report = verify(open_file(changed), None, silent)
    assert report.difference is not None
    assert (report.difference[0].scope, report.difference[1].offset) == ("resource-manager", said["key"][0])


def test_there_are_recordings_and_they_are_small() -> None:
    assert RECORDINGS
    assert all(path.stat().st_size < 300_000 for path in RECORDINGS)
