"""Recordings of real clusters fold to the same words as then, with today's build."""

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
This build folds recorded inboxes otherwise than the build that wrote them: running clusters would be torn in two, for
replicas of one build must fold alike [27]. If the change is wanted, give the build another name (the version in
shared/millrace/__init__.py and pyproject.toml), and record anew: python -m tests.replay.record FILE,
python -m tests.chaos --minutes 0.2 --record FILE. Old recordings replay with their own build.
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
    assert len(RECORDINGS) >= 2
    assert all(path.stat().st_size < 300_000 for path in RECORDINGS)
