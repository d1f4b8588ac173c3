"""W3C's traceparent, read strictly; and identifiers that follow from names."""

from __future__ import annotations

import re

import pytest

from millrace.core.trace_context import TraceContext, job_span, of_attempt, of_job, parse, span_of, trace_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (GIVEN, True),
        (GIVEN.encode(), True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"01-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-will-be", True),
    ],
)
def test_what_is_well_formed_is_taken(text: str | bytes, sampled: bool) -> None:
    found = parse(text)
    assert found is not None and (found.trace, found.span, found.sampled) == (TRACE, SPAN, sampled)
    assert str(found) == f"00-{TRACE}-{SPAN}-{int(sampled):02x}", "as version 00 has it, with the flags that are known"


@pytest.mark.parametrize(
    "text",
    [
        None, 7, [], "", b"", "\xff", b"\xff\xfe", GIVEN[:-1], GIVEN + "0", GIVEN + "-more", f" {GIVEN}", GIVEN + "\n",
        GIVEN.upper(), GIVEN.replace("-", "_"), f"ff-{TRACE}-{SPAN}-01", f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[:-1]}g-{SPAN}-01", f"00-{TRACE}-{SPAN}-0x",
        f"01-{TRACE}-{SPAN}-011", f"00-{TRACE}-{SPAN}-١١",
    ],
)  # fmt: skip
def test_what_is_malformed_is_none(text: object) -> None:
    assert parse(text) is None


def test_a_job_without_a_publishers_trace_has_one_of_its_own_that_any_process_finds() -> None:
    own = of_job("a", "no traceparent")
    assert own == of_job("a", None) == TraceContext(trace_of("a"), "") and own.sampled
    assert own.trace != of_job("b", None).trace
    assert of_job("a", GIVEN) == TraceContext(TRACE, SPAN)


def test_spans_of_different_names_have_different_identifiers() -> None:
    attempts = [of_attempt("a", GIVEN, acceptance, name) for acceptance in ("x", "y") for name in ("a/0-q/0/1.1", "a/0-q/0/1.2")]
    spans = [job_span("x"), job_span("y"), span_of("x", "store"), *(each.span for each in attempts)]
    assert len(set(spans)) == len(spans) and all(re.fullmatch("[0-9a-f]{16}", span) for span in spans)
    assert {each.trace for each in attempts} == {TRACE}
