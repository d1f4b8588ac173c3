"""At the limits of all inputs nothing that a machine says is more than Kafka takes [R15]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from millrace.core.bounded import batches, fields_fitting, fitting
from millrace.core.clocks import AtMs
from millrace.core.faults import fault
from millrace.core.jobgraph.model import DEFAULT_LIMITS, dump
from millrace.core.jobgraph.validate import validate
from millrace.core.machine import Envelope, Output, Publish, Say
from millrace.core.messages import client, jobs, slots
from millrace.core.messages.attempts import ResultRows
from millrace.core.messages.records import encode
from millrace.core.states import JobStatus
from millrace.core.topics import OUTPUT_BYTES_MAX
from services.dispatcher.core import answers, retirement
from services.dispatcher.core.state import EndedJob, State
from services.job_master.core.execution_graph import describe
from services.job_master.core.failover import fail
from services.job_master.core.plans import plan_of
from services.job_master.core.reporting import job_ended
from services.job_master.core.scheduling import end
from services.job_master.core.state import Failure
from services.task_manager.settings import TaskManagerSettings
from tests.core.of_dispatcher import settled
from tests.core.of_job_master import Shard
from tests.core.of_resource_manager import Driver

LETTERS = ("\U00010000", "\x01", '"', "x")  # four bytes; six, as an escape; two; one
LONGEST_ID = "j" * 100
GRAPH_BYTES = 256 * 1024


def largest(outputs: Iterable[Output]) -> int:
    """The bytes of the largest record among these."""
    return max(len(encode(each.body)) for each in outputs if isinstance(each, (Say, Publish)))


@pytest.mark.parametrize("letter", LETTERS)
def test_a_list_of_the_longest_names_fits(letter: str) -> None:
    """Eight hundred jobs with names of four-byte letters were more than a record takes, and each asking ended the Dispatcher."""
    ended = EndedJob("1.1", "0" * 64, letter * 255, "FINISHED", 1 << 41, 1 << 41, f"archives/{LONGEST_ID}/1.1/1.2.json", 1 << 41)
    state = State()
    state.ended.update({f"{n:04}{LONGEST_ID[4:]}": ended for n in range(1_000)})
    listed, total = answers.newest(state, client.ListJobs(most=1_000))
    assert total == 1_000 and len(listed) > 150
    assert largest([Publish("", "", client.JobsListed(correlation=letter * 200, jobs=listed, total=total))]) <= OUTPUT_BYTES_MAX


@pytest.mark.parametrize("letter", LETTERS)
def test_a_page_of_the_longest_names_fits_and_the_next_goes_on(letter: str) -> None:
    world = settled()
    ended = EndedJob("1.1", "0" * 64, letter * 255, "FINISHED", 1 << 41, 1 << 41, f"archives/{LONGEST_ID}/1.1/1.2.json", 1 << 41)
    world.state.ended.update({f"{n:04}{LONGEST_ID[4:]}": ended for n in range(1_000)})
    world.state.ended_counts["FINISHED"] = 1_000
    cursor, found = "", []
    while cursor is not None:
        outputs = world.request(client.ListJobDetails(reply_to="c", correlation=letter * 200, limit=1_000, cursor=cursor))
        assert largest(outputs) <= OUTPUT_BYTES_MAX
        cursor = outputs[0].body.next
        found += [each.job for each in outputs[0].body.jobs]
    assert found == sorted(world.state.ended, reverse=True)


@pytest.mark.parametrize(("task_managers", "slots_each"), [(2_500, 1), (1_000, 4), (100, 60)])
def test_a_list_of_many_task_managers_with_the_longest_names_fits(task_managers: int, slots_each: int) -> None:
    driver = Driver()
    for number in range(task_managers):
        states = [
            slots.ReportedSlot(slot=n, state="ALLOCATED", allocation=f"1.{number}.{n}", job=LONGEST_ID) for n in range(slots_each)
        ]
        name = f"{number:04}{'t' * 96}"
        body = slots.RegisterTaskManager(
            host="h" * 63, slots=[jobs.SlotSpec(slot=n, memory_mb=1 << 20) for n in range(slots_each)], states=states
        )
        list(driver.machine.handle(driver.state, Envelope(f"task-manager/{name}", 7, driver.now_ms, "1.2", body)))
    said = driver.say("dispatcher", jobs.Query(what="task_managers", reply_to="c", correlation="x" * 200))
    assert said[-1].body.total == task_managers and len(said[-1].body.task_managers) > 30
    assert largest(said) <= OUTPUT_BYTES_MAX


@pytest.mark.parametrize("letter", LETTERS)
def test_the_end_of_a_job_of_many_sinks_that_failed_at_length_fits(letter: str) -> None:
    """Its archive, its result, where it staged and, twice, its cause were told in one record."""
    shard = Shard()
    shard.start(_sinks(letter))
    job, plan = shard.job, plan_of(shard.state, shard.job)
    for name, task in job.tasks.items():
        for index in range(task.parallelism):
            told = fault("user", letter * 2_000)
            job.failures += [Failure(name, index, attempt, 1, "task-manager/t", told) for attempt in range(3)]
    job.results = {
        n: ResultRows(columns=["c"], types=["string"], rows=[[letter * 400] for _ in range(1_000)]) for n in range(128)
    }
    job.waiting = letter * 500
    described = describe(plan, job)
    summary = client.JobSummary(job=LONGEST_ID, name=letter * 255, status="RUNNING", accepted_ms=1, waiting=letter * 500)
    reply = client.JobDescribed(correlation=letter * 200, summary=summary, detail=described)
    assert largest([Publish("", "", reply)]) <= OUTPUT_BYTES_MAX
    fail(job, fault("user", letter * 2_000, trace=[letter * 200] * 200, task="q"), AtMs(7))
    assert job.cause is not None and job.cause.message and job.cause.task == "q"
    assert list(end(shard.state, job, AtMs(7)))[-1] == job_ended(job, plan)
    assert job.status is JobStatus.FAILED and largest([job_ended(job, plan)]) <= OUTPUT_BYTES_MAX


def test_where_a_job_of_many_sinks_staged_is_known_from_its_graph() -> None:
    folders = retirement.staging(dump(validate(_sinks("x"))), "1.9")
    assert len(folders) == 150 and folders[1].endswith("-1.staging/1.9") and "/.x" in folders[1]


def test_the_widest_job_is_described_within_a_record() -> None:
    shard = Shard()
    names = [f"v{n}_{'x' * 55}" for n in range(DEFAULT_LIMITS.vertices - 1)]
    vertices = {name: {"sql": "SELECT 1", "parallelism": 128} for name in names}
    shard.start({"name": "\U00010000" * 255, "vertices": vertices, "result": names[0]})
    reply = client.JobDescribed(
        correlation="", summary=client.JobSummary(job="j", name="", status="", accepted_ms=1), detail=describe(None, shard.job)
    )
    assert largest([Publish("", "", reply)]) <= OUTPUT_BYTES_MAX


def test_what_fits_is_counted_in_bytes() -> None:
    assert fitting(["é", "é", "é"], 10) == ["é", "é"]
    assert fields_fitting({"a": "é" * 50, "b": "é", "c": 1}, 30) == {"b": "é", "c": 1}
    assert list(batches([("a", 4), ("b", 6), ("c", 1), ("d", 11), ("e", 1)], 10)) == [["a", "b"], ["c"], ["d"], ["e"]]
    assert list(batches([], 10)) == []


def test_a_task_manager_has_no_more_slots_than_a_record_can_tell_of() -> None:
    most = TaskManagerSettings.model_fields["slots"].metadata
    limit = max(each.le for each in most if hasattr(each, "le"))
    states = [slots.ReportedSlot(slot=n, state="ACTIVE", allocation=f"{1 << 40}.{1 << 40}.{n}/99", job=LONGEST_ID) for n in range(limit)]
    body = slots.RegisterTaskManager(
        host="\U00010000" * 255, slots=[jobs.SlotSpec(slot=n, memory_mb=1 << 30) for n in range(limit)], states=states
    )
    assert largest([Say("", body)]) <= OUTPUT_BYTES_MAX


def _sinks(letter: str) -> dict[str, Any]:
    """A graph of nearly as many bytes as one may have, most of them in the paths of 150 sinks."""
    letter = letter if letter.isprintable() and letter not in '"' else "x"  # a path holds no other
    path = letter * ((GRAPH_BYTES // 150 - 300) // len(letter.encode()))
    vertices: dict[str, Any] = {"q": {"sql": "SELECT 1"}}
    for n in range(150):
        sink = {"format": "parquet", "path": f"/{path}-{n}", "mode": "overwrite"}
        vertices[f"s{n}"] = {"sink": sink, "inputs": {"q": "forward"}}
    return {"name": "sinks", "vertices": vertices}
