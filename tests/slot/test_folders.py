"""What attempts left in a folder is removed, whatever it is."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from services.task_manager.slot.common.folders import remove, why_kept


def test_what_nobody_may_write_or_look_at_is_removed(of_no_root: Path) -> None:
    folder = of_no_root / "work"
    for name, mode in (("read-only", 0o555), ("closed", 0o000), ("inner/read-only", 0o500)):
        (folder / name / "deeper").mkdir(parents=True)
        (folder / name / "deeper/file").write_text("of a job")
        (folder / name / "deeper").chmod(mode)
        (folder / name).chmod(mode)
    (folder / "inner").chmod(0o555)
    folder.chmod(0o555)
    remove(str(folder))
    assert list(of_no_root.iterdir()) == []
    remove(str(folder))


def test_what_links_lead_to_stays_as_it_is(of_no_root: Path) -> None:
    others = of_no_root / "others"
    others.mkdir()
    (others / "file").write_text("precious")
    others.chmod(0o555)
    work = of_no_root / "work"
    work.mkdir()
    (work / "link").symlink_to(others)
    (of_no_root / "top").symlink_to(others)
    for each in (work, of_no_root / "top"):
        remove(str(each))
    assert os.listdir(of_no_root) == ["others"] and (others / "file").read_text() == "precious"
    assert stat.S_IMODE(others.stat().st_mode) == 0o555
    others.chmod(0o700)


def test_a_folder_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    deep = str(tmp_path / "work")
    for _ in range(1050):
        os.mkdir(deep)
        deep += "/d"
    remove(str(tmp_path / "work"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["d" * 250, "d", "ü" * 120])
def test_a_folder_that_has_no_path_any_more_is_removed(tmp_path: Path, name: str) -> None:
    """Who goes from folder to folder may make such ones, and no call takes their paths."""
    script = """if True:
        import os, sys
        for _ in range(10_000 // len(sys.argv[1])):
            os.mkdir(sys.argv[1])
            os.chdir(sys.argv[1])
        open("file", "w").close()
    """
    (tmp_path / "left").mkdir()
    subprocess.run([sys.executable, "-c", script, name], cwd=tmp_path / "left", check=True)
    remove(str(tmp_path / "left"))
    assert not any(tmp_path.iterdir())


def test_a_folder_that_has_no_path_any_more_and_may_not_be_written_is_removed(of_no_root: Path) -> None:
    work = of_no_root / "work"
    work.mkdir()
    back, folders = os.open(".", os.O_RDONLY), []
    os.chdir(work)
    for _ in range(60):
        os.mkdir("d" * 100)
        folders.append(os.open("d" * 100, os.O_RDONLY))
        os.fchdir(folders[-1])
    for each in reversed(folders):
        os.fchmod(each, 0o555)
        os.close(each)
    os.fchdir(back)
    os.close(back)
    assert why_kept(str(work)) == "" and not work.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="nobody else may give a file away")
def test_of_what_is_another_users_goes_what_may(of_no_root: Path) -> None:
    theirs = of_no_root / "work/theirs"
    theirs.mkdir(parents=True)
    (theirs / "file").write_text("")
    (of_no_root / "work/ours").write_text("")
    os.seteuid(0)
    os.chown(theirs, 0, 0)
    os.seteuid(65534)
    assert why_kept(str(of_no_root / "work")).startswith("[Errno 13] Permission denied: ")
    assert os.listdir(of_no_root / "work") == ["theirs"]
