"""The spans of a job that a Dispatcher makes, of the effects that it carries out."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Publish
from millrace.core.messages.attempts import Fault
from millrace.core.messages.effects import EndJob, FindJob, JobGraphStored, JobResultStored, PutJobGraph, StoredJob
from millrace.core.messages.execution import Archive, JobDetail, TimeSpent
from millrace.core.trace_context import job_span, trace_of
from millrace.runtime.performer import Fence
from millrace.runtime.spans import Span
from millrace.runtime.traces import Traces
from services.dispatcher.traces import accepted, ended, performing
from tests.core.of_dispatcher import JOB as JOB_ID
from tests.core.of_dispatcher import settled

TRACE, PUBLISHER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GRAPH: dict[str, Any] = {"name": "n", "vertices": {"q": {"sql": "SELECT 1"}}, "traceparent": f"00-{TRACE}-{PUBLISHER}-01"}
JOB = job_span("acc")


def put(graph: dict[str, Any] = GRAPH) -> PutJobGraph:
    stored = StoredJob(state="accepted", digest="d", acceptance="acc", shard=0, accepted_ms=1000, graph=graph, name="n")
    return PutJobGraph(job="j", stored=stored)


def end(status: str = "FINISHED", cause: Fault | None = None, graph: dict[str, Any] = GRAPH) -> EndJob:
    ending = StoredJob(
        state="dirty", digest="d", acceptance="acc", shard=0, accepted_ms=1000, name="n", status=status, ended_ms=5000,
        archive="archives/j/acc/1.json", cause=cause,
    )  # fmt: skip
    spent = TimeSpent(queue_ms=7, compute_ms=3000)
    detail = JobDetail(
        job="j", name="n", acceptance="acc", status=status, accepted_ms=1000, since_ms=5000, spent=spent, tasks=[], restarts=0
    )
    archive = Archive(job="j", name="n", status=status, accepted_ms=1000, ended_ms=5000, cause=cause, graph=graph, detail=detail)
    return EndJob(job="j", ending=ending, archive=archive)


def stored(effect: PutJobGraph) -> JobGraphStored:
    return JobGraphStored(job="j", stands=effect.stored.model_copy(update={"graph": None}))


def test_an_accepted_job_has_a_span_below_that_of_the_job() -> None:
    [span] = accepted(put(), stored(put()), 1030)
    assert (span.name, span.context.trace, span.parent, span.start_ms, span.end_ms) == ("store", TRACE, JOB, 1000, 1030)
    assert span.attributes == {"millrace.job.id": "j"}


def test_a_submission_that_another_came_before_has_none() -> None:
    other = put().stored.model_copy(update={"acceptance": "another"})
    assert list(accepted(put(), JobGraphStored(job="j", stands=other), 1030)) == []
    assert list(accepted(put(), JobGraphStored(job="j", stands=None), 1030)) == []


def test_an_ended_job_is_one_span_below_its_publishers() -> None:
    finish, job = ended(end(), JobResultStored(job="j", stands=end().ending), 5040)
    assert (job.name, job.context.trace, job.context.span, job.parent) == ("job n", TRACE, JOB, PUBLISHER)
    assert (job.start_ms, job.end_ms, job.failed) == (1000, 5040, None)
    assert (finish.name, finish.parent, finish.start_ms, finish.end_ms) == ("finish", JOB, 5000, 5040)
    assert job.attributes["millrace.job.spent.compute_ms"] == 3000 and job.attributes["millrace.job.status"] == "FINISHED"


def test_a_job_without_a_publishers_trace_is_the_root_of_its_own() -> None:
    graph = {name: part for name, part in GRAPH.items() if name != "traceparent"}
    _, job = ended(end(graph=graph), JobResultStored(job="j", stands=end().ending), 5040)
    [store] = accepted(put(graph), stored(put(graph)), 1030)
    assert job.parent == "" and job.context.trace == store.context.trace == trace_of("j") and store.parent == job.context.span


def test_a_failed_job_says_why() -> None:
    effect = end("FAILED", Fault(kind="user", message="division by zero" * 100))
    _, job = ended(effect, JobResultStored(job="j", stands=effect.ending), 5040)
    assert job.attributes["error.type"] == "user" and (job.failed or "").startswith("division by zero") and len(job.failed or "") == 500


def test_who_carries_it_out_once_more_makes_the_same_spans_with_later_ends() -> None:
    outcome = JobResultStored(job="j", stands=end().ending)
    for first, again in zip(ended(end(), outcome, 5040), ended(end(), outcome, 9000), strict=True):
        assert first._replace(end_ms=again.end_ms) == again and first != again


def test_an_ending_that_another_report_led_to_has_its_spans_already() -> None:
    before = end().ending.model_copy(update={"archive": "archives/j/acc/0.json"})
    assert list(ended(end(), JobResultStored(job="j", stands=before), 5040)) == []


def test_ports_make_spans_of_what_they_have_carried_out_alone() -> None:
    came: list[Span] = []
    sending = Traces(lambda spans: bool(came.extend(spans)) or True, lambda: None)
    ports: dict[Any, Any] = {
        PutJobGraph: lambda effects, fence: [stored(effects[0]), None],
        EndJob: lambda effects, fence: [None],
        FindJob: lambda effects, fence: [],
    }
    traced = performing(ports, sending)
    fence = Fence("dispatcher", 1)
    assert traced[PutJobGraph]([put(), put()], fence) == [stored(put()), None]
    assert traced[EndJob]([end()], fence) == [None]
    sending.stop()
    assert [span.name for span in came] == ["store"]
    assert traced[FindJob] is ports[FindJob]
    assert performing(ports, None) is ports, "where traces are off, nothing is between"


def test_public_facts_about_a_job_name_its_span_in_its_publishers_trace() -> None:
    for graph, trace in ((GRAPH, TRACE), ({name: part for name, part in GRAPH.items() if name != "traceparent"}, "")):
        world = settled()
        [put] = world.submit(graph=graph)
        effect = put.effect  # type: ignore[union-attr]  # a Do
        said = world.tell(JobGraphStored(job=JOB_ID, stands=effect.stored))
        said += world.tell(JobResultStored(job=JOB_ID, stands=world.end().ending))
        facts = [each for each in said if isinstance(each, Publish) and each.topic == "job.events"]
        assert [fact.body.type for fact in facts] == ["JobAccepted", "JobFinished"]
        span = job_span(effect.stored.acceptance)
        assert {fact.trace for fact in facts} == {f"00-{trace}-{span}-01" if trace else ""}
