"""Tests that are run with several pieces of code."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest


def each_code(cases: Mapping[str, str], quick: Collection[str]) -> pytest.MarkDecorator:
    """By their names: the `quick` ones in `make test`, the others in `make test-long`."""
    assert {*quick} < {*cases}
    params = [pytest.param(code, id=name, marks=[] if name in quick else pytest.mark.long) for name, code in cases.items()]
    return pytest.mark.parametrize("code", params)
