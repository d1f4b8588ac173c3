"""Recordings fold to the same words as then, with today's build."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.replay.core.checking import explain
from services.replay.core.recorded import BadLog
from services.replay.replaying import open_file, verify
from tests.replay.conftest import silent

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted([*(Path(__file__).parent / "recordings").glob("*.zip"), *(ROOT / "examples" / "incidents").glob("*.zip")])
WHAT_TO_DO = """
This build folds recorded inboxes otherwise than the build that wrote them. A build may (its name is made of its code, and a
cluster comes to it by a handover at a snapshot [27]), but it must be wanted. If it is, record anew:
    python -m tests.replay.simulated examples/incidents/leader-killed.zip   # then set the offsets in the page beside it,
    python -m tests.replay.page                                             # and have it print what its commands print now
    python -m tests.replay.record tests/replay/recordings/leader-killed.zip # the same on a real stack
    python -m tests.chaos --minutes 0.2 --record tests/replay/recordings/chaos.zip
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


def test_there_are_recordings_and_they_are_small() -> None:
    assert RECORDINGS
    assert all(path.stat().st_size < 300_000 for path in RECORDINGS)
