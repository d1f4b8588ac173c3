"""The headers of records, by which tools that know nothing of Millrace follow them."""

from __future__ import annotations

import re
from dataclasses import replace

from millrace.core.fold import OutboxRecord
from millrace.core.messages.records import Probe
from millrace.runtime import envelope

TRACEPARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[01]")
"""As W3C Trace Context, version 00, has it."""


def fact(seq: int, job: str = "job-1") -> OutboxRecord:
    return OutboxRecord(seq, "job.events", 3, job, "JobAccepted", "{}")


def test_what_a_scope_says_is_a_cloud_event_with_the_same_id_whoever_says_it_again() -> None:
    headers = dict(envelope.of_output("dispatcher", 2, fact(17)))
    assert TRACEPARENT.fullmatch(headers.pop("traceparent"))
    assert headers == {
        "ce_specversion": b"1.0", "ce_id": b"dispatcher/2/17", "ce_type": b"JobAccepted", "ce_source": b"/millrace/dispatcher",
        "content-type": b"application/json",
    }  # fmt: skip
    assert envelope.of_output("dispatcher", 2, fact(17)) == envelope.of_output("dispatcher", 2, fact(17))


def test_the_facts_about_one_job_share_a_trace_and_each_is_a_span_of_its_own() -> None:
    said = [("dispatcher", fact(17)), ("job-master/0", fact(17)), ("dispatcher", fact(18)), ("dispatcher", fact(19, "job-2"))]
    parts = [dict(envelope.of_output(scope, 1, spoken))["traceparent"].split(b"-") for scope, spoken in said]
    traces, spans = [each[1] for each in parts], [each[2] for each in parts]
    assert len(set(traces[:3])) == 1 and traces[3] != traces[0]
    assert len(set(spans)) == len(said)


def test_facts_about_a_job_of_a_publishers_trace_are_in_that() -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
    assert dict(envelope.of_output("dispatcher", 1, replace(fact(17), trace=given)))["traceparent"] == given.encode()
    stated = dict(envelope.of_output("dispatcher", 1, replace(fact(17), trace=f"{given} a=1,b=2")))
    assert (stated["traceparent"], stated["tracestate"]) == (given.encode(), b"a=1,b=2")


def test_what_a_leader_writes_to_its_own_inbox_is_a_cloud_event_too() -> None:
    first, second = (dict(envelope.of_record("dispatcher", Probe(who="x", n=1))) for _ in range(2))
    assert first.pop("ce_id") != second.pop("ce_id")
    assert first == second
    assert (first["ce_type"], first["ce_source"]) == (b"Probe", b"/millrace/dispatcher")
