"""Clusters in memory make little garbage in circles, and much that stays until their test ends: it is collected between tests alone."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def garbage_stays() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()
