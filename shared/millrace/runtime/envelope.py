"""Headers of records: CloudEvents in binary mode, and W3C's of a trace, so that any tool can follow them."""

from __future__ import annotations

import functools
from itertools import count
from uuid import uuid4

from millrace.core.fold import OutboxRecord
from millrace.core.messages.base import Part
from millrace.core.trace_context import HEADER, fields_of, of_one, span_of, trace_of

Headers = list[tuple[str, bytes]]

_PROCESS, _NUMBERS = uuid4().hex, count(1)
_VERSION = ("ce_specversion", b"1.0")


def _headers(id: str, type: str, source: str) -> Headers:
    return [_VERSION, ("ce_id", id.encode()), *_of_kind(type, source)]


@functools.lru_cache(1024)
def _of_kind(type: str, source: str) -> tuple[tuple[str, bytes], ...]:
    """What all records of a type from one scope have in common."""
    return ("ce_type", type.encode()), ("ce_source", f"/millrace/{source}".encode()), ("content-type", b"application/json")


def of_output(scope: str, life: int, output: OutboxRecord) -> Headers:
    """Of an output. The id is its number in this life of its scope, the same whoever says it again. Facts about a job whose publisher has a
    trace name the job's span in it. All others have the trace of their key: so those about one job share one, and the records for one
    receiver."""
    headers = _headers(f"{scope}/{life}/{output.seq}", output.type, scope)
    if output.trace:
        headers += _of_trace(output.trace)
    else:
        headers.append((HEADER, f"00-{trace_of(output.key)}-{_span_of_life(scope, life)}{output.seq & 0xFFFFFFFF:08x}-01".encode()))
    return headers


@functools.lru_cache(1024)
def _of_trace(trace: str) -> tuple[tuple[str, bytes], ...]:
    """Several facts follow from one record, and all records of a job have one trace."""
    return tuple((name, text.encode()) for name, text in fields_of(of_one(trace)).items())


@functools.lru_cache(64)
def _span_of_life(scope: str, life: int) -> str:
    """How the spans of all its outputs begin. Their numbers follow: a hash for each would be a fifth of what it costs to send one."""
    return span_of(scope, life)[:8]


def of_record(scope: str, record: Part) -> Headers:
    """Of what a leader writes to its own inbox. The id is this process's, with a number: to draw one for each costs a system call."""
    return _headers(f"{_PROCESS}-{next(_NUMBERS)}", str(getattr(record, "record", "")), scope)


def of_answer(process: str, question: int, type: str) -> Headers:
    """Of what a process answers to the question at this offset. It does not speak for a scope."""
    return _headers(f"{process}/{question}", type, process)
