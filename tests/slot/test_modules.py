"""The uploaded files of a job, as they are put into the attempt's folder; without a Spark."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.task_manager.slot.attempt import modules


def install(tmp_path: Path, members: dict[str, str | bytes], link: bytes = tarfile.SYMTYPE) -> Path:
    """Gives an attempt a tar archive: name -> content, or where a link leads. A name that ends with spaces is the one without, again."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name.rstrip())
            if isinstance(content, str):
                info.type, info.linkname = link, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    work, blobs, digest = tmp_path / "work", tmp_path / "blobs", hashlib.sha256(data.getvalue()).hexdigest()
    for folder in (work, blobs):
        folder.mkdir()
    (blobs / digest).write_bytes(data.getvalue())
    session = SimpleNamespace(sparkContext=SimpleNamespace(addArchive=lambda path: None))
    spec = {"vertices": [], "modules": [{"kind": "archive", "name": "a.tar.gz", "sha256": digest}]}
    modules.install(spec, session, SimpleNamespace(work=work, blobs=blobs))
    return work / "a.tar.gz"


def test_an_archive_is_unpacked_with_its_links(tmp_path: Path) -> None:
    unpacked = install(tmp_path, {"bin/python": "/usr/bin/python3", "lib/a": b"1", "lib/b": "a"})
    assert (unpacked / "lib" / "b").read_bytes() == b"1"
    assert str((unpacked / "bin" / "python").readlink()) == "/usr/bin/python3"


FILTERED = pytest.mark.skipif(not hasattr(tarfile, "tar_filter"), reason="this Python cannot tell")


@FILTERED
@pytest.mark.parametrize("members", [{"../../out": b"1"}, {"x/../../../out": b"1"}, {"away": "../..", "away/out": b"1"}])
def test_an_archive_writes_nowhere_else(tmp_path: Path, members: dict[str, str | bytes]) -> None:
    with pytest.raises(tarfile.FilterError, match="outside the destination"):
        install(tmp_path, members)
    assert not (tmp_path / "out").exists()


@FILTERED
@pytest.mark.parametrize("away", ["../../out", "{}/out"])
def test_an_archive_writes_nowhere_else_through_a_hard_link(tmp_path: Path, away: str) -> None:
    (tmp_path / "out").write_bytes(b"0")
    with pytest.raises(tarfile.FilterError):
        install(tmp_path, {"a": away.format(tmp_path), "a ": b"1"}, tarfile.LNKTYPE)
    assert (tmp_path / "out").read_bytes() == b"0"


def test_an_archive_has_its_own_hard_links(tmp_path: Path) -> None:
    unpacked = install(tmp_path, {"a": b"1", "lib/b": "a"}, tarfile.LNKTYPE)
    assert (unpacked / "lib" / "b").read_bytes() == b"1"


@FILTERED
def test_a_whole_path_in_an_archive_is_one_below_its_folder(tmp_path: Path) -> None:
    unpacked = install(tmp_path, {f"{tmp_path}/out": b"1"})
    assert not (tmp_path / "out").exists() and (unpacked / str(tmp_path).lstrip("/") / "out").read_bytes() == b"1"
