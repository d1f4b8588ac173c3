"""Event logs of attempts: listed, linked to a Spark history server, and put where that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.client.files import KeptFile
from millrace.core.messages.attempts import FilesLeft
from services.web.spark_logs import logs_in
from tests.web.history.scene import Scene, archive

ROLLED = "spark-events/eventlog_v2_local-17"
LOG = {f"{ROLLED}/events_1_local-17": b"one\n", f"{ROLLED}/appstatus_local-17": b"", "left.txt": b"hello"}


def with_files(scene: Scene, job: str, contents: dict[str, bytes]) -> None:
    """A job of which the last attempt of `a` left these files."""
    found = archive(job)
    assert found.detail is not None
    first, second = found.detail.tasks
    left = FilesLeft(kept=len(contents), bytes=sum(map(len, contents.values())), left_out=0)
    subtask = first.subtasks[0].model_copy(update={"files": left})
    tasks = [first.model_copy(update={"subtasks": [subtask]}), second]
    scene.write(job, found.model_copy(update={"detail": found.detail.model_copy(update={"tasks": tasks})}))
    folder = f"results/c.1.{job}/0-a.0.1.2"
    for name, content in contents.items():
        scene.storage.put_new(f"{folder}/files/{name}", content)
    files = [{"name": name, "bytes": len(content)} for name, content in contents.items()]
    scene.storage.put_new(f"{folder}/files.json", json.dumps({"files": files, "left_out": [], "left_out_in_all": 0}).encode())


@pytest.fixture
def events(tmp_path: Path) -> Path:
    (tmp_path / "events").mkdir()
    return tmp_path / "events"


@pytest.fixture
def scene(tmp_path: Path, events: Path) -> Scene:
    scene = Scene(tmp_path / "storage", events=events, spark_history="http://spark:18080/")
    with_files(scene, "logged", LOG)
    with_files(scene, "plain", {"left.txt": b"hello"})
    scene.archives.look()
    return scene


def test_they_are_listed_with_their_parts_and_linked(scene: Scene) -> None:
    (log,) = scene.get("/api/v1/jobs/logged/spark-logs")["logs"]
    assert (log["task"], log["subtask"], log["attempt"], log["application"]) == ("a", 0, 2, "local-17")
    assert log["history_url"] == "http://spark:18080/history/local-17/"
    assert [scene.get(url) for url in log["files"]] == ["one\n", ""]
    assert scene.get("/api/v1/jobs/plain/spark-logs")["logs"] == []
    page = scene.get("/page/jobs/logged")
    assert 'href="http://spark:18080/history/local-17/"' in page and "a[0] attempt 2" in page
    assert "Spark history server" not in scene.get("/page/jobs/plain")


def test_without_a_server_nothing_is_linked(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with_files(scene, "logged", LOG)
    scene.archives.look()
    assert scene.get("/api/v1/jobs/logged/spark-logs")["logs"][0]["history_url"] is None
    assert "Spark history server" not in scene.get("/page/jobs/logged")


def test_they_are_put_side_by_side_where_the_server_reads(scene: Scene, events: Path) -> None:
    def there() -> dict[str, bytes]:
        return {str(path.relative_to(events)): path.read_bytes() for path in events.rglob("*") if path.is_file()}

    wanted = {"eventlog_v2_local-17/events_1_local-17": b"one\n", "eventlog_v2_local-17/appstatus_local-17": b""}
    assert there() == wanted
    with_files(scene, "single", {"spark-events/local-18.zstd": b"two"})
    scene.archives.look()
    assert there() == {**wanted, "local-18.zstd": b"two"}
    assert [path.name for path in events.iterdir() if path.name.startswith(".")] == []
    assert scene.get("/api/v1/jobs/single/spark-logs")["logs"][0]["application"] == "local-18"


def test_a_log_that_stopped_half_way_is_begun_anew(scene: Scene, events: Path) -> None:
    (events / ".local-19" / "local-19").mkdir(parents=True)
    with_files(scene, "again", {"spark-events/local-19": b"three"})
    scene.archives.look()
    assert (events / "local-19").read_bytes() == b"three"


def test_a_folder_that_cannot_be_written_is_told_and_tried_again(scene: Scene, events: Path) -> None:
    with_files(scene, "later", {"spark-events/local-20": b"four"})
    events.rename(events.with_name("away"))
    events.write_bytes(b"")
    scene.archives.look()
    assert "later" not in scene.archives._known
    assert scene.archives.state().trouble == f"event logs of job later cannot be copied to {events}: Not a directory"
    assert "later" in {job["job"] for job in scene.get("/api/v1/jobs")["jobs"]}
    events.unlink()
    events.mkdir()
    scene.archives.look()
    assert (events / "local-20").read_bytes() == b"four" and not scene.archives.state().trouble


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127])
def test_a_log_of_any_name_that_a_file_can_have_is_copied(scene: Scene, events: Path, name: str) -> None:
    """The name under which it was written beside was one byte too long, and no archive was read behind it."""
    with_files(scene, "named", {f"spark-events/{name}": b"five"})
    scene.archives.look()
    assert (events / name).read_bytes() == b"five" and not scene.archives.state().trouble
    assert {path.name for path in events.iterdir()} == {name, "eventlog_v2_local-17"}


def test_several_files_of_one_application_are_all_copied(scene: Scene, events: Path) -> None:
    """The folder beside was not empty."""
    with_files(scene, "both", {"spark-events/local-21": b"six", "spark-events/local-21.inprogress": b"seven"})
    scene.archives.look()
    assert ((events / "local-21").read_bytes(), (events / "local-21.inprogress").read_bytes()) == (b"six", b"seven")
    assert {path.name for path in events.iterdir()} == {"local-21", "local-21.inprogress", "eventlog_v2_local-17"}
    assert not scene.archives.state().trouble


def test_a_log_that_is_gone_is_left_out_and_the_others_are_copied(scene: Scene, events: Path) -> None:
    with_files(scene, "half", {"spark-events/local-22": b"", "spark-events/local-23": b"eight"})
    (scene.folder / "results/c.1.half/0-a.0.1.2/files/spark-events/local-22").unlink()
    scene.archives.look()
    assert (events / "local-23").read_bytes() == b"eight"
    assert {path.name for path in events.iterdir()} == {"local-23", "eventlog_v2_local-17"}, "nothing half is left"
    assert not scene.archives.state().trouble and "half" in scene.archives._known


@pytest.mark.parametrize("change", [
    {"files": [{"name": 5, "bytes": 1}]}, {"files": [{"name": ["spark-events/x"], "bytes": 1}]}, {"files": [5]}, {"files": 5},
    {"files": [{"name": "spark-events/x", "bytes": "1"}]},
], ids=str)  # fmt: skip
def test_a_list_of_files_that_is_none_ends_no_history(scene: Scene, events: Path, change: dict[str, Any]) -> None:
    """Its thread ended by an AttributeError."""
    with_files(scene, "odd", {"spark-events/local-24": b"nine"})
    listed = scene.folder / "results/c.1.odd/0-a.0.1.2/files.json"
    listed.write_text(json.dumps({"left_out": [], "left_out_in_all": 0, **change}))
    scene.archives.look()
    assert not scene.archives.state().trouble and "odd" in scene.archives._known
    assert {path.name for path in events.iterdir()} == {"eventlog_v2_local-17"}


@pytest.mark.parametrize("name", ["x\0", "\ud800", "x" * 256, "\\"])
def test_a_name_that_no_file_can_have_is_left_out_and_the_others_are_copied(scene: Scene, events: Path, name: str) -> None:
    with_files(scene, "odd", {"spark-events/local-25": b"ten"})
    listed = scene.folder / "results/c.1.odd/0-a.0.1.2/files.json"
    value = json.loads(listed.read_bytes())
    listed.write_text(json.dumps({**value, "files": [{"name": f"spark-events/{name}", "bytes": 1}, *value["files"]]}))
    scene.archives.look()
    assert not scene.archives.state().trouble and "odd" in scene.archives._known
    assert {path.name for path in events.iterdir()} == {"local-25", "eventlog_v2_local-17"}


@pytest.mark.parametrize("written", [
    b"[" * 100_000, b'{"files": [], "left_out": [], "left_out_in_all": "1"}', b'{"files": [], "left_out": [], "left_out_in_all": -1}',
    b'{"files": [], "left_out": [{"name": 1, "why": "x"}], "left_out_in_all": 1}', b'{"files": [{"name": "x", "bytes": -1}]}',
])  # fmt: skip
def test_a_list_of_files_that_is_none_is_said_to_be_damaged(scene: Scene, written: bytes) -> None:
    with_files(scene, "odd", {"left.txt": b"x"})
    (scene.folder / "results/c.1.odd/0-a.0.1.2/files.json").write_bytes(written)
    scene.archives.look()
    assert "files.json on the blob server is damaged: it is no list of files" in scene.get("/api/v1/jobs/odd/files", 503)["detail"]


@pytest.mark.parametrize(
    "name",
    ["spark-events", "spark-events/", "spark-events/a/b", "x/spark-events/local-1", "spark-events/eventlog_v2_x", "spark-events/.local-1"],
)
def test_other_files_are_no_event_logs(name: str) -> None:
    assert logs_in([KeptFile("a", 0, 1, name, 1, f"results/{name}")]) == []
