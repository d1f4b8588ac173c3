"""Which files of a graph are said not to be there."""

from __future__ import annotations

import glob
from pathlib import Path

import pytest

from millrace.core.jobgraph.model import JobGraph
from millrace.edge.files import check_files


def missing(*paths: str) -> list[str]:
    vertices = {f"v{n}": {"source": {"format": "csv", "path": path}} for n, path in enumerate(paths)}
    return [problem.text for problem in check_files(JobGraph.model_validate({"name": "job", "vertices": vertices}))]


def test_a_glob_names_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "day1").mkdir()
    (tmp_path / "day1" / "a.csv").write_text("1")
    there = ("day1/a.csv", "day1/*.csv", "day?/a.csv", "d*/*.csv", "day{1,2}/*.csv")
    assert missing(*(f"{tmp_path}/{each}" for each in there)) == []
    assert missing(f"{tmp_path}/day1/*.json") == [f"no such file: {tmp_path}/day1/*.json"]
    assert missing(f"{tmp_path}/day2/*/*.csv") == [f"no such file: {tmp_path}/day2/*/*.csv (there is no folder {tmp_path}/day2)"]


def test_what_only_hadoop_knows_in_a_glob_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("1")
    assert missing(f"{tmp_path}/a\\[1\\].csv", f"{tmp_path}/[^x]*.csv", f"{tmp_path}/{{a,b}}*") == []


def test_a_bracket_in_a_name_is_said_to_begin_a_pattern(tmp_path: Path) -> None:
    hint = "(Spark takes [ for the beginning of a pattern; for the character itself write \\[)"
    (tmp_path / "a[1].csv").write_text("1")
    (tmp_path / "b[1].csv").write_text("1")
    (tmp_path / "b1.csv").write_text("1")
    graph = {"name": "job", "vertices": {"v": {"source": {"format": "csv", "path": f"{tmp_path}/a[1].csv"}}}}
    [problem] = check_files(JobGraph.model_validate(graph))
    assert (problem.warning, problem.text) == (True, f"no file matches the pattern {tmp_path}/a[1].csv {hint}")
    assert missing(f"{tmp_path}/b[1].csv", f"{tmp_path}/a\\[1].csv") == []
    assert missing(f"{tmp_path}/quite/c[1].csv") == [f"no such file: {tmp_path}/quite/c[1].csv (there is no folder {tmp_path}/quite)"]
    assert missing(f"{tmp_path}/zzzzzzzzzzzzzz[1]") == [f"no such file: {tmp_path}/zzzzzzzzzzzzzz[1] {hint}"]


def test_no_glob_walks_through_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def walks(_: str) -> None:
        raise AssertionError("it would walk")

    monkeypatch.setattr(glob, "iglob", walks)
    assert missing(f"{tmp_path}/*/*/*.x", f"{tmp_path}/none/*/*.x")[0].startswith(f"no such file: {tmp_path}/none/*/*.x")
