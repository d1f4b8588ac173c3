"""The figures of the runtime's limits, small: every part is measured, and what it measures has happened."""

from __future__ import annotations

import pytest

from tests.bench.figures import Run
from tests.bench.scale import PARTS

STACKS = ("stored", "small")  # which take a minute to start


@pytest.mark.parametrize("part", [part for part in PARTS if part not in STACKS])
def test_a_part_is_measured_whole(part: str) -> None:
    run = Run(part, True, lambda line: None)
    PARTS[part](run)
    assert run.rows and run.samples
