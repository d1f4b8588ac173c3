"""Skewed edges: who is told of them, and what."""

from __future__ import annotations

from tests.simulation.seeds import each_seed
from tests.simulation.skewing import uneven_edges


@each_seed(range(6), first=3)
def test_a_skewed_edge_is_told_once_whoever_dies(seed: int) -> None:
    uneven_edges(seed)
