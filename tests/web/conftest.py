"""Each test makes an application of its own, of some hundred routes. Most of that is what FastAPI finds out about the types of parameters
and answers. It is the same each time, and found out once here."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import pytest
from fastapi import params
from fastapi._compat import v2
from pydantic import TypeAdapter

MADE: dict[Hashable, TypeAdapter[Any]] = {}


def adapter(type_: Any, **options: Any) -> TypeAdapter[Any]:
    """As `TypeAdapter`. The key holds the type itself, and all else by its whole text."""
    described = getattr(type_, "__metadata__", ())
    if not described or any(isinstance(each, params.Param | params.Depends) for each in described):  # their texts are not the whole of them
        return TypeAdapter(type_, **options)
    key = (type_.__origin__, *map(repr, described), repr(options))
    if key not in MADE:
        MADE[key] = TypeAdapter(type_, **options)
    return MADE[key]


@pytest.fixture(scope="session", autouse=True)
def types_are_looked_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "TypeAdapter", adapter)
        yield
