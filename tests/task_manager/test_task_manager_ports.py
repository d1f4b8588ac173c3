"""What carries out effects on slots: folders, uploaded files, results, and slots whose process ends."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from millrace.core.faults import STORAGE, class_of, infrastructure
from millrace.core.messages.effects import KillAttempt
from millrace.core.messages.slots import AttemptEnded, AttemptRunning, SlotBroken, SlotReady, SlotReplacing
from millrace.io.storage.store import StorageError, blob_path
from services.task_manager.ports import keeping
from tests.task_manager.of_ports import ATTEMPT, READY, World, ended


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_attempt_has_folders_of_its_own_and_leaves_its_logs_alone(world: World) -> None:
    world.slot.ready()
    world.launch()
    world.go()
    work, log, blobs = world.slot.dirs
    assert Path(work).is_dir() and not Path(blobs).is_dir() and Path(blobs).parent == Path(work).parent
    assert Path(log) == world.folder / "storage/logs/ac" / ATTEMPT
    (Path(log) / "stdout").write_text("hello")
    world.slot.start()
    report = {"outputs": {}, "result": None}
    world.slot.end("finished", report=report)
    world.slot.ready()
    assert world.told() == [READY, AttemptRunning(slot=0, attempt=ATTEMPT), ended("finished", report=report), READY]
    world.go()
    assert not Path(work).exists()
    assert world.storage.get(f"logs/ac/{ATTEMPT}/stdout") == b"hello"
    world.launch("j/0-t/0/2")
    world.go()
    assert world.slot.dirs[0] != work


def test_logs_go_to_a_storage_that_is_no_folder(tmp_path: Path) -> None:
    world = World(tmp_path, f"memory://{tmp_path.name}")
    world.launch()
    world.go()
    log = Path(world.slot.dirs[1])
    (log / "stdout").write_bytes(b"out")
    (log / "stderr").write_bytes(b"err" * 1_000_000)
    world.slot.start()
    world.slot.end("failed", error={"kind": "user"})
    assert world.storage.get(f"logs/ac/{ATTEMPT}/stdout") == b"out"
    assert world.storage.size(f"logs/ac/{ATTEMPT}/stderr") == 3_000_000
    assert not log.exists()


@pytest.mark.parametrize("status", ["failed", "finished"])
def test_logs_are_kept_of_an_attempt_whose_files_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    """The list of its files could not be written, and why it had failed was lost with its logs."""

    def full(*_: object) -> None:
        raise StorageError("results", "no space is left", "free some")

    monkeypatch.setattr(keeping, "keep_files", full)
    world = World(tmp_path, f"memory://{tmp_path.name}")
    world.launch()
    world.go()
    (Path(world.slot.dirs[1]) / "stderr").write_bytes(b"why")
    world.slot.start()
    world.slot.end(status, **({"error": {"kind": "user"}} if status == "failed" else {"report": {}}))
    assert world.storage.get(f"logs/ac/{ATTEMPT}/stderr") == b"why"
    [told] = [each for each in world.told() if isinstance(each, AttemptEnded)]
    assert told.status == "failed" and (status == "failed" or "no space is left" in told.error.message)


def test_an_attempt_whose_result_finds_no_storage_waits_for_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was moved, and twenty moves later its job failed."""

    def away(*_: object) -> None:
        raise StorageError("results", "cannot be reached", "check storage_url and its credentials")

    monkeypatch.setattr(keeping, "keep_files", away)
    world.launch()
    world.go()
    world.slot.start()
    world.slot.end("finished", report={})
    [told] = [each for each in world.told() if isinstance(each, AttemptEnded)]
    assert class_of(told.error) is STORAGE
    assert told.error.message == "what it leaves cannot be kept: results: cannot be reached; check storage_url and its credentials"


NO_ROWS = {"kind": "infrastructure", "retryable": False, "condition": "EXCHANGE_LOST", "message": "gone", "lost": "/exchange/1.1/1/a/0/1"}
NO_RIGHT = {"kind": "user", "retryable": True, "message": "Mkdirs failed to create file:/exchange"}


@pytest.mark.parametrize("error", [None, NO_ROWS, NO_RIGHT], ids=lambda error: error and error["kind"])
def test_what_an_attempt_wrote_or_missed_below_a_missing_mount_is_not_believed(world: World, error: Any) -> None:
    """Rows that it wrote there are in no storage, and those that it did not find there are not lost. Nor is it the user's error that it
    could not write there."""
    world.storage.put_new("owner.json", b"a cluster")
    world.storage.mark = "owner.json"
    world.launch()
    world.go()
    world.slot.start()
    world.storage.delete_tree("owner.json")
    if error is not None:
        world.slot.end("failed", error=error)
    else:
        world.slot.end("finished", report={})
    [told] = [each for each in world.told() if isinstance(each, AttemptEnded)]
    assert (told.status, class_of(told.error)) == ("failed", STORAGE) and "is not there: it has no owner.json" in told.error.message


def test_the_thread_that_folds_looks_at_no_storage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs would hold up all slots. The attempt looks itself, before it writes there."""
    world.storage.mark = "owner.json"
    monkeypatch.setattr(type(world.storage), "check_there", lambda _: pytest.fail("it was looked at"))
    world.launch()
    assert world.slot.mark == str(world.folder / "storage/owner.json")
    world.slot.end("failed", error={"kind": "infrastructure", "retryable": True, "message": "it did not begin"})
    away = World(world.folder / "away", f"memory://{world.folder.name}")
    away.storage.mark = "owner.json"
    away.launch()
    assert away.slot.mark == "", "no folder is there that could be missing"


def test_a_result_counts_though_its_logs_cannot_be_uploaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, f"memory://{tmp_path.name}")

    def full(*_: object) -> None:
        raise StorageError("logs", "no space is left", "free some")

    monkeypatch.setattr(world.storage, "writer", full)
    world.launch()
    world.go()
    log = Path(world.slot.dirs[1])
    (log / "stderr").write_bytes(b"why")
    world.slot.start()
    world.slot.end("finished", report={})
    [told] = [each for each in world.told() if isinstance(each, AttemptEnded)]
    assert told.status == "finished"
    assert not log.exists(), "else they would gather here"


@pytest.mark.timeout(120)
def test_a_pipe_that_user_code_put_in_a_logs_place_is_not_waited_for(tmp_path: Path) -> None:
    world = World(tmp_path, f"memory://{tmp_path.name}")
    world.launch()
    world.go()
    os.mkfifo(Path(world.slot.dirs[1]) / "stdout")
    world.slot.start()
    world.slot.end("failed", error={"kind": "user"})
    assert not world.storage.exists(f"logs/ac/{ATTEMPT}/stdout")


def test_an_attempt_whose_files_are_gone_fails_and_the_slot_stays_ready(world: World) -> None:
    world.launch(modules=[{"name": "a.py", "sha256": "1" * 64, "kind": "py"}])
    world.go()
    end, ready = world.told()
    assert ready == READY
    assert end.error.kind == "infrastructure" and "is not there" in end.error.message
    assert world.slot.attempt is None


def test_an_attempt_that_is_killed_while_it_is_prepared_is_never_run(world: World) -> None:
    world.launch()
    world.slots.kill(KillAttempt(slot=0, attempt=ATTEMPT, why="canceled"))
    world.go()
    error = {"kind": "killed", "retryable": False, "message": "canceled"}
    assert world.told() == [ended("killed", error=error), READY]
    assert world.slot.attempt is None


def with_a_module(world: World, attempt: str) -> str:
    """Launches an attempt with a file of its own, which storage has; its hash."""
    data = attempt.encode()
    sha256 = hashlib.sha256(data).hexdigest()
    world.storage.put_new(blob_path("j", "ac", sha256), data)
    world.launch(attempt, modules=[{"name": "a.py", "sha256": sha256, "kind": "py"}])
    return sha256


def test_an_attempt_that_is_killed_while_its_files_are_fetched_ends_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job was canceled when storage answered, and its slot was held until then."""
    give, seen = world.slots.blobs.give, []

    def killed_meanwhile(*args: Any) -> None:
        world.slots.kill(KillAttempt(slot=0, attempt=ATTEMPT, why="canceled"))
        seen.extend(world.told())
        give(*args)

    monkeypatch.setattr(world.slots.blobs, "give", killed_meanwhile)
    with_a_module(world, ATTEMPT)
    world.go()
    assert seen == [ended("killed", error={"kind": "killed", "retryable": False, "message": "canceled"}), READY]
    assert world.told() == [] and world.slot.attempt is None and not world.work
    assert list((world.folder / "tm/attempts").glob("*/*")) == [] and world.slots.blobs.held().used == 0
    monkeypatch.undo()
    with_a_module(world, "j/0-t/0/2")
    world.slots.kill(KillAttempt(slot=0, attempt="j/0-t/0/2", why="canceled"))
    world.go()
    assert world.slots.blobs.held() == (1, len(ATTEMPT), 0), "nothing is fetched for one that has ended"


def test_an_attempt_that_has_ended_is_not_made_ready_in_the_folders_of_the_next(world: World) -> None:
    """Its turn came late, when its slot had ended and begun anew: it took the next one's folders, which cleared or failed that."""
    with_a_module(world, "j/0-t/0/1")
    late = world.work.pop()
    world.slot.gone()
    world.timers.pop()[1]()
    sha256 = with_a_module(world, "j/0-t/0/2")
    late()
    world.go()
    assert world.slot.attempt == "j/0-t/0/2"
    assert [path.name for path in Path(world.slot.dirs[2]).iterdir()] == [sha256]


def test_an_attempt_that_runs_is_killed_by_its_slot(world: World) -> None:
    world.launch()
    world.go()
    world.slot.start()
    world.slots.kill(KillAttempt(slot=0, attempt="another", why="canceled"))
    world.slots.kill(KillAttempt(slot=0, attempt=ATTEMPT, why="canceled"))
    assert world.slot.kills == [(ATTEMPT, "canceled")]
    world.slot.killed("canceled")
    error = {"kind": "killed", "retryable": False, "message": "canceled"}
    assert world.told() == [AttemptRunning(slot=0, attempt=ATTEMPT), ended("killed", error=error)]
    world.slots.kill(KillAttempt(slot=0, attempt=ATTEMPT, why="again"))
    assert world.slot.kills == [(ATTEMPT, "canceled")]


def test_slots_hear_that_their_task_manager_is_at_work_while_they_have_an_attempt(world: World) -> None:
    sha256 = hashlib.sha256(b"x = 1").hexdigest()
    world.storage.put_new(blob_path("j", "ac", sha256), b"x = 1")
    world.slots.beat(1)
    world.launch(modules=[{"name": "a.py", "sha256": sha256, "kind": "py"}])
    world.slots.beat(2)
    world.go()
    world.slots.beat(3)
    world.slot.start()
    world.slots.beat(4)
    world.slot.end("finished", report={"outputs": {}, "result": None})
    world.slots.beat(5)
    assert world.slot.beats == [3, 4]


def test_a_slot_that_ends_before_its_first_attempt_was_prepared_touches_no_folder_of_its_own(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt had no folder yet, and what was kept and then deleted was the folder that the TaskManager was started in."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "precious").write_text("data")
    monkeypatch.chdir(own)
    world.slot.ready()
    world.launch(modules=[{"name": "a.py", "sha256": "0" * 64, "kind": "py"}])
    world.slot.gone()
    gone = infrastructure("the slot's process ended with -9")
    assert world.told() == [READY, ended("failed", error=gone), SlotReplacing(slot=0, reason="its process ended with -9")]
    world.go()
    assert (own / "precious").read_text() == "data"


def test_a_spec_that_makes_no_sense_fails_its_attempt_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who launches is the loop of the whole TaskManager."""

    def refused(path: str) -> Path:
        raise ValueError("no path")

    monkeypatch.setattr(world.storage, "local", refused)
    world.launch()
    assert ended("failed", error=infrastructure("ValueError: no path")) in world.told()


def test_an_attempt_that_is_killed_before_its_slot_took_it_leaves_the_slot_ready(world: World) -> None:
    world.launch()
    world.go()
    world.slots.kill(KillAttempt(slot=0, attempt=ATTEMPT, why="canceled"))
    assert [type(each) for each in world.told()] == [AttemptEnded, SlotReady]


def test_a_slot_whose_process_ends_fails_its_attempt_and_is_started_again(world: World) -> None:
    world.launch()
    world.go()
    world.slot.start()
    world.slot.gone(-9)
    assert world.told()[1:] == [
        ended("failed", error=infrastructure("the slot's process ended with -9")),
        SlotReplacing(slot=0, reason="its process ended with -9"),
    ]
    ((seconds, again),) = world.timers
    assert seconds == 1.0
    again()
    assert len(world.made) == 2
    world.slot.ready()
    assert world.told() == [READY]


def test_an_attempt_that_is_launched_while_there_is_no_process_fails(world: World) -> None:
    world.slot.gone(1)
    world.launch()
    world.go()
    end = world.told()[1]
    assert end == ended("failed", error=infrastructure("the slot's process is being started again"))


def test_a_broken_slot_is_tried_again_later(world: World) -> None:
    world.slot.break_()
    assert world.told() == [SlotBroken(slot=0, reason="no disk Free some space.")]
    ((seconds, again),) = world.timers
    assert seconds == 60.0
    again()
    assert len(world.made) == 2


def test_a_slot_whose_process_never_becomes_ready_is_broken_and_says_why(world: World) -> None:
    """It was started again each second, for ever, and its jobs waited for slots that were said to start."""
    said: list[Any] = []
    for number in range(1, 4):
        world.slot.gone(1, "Traceback ...\nImportError: numpy is of another Python")
        said += world.told()
        assert world.timers[-1][0] == (1.0 if number < 3 else 60.0)
        world.timers[-1][1]()
    assert [type(each) for each in said] == [SlotReplacing, SlotReplacing, SlotBroken]
    assert said[-1].reason.startswith("Its process ended 3 times before it was ready, the last time with 1: Traceback")
    assert said[-1].reason.endswith("ImportError: numpy is of another Python")


def test_a_slot_that_was_ready_between_its_ends_is_not_broken(world: World) -> None:
    for _ in range(5):
        world.slot.ready()
        world.slot.gone(-9)
        world.timers[-1][1]()
    assert not any(isinstance(each, SlotBroken) for each in world.told())


def test_a_slot_whose_process_cannot_even_be_started_is_broken(tmp_path: Path, world: World) -> None:
    world.slot.gone(1)
    world.told()
    world.fail = FileNotFoundError(2, "No such file or directory", "/no/python")
    world.timers.pop()[1]()
    (broken,) = world.told()
    assert broken.reason.startswith("its process cannot be started: ")
    assert world.timers[0][0] == 60.0


def test_an_own_jvm_of_an_attempt_replaces_nothing(world: World) -> None:
    world.slot.replace("settings of its own", ATTEMPT)
    world.slot.replace("old")
    assert world.told() == [SlotReplacing(slot=0, reason="old")]


def test_a_slot_whose_jvm_made_way_for_an_attempts_own_is_not_ready_when_that_does_not_start(world: World) -> None:
    world.launch()
    world.slot.replace("settings of its own", ATTEMPT)
    world.slot.end("failed", error={"kind": "jvm"})
    assert [type(each) for each in world.told()] == [AttemptEnded], "its own JVM is started anew, and is ready then"
    world.launch("j/0-t/0/2")
    world.slots.kill(KillAttempt(slot=0, attempt="j/0-t/0/2", why="canceled"))
    assert [type(each) for each in world.told()] == [AttemptEnded, SlotReady]


def test_closing_ends_the_slots_and_starts_none_again(world: World) -> None:
    world.slots.close(5)
    assert world.slot.closed and world.timers == [] and world.told() == []


def test_a_start_clears_what_an_earlier_process_left(tmp_path: Path) -> None:
    left = tmp_path / "tm/attempts/0-1"
    left.mkdir(parents=True)
    World(tmp_path)
    assert not left.exists()


def test_what_an_attempt_made_read_only_is_no_other_jobs(of_no_root: Path) -> None:
    """It outlived its attempt, and the first one of the next process worked beside it and stored it as its own."""
    world = World(of_no_root)
    world.launch()
    made = Path(world.slot.dirs[0], "of-a-job")
    made.mkdir()
    (made / "customers.csv").write_text("secret")
    made.chmod(0o555)
    world.slot.start()
    world.slot.end("failed", error={"kind": "user"})
    world.go()
    assert not made.parent.exists()


def test_what_cannot_be_removed_is_in_no_way_of_the_next_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a folder that a script made as another user."""

    def not_ours(path: str, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr("os.rmdir", not_ours)
    monkeypatch.setattr("os.unlink", not_ours)
    world.launch()
    Path(world.slot.dirs[0], "customers.csv").write_text("secret")
    world.slot.start()
    world.slot.end("failed", error={"kind": "user"})
    world.go()
    after = World(world.folder)
    after.launch("j/0-t/0/2")
    after.slot.start()
    after.slot.end("finished", report={})
    end = next(fact for fact in after.told() if isinstance(fact, AttemptEnded))
    assert end.report.json_value() == {} and list(Path(after.slot.dirs[0]).iterdir()) == []


def test_files_that_an_attempt_left_are_told_with_its_end(world: World) -> None:
    world.slot.ready()
    given = infrastructure("x")
    ends: list[tuple[str, dict[str, Any]]] = [("finished", {"report": {"files": "forged"}}), ("failed", {"error": given.json_value()})]
    for number, (status, more) in enumerate(ends, 1):
        attempt = f"j/0-t/0/{number}"
        world.launch(attempt)
        world.go()
        Path(world.slot.dirs[0], "marker.txt").write_text("done")
        world.slot.start()
        world.slot.end(status, **more)
        world.slot.ready()
        end = next(fact for fact in world.told() if isinstance(fact, AttemptEnded))
        if status == "finished":
            assert end.report.json_value() == {"files": {"kept": 1, "bytes": 4, "left_out": 0}}
        else:
            assert end.error.json_value() == {**given.json_value(), "files_kept": 1, "files_left_out": 0}
        assert world.storage.get(f"results/ac/{attempt}/files/marker.txt") == b"done"


def test_uploaded_variables_reach_the_slot_and_nothing_that_lasts(world: World) -> None:
    content = json.dumps({"env": {"TOKEN": "hush"}, "salt": "s"}).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    world.storage.put_new(blob_path("j", "ac", sha256), content)
    world.slot.ready()
    world.launch(modules=[{"name": "environment", "sha256": sha256, "kind": "env"}], env={"TOKEN": "public", "A": "1"})
    world.go()
    assert world.slot.spec["env"] == {"TOKEN": "hush", "A": "1"}
    assert not any(b"hush" in path.read_bytes() for path in (world.folder / "tm").rglob("*") if path.is_file())
    assert "hush" not in str(world.told())


def test_variables_that_are_damaged_fail_the_attempt_without_telling_them(world: World) -> None:
    content = b'{"env": {"TOKEN": ["hush"]}, "salt": "s"}'
    sha256 = hashlib.sha256(content).hexdigest()
    world.storage.put_new(blob_path("j", "ac", sha256), content)
    world.slot.ready()
    world.launch(modules=[{"name": "environment", "sha256": sha256, "kind": "env"}])
    world.go()
    end = next(fact for fact in world.told() if isinstance(fact, AttemptEnded))
    assert end.status == "failed" and "hush" not in str(end) and "holds no environment variables" in end.error.message
