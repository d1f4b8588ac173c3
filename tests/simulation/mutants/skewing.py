"""Mutants of what is told of skewed edges. Each is run in `simulation/skewing.py`."""

from __future__ import annotations

from services.job_master.core import skew
from tests.simulation.mutants.registry import mutant


@mutant(16, "job_master/core/skew.py:forget", "an attempt that runs again counts twice, and what is told of its edge is no fact")
def what_runs_again_counts_twice() -> None:
    skew.forget = lambda job, task: None


@mutant(16, "core/skew.py:skewed_share", "each edge is called skewed, and nobody looks any more")
def any_edge_is_skewed() -> None:
    skew.skewed_share = lambda rows, sizes: rows.index(max(rows))
