"""Publication of a sink on a real folder: once, whatever is repeated, whoever is late."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from millrace.core.cluster import acceptance_of
from millrace.core.jobgraph.specs import sink_name
from services.job_master.ports import RECORD, publish_sink
from services.task_manager.slot.attempt.exchange_files import STAGED
from tests.job_master.sinks import contents, leads, sink, stage


def test_overwrite_replaces_what_stood_there_and_a_repeat_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    stage(target, "old")
    effect = sink(target, [stage(tmp_path / "s0", "a"), stage(tmp_path / "s1", "b")])
    assert publish_sink(effect, leads).problem is None
    assert contents(target) == ["a", "b"]
    assert publish_sink(effect, leads).problem is None
    assert contents(target) == ["a", "b"]


def test_append_adds_and_a_later_life_of_the_same_job_replaces_only_its_own(tmp_path: Path) -> None:
    target = tmp_path / "out"
    stage(target, "old")
    (target / "_SUCCESS").unlink()
    publish_sink(sink(target, [stage(tmp_path / "s0", "a")], "append"), leads)
    assert contents(target) == ["a", "old"]
    publish_sink(sink(target, [stage(tmp_path / "s1", "again")], "append", life="2"), leads)
    assert contents(target) == ["again", "old"]


def test_mode_error_refuses_what_another_left_and_not_its_own(tmp_path: Path) -> None:
    target = tmp_path / "out"
    effect = sink(target, [stage(tmp_path / "s0", "a")], "error")
    assert publish_sink(effect, leads).problem is None
    assert publish_sink(effect, leads).problem is None
    problem = publish_sink(sink(target, [stage(tmp_path / "s1", "b")], "error", name="9.9-out"), leads).problem
    assert problem is not None and problem.startswith(f"{target} is there already (mode: error)")
    assert contents(target) == ["a"]


def test_a_late_repeat_leaves_a_later_jobs_files_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    first = sink(target, [stage(tmp_path / "s0", "first")])
    publish_sink(first, leads)
    publish_sink(sink(target, [stage(tmp_path / "s1", "second")], name="9.9-out"), leads)
    publish_sink(first, leads)
    assert contents(target) == ["second"]


def test_a_path_that_cannot_be_a_folder_is_the_jobs_problem(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    effect = sink(tmp_path / "out", [stage(tmp_path / "s0", "a")])
    assert "cannot be written as a folder" in (publish_sink(effect, leads).problem or "")
    elsewhere = effect.model_copy(update={"path": "nosuch://x/y"})
    assert "cannot be written as a folder" in (publish_sink(elsewhere, leads).problem or "")


def test_a_repeat_goes_on_as_it_began_whoever_wrote_to_the_path_meanwhile(tmp_path: Path) -> None:
    """It was published, and the JobMaster died before that was known; a job of another shard appended there and FINISHED."""
    for mode in ("error", "overwrite", "append"):
        target = tmp_path / mode / "out"
        effect = sink(target, [stage(tmp_path / mode / "s0", "a")], mode)
        publish_sink(effect, leads)
        publish_sink(sink(target, [stage(tmp_path / mode / "s1", "b")], "append", name="9.9-out"), leads)
        assert publish_sink(effect, leads).problem is None
        assert contents(target) == ["a", "b"]


def test_who_comes_when_the_job_has_ended_touches_nothing(tmp_path: Path) -> None:
    """A leader that was stopped before it published wakes: its successor has, what was staged is deleted, and another job appended."""
    for mode in ("error", "overwrite", "append"):
        target = tmp_path / mode / "out"
        effect = sink(target, [stage(tmp_path / mode / "s0", "a")], mode)
        publish_sink(effect, leads)
        shutil.rmtree(tmp_path / mode / "s0")
        publish_sink(sink(target, [stage(tmp_path / mode / "s1", "b")], "append", name="9.9-out"), leads)
        publish_sink(effect, leads)
        assert contents(target) == ["a", "b"]
        assert not (tmp_path / mode / "s0").exists()


def test_of_two_that_overwrite_each_other_and_one_repeats_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second has seen the first one's files and moved its own; the first is repeated before the second deletes."""
    target = tmp_path / "out"
    first = sink(target, [stage(tmp_path / "s0", "first")])
    publish_sink(first, leads)
    remove = LocalFileSystem.rm_file

    def repeated_now(fs: LocalFileSystem, path: str) -> None:
        monkeypatch.setattr(LocalFileSystem, "rm_file", remove)
        publish_sink(first, leads)
        fs.rm_file(path)

    monkeypatch.setattr(LocalFileSystem, "rm_file", repeated_now)
    publish_sink(sink(target, [stage(tmp_path / "s1", "second")], name="9.9-out"), leads)
    assert contents(target) == ["second"]


def test_two_jobs_that_overwrite_one_path_at_the_same_moment_may_both_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two shards: those of one publish to a path one after the other. Never is the output of neither there."""
    target = tmp_path / "out"
    stage(target, "old")
    move = LocalFileSystem.mv

    def another_comes(fs: LocalFileSystem, path1: str, path2: str) -> None:
        monkeypatch.setattr(LocalFileSystem, "mv", move)
        publish_sink(sink(target, [stage(tmp_path / "s1", "second")], name="9.9-out"), leads)
        fs.mv(path1, path2)

    monkeypatch.setattr(LocalFileSystem, "mv", another_comes)
    publish_sink(sink(target, [stage(tmp_path / "s0", "first")]), leads)
    assert contents(target) == ["first", "second"]


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_what_was_half_published_when_another_job_overwrote_the_path_does_not_mix_with_it(
    moves: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    effect = sink(target, [stage(tmp_path / "s0", "a"), stage(tmp_path / "s1", "b")])
    move, left = LocalFileSystem.mv, [None] * moves

    def killed(fs: LocalFileSystem, path1: str, path2: str) -> None:
        if path2.startswith(str(target)) and not left:
            raise OSError("killed here")
        if path2.startswith(str(target)):
            left.pop()
        move(fs, path1, path2)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "mv", killed)
        with pytest.raises(OSError, match="killed here") if moves < 2 else contextlib.nullcontext():
            publish_sink(effect, leads)
    publish_sink(sink(target, [stage(tmp_path / "s2", "later")], name="9.9-out"), leads)
    publish_sink(effect, leads)
    assert contents(target) == (["later"] if moves else ["a", "b"])


def test_what_was_staged_and_is_not_there_is_the_jobs_problem(tmp_path: Path) -> None:
    """The JobMaster has another disk under this path than the TaskManager, or may not look into it, or somebody deleted there: the job
    FINISHED, and its rows were nowhere."""
    target = tmp_path / "out"
    stage(target, "old")
    (tmp_path / "empty").mkdir()
    for lost in ("elsewhere", "empty"):
        problem = publish_sink(sink(target, [stage(tmp_path / f"s {lost}", "a"), str(tmp_path / lost)]), leads).problem or ""
        assert problem.startswith(f"what was written to {tmp_path / lost} for {target} is not there")
        assert contents(target) == ["", "old"]


@pytest.mark.parametrize("mode", ["error", "overwrite", "append"])
def test_a_single_staged_file_that_is_gone_is_missed_and_nothing_is_replaced(mode: str, tmp_path: Path) -> None:
    """A cleaner, a rule of the storage, a user: the job FINISHED without the rows of that file, and those that it replaced were gone."""
    target = tmp_path / "out"
    if mode != "error":
        stage(target, "old")
    before = contents(target)
    effect = sink(target, [stage(tmp_path / "s0", "a"), stage(tmp_path / "s1", "b", "c", "d")], mode)
    (tmp_path / "s1/part-1.parquet").unlink()
    problem = publish_sink(effect, leads).problem or ""
    assert problem.startswith(f"of 3 files that were written to {tmp_path / 's1'} for {target} only 2 are there")
    assert contents(target) == before and contents(tmp_path / "s1") == ["", "b", "d"]


def test_what_a_build_before_staged_has_no_note_and_is_published_as_it_is(tmp_path: Path) -> None:
    effect = sink(tmp_path / "out", [stage(tmp_path / "s0", "a", "b")])
    (tmp_path / f"s0/{STAGED}2").unlink()
    assert publish_sink(effect, leads).problem is None
    assert contents(tmp_path / "out") == ["a", "b"]


def test_what_a_try_before_has_moved_is_not_missed_when_its_record_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, move = tmp_path / "out", LocalFileSystem.mv
    effect = sink(target, [stage(tmp_path / "s0", "a"), stage(tmp_path / "s1", "b", "c")], "append")

    def killed(fs: LocalFileSystem, path1: str, path2: str) -> None:
        if path1.endswith("s1/part-1.parquet"):
            raise OSError("killed here")
        move(fs, path1, path2)

    with monkeypatch.context() as patched:
        patched.setattr(LocalFileSystem, "mv", killed)
        with pytest.raises(OSError, match="killed here"):
            publish_sink(effect, leads)
    (tmp_path / "s0" / RECORD).unlink()
    (tmp_path / "s1/part-0.parquet").write_text("b")  # of a store where a file is moved by a copy, which came first
    assert publish_sink(effect, leads).problem is None
    assert contents(target) == ["a", "b", "c"]


def test_a_job_that_fails_while_it_publishes_leaves_nothing_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    effect = sink(target, [stage(tmp_path / "s0", "a"), stage(tmp_path / "s1", "b")], "append")
    move = LocalFileSystem.mv

    def refused(fs: LocalFileSystem, path1: str, path2: str) -> None:
        if "/s1/" in path1:
            raise PermissionError(13, "Permission denied", path1)
        move(fs, path1, path2)

    monkeypatch.setattr(LocalFileSystem, "mv", refused)
    assert "cannot be written as a folder" in (publish_sink(effect, leads).problem or "")
    assert contents(target) == []


def test_what_may_not_be_deleted_costs_nobody_the_new_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    stage(target, "old")
    (target / "_SUCCESS").unlink()

    def refused(fs: LocalFileSystem, path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(LocalFileSystem, "rm_file", refused)
    assert "Permission denied" in (publish_sink(sink(target, [stage(tmp_path / "s0", "new")]), leads).problem or "")
    assert contents(target) == ["new", "old"]


@pytest.mark.parametrize("what", [errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP])
def test_what_no_repeat_can_mend_is_the_jobs_problem(what: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose sinks are being published cannot be canceled: it would go on for ever."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(what, os.strerror(what))

    effect = sink(tmp_path / "out", [stage(tmp_path / "s0", "a")])
    monkeypatch.setattr(LocalFileSystem, "makedirs", refused)
    assert os.strerror(what) in (publish_sink(effect, leads).problem or "")
    what = errno.ENOSPC  # somebody will make room
    with pytest.raises(OSError, match="No space"):
        publish_sink(effect, leads)


def test_names_that_look_like_patterns_mean_themselves_alone_on_any_file_system() -> None:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for name in ("a[1]", "a*", "a?", "ab"):
        memory.pipe_file(f"/d/.{name}.staging/0/part-0", name.encode())
        memory.pipe_file(f"/d/{name}/old", b"old")
    for name in ("a[1]", "a*", "a?"):
        effect = sink(Path("x"), [f"memory://d/.{name}.staging/0"]).model_copy(update={"path": f"memory://d/{name}"})
        assert publish_sink(effect, leads).problem is None
        [published] = memory.find(f"/d/{name}")
        assert memory.cat_file(published) == name.encode()
    assert memory.cat_file("/d/ab/old") == b"old"
    assert memory.cat_file("/d/.ab.staging/0/part-0") == b"ab"
    memory.store.clear()


@pytest.mark.parametrize(
    ("mode", "problem", "left"),
    [("error", "is there already", ["Monday"]), ("overwrite", "", ["Tuesday"]), ("append", "", ["Monday", "Tuesday"])],
)
def test_the_same_offset_of_two_clusters_is_two_jobs_in_every_mode(mode: str, problem: str, left: list[str], tmp_path: Path) -> None:
    """A fresh stack over old sinks: offsets begin at 0, and the first job was accepted as 1.10 again."""
    target, said = tmp_path / "out", ""
    for day, cluster in (("Monday", "a" * 32), ("Tuesday", "b" * 32)):
        name = sink_name(acceptance_of(cluster, "1.10"), "out")
        said = publish_sink(sink(target, [stage(tmp_path / day, day)], mode, name=name), leads).problem or ""
    assert contents(target) == left
    assert problem in said and bool(said) == bool(problem)


class Leads(Exception):
    """Raised in place of Refused."""


def another_leads() -> None:
    raise Leads


@pytest.mark.parametrize("refused", [False, True])
def test_who_leads_no_more_deletes_nothing_that_its_successor_has_published(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped while it published; its successor did it all; then it goes on, and is refused, or deletes what was to be replaced."""
    target = tmp_path / "out"
    stage(target, "old")
    (target / "_SUCCESS").unlink()
    effect = sink(target, [stage(tmp_path / "s0", "new")])
    move = LocalFileSystem.mv

    def woken(fs: LocalFileSystem, path1: str, path2: str) -> None:
        move(fs, path1, path2)
        if refused and path2.startswith(str(target)):
            raise PermissionError(13, "Permission denied", path1)

    monkeypatch.setattr(LocalFileSystem, "mv", woken)
    asked: list[None] = []

    def still_leads_at_first() -> None:
        asked.append(None)
        if len(asked) > 1:
            another_leads()

    with pytest.raises(Leads):
        publish_sink(effect, still_leads_at_first)
    assert contents(target) == ["new", "old"]


def test_who_leads_no_more_puts_no_rows_beside_those_of_a_later_life(tmp_path: Path) -> None:
    """It was stopped before its first move; the job ran again in a later life, whose rows are published; then it goes on."""
    with pytest.raises(Leads):
        publish_sink(sink(tmp_path / "out", [stage(tmp_path / "s0", "earlier")], "append"), another_leads)
    assert not (tmp_path / "out").exists() or contents(tmp_path / "out") == []
