"""Each test makes an application of its own, of some hundred routes. Most of that is what FastAPI finds out about the types of parameters
and answers. It is the same each time, and found out once here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from types import FunctionType
from typing import Any

import pytest
from fastapi import params
from fastapi._compat import v2
from fastapi.dependencies import utils
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

MADE: dict[Hashable, TypeAdapter[Any]] = {}
SIGNATURES: dict[Hashable, inspect.Signature] = {}
ANALYZED: dict[Hashable, tuple[Any, utils.ParamDetails]] = {}
signature_of, analyzed = utils.get_typed_signature, utils.analyze_param


def adapter(type_: Any, **options: Any) -> TypeAdapter[Any]:
    """As `TypeAdapter`. The key holds the type itself, and all else by its whole text."""
    described = getattr(type_, "__metadata__", ())
    if not described or any(isinstance(each, params.Param | params.Depends) for each in described):  # their texts are not the whole of them
        return TypeAdapter(type_, **options)
    key = (type_.__origin__, *map(repr, described), repr(options))
    if key not in MADE:
        MADE[key] = TypeAdapter(type_, **options)
    return MADE[key]


def signature(call: Callable[..., Any]) -> inspect.Signature:
    """As `get_typed_signature`. Of the same code and defaults it is the same: annotations are texts, whose names are a module's."""
    if not isinstance(call, FunctionType) or hasattr(call, "__wrapped__"):
        return signature_of(call)
    key = (call.__module__, call.__qualname__, call.__code__, call.__defaults__, *(call.__kwdefaults__ or {}).items())
    try:
        if key not in SIGNATURES:
            SIGNATURES[key] = signature_of(call)
    except TypeError:  # a default that is no key
        return signature_of(call)
    return SIGNATURES[key]


def analyze(*, param_name: str, annotation: Any, value: Any, path_param_names: set[str]) -> utils.ParamDetails:
    """As `analyze_param`: the same of one annotation, which is kept, so that its id is no other's."""
    if isinstance(value, FieldInfo | params.Depends) or not isinstance(value, Hashable):
        return analyzed(param_name=param_name, annotation=annotation, value=value, path_param_names=path_param_names)
    key = (id(annotation), param_name, type(value), value, frozenset(path_param_names))
    if key not in ANALYZED:
        found = analyzed(param_name=param_name, annotation=annotation, value=value, path_param_names=path_param_names)
        ANALYZED[key] = annotation, found
    return ANALYZED[key][1]


@pytest.fixture(scope="session", autouse=True)
def types_are_looked_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(v2, "TypeAdapter", adapter)
        patch.setattr(utils, "get_typed_signature", signature)
        patch.setattr(utils, "analyze_param", analyze)
        yield
