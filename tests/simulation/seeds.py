"""Tests that are run with several seeds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest


def each_seed(seeds: Sequence[int], first: int) -> pytest.MarkDecorator:
    """The `first` ones in `make test`, the others in `make test-long`: each draws other faults, and all must show the same."""
    later = (pytest.param(seed, marks=pytest.mark.long) for seed in seeds[first:])
    return pytest.mark.parametrize("seed", [*seeds[:first], *later])
