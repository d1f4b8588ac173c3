"""Which errors would come again, however often the same code runs over the same data: those that say that one of the two is wrong."""

from __future__ import annotations

import builtins
import sys
from typing import Any

_WRONG = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, NotImplementedError, RecursionError,
    SyntaxError, TypeError, ValueError,
)  # fmt: skip
_SQLSTATES = ("07", "0A", "21", "22", "23", "2B", "2D", "42", "44", "54", "P0")
"""Classes of SQLSTATE that are about the statement or its data. Not: connections, resources, files, what Spark calls internal."""


def exception(raised: BaseException) -> bool:
    """Of an exception of Python's. Who raises it knows best: `retryable`, where it is true or false, decides."""
    marked = getattr(raised, "retryable", None)
    return not marked if isinstance(marked, bool) else _kind(type(raised))


def named(name: str) -> bool:
    """Of an exception of which only the name is known, dotted, as a Python worker reported it."""
    module, _, own = name.rpartition(".")
    found: Any = getattr(sys.modules.get(module) if module else builtins, own, None)
    return isinstance(found, type) and _kind(found)


def sqlstate(thrown: Any) -> bool:
    """Of an exception of Spark's, in Python or in Java."""
    try:
        state = thrown.getSqlState()
    except Exception:  # not a SparkThrowable: py4j raises for a method that is not there
        return False
    return isinstance(state, str) and state.startswith(_SQLSTATES)


def _kind(cls: type) -> bool:
    """An OSError is of the world outside, also where it is a ValueError as well: a reply of a server that was cut off."""
    return issubclass(cls, _WRONG) and not issubclass(cls, OSError)
