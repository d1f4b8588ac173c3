"""W3C's traceparent, read strictly; and identifiers that follow from names."""

from __future__ import annotations

import re

import pytest

from millrace.core.trace_context import (
    HEADER,
    STATE_LENGTH_MOST,
    STATE_MEMBERS_MOST,
    TraceContext,
    in_one,
    job_span,
    of_attempt,
    of_facts,
    of_job,
    of_one,
    parse,
    span_of,
    trace_of,
)

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
    own = of_job("a", {HEADER: "no traceparent", "tracestate": "a=1"})
    assert own == of_job("a", {}) == TraceContext(trace_of("a"), "") and own.sampled
    assert own.trace != of_job("b", {}).trace
    assert of_job("a", {HEADER: GIVEN}) == TraceContext(TRACE, SPAN)


def test_spans_of_different_names_have_different_identifiers() -> None:
    attempts = [of_attempt("a", {HEADER: GIVEN}, acceptance, name) for acceptance in ("x", "y") for name in ("a/0-q/0/1.1", "a/0-q/0/1.2")]
    spans = [job_span("x"), job_span("y"), span_of("x", "store"), *(each.span for each in attempts)]
    assert len(set(spans)) == len(spans) and all(re.fullmatch("[0-9a-f]{16}", span) for span in spans)
    assert {each.trace for each in attempts} == {TRACE}


FULL = ",".join(f"k{number}=v" for number in range(STATE_MEMBERS_MOST))
LONG = f"a={'x' * (STATE_LENGTH_MOST // 2 - 3)},b={'x' * (STATE_LENGTH_MOST // 2 - 2)}"


@pytest.mark.parametrize(
    "state",
    ["rojo=00f067aa0ba902b7", "a=1,b=2", " a=1 ,\tb=2", "a=1,,b=2", "0tenant@vendor=x!~", "a_-*/0=b c", "a=b:c;d", FULL, LONG],
)  # fmt: skip
def test_a_tracestate_is_carried_as_it_came(state: str) -> None:
    for given in (state, state.encode()):
        found = parse(GIVEN, given)
        assert found is not None and found.state == state
        assert found.fields == {"traceparent": GIVEN, "tracestate": state}
        assert of_one(in_one(found)) == found
        assert of_one(of_facts(found.fields, "acc")) == found.below(job_span("acc"))
        assert of_attempt("a", found.fields, "acc", "x").state == state


@pytest.mark.parametrize(
    "state",
    [
        None, 7, "", " ", ",", "a", "a=", "=1", "A=1", "a=1,b", "a=1,a=2", "a=b=c", "a =1", "a=ü", "a=\n", "a@=1", "0a=1",
        f"a={'x' * 257}", f"{'a' * 257}=1", f"{FULL},more=v", f"{LONG}x", b"\xff=1",
    ],
)  # fmt: skip
def test_a_malformed_tracestate_is_dropped_and_the_trace_goes_on(state: object) -> None:
    assert parse(GIVEN, state) == TraceContext(TRACE, SPAN)
    assert parse("malformed", "a=1") is None, "without its trace it means nothing"
