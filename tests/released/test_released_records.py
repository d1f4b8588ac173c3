"""What 0.1.0 left in the logs is read as it was written: services of today go on behind its snapshots, in its inboxes [R27]."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from millrace.core.messages import (
    blocklist,
    client,
    effects,
    jobs,
    processes,
    requirements,
    schedule_effects,
    schedules,
    slots,
    worker_effects,
)
from millrace.core.messages.links import BODIES
from millrace.core.messages.records import Forked, Hello, decode
from millrace.core.messages.requests import REQUESTS
from millrace.core.topics import TASK_MANAGER

LINES = (Path(__file__).parent / "records-0.1.0.jsonl").read_text().splitlines()
VALUES = [json.loads(line) for line in LINES]
NEW = {
    jobs.RescaleStartedJob, requirements.UpdateRequirements, requirements.DescribeRequirements,
    jobs.ReportStartedJob, jobs.QuestionAnswered, jobs.DeclareAgain, slots.SlotUnused, slots.ProgressReported, slots.AttemptAnswered,
    slots.OrderAttempts, client.ReportNow, effects.KeepJob, effects.JobKept, slots.DrainTaskManager, slots.DrainAnswered,
    client.DeregisterCluster, worker_effects.StartWorker, worker_effects.WorkerStarted, worker_effects.StopWorker,
    worker_effects.WorkerStopped, worker_effects.ListWorkers, worker_effects.WorkersListed,
    client.ListJobDetails, effects.ListStoredJobs, effects.StoredJobsListed,
    jobs.AskTaskManager, slots.AnswerClient, slots.ClientAnswered, *get_args(processes.AboutTaskManager),
    client.ShutDownCluster, jobs.SuspendJobs, jobs.ResumeJobs, jobs.JobsSuspended, effects.EndCluster, effects.ClusterEnded,
    schedules.SetSchedule, schedules.PauseSchedule, schedules.RemoveSchedule, schedules.RunSchedule,
    schedules.DescribeSchedule, schedules.ListSchedules,
    schedule_effects.StoreSchedule, schedule_effects.ScheduleStored, schedule_effects.ChangeSchedule, schedule_effects.ScheduleChanged,
    schedule_effects.FindSchedules, schedule_effects.SchedulesFound,
    jobs.NotEnoughResources, blocklist.BlockHost, blocklist.UnblockHost, blocklist.ListBlockedHosts, blocklist.AskBlocklist,
    blocklist.TaskManagersBlocked, blocklist.StoreBlock, blocklist.BlockStored, blocklist.ReadBlocklist, blocklist.BlocklistRead,
    jobs.JobMasterHeartbeat, jobs.ReconcileSlots, slots.FreeUnused, effects.KeepJobGraph, effects.JobGraphKept, slots.AllocateSlots,
}  # fmt: skip
"""What 0.1.0 did not know."""
EFFECTS = {
    each: result for service, pairs in effects.EFFECTS_OF.items() if service != TASK_MANAGER for each, result in pairs.items()
}  # fmt: skip
"""A TaskManager of today begins with a journal of its own."""


def body_of(value: dict[str, Any]) -> dict[str, Any]:
    """What a record carries; an effect stands alone."""
    return value.get("body") or value.get("result") or value.get("request") or value


def read(line: str) -> Any:
    if "record" in json.loads(line):
        return decode(line.encode())
    kind = next(each for each in EFFECTS if each.__name__ == json.loads(line)["type"])
    return TypeAdapter(kind).validate_json(line)


def changed(written: Any, found: Any, place: str = "") -> Iterator[str]:
    """Where a value is not as it was written. Fields that are new are there besides."""
    if isinstance(written, dict) and isinstance(found, dict):
        for name in written:
            yield from changed(written[name], found.get(name, "(absent)"), f"{place}.{name}")
    elif isinstance(written, list) and isinstance(found, list) and len(written) == len(found):
        for number, (one, other) in enumerate(zip(written, found, strict=True)):
            yield from changed(one, other, f"{place}.{number}")
    elif written != found:
        yield f"{place}: {written!r} is read as {found!r}"


@pytest.mark.parametrize("line", LINES, ids=lambda line: body_of(json.loads(line)).get("type", json.loads(line).get("record")))
def test_a_record_of_0_1_0_is_read_as_it_was_written(line: str) -> None:
    assert list(changed(json.loads(line), json.loads(read(line).model_dump_json()))) == []


def test_there_is_one_of_each_that_0_1_0_knew() -> None:
    there = {body_of(value).get("type") for value in VALUES}
    every = {*BODIES, Hello, Forked, *REQUESTS, *EFFECTS, *filter(None, EFFECTS.values())} - NEW
    assert {each.__name__ for each in every} <= there
    assert not {each.__name__ for each in NEW} & there
    assert {value["record"] for value in VALUES if "record" in value} == {"Elected", "Tick", "Outcome", "Client", "Message", "Probe"}


def test_a_job_ended_by_0_1_0_has_its_cause_archive_and_staging() -> None:
    ended = [read(line).body for line in LINES if body_of(json.loads(line)).get("type") == "JobEnded"]
    assert {each.status for each in ended} == {"FINISHED", "FAILED", "CANCELED"}
    assert {each.cause.kind for each in ended if each.cause is not None} >= {"user"}
    assert all(each.archive is not None for each in ended)


def test_a_value_that_is_read_otherwise_would_be_found() -> None:
    assert list(changed({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "new": 4})) == [".a.1.b: 2 is read as 3"]
    assert list(changed({"a": 1}, {})) == [".a: 1 is read as '(absent)'"]
