"""Skewed edges: who is told of them, and what."""

from __future__ import annotations

import pytest

from tests.simulation.skewing import uneven_edges


@pytest.mark.parametrize("seed", range(6))
def test_a_skewed_edge_is_told_once_whoever_dies(seed: int) -> None:
    uneven_edges(seed)
