"""What every message is: a frozen model with a type and a version, as JSON on the wire."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Body(BaseModel):
    """A message. A subclass declares `type: Literal[...]` and `version: Literal[...]` with their values as defaults.

    Strict from JSON, unknown fields refused. Field order is wire order, so equal messages are equal bytes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    type: Any
    version: Any


class Part(BaseModel):
    """A value inside messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)


def empty(kind: type[dict] | type[list]) -> Any:
    """The default of a field that may be left out: a new dict or list. One written as `= {}` is copied for each message, by
    copy.deepcopy."""
    return Field(default_factory=kind, json_schema_extra={"default": kind()})


def canonical(value: Any) -> bytes:
    """The one JSON text of a value: sorted keys, no spaces, UTF-8. For digests; the wire needs no sorting."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()
