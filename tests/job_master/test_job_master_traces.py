"""The spans of a job that a JobMaster makes, of what it sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from millrace.core.fold import OutboxRecord, ScopeState
from millrace.core.machine import Output, Publish, Say
from millrace.core.messages import jobs
from millrace.core.messages.effects import SinkPublished
from millrace.core.messages.records import encode, message_json
from millrace.core.trace_context import job_span, of_attempt, trace_of
from millrace.runtime.hosting import Term
from millrace.runtime.spans import Span
from millrace.runtime.traces import Traces
from services.job_master.metrics import COUNTS
from services.job_master.traces import JobSpans
from tests.core.of_job_master import ONE, SINK, TWO, USER, Shard

TRACE, PUBLISHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{PUBLISHER}-01"
JOB = job_span("acc-j")


class Traced(Shard):
    """A JobMaster whose leader sends what it says: `spans` are those that were made of it, each time that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.said: list[OutboxRecord] = []
        self._sending = SimpleNamespace(put=lambda spans: self.spans.extend(spans))
        self.elected = False
        super().__init__()
        self.elect()

    def elect(self) -> None:
        """A new process leads, which knows the state alone."""
        self._made = JobSpans(cast(Traces, self._sending))
        self._made.lead(Term(1, cast(ScopeState, SimpleNamespace(state=self.state)), lambda record: None))
        self._counts = self._made.counting(COUNTS)
        self.elected = True

    def __call__(self, body: Any, sender: str = "dispatcher", life: int = 1) -> list[Output]:
        outputs = super().__call__(body, sender, life)
        said = [record(output) for output in outputs if isinstance(output, Say | Publish)]
        self.said += said
        if self.elected:
            self.send(said)
        return outputs

    def send(self, said: list[OutboxRecord]) -> None:
        for each in said:
            if each.type in self._counts:
                self._counts[each.type](each, self.state)

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]


def record(output: Say | Publish) -> OutboxRecord:
    if isinstance(output, Publish):
        return OutboxRecord(1, output.topic, 0, output.key, output.body.type, encode(output.body).decode())
    value = message_json(output.to, 1, "job-master/0", 1, (1, 0), None, output.body)
    return OutboxRecord(1, "inbox", 0, output.to, output.body.type, value)


def test_a_job_of_one_attempt() -> None:
    shard = Traced()
    shard.start({**ONE, "traceparent": GIVEN})
    shard.now = 2000
    shard.offer("a1")
    shard.now = 2100
    shard.told("a1", "RUNNING")
    shard.now = 5000
    shard.told("a1", "FINISHED", report={"outputs": {"q": {"schema": "{}", "rows": 1, "bytes": 9}}})
    own = of_attempt("j", {"traceparent": GIVEN}, "acc-j", "j/0-q/0/1.1")
    assert [(span.name, span.parent, span.start_ms, span.end_ms) for span in shard.spans] == [
        ("queue", JOB, 500, 2000), ("start", own.span, 2000, 2100), ("attempt q", JOB, 2000, 5000),
    ]  # fmt: skip
    assert {span.context.trace for span in shard.spans} == {TRACE} and shard.named("attempt q")[0].context == own
    assert shard.named("attempt q")[0].attributes == {
        "millrace.job.id": "j", "millrace.task": "q", "millrace.subtask": 0, "millrace.attempt": 1,
        "millrace.task_manager": "t1", "millrace.outcome": "FINISHED",
    }  # fmt: skip


def test_each_attempt_has_a_span_of_its_own_and_the_publishers_trace_is_no_need() -> None:
    shard = Traced()
    shard.start({**ONE, "restart": {"attempts": 1, "delay_ms": 0}})
    shard.offer("a1")
    shard.told("a1", "FAILED", error=USER | {"retryable": True})
    attempt = shard.named("attempt q")[0]
    assert (attempt.failed, attempt.attributes["error.type"]) == ("boom", "user")
    assert attempt.context == of_attempt("j", {}, "acc-j", "j/0-q/0/1.1") and attempt.context.trace == trace_of("j")
    assert len(shard.named("queue")) == 1
    shard.now = 7000
    shard.told("a1", "FAILED", attempt="j/0-q/0/1.2", error=USER)
    assert [span.attributes["millrace.attempt"] for span in shard.named("attempt q")] == [1, 2]


def test_an_attempt_of_a_leader_before_has_its_whole_span_though_the_next_one_follows_in_the_same_record() -> None:
    shard = Traced()
    shard.start({**ONE, "restart": {"attempts": 1, "delay_ms": 0}})
    shard.now = 2000
    shard.offer("a1")
    shard.elect()
    shard.now = 5000
    shard.told("a1", "FAILED", error=USER | {"retryable": True})
    assert shard.job.tasks["q"].rows[0].attempt == 2
    [attempt] = shard.named("attempt q")
    assert (attempt.start_ms, attempt.end_ms) == (2000, 5000)


def test_what_is_sent_again_makes_the_same_spans_again() -> None:
    shard = Traced()
    shard.start(TWO)
    shard.offer("a1", "a2")
    shard.now = 3000
    shard.told("a1", "RUNNING")
    shard.now = 4000
    shard.told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}})
    first, shard.spans = shard.spans, []
    shard.elect()
    shard.send(shard.said)
    assert shard.spans == first and len(first) == 3


def test_an_attempt_that_another_has_followed_makes_none_when_a_later_leader_sends_it_again() -> None:
    """Its times are gone: a span with others would have its identifier."""
    shard = Traced()
    shard.start({**ONE, "restart": {"attempts": 3, "delay_ms": 0}})
    shard.offer("a1")
    shard.told("a1", "FAILED", error=USER | {"retryable": True})
    shard.spans = []
    shard.elect()
    shard.send([each for each in shard.said if '"state":"FAILED"' in each.value and each.type == "AttemptStateChanged"])
    assert shard.spans == []


def test_sinks_are_published_in_a_span() -> None:
    shard = Traced()
    shard.start(SINK)
    shard.offer("a1")
    shard.now = 3000
    shard.told("a1", "FINISHED", report={"outputs": {"out": {"rows": 1, "bytes": 9}}})
    shard.now = 3500
    shard(SinkPublished(job="j", vertex="out"), "")
    [publish] = shard.named("publish")
    assert (publish.parent, publish.start_ms, publish.end_ms, publish.attributes["millrace.sinks"]) == (JOB, 3000, 3500, 1)


def test_a_job_that_ends_without_a_slot_has_waited_until_then() -> None:
    shard = Traced()
    shard.start(ONE)
    shard.now = 9000
    shard(jobs.CancelStartedJob(job="j"))
    assert [(span.name, span.start_ms, span.end_ms) for span in shard.spans] == [("queue", 500, 9000)]


def test_an_attempt_is_given_its_publishers_trace_and_none_where_there_is_none() -> None:
    for graph, given in (({**ONE, "traceparent": GIVEN}, GIVEN), (ONE, None)):
        shard = Shard()
        shard.start(graph)
        [deploy] = [output.body for output in shard.offer("a1") if isinstance(output, Say) and output.body.type == "DeployTasks"]
        spec = deploy.tasks[0].spec
        assert spec.traceparent == given
        assert ("traceparent" in spec.json_value()) == (given is not None) and "traced" not in spec.json_value()


def test_the_resource_manager_is_sent_where_the_spans_of_slots_belong_where_spans_are_made() -> None:
    stated = {**ONE, "traceparent": GIVEN, "tracestate": "a=1"}
    asked = [(stated, True, f"00-{TRACE}-{JOB}-01 a=1"), (ONE, True, f"00-{trace_of('j')}-{JOB}-01"), (ONE, False, "")]
    for graph, traced, trace in [*asked, ({**ONE, "traceparent": GIVEN[:-1] + "0"}, True, "")]:
        shard = Shard()
        shard.state.settings.traced = traced
        [request] = [each.body for each in shard.start(graph) if isinstance(each, Say) and each.body.type == "RequestSlots"]
        assert request.trace == trace and ("trace" in request.model_dump(mode="json")) == bool(trace)
        [deploy] = [each.body for each in shard.offer("a1") if isinstance(each, Say) and each.body.type == "DeployTasks"]
        assert deploy.tasks[0].spec.tracestate == graph.get("tracestate")


def test_public_facts_about_a_job_name_its_span_in_its_publishers_trace() -> None:
    for graph, trace in (({**ONE, "traceparent": GIVEN}, f"00-{TRACE}-{JOB}-01"), (ONE, "")):
        shard = Shard()
        facts = [each for each in [*shard.start(graph), *shard.offer("a1")] if isinstance(each, Publish)]
        assert len(facts) >= 2 and {fact.trace for fact in facts} == {trace}
