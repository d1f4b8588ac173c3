"""A job's place in a trace: W3C's `traceparent` and `tracestate`, and identifiers that follow from names. Pure.

Whoever makes a span of a job, in whichever process and however often, gives it the same identifiers: nothing is drawn at random. So a
backend of traces takes what is sent twice for one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

HEADER, STATE = "traceparent", "tracestate"
"""Of a record of Kafka, and of a request over HTTP; and fields of a stored graph. The second has what the publisher's tools note."""
VARIABLE, STATE_VARIABLE = "TRACEPARENT", "TRACESTATE"
"""In the environment, where a process has no headers."""
SAMPLED = 1
STATE_LENGTH_MOST = 512
STATE_MEMBERS_MOST = 32
LENGTH = 55  # of version 00; a later version may go on behind it, after a dash
_WORDS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MEMBER = re.compile(
    r"[ \t]*([a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e][ \t]*"
)


class TraceContext(NamedTuple):
    """A span as others name it. trace: 32 hexadecimal digits; span: 16, empty where the trace has no span outside of its job; state: its
    publisher's `tracestate` as it came, or empty."""

    trace: str
    span: str
    flags: int = SAMPLED
    state: str = ""

    @property
    def sampled(self) -> bool:
        """Whether whoever began the trace wants its spans to be kept."""
        return bool(self.flags & SAMPLED)

    def below(self, span: str) -> TraceContext:
        """Of another span in the same trace."""
        return self._replace(span=span)

    def __str__(self) -> str:
        """As a `traceparent`."""
        return f"00-{self.trace}-{self.span}-{self.flags:02x}"

    @property
    def fields(self) -> dict[str, str]:
        """As headers, and as fields of a stored graph."""
        return {HEADER: str(self), **({STATE: self.state} if self.state else {})}


def parse(text: object, state: object = None) -> TraceContext | None:
    """What a `traceparent` says, with the `tracestate` beside it. None for what W3C's rules call malformed: it is to be ignored, and is
    nobody's error. A malformed `tracestate` is dropped alone.

    text, state: a str, or bytes as Kafka's headers are. Of a version above 00 the part is taken that version 00 has."""
    text = _text(text)
    found = _WORDS.match(text) if text is not None else None
    if found is None or text is None:
        return None
    version, trace, span, flags = found.groups()
    ends = len(text) == LENGTH or (version != "00" and text[LENGTH] == "-")
    if not ends or version == "ff" or not trace.strip("0") or not span.strip("0"):
        return None
    return TraceContext(trace, span, int(flags, 16) & SAMPLED, _sound_state(_text(state) or ""))


def _text(given: object) -> str | None:
    return given.decode("latin-1") if isinstance(given, bytes) else given if isinstance(given, str) else None


def _sound_state(text: str) -> str:
    """A `tracestate` as it came; empty where it is malformed, too long or of too many members, or names one of them twice."""
    members = [each for each in text.split(",") if each.strip(" \t")]
    if len(text) > STATE_LENGTH_MOST or len(members) > STATE_MEMBERS_MOST:
        return ""
    found = [_MEMBER.fullmatch(each) for each in members]
    keys = [each[1] for each in found if each is not None]
    return text if len(keys) == len(members) == len(set(keys)) and keys else ""


def given(fields: Mapping[str, Any]) -> TraceContext | None:
    """The publisher's place, of headers or of a graph."""
    return parse(fields.get(HEADER), fields.get(STATE))


def fields_of(context: TraceContext | None) -> dict[str, str]:
    """`fields`; none without a context."""
    return {} if context is None else context.fields


def without(graph: Mapping[str, Any]) -> dict[str, Any]:
    """A graph without its publisher's place in a trace."""
    return {name: part for name, part in graph.items() if name not in (HEADER, STATE)}


@functools.lru_cache(4096)
def trace_of(job: str) -> str:
    """The id of the trace of a job whose publisher has none."""
    return hashlib.blake2b(job.encode(), digest_size=16).hexdigest()


def span_of(*names: object) -> str:
    """The id of the span that these names mean."""
    return hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).hexdigest()


def of_job(job: str, graph: Mapping[str, Any]) -> TraceContext:
    """Where the spans of a job belong: below its publisher's span, or in a trace of its own."""
    return given(graph) or TraceContext(trace_of(job), "")


def job_span(acceptance: str) -> str:
    """The id of the span of a whole job."""
    return span_of(acceptance, "job")


def of_facts(graph: Mapping[str, Any], acceptance: str) -> str:
    """What public facts about a job carry, for the spans of who reads them: the job's span in its publisher's trace, as `in_one`. Empty: it
    has none."""
    publisher = given(graph)
    return in_one(publisher.below(job_span(acceptance))) if publisher is not None else ""


def in_one(context: TraceContext) -> str:
    """In one text: its `traceparent`, and behind a space its `tracestate`, if it has one."""
    return " ".join(context.fields.values())


def of_one(text: str) -> TraceContext | None:
    """Of such a text."""
    traceparent, _, state = text.partition(" ")
    return parse(traceparent, state)


def of_attempt(job: str, graph: Mapping[str, Any], acceptance: str, attempt: str) -> TraceContext:
    """The span of an attempt. attempt: its name; acceptance: that of its job."""
    return of_job(job, graph).below(span_of(acceptance, attempt))
