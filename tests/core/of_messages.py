"""Values of any message class: random ones for hypothesis, and one fixed one each.

Run as a program it prints the bytes of the fixed ones, for a test that compares processes.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, Lt, MaxLen, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from millrace.core.messages import effects, graphs, slots
from millrace.core.messages.base import Body, OneOf, Part
from millrace.core.messages.contracts import CONTRACTS
from millrace.core.messages.records import Client, Elected, Fact, Message, Outcome, Probe, Refusal, Tick, encode

RECORDS: tuple[type[Part], ...] = (Elected, Tick, Outcome, Client, Message, Probe, Fact)
BODIES: tuple[type[Body], ...] = (
    *(contract.body for contract in CONTRACTS.values()), *effects.EFFECTS, *effects.OUTCOMES, *slots.LOCAL_FACTS, *graphs.NOTICED,
)  # fmt: skip
WAITS = {"StartJob": "job.events", "JobEnded": "job.events", "AllocateSlot": "TaskManagerLost"}
"""Type of a message -> what it waits for, as the services say it (`Say.after`)."""

INTEGERS = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def any_of(model: type[BaseModel]) -> st.SearchStrategy[Any]:
    """All values of a message class, by its fields."""
    fields = {name: _any(_annotation(field.annotation, field.metadata), field) for name, field in model.model_fields.items()}
    return st.deferred(lambda: st.fixed_dictionaries(fields).map(lambda values: model(**values)))


def _annotation(annotation: Any, metadata: Iterable[Any]) -> Any:
    """With the choice of messages that `OneOf` stands for."""
    chosen = next((each for each in metadata if isinstance(each, OneOf)), None)
    return annotation if chosen is None else Union[chosen.bodies]  # noqa: UP007 (a tuple of classes)


def _any(annotation: Any, field: FieldInfo | None = None) -> st.SearchStrategy[Any]:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _any(_annotation(inner[0], inner[1:]), next((each for each in inner[1:] if isinstance(each, FieldInfo)), field))
    if origin in (Union, types.UnionType):
        return st.one_of([_any(each, field) for each in inner])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is list:
        return st.lists(_any(inner[0]), max_size=3)
    if origin is tuple:
        return st.tuples(*(_any(each) for each in inner))
    if origin is dict:
        return st.dictionaries(_any(inner[0]), _any(inner[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any_of(annotation)
    limits = field.metadata if field is not None else []
    pattern = next((each.pattern for each in limits if getattr(each, "pattern", None)), None)
    if pattern is not None:
        return st.from_regex(pattern, fullmatch=True)
    least = {type(each): each for each in limits}
    if annotation is int:
        low = least[Ge].ge if Ge in least else -(2**63)
        high = least[Lt].lt - 1 if Lt in least else 2**63 - 1
        return st.integers(low, least[Le].le if Le in least else high)
    if annotation is str:
        low = least[MinLen].min_length if MinLen in least else 0
        return st.text(min_size=low, max_size=min(least[MaxLen].max_length if MaxLen in least else 30, 30))
    simple = {bool: st.booleans(), type(None): st.none(), Any: JSON}
    return simple[annotation]


def one_of(model: type[BaseModel], depth: int = 0) -> Any:
    """One fixed value, with every field given and mappings of several keys, so that an order could show."""
    return model(**{name: _one(_annotation(field.annotation, field.metadata), name, depth) for name, field in model.model_fields.items()})


def _one(annotation: Any, name: str, depth: int) -> Any:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _one(_annotation(inner[0], inner[1:]), name, depth)
    if origin in (Union, types.UnionType):
        return _one(inner[0], name, depth)
    if origin is Literal:
        return inner[0]
    if origin is list:
        return [_one(inner[0], name, depth + 1)]
    if origin is tuple:
        return tuple(_one(each, name, depth) for each in inner)
    if origin is dict:
        return {f"{name}{each}": _one(inner[1], name, depth + 1) for each in ("z", "a", "ü", "1")}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return one_of(annotation, depth + 1)
    return {str: f"{name}-1", int: 7, bool: True, type(None): None, Any: {"b": [1, 2.5, None], "a": "ß"}}[annotation]


def encoded(value: BaseModel) -> bytes:
    """The bytes on the wire: of a record of an inbox, or of a body on a public topic or in an effect."""
    return encode(value) if isinstance(value, Part) else value.model_dump_json().encode()


if __name__ == "__main__":
    for model in (*BODIES, *RECORDS, Refusal):
        print(model.__name__, encoded(one_of(model)).decode())
