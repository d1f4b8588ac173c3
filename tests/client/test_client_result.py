"""Where a job's rows come from: the event of its end if it carries them, else the cluster is asked."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.client import Ending, Job, Millrace, Result, Unavailable
from millrace.client.events import Buffer
from millrace.client.files import Files
from millrace.client.queries import Shown
from millrace.core.messages.client import JobSummary

ROWS = {"columns": ["a"], "types": ["int"], "rows": [[1]], "truncated": False}
TOLD, ASKED = Result(["a"], ["int"], [[1]], False), Result(["a"], ["int"], [[2]], False)


class Cluster(Millrace):
    """Answers without a cluster, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def wait(self, job: str, timeout_s: float | None = None) -> Ending:
        self.asked.append(f"wait {job}")
        return Ending(job, "FINISHED", 1, "archives/one")

    def result(self, job: str) -> Result:
        self.asked.append(f"result {job}")
        return ASKED


def buffer(*events: dict[str, Any]) -> Buffer:
    filled = Buffer()
    for event in events:
        filled.put(json.dumps(event).encode())
    return filled


def job_with(*events: dict[str, Any]) -> tuple[Job, Cluster]:
    cluster = Cluster()
    return Job(cluster, "one", "INITIALIZING", [], buffer({"type": "JobAccepted"}, *events)), cluster


def test_rows_that_the_end_carries_are_asked_of_nobody() -> None:
    job, cluster = job_with({"type": "JobFinished", "archive": "archives/one", "result": ROWS})
    assert [job.result(), job.result()] == [TOLD, TOLD]
    assert cluster.asked == []


def test_also_when_the_events_were_taken_before() -> None:
    job, cluster = job_with({"type": "JobFinished", "archive": "archives/one", "result": ROWS})
    assert [event["type"] for event in job.events()] == ["JobAccepted", "JobFinished"]
    assert job.result() == TOLD
    assert cluster.asked == []


@pytest.mark.parametrize("kind", ["JobFinished", "JobFailed", "JobCanceled"])
def test_without_rows_in_the_end_the_cluster_is_asked(kind: str) -> None:
    job, cluster = job_with({"type": kind, "archive": "archives/one"})
    assert job.result() == ASKED
    assert cluster.asked == ["wait one", "result one"]


def test_a_job_whose_events_are_not_followed_is_asked_for() -> None:
    cluster = Cluster()
    assert Job(cluster, "one", "RUNNING", [], None).result() == ASKED
    assert cluster.asked == ["wait one", "result one"]


ARCHIVE = {"job": "one", "name": "n", "status": "FAILED", "accepted_ms": 1, "ended_ms": 2, "cause": {"message": "m"}, "graph": {}}


class Kept(Cluster):
    """Its blob server has one file."""

    def __init__(self, content: Any) -> None:
        super().__init__()
        self.content = content

    def _json(self, path: str) -> Any:
        return self.content


@pytest.mark.parametrize("detail", [{}, None])
def test_a_job_that_could_not_be_described_has_an_archive_without_detail(detail: Any) -> None:
    """A record about it ended its JobMaster's process: the JobMaster knows nothing of it any more, and its end says {}."""
    archive = Kept({**ARCHIVE, "detail": detail}).archive("archives/one")
    assert archive.detail is None and archive.cause is not None and archive.cause.message == "m"


@pytest.mark.parametrize("content", [[], {}, {**ARCHIVE, "cause": "m"}, {**ARCHIVE, "detail": {"tasks": []}}], ids=range(4))
def test_a_file_that_is_no_archive_is_named(content: Any) -> None:
    with pytest.raises(Unavailable, match="^archives/one on the blob server is no archive of a job: "):
        Kept(content).archive("archives/one")


@pytest.mark.parametrize("content", [b'{"job": "x"', b"", b"[" * 100_000, b"\xff"], ids=range(4))
def test_a_file_that_is_no_json_is_named(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error of the JSON reader, which no caller expects."""
    kept = Kept(None)
    monkeypatch.setattr(kept, "file", lambda path: content)
    for read in (lambda: Millrace.archive(kept, "archives/one"), lambda: Millrace._json(kept, "archives/one")):
        with pytest.raises(Unavailable, match="^archives/one on the blob server is damaged: it is no JSON$"):
            monkeypatch.setattr(kept, "_json", lambda path: Millrace._json(kept, path))
            read()


class Silent(Cluster):
    """Its JobMaster does not answer, but for `then`."""

    def __init__(self, *then: Shown, silent: str | None = "job-master/1") -> None:
        super().__init__()
        self.silent, self.then, self._closed = silent, list(then), SimpleNamespace(wait=lambda timeout_s: False)

    def show(self, job: str) -> Shown:
        if self.asked and self.then:
            return self.then.pop()
        self.asked.append("show")
        shown = Shown(JobSummary(job=job, name="n", status="RUNNING", accepted_ms=1), None, None)
        shown.silent = self.silent
        return shown


def test_what_a_silent_job_master_alone_knows_is_not_said_to_be_nothing() -> None:
    """`logs` said that the job had written nothing, and `files` that it had left none."""
    for read in (lambda: Silent().files("one"), lambda: list(Silent().logs("one"))):
        with pytest.raises(Unavailable, match=r"^job-master/1 does not answer, and nobody else knows what job one ") as failure:
            read()
        assert failure.value.silent == "job-master/1"
    assert (Silent(silent=None).files("one"), list(Silent(silent=None).logs("one"))) == (Files(), []), "it has none yet"


def test_who_follows_logs_waits_for_a_silent_job_master() -> None:
    ended = Shown(JobSummary(job="one", name="n", status="FINISHED", accepted_ms=1), None, None)
    cluster = Silent(ended)
    assert list(cluster.logs("one", follow=True)) == []
    assert cluster.asked == ["show"] and not cluster.then


def test_who_waits_for_an_event_goes_on_when_the_client_is_closed() -> None:
    job, cluster = job_with()
    assert job._buffer is not None
    job._buffer.close()

    def closed(job: str, timeout_s: float | None = None) -> Ending:
        raise Unavailable("this client was closed")

    cluster.wait = closed
    with pytest.raises(Unavailable):
        job.result()
