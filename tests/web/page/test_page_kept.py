"""What the page shows of ended jobs is read from storage: it is there without Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from millrace.client import Unavailable
from millrace.core.messages.attempts import Fault, ResultRows
from millrace.core.messages.execution import Archive
from millrace.io.storage.store import StorageError
from services.web.app import application
from services.web.commands import Commands
from services.web.follow import Follows
from services.web.kept import Kept
from services.web.page import page
from services.web.processes import Processes
from tests.web.test_web_kept import T0, Scene, detail
from tests.web.test_web_streams import tell

from .test_page import said

GRAPH = {"name": "n", "vertices": {"a": {"sql": "SELECT 7 AS seven"}}}


def away() -> None:
    raise Unavailable("Kafka does not answer")


def shown(scene: Scene) -> TestClient:
    """The page without a cluster."""
    commands = Commands(away)  # type: ignore[arg-type]  # it makes none
    processes, kept = Processes(commands, scene.storage), Kept(scene.view, commands, scene.storage)

    def state() -> Follows:
        return Follows("", 0)

    screens = page(scene.view, state, commands, processes, lambda key: None, kept=kept)
    app = application(scene.view, state, commands, storage=scene.storage, page=screens, processes=processes, kept=kept)
    return TestClient(app, base_url="http://127.0.0.1")


def end(scene: Scene, status: str) -> None:
    failed = status == "FAILED"
    cause = Fault(kind="user", retryable=False, message="no such column", detail="the whole trace of it") if failed else None
    rows = None if failed else ResultRows(columns=["seven"], types=["bigint"], rows=[[7123]])
    ended = detail(status, 1, T0 + 9).model_copy(update={"result": rows, "cause": cause})
    archive = Archive(job="j", name="n", status=status, accepted_ms=T0, ended_ms=T0 + 9, detail=ended, graph=GRAPH, cause=cause)
    scene.storage.put_new("archives/j", archive.model_dump_json().encode())
    more = {"archive": "archives/j", "spent": None}
    more |= {"cause": cause.model_dump()} if cause is not None else {"result": None}
    tell(scene.view, scene.story, lambda: scene.story.say("JobFailed" if failed else "JobFinished", "j", job="j", **more))


def test_rows_graph_and_logs_of_a_job_that_finished_are_shown_without_kafka(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.write(b"all that it wrote\n")
    end(scene, "FINISHED")
    web = shown(scene)
    assert "7123" in said(web.get("/page/jobs/j?tab=result").text)
    assert "SELECT 7 AS seven" in said(web.get("/page/jobs/j?tab=configuration").text)
    assert "all that it wrote" in said(web.get("/page/jobs/j?tab=logs&stream=stdout").text)


def test_the_cause_of_a_job_that_failed_is_shown_whole_without_kafka(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    end(scene, "FAILED")
    assert "the whole trace of it" in said(shown(scene).get("/page/jobs/j").text)


def test_where_neither_storage_nor_kafka_answers_both_are_named(tmp_path: Path) -> None:
    """It was told of Kafka alone, though the storage was what had failed."""
    scene = Scene(tmp_path)
    end(scene, "FINISHED")
    (tmp_path / "archives/j").unlink()
    web = shown(scene)
    for path in ("result", "files", "spark-logs"):
        answer = web.get(f"/api/v1/jobs/j/{path}")
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:millrace:storage-away"), answer.text
        assert "archives/j: there is no such file" in answer.json()["detail"] and "Kafka does not answer" in answer.json()["detail"]
    told = said(web.get("/page/jobs/j").text)
    assert "archives/j: there is no such file" in told and "Kafka does not answer" in told


@pytest.mark.parametrize("path", ["result", "files"])
def test_a_storage_that_fails_is_named_by_its_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    scene = Scene(tmp_path)
    end(scene, "FINISHED")

    def size(path: str) -> int:
        raise StorageError("s3://secret@bucket/x", "it is full of water", "wait")

    monkeypatch.setattr(scene.storage, "size", size)
    answer = shown(scene).get(f"/api/v1/jobs/j/{path}").json()
    assert answer["type"] == "urn:millrace:storage-away" and "it is full of water" in answer["detail"] and "secret" not in answer["detail"]
