"""The user's Python functions that Spark calls row by row: which they are, so that an error of what one returned names it.

Spark converts what a function returns far from that function: the traceback has PySpark's frames alone, and the vertex that asked for
the rows is a later one. A Decimal that does not fit is reported without any value, so such functions look at what they return themselves.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

ARROW_BATCHED = 101
"""Spark's number of how it calls a plain function by default. Where it does so by pickled rows, a wrong Decimal is NULL."""
VALUE_CHARS = 80


@dataclass(frozen=True)
class Declared:
    """A function as it was declared."""

    name: str
    returns: str
    file: str
    line: int
    vertex: str | None


DECLARED: list[Declared] = []
"""Those that this process has given to Spark."""


def remember(vertex: Callable[[], str | None]) -> None:
    """From now on, functions that are given to Spark are noted with the vertex that is being worked on."""
    from pyspark import cloudpickle
    from pyspark.sql.types import DecimalType
    from pyspark.sql.udf import UserDefinedFunction

    make = UserDefinedFunction._create_judf
    if hasattr(make, "__wrapped__"):
        return
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker has no module of this name

    @functools.wraps(make)
    def make_noted(self: Any, function: Callable[..., Any]) -> Any:
        kind = self.returnType
        code = getattr(self.func, "__code__", None)
        if code is not None:
            noted = Declared(self._name, kind.simpleString(), code.co_filename, code.co_firstlineno, vertex())
            DECLARED.append(noted)
            if isinstance(kind, DecimalType) and self.evalType == ARROW_BATCHED:
                function = _looked_at(function, self._name, kind.precision, kind.scale)
        return make(self, function)

    UserDefinedFunction._create_judf = make_noted  # type: ignore[method-assign, assignment]  # PySpark's own, replaced


def _looked_at(function: Callable[..., Any], name: str, precision: int, scale: int) -> Callable[..., Any]:
    most = precision - scale

    @functools.wraps(function)
    def looked_at(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        if isinstance(value, Decimal):
            if value.adjusted() < most or not value.is_finite() or not value:
                return value
            what = "which is too large for"
        elif value is None or isinstance(value, int):  # an int is Spark's to judge: a setting makes it a Decimal
            return value
        else:
            what = f"of type {type(value).__name__}, which is no"
        text = str(value) if isinstance(value, Decimal) else repr(value)
        short = text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}..."
        raise TypeError(f"{name} returned {short}, {what} decimal({precision},{scale}), the type that it declares")

    return looked_at


def at_fault(message: str) -> list[Declared]:
    """The functions that an error can be about whose traceback has no frame of the user's: the one that it names, else all."""
    once = list(dict.fromkeys(DECLARED))
    return [each for each in once if f"{each.name} returned " in message] or once
