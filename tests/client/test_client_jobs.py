"""The client library against a real control plane: submissions, questions, cancellation, events."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from millrace.client import (
    Busy,
    Conflict,
    Invalid,
    Millrace,
    MillraceError,
    NotFinished,
    NotFound,
    OutcomeUnknown,
    Refused,
    TooLate,
    new_id,
)
from millrace.client.events import BUFFERED_MOST
from millrace.core.messages import client
from tests.client.cluster import ControlPlane, archived
from tests.contract.conftest import eventually

GRAPH = {"name": "Tiny Job!", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}


def test_a_submission_is_stored_listed_and_shown(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    assert job.id.startswith("tiny-job-")
    assert job.warnings == []
    summary = millrace.status(job.id)
    assert (summary.job, summary.name, summary.ended_ms) == (job.id, "Tiny Job!", None)
    assert millrace.list(1).jobs[0].job == job.id
    _, detail, cause = millrace.show(job.id)
    assert detail is not None and ([task.task for task in detail.tasks], cause) == (["one"], None)
    assert (detail.entered["INITIALIZING"], next(iter(detail.entered))) == (detail.accepted_ms, "INITIALIZING")
    job.cancel()


def test_the_same_submission_again_is_the_same_job_and_another_is_refused(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    assert millrace.submit(GRAPH, job=job.id).id == job.id
    with pytest.raises(Conflict, match="exists with another graph or other parameters"):
        millrace.submit({**GRAPH, "name": "other"}, job=job.id)
    job.cancel()
    job.wait()
    assert millrace.submit(GRAPH, job=job.id).status == "CANCELED"


def test_many_threads_submit_one_id_and_one_job_comes_of_it(millrace: Millrace) -> None:
    job, before = new_id("same"), millrace.list(1).total
    results: list[str] = []

    def submit() -> None:
        results.append(millrace.submit(GRAPH, job=job).id)

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert results == [job] * 8
    assert millrace.list(1).total == before + 1
    millrace.cancel(job)


def test_all_that_is_wrong_is_told_at_once(millrace: Millrace) -> None:
    graph = {"name": "n", "vertices": {"a": {"sql": "SELEC 1"}, "b": {"sql": "SELECT 1", "parallelism": 0}}}
    with pytest.raises(Invalid) as caught:
        millrace.submit({**graph, "vertices": {**graph["vertices"], "c": {}}})
    places = [["vertices", "b", "parallelism"], ["vertices", "c"], ["vertices", "a", "sql"]]
    assert [problem.place for problem in caught.value.problems] == places
    with pytest.raises(Invalid, match="'no/slash' is no job's id: it begins with a letter or digit"):
        millrace.submit(GRAPH, job="no/slash")


def test_parameters_and_uploads(millrace: Millrace, tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("def f(): ...")
    sha256 = hashlib.sha256(module.read_bytes()).hexdigest()
    graph = {
        "name": "p",
        "parameters": {"n": 1},
        "vertices": {"one": {"sql": "SELECT ${n} AS a"}},
        "modules": [{"name": "m.py", "sha256": sha256}],
    }
    with pytest.raises(Invalid, match=r"m.py was not uploaded"):
        millrace.submit(graph)
    job = millrace.submit(graph, parameters={"n": "2"}, uploads={sha256: module})
    job.cancel()
    assert job.wait().status == "CANCELED"
    assert millrace.archive(job.wait().archive).graph["vertices"]["one"]["sql"] == "SELECT 2 AS a"


def test_events_come_in_order_to_who_submitted_and_to_who_comes_later(millrace: Millrace, plane: ControlPlane) -> None:
    job = millrace.submit(GRAPH)
    events = job.events()
    first = list(itertools.islice(events, 3))
    job.cancel()
    whole = [*first, *events]
    assert [event["type"] for event in whole].count("JobAccepted") == 1
    assert {event["job"] for event in whole} == {job.id}
    assert whole[-1]["type"] == "JobCanceled"
    with Millrace(plane.kafka.bootstrap) as other:
        assert list(other.follow(job.id)) == whole
    assert list(job.events()) == whole, "a second time, from the log"


def test_what_nobody_takes_is_read_from_the_log_again(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    assert job._buffer is not None
    events = job.events()
    first = next(events)
    job.cancel()
    job.wait()
    whole = list(millrace.follow(job.id))
    fresh = millrace.submit(GRAPH)
    for number in range(BUFFERED_MOST + 5):
        fresh._buffer.put(json.dumps({"type": "x", "n": number}).encode())
    assert fresh._buffer.lost
    fresh.cancel()
    fresh.wait()
    assert [first, *events] == whole


def test_all_events_of_the_cluster(millrace: Millrace) -> None:
    seen: dict[str, set[str]] = {}
    whole = threading.Event()

    def read() -> None:
        for event in millrace.events():
            kinds = seen.setdefault(event["job"], set())
            kinds.add(event["type"])
            if {"JobAccepted", "JobCanceled"} <= kinds:
                whole.set()

    threading.Thread(target=read, daemon=True).start()
    for _ in range(100):  # the reader may not stand at the end yet when the first job is submitted
        job = millrace.submit(GRAPH, watch=False)
        job.cancel()
        job.wait()
        if whole.wait(0.2):
            break
    assert whole.is_set()


def test_cancel_and_its_refusals(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    job.cancel()
    ending = job.wait()
    assert (ending.status, ending.cause) == ("CANCELED", None)
    assert millrace.cancel(job.id) == "CANCELED", "a repeat is harmless"
    for ask in (millrace.cancel, millrace.status, millrace.show, millrace.result, millrace.wait):
        with pytest.raises(NotFound, match="there is no job no-such-job"):
            ask("no-such-job")


def test_a_job_without_rows_says_so(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    with pytest.raises(NotFinished, match="it has no result yet"):
        millrace.result(job.id)
    job.cancel()
    job.wait()
    with pytest.raises(NotFinished, match="is CANCELED and has no result"):
        millrace.result(job.id)
    assert list(millrace.logs(job.id)) == []


def test_a_finished_job_without_rows_says_why(millrace: Millrace, monkeypatch: pytest.MonkeyPatch) -> None:
    job = millrace.submit(GRAPH)
    job.cancel()
    job.wait()
    described = millrace._describe(job.id)
    finished = described.model_copy(update={"summary": described.summary.model_copy(update={"status": "FINISHED"})})
    monkeypatch.setattr(millrace, "_describe", lambda job: finished)
    with pytest.raises(NotFinished, match="several last vertices leave open which is its `result`"):
        millrace.result(job.id)


def test_wait_ends_after_its_time(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    with pytest.raises(TimeoutError, match="has not ended within"):
        job.wait(timeout_s=0.2)
    job.cancel()


def test_all_who_wait_are_answered_at_the_end(millrace: Millrace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.client.api.ASK_AGAIN_S", 600.0)
    job = millrace.submit(GRAPH)
    endings: list[str] = []
    threads = [threading.Thread(target=lambda: endings.append(job.wait().status)) for _ in range(3)]
    for thread in threads:
        thread.start()
    job.cancel()
    for thread in threads:
        thread.join(120)
    assert endings == ["CANCELED"] * 3


def test_the_cluster_without_workers(millrace: Millrace) -> None:
    assert millrace.task_managers() == []
    overview = millrace.overview()
    assert (overview.task_managers, overview.slots) == (0, 0)
    assert sum(overview.jobs.values()) == millrace.list(1).total


def test_a_job_waits_with_its_reason(millrace: Millrace) -> None:
    job = millrace.submit(GRAPH)
    waiting = next(event for event in job.events() if event["type"] == "JobWaiting")
    assert waiting["reason"] == "no TaskManager is registered"
    waits = eventually(lambda: millrace.status(job.id).waiting, "that the Dispatcher knows it, which the JobMaster has said")
    assert waits == "no TaskManager is registered"
    job.cancel()


def test_a_submission_whose_time_is_up_is_not_accepted(millrace: Millrace) -> None:
    late = client.SubmitJob(job=new_id("late"), graph=GRAPH, accept_before_ms=time.time_ns() // 1_000_000 - 1)
    reply = millrace._link.ask(late).result(60)
    assert isinstance(reply, client.JobRejected)
    assert reply.kind == "late"
    with pytest.raises(TooLate):
        millrace._accepted(reply, late.job, None)
    with pytest.raises(NotFound):
        millrace.status(late.job)


def test_any_kafka_client_can_submit_and_what_is_no_request_is_parked(millrace: Millrace, plane: ControlPlane) -> None:
    producer = Producer({"bootstrap.servers": plane.kafka.bootstrap})
    job = new_id("bare")
    reader = Consumer({"bootstrap.servers": plane.kafka.bootstrap, "group.id": "t", "auto.offset.reset": "earliest"})
    _, end = reader.get_watermark_offsets(TopicPartition("dead-letters", 0), timeout=60)
    reader.assign([TopicPartition("dead-letters", 0, end)])  # behind those of other tests
    producer.produce("client.commands", b"what is this")
    producer.produce("client.commands", json.dumps({"type": "SubmitJob", "version": 1, "job": job, "graph": GRAPH}))
    assert producer.flush(60) == 0
    letter = json.loads(reader.poll(120).value())
    reader.close()
    assert (letter["type"], letter["topic"]) == ("DeadLetter", "client.commands")
    assert letter["reason"].startswith("not JSON")
    accepted = next(event for event in accepted_soon(millrace, job) if event["type"] == "JobAccepted")
    assert accepted["name"] == "Tiny Job!"
    millrace.cancel(job)


def accepted_soon(millrace: Millrace, job: str) -> Iterator[dict]:
    """The events of a job that somebody else submits about now."""
    for _ in range(1_000):
        try:
            millrace.status(job)
        except NotFound:
            continue
        return millrace.follow(job)
    raise AssertionError(f"{job} was not accepted")


def test_blobs_move_with_the_dispatcher(millrace: Millrace, plane: ControlPlane) -> None:
    job = millrace.submit(GRAPH)
    job.cancel()
    ending = job.wait()
    assert millrace.archive(ending.archive).json_value() == archived(plane, ending.archive)
    plane.stop("dispatcher")
    with pytest.raises(OutcomeUnknown):
        millrace._link.ask(client.ListJobs()).result(0.2)
    plane.start("dispatcher")
    assert millrace.status(job.id).status == "CANCELED", "a new Dispatcher knows what the old one knew"
    assert millrace.archive(ending.archive).status == "CANCELED", "at another address"


@pytest.mark.long
def test_a_flood_beyond_the_limit_is_refused_and_taken_when_there_is_room(millrace: Millrace, plane: ControlPlane) -> None:
    room, ended = 20, ("FINISHED", "FAILED", "CANCELED")
    live = sum(count for status, count in millrace.overview().jobs.items() if status not in ended)
    plane.stop("dispatcher")
    plane.start("dispatcher", max_live_jobs=live + room)
    millrace.check_dispatcher()  # it leads: who is hasty does not wait for that
    accepted, refused = [], []
    try:
        with Millrace(plane.kafka.bootstrap, token=plane.token, timeout_s=5) as hasty:
            for each in [hasty.begin_submit(GRAPH, watch=False) for _ in range(5 * room)]:
                try:
                    accepted.append(each.result())
                except Busy as failure:
                    refused.append(str(failure))
        assert (len(accepted), len(refused)) == (room, 4 * room)
        assert set(refused) == {f"{live + room} jobs are live, and max_live_jobs is {live + room}; try again when some have ended"}
        patient = millrace.begin_submit(GRAPH, watch=False)
        millrace.cancel(accepted[0].id)
        assert patient.result().status == "INITIALIZING", "a client tries again by itself, as long as it has time"
    finally:
        plane.stop("dispatcher")
        plane.start("dispatcher")


@pytest.mark.long
def test_while_the_disk_is_nearly_full_nothing_new_is_taken_and_it_heals_by_itself(
    millrace: Millrace, plane: ControlPlane, tmp_path: Path
) -> None:
    running, ballast, module = millrace.submit(GRAPH), plane.storage / "ballast", tmp_path / "m.py"
    module.write_text("# new")
    plane.stop("dispatcher")
    least_mb = (shutil.disk_usage(plane.storage).free >> 20) - 2_000  # others fill and empty this disk meanwhile
    plane.start("dispatcher", min_free_mb=least_mb)
    millrace.check_dispatcher()
    try:
        with Millrace(plane.kafka.bootstrap, token=plane.token, timeout_s=5) as hasty:

            def busy() -> str:
                missing = shutil.disk_usage(plane.storage).free - (least_mb - 1_000 << 20)
                if missing > 0:
                    with open(ballast, "ab") as file:
                        os.posix_fallocate(file.fileno(), file.tell(), missing)
                try:
                    hasty.submit(GRAPH)
                except Busy as refused:
                    return str(refused)
                return ""

            told = eventually(busy, "that nothing is taken")
            assert re.search(r"disk of .* has \d+ MB left, and min_free_mb is \d+; try again when there is more", told)
            assert hasty.submit(GRAPH, job=running.id).id == running.id, "it takes no room"
            with pytest.raises(MillraceError, match="the blob is not taken: the disk of"):
                hasty.submit(GRAPH, uploads={hashlib.sha256(module.read_bytes()).hexdigest(): module})
        patient = millrace.begin_submit(GRAPH, watch=False)
        ballast.unlink()
        assert patient.result().status == "INITIALIZING"
    finally:
        ballast.unlink(missing_ok=True)
        plane.stop("dispatcher")
        plane.start("dispatcher")


def test_jobs_survive_the_dispatcher_and_their_job_master(millrace: Millrace, plane: ControlPlane) -> None:
    job = millrace.submit(GRAPH)
    ended = threading.Event()
    statuses: list[str] = []

    def wait() -> None:
        statuses.append(job.wait().status)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    for name in ("dispatcher", "job_master"):
        plane.children[name].popen.kill()
        plane.children.pop(name).popen.wait(60)
        plane.start(name)
    assert millrace.submit(GRAPH, job=job.id).id == job.id
    millrace.cancel(job.id)
    assert ended.wait(120)
    assert statuses == ["CANCELED"]
    with pytest.raises(Refused):
        millrace._ask(client.CancelJob(job="nothing"), client.CancelAccepted)
