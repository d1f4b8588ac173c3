"""A job's place in a trace: W3C's `traceparent`, and identifiers that follow from names. Pure.

Whoever makes a span of a job, in whichever process and however often, gives it the same identifiers: nothing is drawn at random. So a
backend of traces takes what is sent twice for one.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import NamedTuple

HEADER = "traceparent"
"""Of a record of Kafka, and of a request over HTTP."""
VARIABLE = "TRACEPARENT"
"""In the environment, where a process has no headers."""
SAMPLED = 1
LENGTH = 55  # of version 00; a later version may go on behind it, after a dash
_WORDS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class TraceContext(NamedTuple):
    """A span as others name it. trace: 32 hexadecimal digits; span: 16, empty where the trace has no span outside of its job."""

    trace: str
    span: str
    flags: int = SAMPLED

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


def parse(text: object) -> TraceContext | None:
    """What a `traceparent` says. None for what W3C's rules call malformed: it is to be ignored, and is nobody's error.

    text: a str, or bytes as Kafka's headers are. Of a version above 00 the part is taken that version 00 has."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    found = _WORDS.match(text) if isinstance(text, str) else None
    if found is None or not isinstance(text, str):
        return None
    version, trace, span, flags = found.groups()
    ends = len(text) == LENGTH or (version != "00" and text[LENGTH] == "-")
    if not ends or version == "ff" or not trace.strip("0") or not span.strip("0"):
        return None
    return TraceContext(trace, span, int(flags, 16) & SAMPLED)


@functools.lru_cache(4096)
def trace_of(job: str) -> str:
    """The id of the trace of a job whose publisher has none."""
    return hashlib.blake2b(job.encode(), digest_size=16).hexdigest()


def span_of(*names: object) -> str:
    """The id of the span that these names mean."""
    return hashlib.blake2b("/".join(map(str, names)).encode(), digest_size=8).hexdigest()


def of_job(job: str, traceparent: object) -> TraceContext:
    """Where the spans of a job belong: below its publisher's span, or in a trace of its own."""
    return parse(traceparent) or TraceContext(trace_of(job), "")


def job_span(acceptance: str) -> str:
    """The id of the span of a whole job."""
    return span_of(acceptance, "job")


def of_facts(traceparent: str | None, acceptance: str) -> str:
    """What public facts about a job carry, for the spans of who reads them: the job's span in its publisher's trace. Empty: it has none."""
    given = parse(traceparent)
    return str(given.below(job_span(acceptance))) if given is not None else ""


def of_attempt(job: str, traceparent: object, acceptance: str, attempt: str) -> TraceContext:
    """The span of an attempt. attempt: its name; acceptance: that of its job."""
    return of_job(job, traceparent).below(span_of(acceptance, attempt))
