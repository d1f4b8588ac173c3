"""Values under a scope's keys in etcd that no build wrote: somebody else's, or damaged. Each is told with its key."""

from __future__ import annotations

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from millrace.io.interfaces import Unavailable

T = TypeVar("T")


class Foreign(Unavailable):
    """What should stand there is not known until somebody mends the key: it is waited for, as for etcd itself."""


def read(adapter: TypeAdapter[T], value: bytes, key: str) -> T:
    """The value of a key. Raises Foreign."""
    try:
        return adapter.validate_json(value, strict=True)
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Foreign(f"no build of Millrace wrote what etcd holds under {key} ({where + ': ' if where else ''}{first['msg']})") from None
