"""Mended files in the place of those that a stored graph names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from millrace.client import Invalid
from millrace.client.replacing import replaced

GRAPH = {
    "name": "n",
    "modules": [
        {"name": "a.py", "sha256": "1" * 64}, {"name": "b.py", "sha256": "2" * 64},
        {"name": "environment", "sha256": "3" * 64, "kind": "env"},
    ],
}  # fmt: skip


def test_a_file_takes_the_place_of_the_module_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_bytes(b"x = 1\n")
    sha256 = hashlib.sha256(b"x = 1\n").hexdigest()
    for content in (b"x = 1\n", tmp_path / "x.py"):
        graph, uploads = replaced(GRAPH, {"b.py": content})
        assert [module["sha256"] for module in graph["modules"]] == ["1" * 64, sha256, "3" * 64]
        assert uploads == {sha256: content}
    assert GRAPH["modules"][1]["sha256"] == "2" * 64, "the graph that was given is as it was"
    assert replaced({"name": "n"}, {}) == ({"name": "n"}, {})


@pytest.mark.parametrize("name", ["c.py", "environment"])
def test_a_file_that_the_job_has_not_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match=rf"{name} is no file of this job; there are: a\.py, b\.py"):
        replaced(GRAPH, {name: b""})
