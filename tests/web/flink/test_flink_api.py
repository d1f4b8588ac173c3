"""Flink's REST API over our view: every answer has the fields that Flink's tools require, and every error their shape."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from millrace.core.messages.effects import StoredJob
from millrace.io.interfaces import Entry
from millrace.io.storage.store import Storage, StorageError
from services.web.flink import cluster_shapes, shapes
from services.web.flink.failures import history
from services.web.flink.ids import job_id
from services.web.flink.vertices import attempt_of
from services.web.view import View
from tests.web.flink.scene import (
    CANCELED,
    ENDED,
    FAILED,
    FAULT,
    JOBS,
    MEMBER,
    RUNS,
    WAITS,
    Commands,
    job_of,
    made,
    path,
)
from tests.web.test_web_tables import T0, Story, accepted, attempt

READS: dict[str, Any] = {
    "/config": cluster_shapes.Config,
    "/overview": cluster_shapes.Overview,
    "/jobs": shapes.Jobs,
    "/jobs/overview": shapes.JobsOverview,
    "/jobs/metrics": list[shapes.Aggregate],
    "/jobs/J": shapes.JobDetail,
    "/jobs/J/status": shapes.Status,
    "/jobs/J/plan": shapes.JobPlan,
    "/jobs/J/config": shapes.JobConfig,
    "/jobs/J/accumulators": shapes.JobAccumulators,
    "/jobs/J/metrics": list[shapes.Metric],
    "/jobs/J/exceptions": shapes.Failures,
    "/jobs/J/execution-result": shapes.ExecutionResult,
    "/jobs/J/jobmanager/config": list[cluster_shapes.Setting],
    "/jobs/J/jobmanager/environment": cluster_shapes.Environment,
    "/jobs/J/vertices/V": shapes.VertexDetail,
    "/jobs/J/vertices/V/accumulators": shapes.VertexAccumulators,
    "/jobs/J/vertices/V/backpressure": shapes.BackPressure,
    "/jobs/J/vertices/V/flamegraph": shapes.FlameGraph,
    "/jobs/J/vertices/V/jm-operator-metrics": list[shapes.Metric],
    "/jobs/J/vertices/V/metrics": list[shapes.Metric],
    "/jobs/J/vertices/V/subtasks/0": shapes.Attempt,
    "/jobs/J/vertices/V/subtasks/0/attempts/0": shapes.Attempt,
    "/jobs/J/vertices/V/subtasks/0/attempts/0/accumulators": shapes.AttemptAccumulators,
    "/jobs/J/vertices/V/subtasks/0/metrics": list[shapes.Metric],
    "/jobs/J/vertices/V/subtasks/accumulators": shapes.SubtasksAccumulators,
    "/jobs/J/vertices/V/subtasks/metrics": list[shapes.Aggregate],
    "/jobs/J/vertices/V/subtasktimes": shapes.VertexTimes,
    "/jobs/J/vertices/V/taskmanagers": shapes.VertexTaskManagers,
    "/jobs/J/vertices/V/watermarks": list[shapes.Metric],
    "/applications/overview": cluster_shapes.Applications,
    "/applications/J": cluster_shapes.ApplicationDetail,
    "/applications/J/exceptions": cluster_shapes.ApplicationFailures,
    "/applications/J/jobmanager/config": list[cluster_shapes.Setting],
    "/taskmanagers": cluster_shapes.TaskManagers,
    "/taskmanagers/metrics": list[shapes.Aggregate],
    "/taskmanagers/tm": cluster_shapes.TaskManagerDetail,
    "/taskmanagers/tm/logs": cluster_shapes.LogList,
    "/taskmanagers/tm/metrics": list[shapes.Metric],
    "/taskmanagers/tm/thread-dump": cluster_shapes.ThreadDump,
    "/jobmanager/config": list[cluster_shapes.Setting],
    "/jobmanager/environment": cluster_shapes.Environment,
    "/jobmanager/logs": cluster_shapes.LogList,
    "/jobmanager/metrics": list[shapes.Metric],
    "/jobmanager/thread-dump": cluster_shapes.ThreadDump,
    "/datasets": cluster_shapes.DataSets,
}


@pytest.fixture(scope="module")
def together() -> tuple[TestClient, Commands]:
    commands = Commands()
    return made(commands), commands


@pytest.fixture
def web(together: tuple[TestClient, Commands]) -> TestClient:
    return together[0]


@pytest.fixture
def commands(together: tuple[TestClient, Commands]) -> Commands:
    together[1].canceled.clear()
    return together[1]


def is_error(answer: Any) -> bool:
    """Exactly that, or Flink's client takes it for a success."""
    body = answer.json()
    return list(body) == ["errors"] and all(isinstance(line, str) for line in body["errors"]) and body["errors"] != []


@pytest.mark.parametrize("prefix", ["", "/v1", "/flink", "/flink/v1"])
@pytest.mark.parametrize("template", READS)
def test_every_read_has_flinks_fields_with_and_without_the_prefix(web: TestClient, template: str, prefix: str) -> None:
    for job in JOBS if "J" in template else (RUNS,):
        answer = web.request("GET", prefix + path(template, job) + "/", json={})  # Flink's client sends a body with each request
        assert answer.status_code == 200, answer.text
        TypeAdapter(READS[template]).validate_python(answer.json(), strict=True, extra="forbid")


def test_the_description_has_what_is_read(web: TestClient) -> None:
    described = {re.sub(r"\{\w+\}", "{}", each) for each in web.get("/v1/openapi.json").json()["paths"]}
    assert {re.sub(r"(?<=/)(J|V|tm|0)(?=/|$)", "{}", template) for template in READS} <= described


def test_a_job_has_a_stable_id_beside_its_own_and_both_are_accepted(web: TestClient) -> None:
    assert job_id(RUNS) == "b36593b0004dcece0fa7c8825a53a577"
    by_own, by_flinks = (web.get(f"/jobs/{each}").json() for each in (RUNS, job_id(RUNS)))
    assert by_own["jid"] == by_flinks["jid"] == job_id(RUNS)


def test_states_times_and_counts_of_a_running_job(web: TestClient) -> None:
    job = web.get(path("/jobs/J")).json()
    assert (job["state"], job["start-time"], job["end-time"]) == ("RUNNING", T0, -1)
    times = {state: at_ms for state, at_ms in job["timestamps"].items() if at_ms}
    assert times == {"INITIALIZING": T0, "CREATED": T0 + 1, "RUNNING": T0 + 1} and len(job["timestamps"]) == 11
    vertex, other = job["vertices"]
    assert (vertex["status"], vertex["parallelism"], vertex["tasks"]["RUNNING"], vertex["tasks"]["FINISHED"]) == ("RUNNING", 2, 1, 1)
    assert (vertex["metrics"]["read-records"], vertex["metrics"]["write-bytes"]) == (10, 40)
    source, sink = job["plan"]["nodes"]
    assert (source["id"], sink["id"], sink["description"]) == (vertex["id"], other["id"], "b<br/>+ c") and "inputs" not in source
    assert sink["inputs"] == [{"num": 0, "id": vertex["id"], "ship_strategy": "HASH", "exchange": "blocking"}]
    assert (job["status-counts"]["RUNNING"], job["status-counts"]["CREATED"]) == (1, 1)


def test_each_state_of_a_live_attempt_has_its_time() -> None:
    """And a subtask that still waits was CREATED with its job."""
    jobs = Story()
    accepted(jobs, "j", parallelism=2)
    attempt(jobs, "j", "DEPLOYING", created_ms=T0 + 1, scheduled_ms=T0 + 2, at_ms=T0 + 7)
    attempt(jobs, "j", "RUNNING", at_ms=T0 + 12)
    view = View({}, {}, 10)
    view.load({})
    for fact in jobs.facts:
        view.fold(fact)
    live, waits = job_of(view).tasks[0].current
    assert live.times == {"CREATED": T0 + 1, "SCHEDULED": T0 + 2, "DEPLOYING": T0 + 7, "RUNNING": T0 + 12}
    body = attempt_of(live)
    assert body["status-duration"] == {"CREATED": 1, "SCHEDULED": 5, "DEPLOYING": 5, "INITIALIZING": -1, "RUNNING": 8}
    assert (body["start-time"], body["end-time"], body["duration"]) == (T0 + 7, -1, 13)
    assert (waits.times, attempt_of(waits)["start-time"], attempt_of(waits)["status-duration"]["CREATED"]) == ({"CREATED": T0}, -1, 20)


def test_what_lives_beside_the_current_attempt_is_told_with_it() -> None:
    jobs = Story()
    accepted(jobs, "j")
    attempt(jobs, "j", "DEPLOYING")
    attempt(jobs, "j", "DEPLOYING", number=2, task_manager="tm2", beside=1)
    view = View({}, {}, 10)
    view.load({})
    for fact in jobs.facts:
        view.fold(fact)
    [current] = job_of(view).tasks[0].current
    body = attempt_of(current)
    assert (body["attempt"], body["taskmanager-id"]) == (0, "tm")
    assert [(each["attempt"], each["taskmanager-id"]) for each in body["other-concurrent-attempts"]] == [(1, "tm2")]


def test_of_an_ended_job_no_subtask_waits(web: TestClient) -> None:
    job = web.get(path("/jobs/J", CANCELED)).json()
    (vertex,) = job["vertices"]
    assert (vertex["status"], vertex["tasks"]["CANCELED"], vertex["tasks"]["CREATED"]) == ("CANCELED", 2, 0)
    assert web.get(path("/jobs/J/vertices/V", CANCELED)).json()["subtasks"][0]["status"] == "CANCELED"
    for other, state in ((WAITS, "CREATED"), (ENDED, "FINISHED")):
        assert web.get(path("/jobs/J", other)).json()["vertices"][0]["status"] == state


def test_the_lists_have_each_job_once_the_newest_first(web: TestClient) -> None:
    listed = web.get("/jobs/overview").json()["jobs"]
    assert [(job["name"], job["state"], job["end-time"] >= 0) for job in listed] == [
        ("name of canceled", "CANCELED", True), ("name of failed", "FAILED", True), ("name of ended", "FINISHED", True),
        ("name of waits", "RUNNING", False), ("name of runs", "RUNNING", False),
    ]  # fmt: skip
    assert web.get("/jobs/overview").json()["jobs"][0] == listed[0]
    assert {job["id"] for job in web.get("/jobs").json()["jobs"]} == {job_id(job) for job in JOBS}
    counts = web.get("/overview").json()
    assert (counts["jobs-running"], counts["jobs-finished"], counts["jobs-cancelled"], counts["jobs-failed"]) == (2, 1, 1, 1)
    assert (counts["taskmanagers"], counts["slots-total"], counts["slots-available"]) == (1, 3, 1)


def test_task_managers_of_a_blocked_host_are_counted_and_their_free_slots_are_not_available() -> None:
    blocked = {"host": "h", "since_ms": 1, "until_ms": None, "by": "", "reason": "", "evacuate": False}
    web = made(Commands([MEMBER]))
    assert "blocked" not in web.get("/taskmanagers").json()["taskmanagers"][0] and "taskmanagers-blocked" not in web.get("/overview").json()
    said = Story("cluster.events")
    said.say("BlocklistChanged", "blocklist", hosts=[blocked])
    web = made(Commands([MEMBER]), more=said.facts)
    counts = web.get("/overview").json()
    assert (counts["taskmanagers-blocked"], counts["slots-free-and-blocked"], counts["slots-available"]) == (1, 1, 0)
    assert web.get("/taskmanagers").json()["taskmanagers"][0]["blocked"] is True


def test_a_failed_job_has_its_cause_first_and_its_user_line(web: TestClient) -> None:
    history = web.get(path("/jobs/J/exceptions", FAILED)).json()["exceptionHistory"]
    assert [each["exceptionName"] for each in history["entries"]] == ["ZeroDivisionError", "ZeroDivisionError"]
    first = history["entries"][0]
    assert "at etl.py:3" in first["stacktrace"] and first["taskName"] == "a (1/2) - execution #1" and first["taskManagerId"] == "tm"
    short = web.get(path("/jobs/J/exceptions?maxExceptions=1", FAILED)).json()["exceptionHistory"]
    assert (len(short["entries"]), short["truncated"]) == (1, True)
    none = web.get(path("/jobs/J/exceptions?failureLabelFilter=kind:lost", FAILED)).json()["exceptionHistory"]
    assert none == {"entries": [], "truncated": False}


def test_what_failed_while_a_job_restarted_is_below_what_caused_that() -> None:
    """As in Flink's history: testExceptionHistoryConcurrentRestart, and its truncation."""
    jobs = Story()
    accepted(jobs, "j", parallelism=2)
    decisions = [
        {"number": 1, "then": "restart", "delay_ms": 50, "why": "fixed-delay: restart 1 of 1"},
        {"number": 2, "then": "move", "delay_ms": 0, "why": "lost executor: move 1 of 20", "concurrent_with": 1},
        {"number": 3, "then": "fail", "why": "fixed-delay: 1 of 1 restarts used"},
    ]
    for (subtask, number), decided in zip(((0, 1), (1, 1), (0, 2)), decisions, strict=True):
        attempt(jobs, "j", "FAILED", number=number, subtask=subtask, error={**FAULT, "decided": decided}, slot=None)
    jobs.say("JobFailed", "j", job="j", archive=None, cause={**FAULT, "subtask": 0, "attempt": 2, "decided": decisions[-1]})
    view = View({}, {}, 10)
    view.load({})
    for fact in jobs.facts:
        view.fold(fact)
    entries = history(job_of(view))
    assert [(each["taskName"], [other["taskName"] for other in each["concurrentExceptions"]]) for each in entries] == [
        ("a (1/2) - execution #1", []),
        ("a (1/2) - execution #0", ["a (2/2) - execution #0"]),
    ]
    assert entries[0]["stacktrace"].endswith("\tthen the job failed (fixed-delay: 1 of 1 restarts used)")
    assert entries[1]["stacktrace"].endswith("\tthen restarted after 50 ms (fixed-delay: restart 1 of 1)")


def test_how_a_job_ended(web: TestClient) -> None:
    def ended(job: str) -> Any:
        return web.get(path("/jobs/J/execution-result", job)).json()

    assert ended(RUNS) == {"status": {"id": "IN_PROGRESS"}}
    assert [ended(job)["job-execution-result"]["application-status"] for job in (ENDED, FAILED, CANCELED)] == [
        "SUCCEEDED", "FAILED", "CANCELED",
    ]  # fmt: skip
    assert "failure-cause" not in ended(ENDED)["job-execution-result"]
    assert ended(FAILED)["job-execution-result"]["failure-cause"]["class"] == "ZeroDivisionError"


def test_a_task_manager_has_the_heap_of_its_slots_where_the_resource_manager_answers(web: TestClient) -> None:
    asked = made(Commands([MEMBER]))
    (member,) = asked.get("/taskmanagers").json()["taskmanagers"]
    assert (member["timeSinceLastHeartbeat"], member["hardware"]["freeMemory"]) == (1_700_000_009_000, 3 * 512 << 20)
    total, free = ([*member[of].values()] for of in ("totalResource", "freeResource"))
    assert (total, free) == ([6.0, 1536, 0, 0, 0, {"gpu": 3.0}], [2.0, 512, 0, 0, 0, {"gpu": 1.0}])
    (held,) = asked.get("/taskmanagers/tm").json()["allocatedSlots"]
    assert (held["jobId"], held["assignedTasks"], held["resource"]["taskHeapMemory"]) == (job_id(RUNS), 1, 512)
    (member,) = web.get("/taskmanagers").json()["taskmanagers"]
    assert (member["slotsNumber"], member["hardware"]["freeMemory"]) == (3, 0)


def test_the_logs_of_a_task_manager_are_its_own_its_jvms_and_those_of_the_attempts_in_its_slots(web: TestClient) -> None:
    logs = web.get("/taskmanagers/tm/logs").json()["logs"]
    assert [(each["name"], each["size"]) for each in logs] == [
        ("log", 14), ("slot-0.jvm.log", 6), ("runs.a.0.1.stdout", 0), ("runs.a.0.1.stderr", 8),
    ]  # fmt: skip
    assert web.get("/taskmanagers/tm/logs/runs.a.0.1.stderr").text == "rows: 7\n"
    assert web.get("/taskmanagers/tm/logs/slot-0.jvm.log").text == "a JVM\n"
    part = web.get("/taskmanagers/tm/logs/log", headers={"Range": "bytes=2-5"})
    assert (part.status_code, part.text, part.headers["content-range"]) == (206, "Task", "bytes 2-5/14")
    assert web.get("/taskmanagers/tm/log").text == "a TaskManager\n"
    assert web.get("/taskmanagers/tm/stdout").text == "--- runs.a.0.1.stdout\n\n"


def test_a_task_manager_has_its_machine_and_what_its_jvms_use(web: TestClient) -> None:
    hardware = {"cpuCores": 4, "physicalMemory": 9 << 30, "freeMemory": 0, "managedMemory": 0}
    assert [each["hardware"] for each in web.get("/taskmanagers").json()["taskmanagers"]] == [hardware]
    metrics = web.get("/taskmanagers/tm").json()["metrics"]
    assert (metrics["heapUsed"], metrics["heapCommitted"], metrics["heapMax"]) == (30_000_000, 60_000_000, 1_000_000_000)
    assert (metrics["nonHeapUsed"], metrics["nonHeapMax"], metrics["directCount"], metrics["mappedMax"]) == (90_000_000, 0, 1, 3)
    assert metrics["garbageCollectors"] == [
        {"name": "PS-MarkSweep", "count": 2, "time": 80}, {"name": "PS-Scavenge", "count": 9, "time": 120},
    ]  # fmt: skip
    asked = "Status.JVM.Memory.Heap.Used,Status.JVM.GarbageCollector.PS-Scavenge.Time,Status.JVM.Threads.Count,none"
    assert web.get(f"/taskmanagers/tm/metrics?get={asked}").json() == [
        {"id": "Status.JVM.Memory.Heap.Used", "value": "30000000"}, {"id": "Status.JVM.GarbageCollector.PS-Scavenge.Time", "value": "120"},
        {"id": "Status.JVM.Threads.Count", "value": "80"},
    ]  # fmt: skip
    assert web.get("/taskmanagers/metrics?get=Status.JVM.Memory.NonHeap.Used&agg=sum").json() == [
        {"id": "Status.JVM.Memory.NonHeap.Used", "sum": 90_000_000}
    ]


def test_a_task_manager_that_does_not_answer_has_what_is_known_without_it() -> None:
    web = made(Commands([MEMBER], unknown=("tm",)))
    assert web.get("/taskmanagers/tm").json()["metrics"]["heapMax"] == 3 * 512 << 20
    measured = [each["id"] for each in web.get("/taskmanagers/tm/metrics").json()]
    assert measured == ["taskSlotsTotal", "taskSlotsAvailable", "taskSlotsBroken"]
    assert [each["name"] for each in web.get("/taskmanagers/tm/logs").json()["logs"]] == ["runs.a.0.1.stdout", "runs.a.0.1.stderr"]
    for asked in ("log", "thread-dump", "logs/log"):
        answer = web.get(f"/taskmanagers/tm/{asked}")
        assert (answer.status_code, is_error(answer)) == (404, True)


def test_a_thread_dump_has_an_entry_for_each_thread_and_says_what_is_missing(web: TestClient) -> None:
    infos = web.get("/taskmanagers/tm/thread-dump").json()["threadInfos"]
    assert [each["threadName"] for each in infos] == [
        "main", "beat", "the JVM of slot 0: main", "the JVM of slot 0: ...", "the JVM of slot 1",
    ]  # fmt: skip
    assert infos[1]["stringifiedThreadInfo"] == '"beat" id=2\n    at millrace/b.py:9 beat\n'
    assert infos[4]["stringifiedThreadInfo"] == "it hangs\n"
    names = [each["threadName"] for each in web.get("/jobmanager/thread-dump").json()["threadInfos"]]
    assert names == ["dispatcher-0: main", "dispatcher-0: beat"]


def test_the_logs_of_the_job_manager_are_those_of_the_services_and_its_log_the_leading_dispatchers(web: TestClient) -> None:
    logs = web.get("/jobmanager/logs").json()["logs"]
    assert [(each["name"], each["size"], each["mtime"]) for each in logs] == [("dispatcher-0.log", 13, 5), ("dispatcher-0.stdout", 0, 5)]
    for asked in ("log", "logs/dispatcher-0.log"):
        assert web.get(f"/jobmanager/{asked}").text == "a Dispatcher\n"
    assert web.get("/jobmanager/stdout").text == ""
    for missing in ("dispatcher-0.none", "dispatcher-1.log", "none"):
        answer = web.get(f"/jobmanager/logs/{missing}")
        assert (answer.status_code, is_error(answer)) == (404, True)
    silent = made(Commands(unknown=("dispatcher-0",)))
    assert silent.get("/jobmanager/logs").json() == {"logs": []}
    assert silent.get("/jobmanager/log").status_code == 503


def test_a_storage_that_is_away_is_no_mistake_of_ours(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise StorageError("ftp://u:s3cr3t@host/logs", "the network is away", "wait")

    monkeypatch.setattr(Storage, "stat", away)
    for asked in ("/taskmanagers/tm/logs", "/taskmanagers/tm/log"):
        answer = web.get(asked)
        assert (answer.status_code, answer.json()) == (503, {"errors": ["the storage cannot be read: the network is away"]})


def test_metrics_have_ids_alone_without_get_and_those_asked_for_with_it(web: TestClient) -> None:
    vertex = path("/jobs/J/vertices/V")
    ids = [each["id"] for each in web.get(f"{vertex}/metrics").json()]
    assert ids[:2] == ["0.numRecordsIn", "0.numRecordsOut"]
    assert web.get(f"{vertex}/metrics?get=0.numRecordsIn,7.numRecordsIn").json() == [{"id": "0.numRecordsIn", "value": "10"}]
    (whole,) = web.get(f"{vertex}/subtasks/metrics?get=numBytesIn&agg=sum,skew").json()
    assert whole == {"id": "numBytesIn", "sum": 100, "skew": 0.0}
    assert web.get(f"{vertex}/subtasks/metrics?get=numBytesIn&subtasks=1").json() == []


@pytest.mark.parametrize(("method", "asked", "status"), [
    ("GET", "/v1/nothing", 404),
    ("GET", "/v1", 404),
    ("DELETE", "/jobs/overview", 404),
    ("OPTIONS", "/config", 404),
    ("GET", "/jars", 404),
    ("POST", "/jars/upload", 404),
    ("GET", "/jobs/unknown", 404),
    ("GET", "/jobs/ffffffffffffffffffffffffffffffff", 404),
    ("GET", "/jobs/%20x", 400),
    ("GET", "/jobs/J/exceptions?maxExceptions=x", 400),
    ("GET", "/jobs/J/exceptions?maxExceptions=-1", 400),
    ("GET", "/jobs/J/vertices/ffffffffffffffffffffffffffffffff", 404),
    ("GET", "/jobs/J/vertices/x", 400),
    ("GET", "/jobs/J/vertices/V/subtasks/2", 404),
    ("GET", "/jobs/J/vertices/V/subtasks/x", 400),
    ("GET", "/jobs/J/vertices/V/subtasks/0/attempts/7", 404),
    ("GET", "/jobs/J/vertices/V/subtasks/metrics?agg=median", 400),
    ("GET", "/jobs/J/vertices/V/subtasks/metrics?subtasks=1-x", 400),
    ("GET", "/jobs/J/checkpoints", 404),
    ("GET", "/jobs/J/checkpoints/config", 404),
    ("GET", "/jobs/J/checkpoints/details/1", 404),
    ("GET", "/jobs/J/checkpoints/details/1/subtasks/V", 404),
    ("GET", "/jobs/J/savepoints/ffffffffffffffffffffffffffffffff", 404),
    ("GET", "/savepoint-disposal/ffffffffffffffffffffffffffffffff", 404),
    ("POST", "/savepoint-disposal", 400),
    ("PATCH", "/jobs/J?mode=kill", 400),
    ("PATCH", "/jobs/J?mode=stop", 308),
    ("PATCH", "/jobs/J/rescaling?parallelism=2", 503),
    ("GET", "/jobs/J/rescales/overview", 404),
    ("POST", "/jobs", 501),
    ("DELETE", "/cluster", 403),
    ("DELETE", "/datasets/d", 404),
    ("GET", "/taskmanagers/none", 404),
    ("GET", "/taskmanagers/none/log", 404),
    ("GET", "/taskmanagers/tm/logs/none", 404),
    ("GET", "/taskmanagers/tm/logs/runs.a.0.1.stdout", 404),
    ("GET", "/taskmanagers/tm/profiler", 404),
    ("GET", "/jobmanager/logs/none", 404),
    ("GET", "/applications/none", 404),
    ("GET", "/flink/main.js", 404),
])  # fmt: skip
def test_an_error_has_its_status_and_flinks_shape(web: TestClient, method: str, asked: str, status: int) -> None:
    answer = web.request(method, path(asked))
    assert (answer.status_code, is_error(answer)) == (status, True), answer.text


def test_cancel(web: TestClient, commands: Commands) -> None:
    for asked in (path("/v1/jobs/J?mode=cancel"), path("/v1/jobs/J"), f"/jobs/{WAITS}"):
        answer = web.request("PATCH", asked, json={})
        assert (answer.status_code, answer.json()) == (202, {})
    assert web.get(path("/jobs/J/yarn-cancel")).status_code == 202
    assert web.post(path("/applications/J/cancel")).status_code == 202
    assert commands.canceled == [RUNS, RUNS, WAITS, RUNS, RUNS]
    for job, status in ((ENDED, 409), (FAILED, 409), ("unknown", 404)):
        answer = web.patch(path("/jobs/J", job) if job != "unknown" else "/jobs/unknown")
        assert (answer.status_code, is_error(answer)) == (status, True)
    assert web.post(path("/applications/J/cancel", ENDED)).status_code == 404


def test_no_page_of_another_origin_cancels_a_job_by_a_picture(web: TestClient, commands: Commands) -> None:
    for site in ("cross-site", "same-site"):
        answer = web.get(path("/jobs/J/yarn-cancel"), headers={"Sec-Fetch-Site": site})
        assert (answer.status_code, is_error(answer)) == (403, True)
    answer = web.patch(path("/jobs/J"), headers={"Origin": "http://evil.example"})
    assert (answer.status_code, is_error(answer)) == (403, True), "what others refuse here has the shape, too"
    assert commands.canceled == []


@pytest.mark.parametrize(("asked", "polled"), [("savepoints", "savepoints"), ("stop", "savepoints"), ("checkpoints", "checkpoints")])
def test_what_a_batch_job_does_not_support_fails_when_it_is_asked_for(web: TestClient, asked: str, polled: str) -> None:
    trigger = "0123456789abcdef" * 2
    answers = [web.post(path(f"/jobs/J/{asked}"), json={"triggerId": trigger, "drain": False, "more": 1}) for _ in range(2)]
    assert [(each.status_code, each.json()) for each in answers] == [(202, {"request-id": trigger})] * 2
    found = web.get(path(f"/jobs/J/{polled}/{trigger}")).json()
    (cause,) = found["operation"].values()
    assert found["status"] == {"id": "COMPLETED"} and "is not a streaming job" in cause["stack-trace"]
    assert web.get(path(f"/jobs/J/{polled}/{trigger}", WAITS)).status_code == 404, "another job's"
    for body in (b"{", b'{"triggerId": "x"}', b"[]"):
        answer = web.post(path(f"/jobs/J/{asked}"), content=body)
        assert (answer.status_code, is_error(answer)) == (400, True)


def test_what_is_asked_of_an_unknown_job_fails_when_it_is_asked_for(web: TestClient) -> None:
    trigger = web.post("/jobs/unknown/savepoints").json()["request-id"]
    cause = web.get(f"/jobs/unknown/savepoints/{trigger}").json()["operation"]["failure-cause"]
    assert cause["class"].endswith("FlinkJobNotFoundException")


def test_a_savepoint_is_not_disposed_of(web: TestClient) -> None:
    answer = web.post("/v1/savepoint-disposal", json={"savepoint-path": "file:/s"})
    assert answer.status_code == 200
    found = web.get(f"/v1/savepoint-disposal/{answer.json()['request-id']}").json()
    assert "file:/s" in found["operation"]["failure-cause"]["stack-trace"]


def test_while_the_tables_are_brought_back_flinks_client_asks_again(commands: Commands) -> None:
    answer = made(commands, loaded=False).get("/v1/jobs/overview")
    assert (answer.status_code, is_error(answer), answer.headers["retry-after"]) == (503, True, "1")


def test_the_dashboards_files_are_answered_and_nothing_beside_them(commands: Commands, tmp_path: Path) -> None:
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "index.html").write_text('<base href="./">')
    (folder / "main.js").write_text("1")
    (tmp_path / "secret").write_text("no")
    (folder / "link").symlink_to(tmp_path / "secret")
    web = made(commands, folder)
    assert (web.get("/flink").status_code, web.get("/flink").headers["location"]) == (307, "/flink/")
    page = web.get("/flink/")
    assert page.text == '<base href="./">' and "base-uri 'self'" in page.headers["content-security-policy"]
    assert "base-uri 'none'" in web.get("/flink/config").headers["content-security-policy"]
    assert web.get("/flink/main.js").headers["content-type"].startswith(("text/javascript", "application/javascript"))
    assert web.get("/flink/config").json()["flink-version"] == "2.3.0"
    (folder / "later.js").write_text("no")  # names are looked up among those of the start, and on no disk
    for name in ("../secret", "%2e%2e/secret", "..%2fsecret", "link", "%00", "none.js", "later.js"):
        answer = web.get(f"/flink/{name}")
        assert answer.status_code in (400, 404) and answer.text != "no"
    assert is_error(web.get("/flink/none.js")) and is_error(web.post("/flink/main.js"))


@pytest.mark.parametrize(("graph", "told"), [
    ({}, "Restart with fixed delay (PT1S). #3 restart attempts."),
    ({"restart": {"attempts": 7, "delay_ms": 1500}}, "Restart with fixed delay (PT1.5S). #7 restart attempts."),
    ({"restart": {"strategy": "none"}}, "Restart deactivated."),
    ({"restart": {"strategy": "failure-rate", "max_failures_per_interval": 5, "delay_ms": 15_000}},
     "Failure rate restart with maximum of 5 failures within interval PT1M and fixed delay PT15S."),
    ({"restart": {"strategy": "exponential-delay", "max_backoff_ms": 90_000, "backoff_multiplier": 2.0}},
     "Restart with exponential delay: starting at PT1S, increasing by 2.000000, with maximum PT1M30S. "
     "Delay resets after PT1H with jitter 0.100000"),
    ({"restart": {"strategy": "of-a-later-build"}}, "Cluster level default restart strategy"),
    (None, "Cluster level default restart strategy"),
])  # fmt: skip
def test_the_restart_settings_of_a_job_are_shown_in_the_words_of_flink(graph: dict[str, Any] | None, told: str) -> None:
    stored = StoredJob(state="accepted", digest="", acceptance="a", shard=0, accepted_ms=1, graph=graph)
    entry = Entry(f"jobs/{RUNS}", json.dumps(stored.model_dump(mode="json")).encode(), 1, 1) if graph is not None else None
    with made(Commands(), stored={f"jobs/{RUNS}": entry}.get) as web:
        assert web.get(path("/jobs/J/config")).json()["execution-config"]["restart-strategy"] == told
        ended = web.get(path("/jobs/J/config", ENDED)).json()
        assert ended["execution-config"]["restart-strategy"] == "Cluster level default restart strategy", "its archive is gone"
