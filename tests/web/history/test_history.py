"""A history: the page and both APIs over archives alone. What is damaged is one row; what only a cluster has is refused with that."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from millrace.client.blobs import BlobError
from millrace.core.messages.attempts import ResultRows
from millrace.core.messages.execution import Archive
from millrace.io.storage.store import Entry, Storage, StorageError
from services.web.core.archived import Damaged, facts_of, parsed
from services.web.flink.ids import job_id
from services.web.follow import Follows
from services.web.history import archives as looking
from services.web.history.archives import Archives
from services.web.history.client import StoredFiles
from services.web.history.rows import PackedRows
from services.web.state import state
from services.web.view import View
from tests.core.of_progress import progress
from tests.web.history.scene import T0, Scene, archive


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    for n, (job, status) in enumerate((("good", "FINISHED"), ("bad", "FAILED"), ("off", "CANCELED"))):
        scene.write(job, archive(job, status, T0 + 1000 * n))
    scene.archives.look()
    return scene


def test_jobs_are_listed_and_described_as_their_archives_tell(scene: Scene) -> None:
    listed = scene.get("/api/v1/jobs")
    assert [(job["job"], job["status"], job["accepted_ms"], job["ended_ms"]) for job in listed["jobs"]] == [
        ("off", "CANCELED", T0 + 2000, T0 + 2200), ("bad", "FAILED", T0 + 1000, T0 + 1200), ("good", "FINISHED", T0, T0 + 200),
    ]  # fmt: skip
    job = scene.get("/api/v1/jobs/good")["job"]
    assert job["spent"]["compute_ms"] == 180 and job["archive"] == "archives/good/c.1.good/1.0.json"
    (first,) = job["tasks"][0]["subtasks"]
    assert [(each["attempt"], each["state"], each["since_ms"]) for each in first["attempts"]] == [
        (1, "FAILED", {"FAILED": T0 + 10}),
        (2, "FINISHED", {"DEPLOYING": T0 + 20, "RUNNING": T0 + 30, "FINISHED": T0 + 90}),
    ]
    assert first["attempts"][1]["progress"] == {"rows_written": 7, "bytes_written": 70}
    assert scene.get("/api/v1/overview")["jobs"] == {"FINISHED": 1, "FAILED": 1, "CANCELED": 1}
    failed = scene.get("/api/v1/jobs/bad")["job"]
    assert failed["cause"]["message"] == "it broke"
    assert [each["error"]["message"] for each in failed["tasks"][0]["subtasks"][0]["attempts"]] == ["division by zero", "it broke"]
    assert failed["tasks"][1]["subtasks"] == [{"subtask": 0, "attempt": 0, "state": "CREATED", "attempts": []}]


def test_what_spark_has_done_is_told_of_an_archived_attempt(scene: Scene) -> None:
    kept = archive("counted").model_dump(mode="json")
    subtask = kept["detail"]["tasks"][0]["subtasks"][0]
    subtask["progress"], subtask["failures"][0]["progress"] = progress(gc_ms=7).model_dump(), progress(gc_ms=3).model_dump()
    scene.write("counted", Archive.model_validate(kept))
    scene.archives.look()
    (first,) = scene.get("/api/v1/jobs/counted")["job"]["tasks"][0]["subtasks"]
    assert [each["progress"]["gc_ms"] for each in first["attempts"]] == [3, 7]


def test_results_logs_and_what_is_as_old_come_from_storage(scene: Scene) -> None:
    (scene.folder / "logs/c.1.good/0-a.0.1.2").mkdir(parents=True)
    (scene.folder / "logs/c.1.good/0-a.0.1.2/stdout").write_bytes(b"hello\nworld\n")
    assert scene.get("/api/v1/jobs/good/result")["rows"] == [[1, 2]]
    assert "it broke" in scene.get("/api/v1/jobs/bad/result", 409)["detail"]
    assert scene.get("/api/v1/jobs/good/logs/a/0/2/stdout") == "hello\nworld\n"
    assert [each["bytes"] for each in scene.get("/api/v1/jobs/good/logs")["logs"]][:3] == [0, 0, 12]
    assert "world" in scene.get("/page/jobs/good?tab=logs&attempt=a/0/2&stream=stdout")
    assert scene.get("/api/v1/jobs/good/files")["files"] == []


def test_a_result_in_a_file_of_its_own_is_read_and_no_file_elsewhere(scene: Scene) -> None:
    rows = ResultRows(columns=["x"], types=["int"], rows=[[5]])
    scene.storage.put_new("results/c.1.far/rows.json", rows.model_dump_json().encode())
    scene.storage.put_new("snapshots/secret.json", rows.model_dump_json().encode())
    scene.storage.put_new("results/c.1.far/broken.json", b"[1,")
    for job, path in (("far", "results/c.1.far/rows.json"), ("sly", "snapshots/secret.json"), ("torn", "results/c.1.far/broken.json"),
                      ("out", "results/../snapshots/secret.json")):  # fmt: skip
        found = archive(job)
        assert found.detail is not None
        result = ResultRows(columns=["x"], types=["int"], path=path)
        scene.write(job, found.model_copy(update={"detail": found.detail.model_copy(update={"result": result})}))
    scene.archives.look()
    assert scene.get("/api/v1/jobs/far/result")["rows"] == [[5]]
    assert "there is no such file" in scene.get("/api/v1/jobs/sly/result", 503)["detail"]
    assert "is no path" in scene.get("/api/v1/jobs/out/result", 503)["detail"]
    assert "damaged" in scene.get("/api/v1/jobs/torn/result", 503)["detail"]


def test_the_page_is_the_same_and_says_that_it_shows_the_past(scene: Scene) -> None:
    jobs = scene.get("/page/jobs")
    assert scene.web.get("/", follow_redirects=True).text.count("This shows the past") == 1
    assert str(scene.folder) in jobs
    for absent in ("/page/submit", "/page/queue", "type=\"checkbox\"", "millrace submit"):
        assert absent not in jobs
    for job, text in (("good", "Where its time went"), ("bad", "it broke"), ("off", "Canceled")):
        shown = scene.get(f"/page/jobs/{job}")
        assert text in shown and "This shows the past" in shown
        for absent in (f"/jobs/{job}/again", "millrace ", "/page/taskmanagers"):
            assert absent not in shown, absent
    for tab in ("result", "logs", "story", "configuration"):
        scene.get(f"/page/jobs/good?tab={tab}")
    assert "SELECT 1 AS x" in scene.get("/page/jobs/good?tab=configuration")
    assert "No archive among the newest" in scene.get("/page/jobs/nobody", 404)
    scene.get("/page/more")


def test_what_only_a_cluster_has_is_refused_with_that(scene: Scene) -> None:
    of_one = ("taskmanagers/tm", "taskmanagers/tm/logs/log", "services", "services/dispatcher/thread-dump")
    for path in ("taskmanagers", *of_one, "slots", "leaders", "deadletters", "jobs/good/events", "jobs/good/report"):
        answer = scene.get(f"/api/v1/{path}", 503)
        assert answer["type"] == "urn:millrace:no-cluster" and "this is a history" in answer["detail"], path
    sent = scene.web.post("/api/v1/jobs", json={"name": "x", "vertices": {"a": {"sql": "SELECT 1"}}})
    assert (sent.status_code, sent.json()["type"]) == (503, "urn:millrace:no-cluster")
    ended = scene.web.post("/api/v1/jobs/good/cancel")
    assert (ended.status_code, ended.json()["detail"]) == (409, "job good is FINISHED: it has ended")
    for path in ("submit", "queue", "taskmanagers", "services", "leaders", "letters", "jobs/good/again"):
        assert "Only a running cluster has this" in scene.get(f"/page/{path}", 404)
    assert scene.web.post("/page/cancel", data={"job": "good"}).status_code == 404
    scene.get("/api/v1/jobs/nobody", 404)


def test_flinks_api_answers_as_flinks_own_history_does(scene: Scene) -> None:
    assert scene.get("/config")["features"] == {
        "web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": True,
    }  # fmt: skip
    jobs = scene.get("/v1/jobs/overview")["jobs"]
    assert [(job["jid"], job["state"], job["tasks"]["finished"]) for job in jobs] == [
        (job_id("off"), "CANCELED", 1), (job_id("bad"), "FAILED", 0), (job_id("good"), "FINISHED", 2),
    ]  # fmt: skip
    job = scene.get(f"/jobs/{job_id('good')}")
    assert [(vertex["name"], vertex["status"], vertex["metrics"]["write-records"]) for vertex in job["vertices"]] == [
        ("a", "FINISHED", 7), ("b", "FINISHED", 8),
    ]  # fmt: skip
    assert job["plan"]["nodes"][1]["inputs"][0]["ship_strategy"] == "HASH"
    shown = scene.get(f"/jobs/{job_id('bad')}/exceptions")["exceptionHistory"]["entries"]
    assert "it broke" in shown[0]["stacktrace"]
    assert scene.web.patch(f"/jobs/{job_id('good')}").status_code == 409
    for path in ("/taskmanagers", "/v1/taskmanagers/tm-1", "/flink/v1/taskmanagers/tm-1/logs"):
        assert "This is a history" in scene.get(path, 404)["errors"][0]


def twice(text: str) -> bytes:
    """With its tasks there twice."""
    value = json.loads(text)
    value["detail"]["tasks"] *= 2
    return json.dumps(value).encode()


DAMAGED = {
    "cut short": (b'{"job": "x", "name"', "EOF"),
    "empty": (b"", "EOF"),
    "of another": (archive("y").model_dump_json().encode(), "another job, y"),
    "live": (archive("x").model_copy(update={"status": "RUNNING"}).model_dump_json().encode(), "RUNNING is no state"),
    "before time": (archive("x", at_ms=-5).model_dump_json().encode(), "a time that is none"),
    "far future": (archive("x", at_ms=10**15).model_dump_json().encode(), "a time that is none"),
    "a strange state": (archive("x").model_dump_json().replace('"state":"FINISHED"', '"state":"WRONG"').encode(), "no task has"),
    "no end of subtasks": (archive("x").model_dump_json().replace('"parallelism":1', '"parallelism":99999999999').encode(), "no task has"),
    "a subtask too many": (archive("x").model_dump_json().replace('"subtask":0,"state"', '"subtask":1,"state"').encode(), "no task has"),
    "a task twice": (twice(archive("x").model_dump_json()), "no task has"),
    "deep": (b'{"job":' + b"[" * 100_000, ""),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_archive_is_one_bad_row_with_its_reason(scene: Scene, name: str) -> None:
    content, why = DAMAGED[name]
    path = scene.write("x", content, T0 / 1000 + 9)
    scene.archives.look()
    row = scene.get("/api/v1/jobs/x")["job"]
    assert (row["status"], row["accepted_ms"]) == ("FAILED", T0 + 9000)
    assert "how the job ended is not known" in row["cause"]["message"] and why in row["cause"]["message"]
    assert scene.get("/api/v1/jobs")["total"] == 4
    assert "archive is damaged" in scene.get("/page/jobs/x") and "archive is damaged" in scene.get("/page/jobs")
    assert "is damaged" in scene.get(f"/jobs/{job_id('x')}/exceptions")["exceptionHistory"]["entries"][0]["stacktrace"]
    scene.get("/jobs/overview")
    path.unlink()
    scene.write("x", archive("x", at_ms=T0 + 9000))  # mended
    scene.archives.look()
    assert scene.get("/api/v1/jobs/x")["job"]["status"] == "FINISHED"


def test_an_archive_that_is_too_large_is_not_read(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "ARCHIVE_MOST", 1000)
    scene.write("huge", archive("huge"))
    scene.archives.look()
    assert "more than the 1000 that are read" in scene.get("/api/v1/jobs/huge")["job"]["cause"]["message"]


def test_what_comes_and_goes_in_storage_comes_and_goes_here(scene: Scene) -> None:
    before = scene.web.get("/page/jobs").headers["etag"]
    shutil.rmtree(scene.folder / "archives/off")
    scene.archives.look()
    assert scene.get("/api/v1/jobs")["total"] == 2
    assert scene.web.get("/page/jobs").headers["etag"] != before
    scene.get("/api/v1/jobs/off", 404)
    scene.write("new", archive("new"))
    scene.archives.look()
    assert scene.get("/api/v1/jobs/new")["job"]["status"] == "FINISHED"
    scene.write("good", archive("good", "FAILED", T0 + 50_000), T0 / 1000 + 50, "2.0")  # the id was used again
    scene.archives.look()
    assert (scene.get("/api/v1/jobs/good")["job"]["status"], scene.get("/api/v1/jobs")["total"]) == ("FAILED", 3)
    assert "it broke" in scene.get("/page/jobs?q=good")


def test_names_that_are_of_no_archive_are_passed_over(scene: Scene) -> None:
    for name in ("archives/.DS_Store", "archives/good/notes.txt", "archives/a b/c.1.2/1.json", "archives/good/c/d/e.json"):
        (scene.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (scene.folder / name).write_bytes(b"?")
    scene.archives.look()
    assert scene.get("/api/v1/jobs")["total"] == 3


def test_nothing_is_written(scene: Scene) -> None:
    def everything() -> list[tuple[str, int]]:
        return sorted((str(path), path.lstat().st_mtime_ns) for path in scene.folder.rglob("*"))

    before = everything()
    os.chmod(scene.folder, 0o500)
    try:
        scene.archives.look()
        scene.get("/page/jobs/good")
        scene.get("/api/v1/jobs/good/result")
    finally:
        os.chmod(scene.folder, 0o700)
    assert everything() == before


def test_the_newest_are_shown_and_an_older_one_by_its_id(tmp_path: Path) -> None:
    scene = Scene(tmp_path, most=3)
    for n in range(10):
        scene.write(f"j{n}", archive(f"j{n}", at_ms=T0 + 1000 * n), T0 / 1000 + n)
    scene.archives.look()
    assert [job["job"] for job in scene.get("/api/v1/jobs")["jobs"]] == ["j9", "j8", "j7"]
    assert scene.get("/api/v1/jobs")["total"] == 3
    assert scene.get("/api/v1/jobs/j1")["job"]["ended_ms"] == T0 + 1200
    assert scene.get("/api/v1/jobs/j1/result")["rows"] == [[1, 2]]
    scene.write("j10", archive("j10", at_ms=T0 + 20_000), T0 / 1000 + 20)
    scene.archives.look()
    assert [job["job"] for job in scene.get("/api/v1/jobs")["jobs"]] == ["j10", "j9", "j8"]


class Many(Storage):
    """A hundred thousand archives, made as they are listed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.read: list[str] = []
        self.walked = 0

    def find(self, prefix: str) -> Iterator[Entry]:
        for n in range(100_000):
            self.walked += 1
            yield Entry(f"archives/j{n}/c.1.{n}/1.json", 4000, T0 + n)

    def get(self, path: str) -> bytes:
        self.read.append(path)
        return archive(path.split("/")[1]).model_dump_json().encode()


def test_of_a_hundred_thousand_archives_so_many_are_read_as_are_shown(tmp_path: Path) -> None:
    storage = Many(tmp_path)
    view = View(PackedRows(), {}, 50, past="many")
    archives = Archives(view, storage, 50)
    archives.look()
    assert len(view.jobs.rows()) == len(storage.read) == 50
    assert (storage.walked, len(archives._known)) == (100_000, 50)
    archives.look()
    assert len(storage.read) == 50


def test_before_the_first_look_and_without_its_storage_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    scene.write("good", archive("good"))
    assert scene.get("/healthz", 503)["status"] == "starting"
    assert scene.get("/api/v1/jobs", 503)["type"] == "urn:millrace:starting"
    scene.archives.look()
    assert scene.get("/healthz")["status"] == "ok"

    def away(prefix: str) -> Iterator[Entry]:
        raise StorageError("s3://x", "the network is away", "wait")

    monkeypatch.setattr(scene.storage, "find", away)
    scene.archives.look()
    assert "the network is away" in scene.get("/healthz", 503)["reason"]
    listed = scene.get("/api/v1/jobs")
    assert (listed["total"], listed["as_of"]["behind_s"]) == (1, 1), "what was read stays, and how old it is"
    assert "The network is away" in scene.get("/page/jobs") or "the network is away" in scene.get("/page/jobs")


def test_a_storage_that_cannot_be_read_from_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)

    def away(prefix: str) -> Iterator[Entry]:
        raise StorageError("s3://x", "the network is away", "wait")

    monkeypatch.setattr(scene.storage, "find", away)
    scene.archives.look()
    health = scene.get("/healthz", 503)
    assert (health["status"], health["reason"]) == ("starting", "the storage cannot be read: the network is away")
    assert "the storage cannot be read: the network is away" in scene.get("/page/jobs")


def test_a_file_that_cannot_be_read_now_is_read_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write("late", archive("late"))
    get = scene.storage.get

    def slow(path: str) -> bytes:
        raise StorageError(path, "try later", "wait")

    monkeypatch.setattr(scene.storage, "get", slow)
    scene.archives.look()
    assert "try later" in scene.archives.state().trouble
    monkeypatch.setattr(scene.storage, "get", get)
    scene.archives.look()
    assert scene.archives.state().trouble == "" and scene.get("/api/v1/jobs/late")["job"]["status"] == "FINISHED"


def test_a_storage_that_is_away_is_said_without_its_address(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(path: str) -> int:
        raise StorageError(f"ftp://u:s3cr3t@host/{path}", "the network is away", "wait")

    monkeypatch.setattr(scene.storage, "size", away)
    with pytest.raises(BlobError, match=r"^results/x/result\.json: the network is away$"):
        StoredFiles(scene.storage).get_file("results/x/result.json")


def test_one_archive_that_cannot_be_read_hides_no_other_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept a history at 503 for ever."""
    scene = Scene(tmp_path)
    for n, job in enumerate(("older", "locked", "newer")):
        scene.write(job, archive(job), T0 / 1000 + n)
    get = scene.storage.get

    def refused(path: str) -> bytes:
        if path.startswith("archives/locked/"):
            raise StorageError(path, "permission denied", "give the right to read there")
        return get(path)

    monkeypatch.setattr(scene.storage, "get", refused)
    scene.archives.look()
    assert {job["job"] for job in scene.get("/api/v1/jobs")["jobs"]} == {"older", "newer"}
    for _ in range(2):
        assert scene.archives.state().trouble == "archives/locked/c.1.locked/1.0.json cannot be read: permission denied"
        scene.archives.look()
    monkeypatch.setattr(scene.storage, "get", get)
    scene.archives.look()
    assert scene.get("/api/v1/jobs/locked")["job"]["status"] == "FINISHED" and scene.get("/healthz")["status"] == "ok"


def test_metrics_are_made_beside_the_event_loop(scene: Scene) -> None:
    """They rest between their steps, and nobody else was answered meanwhile."""
    loops: list[bool] = []

    def follows() -> Follows:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            loops.append(False)
        else:
            loops.append(True)
        return scene.archives.state()

    web = FastAPI()
    web.include_router(state(scene.view, follows))
    assert "millrace_web_follows 1.0" in TestClient(web).get("/metrics").text
    assert loops == [False]


def test_it_answers_to_the_names_of_loopback_alone_as_the_web_service_does(scene: Scene) -> None:
    for path in ("/page/jobs", "/api/v1/jobs", "/jobs/overview"):
        assert scene.web.get(path, headers={"Host": "evil.example"}).status_code in (400, 403, 421), path


def test_rows_on_disk_are_as_rows_in_memory() -> None:
    rows = PackedRows()
    rows["j"] = {"job": "j"}
    rows["j/a/0"] = {"state": "RUNNING", "since_ms": {"RUNNING": 1}}
    rows["j/a/0"] = {"state": "FINISHED", "since_ms": {"FINISHED": 2}}
    assert (dict(rows), len(rows), list(rows)) == (
        {"j": {"job": "j"}, "j/a/0": {"state": "FINISHED", "since_ms": {"FINISHED": 2}}}, 2, ["j", "j/a/0"],
    )  # fmt: skip
    assert rows.pop("j/a/0") and rows.pop("j/a/1", None) is None and "j/a/0" not in rows
    with pytest.raises(KeyError):
        del rows["j/a/0"]


def test_facts_of_an_archive_are_in_the_order_of_their_times() -> None:
    facts = facts_of(archive("j"), "archives/j", 100)
    assert [fact.offset for fact in facts] == list(range(100, 100 + len(facts)))
    assert [fact.kind for fact in facts][:2] == ["JobAccepted", "AttemptStateChanged"] and facts[-1].kind == "JobFinished"
    assert [fact.stamp_ms for fact in facts] == sorted(fact.stamp_ms for fact in facts)


def test_the_states_of_an_archived_job_have_their_times() -> None:
    kept = archive("j").model_dump(mode="json")
    entered = {"CREATED": T0 + 1, "RUNNING": T0 + 50, "RESTARTING": T0 + 40, "FINISHED": T0 + 200, "LATER": T0}
    kept["detail"]["entered"] = {"INITIALIZING": T0, **entered}
    told = [fact.body for fact in facts_of(Archive.model_validate(kept), "p", 0) if fact.kind == "JobStateChanged"]
    assert [(each["status"], each["at_ms"]) for each in told] == [
        ("CREATED", T0 + 1), ("RESTARTING", T0 + 40), ("RUNNING", T0 + 50),
    ]  # fmt: skip
    kept["detail"]["entered"]["RUNNING"] = -1
    with pytest.raises(Damaged, match="a time that is none"):
        parsed(Archive.model_validate(kept).model_dump_json().encode(), "j")


def test_an_archive_of_an_earlier_build_and_of_a_later_one_are_read() -> None:
    later = archive("j").model_dump_json()[:-1].encode() + b',"more":{"a":1}}'
    assert parsed(later, "j").status == "FINISHED"
    earlier = b'{"job":"j","name":"n","status":"FAILED","accepted_ms":5,"ended_ms":7,"cause":null,"graph":{},"detail":{}}'
    assert parsed(earlier, "j").detail is None
    assert [fact.kind for fact in facts_of(parsed(earlier, "j"), "p", 0)] == ["JobAccepted", "JobFailed"]
    with pytest.raises(Damaged):
        parsed(b"null", "j")


def test_jobs_of_a_task_manager_are_found_and_no_text_of_an_error_counts(scene: Scene) -> None:
    odd = 'tm-1" or \u00e9'
    kept = archive("elsewhere").model_dump(mode="json")
    for subtask in (each for task in kept["detail"]["tasks"] for each in task["subtasks"]):
        subtask["task_manager"] = odd
        for failure in subtask["failures"]:
            failure["task_manager"], failure["error"]["message"] = odd, '"task_manager":"tm-2" said this'
    scene.write("elsewhere", Archive.model_validate(kept), T0 / 1000 + 9)
    scene.archives.look()
    for name, jobs in ((odd, ["elsewhere"]), ("tm-2", ["bad", "good", "off"]), ("tm-1", ["bad", "good", "off"]), ("tm", [])):
        listed = scene.web.get("/api/v1/jobs", params={"task_manager": name}).json()["jobs"]
        assert sorted(job["job"] for job in listed) == jobs, name


def test_who_asks_waits_for_no_archive_that_is_folded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def facts(*given: Any) -> Any:
        asked.append(scene.view._lock.locked() or scene.get("/api/v1/jobs?limit=1")["total"])
        return facts_of(*given)

    monkeypatch.setattr(looking, "facts_of", facts)
    scene.write("later", archive("later"), T0 / 1000 + 9)
    scene.archives.look()
    assert asked == [3] and scene.get("/api/v1/jobs?limit=1")["total"] == 4
