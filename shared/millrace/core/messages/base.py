"""What every message is: a frozen model with a type and a version, as JSON on the wire."""

from __future__ import annotations

import functools
import hashlib
import json
import operator
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import from_json, to_json

JOB_ID_RULE = "it begins with a letter or digit, and at most 99 letters, digits, _, . or - follow"
JOB_ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$"


class Body(BaseModel):
    """A message. A subclass declares `type: Literal[...]` and `version: Literal[...]` with their values as defaults.

    Strict from JSON, unknown fields refused. Field order is wire order, so equal messages are equal bytes. What reads and writes it alone
    is made when it is first needed: for all messages that is 4 MB in each process, and a tenth of a second of its start.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)

    type: Any
    version: Any


class Request(Body):
    """A request of a client. Answers go to `client.replies` with its `reply_to` as key and its `correlation`."""

    reply_to: Annotated[str, Field(max_length=200)] = ""
    """Names the client; the key of the answer. Empty: no answer is wanted (job.events tells of an accepted job, and a refused SubmitJob
    is a letter on dead-letters)."""
    correlation: Annotated[str, Field(max_length=200)] = ""
    """Copied to the answer."""


class Reply(Body):
    """An answer to a request: `correlation` is the request's."""

    correlation: str


class Part(BaseModel):
    """A value inside messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


def unless_set(value: object) -> bool:
    """Of a field of later versions: where it has its default, messages are as before."""
    return value is None or value is False or value == ""  # not 0, which is a value


def empty(kind: type[dict[Any, Any]] | type[list[Any]]) -> Any:
    """The default of a field that may be left out: a new dict or list. One written as `= {}` is copied for each message, by
    copy.deepcopy."""
    return Field(default_factory=kind, json_schema_extra={"default": kind()})


class OneOf:
    """`Annotated[Body, OneOf(bodies)]` is one of these messages, told by its type."""

    def __init__(self, bodies: Iterable[type[Body]]) -> None:
        self.bodies = tuple(bodies)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        annotated: Any = Annotated  # of a value, which a type checker does not take for a type
        return handler.generate_schema(annotated[functools.reduce(operator.or_, self.bodies), Field(discriminator="type")])


def parsed(text: str) -> Any:
    """The value of JSON that we have written, in half of `json.loads`' time."""
    return from_json(text)


def written(value: Any) -> str:
    """A value as compact JSON, to be kept in a state."""
    return to_json(value).decode()


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: sorted keys, no spaces, UTF-8. For digests; the wire needs no sorting."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
