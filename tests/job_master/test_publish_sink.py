"""Publication of a sink on a real folder: once, whatever is repeated, whoever is late."""

from __future__ import annotations

from pathlib import Path

from millrace.core.messages.effects import PublishSink
from millrace.io.performer import Fence
from services.job_master.ports import publish_sink

FENCE = Fence("job-master/0", 1)


def stage(folder: Path, text: str) -> str:
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_text(text)
    (folder / "_SUCCESS").write_text("")
    return str(folder)


def sink(path: Path, staged: list[str], mode: str = "overwrite", name: str = "1.2-out", life: str = "1") -> PublishSink:
    return PublishSink(job="j", vertex="out", path=str(path), mode=mode, staged=staged, name=name, life=life)  # type: ignore[arg-type]


def contents(path: Path) -> list[str]:
    return sorted(file.read_text() for file in path.rglob("*") if file.is_file())


def test_overwrite_replaces_what_stood_there_and_a_repeat_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out"
    stage(target, "old")
    effect = sink(target, [stage(tmp_path / "s0", "a"), stage(tmp_path / "s1", "b")])
    assert publish_sink(effect, FENCE).problem is None
    assert contents(target) == ["a", "b"]
    assert publish_sink(effect, FENCE).problem is None
    assert contents(target) == ["a", "b"]


def test_append_adds_and_a_later_life_of_the_same_job_replaces_only_its_own(tmp_path: Path) -> None:
    target = tmp_path / "out"
    stage(target, "old")
    (target / "_SUCCESS").unlink()
    publish_sink(sink(target, [stage(tmp_path / "s0", "a")], "append"), FENCE)
    assert contents(target) == ["a", "old"]
    publish_sink(sink(target, [stage(tmp_path / "s1", "again")], "append", life="2"), FENCE)
    assert contents(target) == ["again", "old"]


def test_mode_error_refuses_what_another_left_and_not_its_own(tmp_path: Path) -> None:
    target = tmp_path / "out"
    effect = sink(target, [stage(tmp_path / "s0", "a")], "error")
    assert publish_sink(effect, FENCE).problem is None
    assert publish_sink(effect, FENCE).problem is None
    problem = publish_sink(sink(target, [stage(tmp_path / "s1", "b")], "error", name="9.9-out"), FENCE).problem
    assert problem is not None and problem.startswith(f"{target} is there already (mode: error)")
    assert contents(target) == ["a"]


def test_a_late_repeat_leaves_a_later_jobs_files_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    first = sink(target, [stage(tmp_path / "s0", "first")])
    publish_sink(first, FENCE)
    publish_sink(sink(target, [stage(tmp_path / "s1", "second")], name="9.9-out"), FENCE)
    publish_sink(first, FENCE)
    assert contents(target) == ["second"]


def test_a_path_that_cannot_be_a_folder_is_the_jobs_problem(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    effect = sink(tmp_path / "out", [stage(tmp_path / "s0", "a")])
    assert "cannot be written as a folder" in (publish_sink(effect, FENCE).problem or "")
    elsewhere = effect.model_copy(update={"path": "nosuch://x/y"})
    assert "cannot be written as a folder" in (publish_sink(elsewhere, FENCE).problem or "")
