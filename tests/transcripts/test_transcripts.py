"""Every scenario has the output that stands in its file. `pytest tests/transcripts --rewrite` writes what it has now: read the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.trial import quiet_logs
from tests.transcripts.runner import rewritten

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_scenario_goes_as_it_is_written(file: Path, request: pytest.FixtureRequest) -> None:
    quiet_logs()
    before = file.read_text()
    now = rewritten(before)
    if request.config.getoption("--rewrite"):
        file.write_text(now)
    else:
        assert now == before
