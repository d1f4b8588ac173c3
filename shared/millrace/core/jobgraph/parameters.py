"""Puts a graph's parameters into its vertices: `${name}` is a parameter's value, `$$` is one dollar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .model import Limits
from .problems import MOST_PROBLEMS, Place, Problem, did_you_mean

_DOLLAR = re.compile(r"\$(?:\$|\{([^{}]*)\}|\{)")


class Substitution:
    """Puts `values` into every string of a value; what went wrong is in `problems`."""

    def __init__(self, values: Mapping[str, str], limits: Limits) -> None:
        self.values = values
        self.limits = limits
        self.problems: list[Problem] = []
        self._size = 0

    def put(self, value: Any, place: Place) -> Any:
        """`value` (dicts, lists, scalars) with parameters put in; keys stay as they are."""
        if isinstance(value, dict):
            return {key: self.put(part, (*place, key)) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.put(part, (*place, index)) for index, part in enumerate(value)]
        return self._text(value, place) if isinstance(value, str) else value

    def _text(self, text: str, place: Place) -> str:
        pieces: list[str] = []
        position = 0
        unknown: dict[str | None, None] = {}  # None: one without its }, told once
        for match in _DOLLAR.finditer(text):
            pieces.append(text[position : match.start()])
            position = match.end()
            pieces.append(self._value(match, unknown))
        pieces.append(text[position:])
        # Measured before it is built: a few parameters used often could make any amount of text.
        before, self._size = self._size, self._size + sum(len(piece) for piece in pieces)
        if self._size > self.limits.input_bytes:
            if before <= self.limits.input_bytes:
                message = (
                    f"with parameters put in, the graph is larger than the {self.limits.input_bytes} bytes allowed"
                )
                self.problems.append(Problem((), message))
            return text
        for name in list(unknown)[: MOST_PROBLEMS + 1 - len(self.problems)]:
            if name is None:
                self.problems.append(Problem(place, "${ without its }", "write $${ for the text itself"))
                continue
            hint = did_you_mean(
                name, self.values, f"declare it under parameters, or write $${{{name}}} for the text itself"
            )
            self.problems.append(Problem(place, f"unknown parameter ${{{name}}}", hint))
        return "".join(pieces)

    def _value(self, match: re.Match[str], unknown: dict[str | None, None]) -> str:
        if match.group() == "$$":
            return "$"
        name: str | None = match.group(1)
        if name is None or name not in self.values:
            unknown[name] = None
            return match.group()
        return self.values[name]
