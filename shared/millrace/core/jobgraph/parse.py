"""Strangers' bytes to plain values, with bounds that hold before anything recursive runs."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from .model import DEFAULT_LIMITS, Limits

# A string that does not end runs to the end of the text: so each character is looked at once, whatever the text.
_BRACKET_OR_STRING = re.compile(r'[\[\]{}]|"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)


class Refused(ValueError):
    """A value that is no JSON, too large or too deep; its text says which, for the sender."""


def parse_json(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    """The value of a JSON text: bounded in bytes, depth and size of numbers; finite; no key twice in one object.

    Raises Refused, and nothing else, for any bytes.
    """
    if len(data) > limits.input_bytes:
        raise Refused(f"{len(data)} bytes are more than the {limits.input_bytes} allowed")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"not UTF-8 at byte {error.start}") from None
    _check_depth(text, limits.depth)
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=_constant
        )
    except json.JSONDecodeError as error:
        raise Refused(f"not JSON: {error.msg.removesuffix(' at')} at line {error.lineno}, column {error.colno}") from None
    reason = measure(value, limits)
    if reason is not None:
        raise Refused(reason)
    return value


def measure(value: object, limits: Limits) -> str | None:
    """Why a value of dicts, lists and scalars is too deep, too large or not writable as UTF-8; None if it is not."""
    stack: list[tuple[object, int]] = [(value, 0)]
    size = 0
    while stack:
        each, depth = stack.pop()
        if depth > limits.depth:
            return f"nested more than {limits.depth} deep"
        if isinstance(each, dict):
            stack += [(part, depth + 1) for pair in each.items() for part in pair]
        elif isinstance(each, (list, tuple)):
            stack += [(part, depth + 1) for part in each]
        elif isinstance(each, str):
            try:
                size += len(each.encode())
            except UnicodeEncodeError:
                return "a text holds half of a surrogate pair, which is no Unicode"
        size += 1
        if size > limits.input_bytes:
            return f"larger than the {limits.input_bytes} bytes allowed"
    return None


def _check_depth(text: str, limit: int) -> None:
    depth = 0
    for match in _BRACKET_OR_STRING.finditer(text):
        first = match.group()[0]
        if first in "[{":
            depth += 1
            if depth > limit:
                raise Refused(f"nested more than {limit} deep")
        elif first in "]}":
            depth -= 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise Refused(f"the key {key[:100]!r} stands twice in one object")
        result[key] = value
    return result


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise Refused(f"a whole number of {len(digits)} digits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise Refused("a number too large for a float")
    return value


def _constant(name: str) -> NoReturn:
    raise Refused(f"{name} is no JSON number")
