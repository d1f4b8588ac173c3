"""Headers of records: CloudEvents in binary mode, and `traceparent`, so that any tool can follow them."""

from __future__ import annotations

import hashlib
from itertools import count
from uuid import uuid4

from millrace.core.fold import OutboxRecord
from millrace.core.messages.base import Part

Headers = list[tuple[str, bytes]]

_PROCESS, _NUMBERS = uuid4().hex, count(1)


def _headers(id: str, type: str, source: str) -> Headers:
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", id.encode()),
        ("ce_type", type.encode()),
        ("ce_source", f"/millrace/{source}".encode()),
        ("content-type", b"application/json"),
    ]


def of_output(scope: str, life: int, output: OutboxRecord) -> Headers:
    """Of an output. The id is its number in this life of its scope, the same whoever says it again. The trace is that of its key, so that
    the public facts about one job share a trace, and so do the records for one receiver."""
    trace = hashlib.blake2b(output.key.encode(), digest_size=16).hexdigest()
    id = f"{scope}/{life}/{output.seq}"
    span = hashlib.blake2b(id.encode(), digest_size=8).hexdigest()
    headers = _headers(id, output.type, scope)
    return [*headers, ("traceparent", f"00-{trace}-{span}-01".encode())]


def of_record(scope: str, record: Part) -> Headers:
    """Of what a leader writes to its own inbox. The id is this process's, with a number: to draw one for each costs a system call."""
    return _headers(f"{_PROCESS}-{next(_NUMBERS)}", str(getattr(record, "record", "")), scope)
