"""Mutants of gangs that lose a part of what they were granted [R35]. Each is run in `simulation/gangs.py`."""

from __future__ import annotations

from services.job_master.core import scheduling
from tests.simulation.mutants.registry import mutant


@mutant(35, "job_master/core/scheduling.py:PART_MS", "two gangs have a part each, the rest was lost before it was offered, and both wait")
def a_part_of_a_gang_waits_for_the_rest() -> None:
    scheduling.PART_MS = 1 << 40
