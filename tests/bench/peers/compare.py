"""Results beside each other, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Rows = Sequence[Sequence[Any]]
TOLERANCE = 1e-9
"""Of floats, relative: sums of the same numbers in another order."""


def difference(expected: Rows, found: Rows) -> str | None:
    """The first difference of two ordered results; None if they are equal."""
    if len(expected) != len(found):
        return f"{len(found)} rows instead of {len(expected)}"
    for number, (row, other) in enumerate(zip(expected, found, strict=True)):
        if len(row) != len(other):
            return f"row {number} has {len(other)} columns instead of {len(row)}"
        for column, (cell, value) in enumerate(zip(row, other, strict=True)):
            if not _equal(cell, value):
                return f"row {number}, column {column}: {value!r} instead of {cell!r}"
    return None


def _equal(cell: Any, value: Any) -> bool:
    numbers = [isinstance(each, (int, float)) and not isinstance(each, bool) for each in (cell, value)]
    if all(numbers):
        both_nan = math.isnan(cell) and math.isnan(value)
        return both_nan or cell == value or (isinstance(cell, float) or isinstance(value, float)) and math.isclose(
            cell, value, rel_tol=TOLERANCE
        )
    return type(cell) is type(value) and bool(cell == value)
