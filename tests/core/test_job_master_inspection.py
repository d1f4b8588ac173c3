"""Progress of running attempts, and ReportNow: what are they doing at this moment?"""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.bounded import bytes_of
from millrace.core.machine import Output, PassedOver, Publish, Say, Ticked
from millrace.core.messages import client, jobs, slots
from millrace.core.messages.execution import SubtaskDetail
from millrace.core.messages.progress import ReportOrder
from millrace.core.timing import INSPECTION_ANSWER_MS
from services.job_master.core import execution_graph, inspection
from services.job_master.core.inspection import ATTEMPTS_MOST, NOT_REPORTED
from tests.core.of_job_master import ONE, TM, TWO, Shard, kinds
from tests.core.of_progress import progress, status

NAME = "j/0-q/0/1.1"


def running(graph: dict[str, Any] = ONE, *, reported: bool = True) -> Shard:
    shard = Shard()
    shard.start(graph)
    shard.offer("al")
    shard.told("al", "RUNNING")
    if reported:
        shard.job.slots["al"].progress = progress(1).model_dump()
    return shard


def at_work(shard: Shard, tasks_done: int, attempt: str = NAME, allocation: str = "al") -> list[Output]:
    each = slots.ReportedProgress(allocation=allocation, attempt=attempt, progress=progress(tasks_done))
    return shard(slots.ProgressReported(attempts=[each]), TM)


def report(shard: Shard, job: str = "j", task: str = "", subtask: int | None = None) -> list[Output]:
    return shard(jobs.ReportStartedJob(job=job, task=task, subtask=subtask, reply_to="c", correlation="1", number=7))


def reply(outputs: list[Output]) -> Any:
    """The answer to the client; the Dispatcher learns that there is one."""
    published, said = outputs
    assert isinstance(published, Publish) and (published.topic, published.key) == ("client.replies", "c")
    assert said == Say("dispatcher", jobs.QuestionAnswered(number=7))
    return published.body


def subtask_shown(shard: Shard) -> SubtaskDetail:
    describe = jobs.DescribeStartedJob(job="j", reply_to="c", correlation="1", number=7)
    return reply(shard(describe)).detail.tasks[0].subtasks[0]


def test_progress_is_an_event_and_is_shown_while_the_attempt_runs() -> None:
    shard = running(reported=False)
    assert subtask_shown(shard).progress is None
    [event] = at_work(shard, 3)
    assert isinstance(event, Publish) and event.topic == "job.events"
    assert event.body.model_dump(include={"type", "job", "count", "attempts"}) == {
        "type": "AttemptsProgressing", "job": "j", "count": 1,
        "attempts": [{"task": "q", "subtask": 0, "attempt": 1, "progress": progress(3).model_dump()}],
    }  # fmt: skip
    assert subtask_shown(shard).progress == progress(3)
    shard.told("al", "FAILED", error={"kind": "user", "retryable": False, "message": "boom"})
    assert subtask_shown(shard).progress is None


def test_what_a_finished_attempt_has_done_in_all_is_an_event_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = running(TWO, reported=False)
    done = progress(9, gc_ms=7)
    report = {"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}, "progress": done.model_dump()}
    outputs = shard.told("al", "FINISHED", report=report)
    [event] = [each.body for each in outputs if isinstance(each, Publish) and each.body.type == "AttemptStateChanged"][:1]
    assert (event.state, event.progress) == ("FINISHED", done)
    assert subtask_shown(shard).progress == done
    monkeypatch.setattr(execution_graph, "SHOWN_BYTES", bytes_of(execution_graph.describe(None, shard.job).json_value()) - 1)
    assert subtask_shown(shard).progress is None, "of very many subtasks more are shown without"


def test_what_a_failed_attempt_has_done_stands_beside_its_error() -> None:
    shard = running(reported=False)
    done = progress(4, bytes_spilled_disk=1 << 40)
    error = {"kind": "user", "retryable": True, "message": "boom", "progress": done.model_dump()}
    outputs = shard.told("al", "FAILED", error=error)
    [event] = [each.body for each in outputs if isinstance(each, Publish) and each.body.type == "AttemptStateChanged"][:1]
    assert (event.state, event.progress, event.error.progress) == ("FAILED", done, None)
    subtask = subtask_shown(shard)
    assert [(each.progress, each.error.progress) for each in subtask.failures] == [(done, None)] and subtask.progress is None


def test_a_report_without_figures_changes_no_message() -> None:
    shard = running(reported=False)
    event = shard.told("al", "FINISHED", report={"outputs": {}})[0].body
    assert "progress" not in event.model_dump_json()


def test_progress_of_another_attempt_is_nothing() -> None:
    shard = running()
    assert at_work(shard, 3, attempt="j/0-q/0/1.2") == at_work(shard, 3, allocation="other") == []


def test_an_attempt_that_was_not_known_to_run_has_no_progress() -> None:
    shard = Shard()
    shard.start()
    shard.offer("al")
    assert at_work(shard, 3) == []


def test_attempts_are_asked_and_the_client_is_answered_when_all_have() -> None:
    shard = running()
    [asked] = report(shard)
    assert asked == Say(TM, slots.OrderAttempts(attempts=[NAME], order=ReportOrder(), question=1))
    answer = slots.AttemptAnswered(attempt=NAME, question=1, status=status(2))
    reported = reply(shard(answer, TM))
    assert (reported.running, reported.reason, reported.silent) == (1, None, None)
    [each] = reported.attempts
    assert (each.task, each.subtask, each.attempt, each.task_manager, each.running_ms) == ("q", 0, 1, "t1", 1000)
    assert (each.status, each.no_answer) == (status(2), None)
    assert shard(answer, TM) == [], "it is answered once"
    assert shard.state.inspections == {}


def test_a_task_manager_that_is_silent_is_named_in_time() -> None:
    shard = running()
    report(shard)
    shard.now += INSPECTION_ANSWER_MS - 1
    assert kinds(shard(Ticked(), "")) == []
    shard.now += 1
    [each] = reply(shard(Ticked(), "")).attempts
    assert (each.status, each.no_answer) == (None, "its TaskManager t1 has not answered within 2.5 s")
    assert shard(slots.AttemptAnswered(attempt=NAME, question=1, no_answer="late"), TM) == []


def test_an_attempt_whose_task_manager_has_reported_nothing_is_not_asked() -> None:
    """One of 0.1.0 does not know the question, and would end."""
    [each] = reply(report(running(reported=False))).attempts
    assert (each.status, each.no_answer) == (None, NOT_REPORTED)


def test_what_does_not_run_is_said_and_why() -> None:
    shard = Shard()
    shard.start(TWO)
    assert reply(report(shard)).reason == "no attempt runs; the job is RUNNING"
    shard.offer("al")
    assert reply(report(shard, task="a", subtask=0)).reason == "a[0] is DEPLOYING"
    shard.told("al", "RUNNING")
    assert reply(report(shard, task="b", subtask=1)).reason == "b[1] is CREATED"
    assert reply(report(shard, task="b", subtask=9)).reason == "b has 2 subtasks, counted from 0"
    assert reply(report(shard, task="c")).reason == "the job has no task or vertex c; its tasks are a, b"
    assert [each.task for each in reply(report(shard, task="a")).attempts] == ["a"]
    refused = reply(report(shard, job="gone"))
    assert isinstance(refused, client.RequestRefused) and refused.kind == "not_found"


def test_a_request_about_many_attempts_asks_the_first_ones() -> None:
    shard = Shard()
    b = {**TWO["vertices"]["b"], "parallelism": 30}
    shard.start({"name": "many", "vertices": {"a": TWO["vertices"]["a"], "b": b}})
    shard.offer("a0")
    shard.told("a0", "FINISHED", report={"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}})
    allocations = [f"b{n}" for n in range(30)]
    shard.offer(*allocations)
    for allocation in list(shard.job.slots):
        shard.told(allocation, "RUNNING")
        shard.job.slots[allocation].progress = progress(1).model_dump()
    [asked] = report(shard)
    assert isinstance(asked, Say) and len(asked.body.attempts) == ATTEMPTS_MOST
    shard.now += INSPECTION_ANSWER_MS
    outputs = [each for each in shard(Ticked(), "") if isinstance(each, Publish) and each.topic == "client.replies"]
    assert outputs[0].body.running == 30


def test_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "FORWARDED_MOST", 2)
    shard = running()
    assert [kinds(report(shard))[0] for _ in range(2)] == ["task-manager OrderAttempts"] * 2
    refused = reply(report(shard))
    assert isinstance(refused, client.RequestRefused) and refused.kind == "busy"


def test_a_request_that_cannot_be_handled_is_refused_and_its_job_lives() -> None:
    shard = running()
    request = jobs.ReportStartedJob(job="j", task="", subtask=None, reply_to="c", correlation="1", number=7)
    refused = reply(shard(PassedOver(request, "RecursionError")))
    assert (refused.kind, shard.job.status.value) == ("internal", "RUNNING")
