"""What a TaskManager is told, and what it says when it cannot work with that."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from millrace.runtime.settings import BadSettings
from services.task_manager import settings as settings_module
from services.task_manager.__main__ import main
from services.task_manager.settings import TaskManagerSettings, heap_of


def test_the_name_is_the_same_for_every_start_in_a_work_folder(tmp_path: Path) -> None:
    names = [TaskManagerSettings(work_folder=str(tmp_path / name)).name for name in ("a", "a", "b")]
    assert names[0] == names[1] != names[2]
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", names[0])
    assert TaskManagerSettings(id="one").name == "one"


def test_a_heap_with_which_spark_does_not_start_is_refused_as_a_setting(tmp_path: Path) -> None:
    """Each slot was broken, and its log alone told why."""
    assert TaskManagerSettings(id="one", work_folder=str(tmp_path), heap_mb=512).heap_mb == 512
    with pytest.raises(ValueError, match="greater than or equal to 512"):
        TaskManagerSettings(id="one", work_folder=str(tmp_path), heap_mb=511)


@pytest.mark.parametrize(("memory", "slots", "heap_mb"), [
    (16 << 30, 2, 4096), (16 << 30, 4, 2048), (7 << 30, 3, 1194), (64 << 30, 2, 4096), (1 << 30, 2, 512),
])  # fmt: skip
def test_a_heap_that_nobody_chose_is_a_share_of_half_the_memory(
    memory: int, slots: int, heap_mb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert heap_of(memory, slots) == heap_mb
    monkeypatch.setattr(settings_module, "memory_bytes", lambda: memory)
    settings = TaskManagerSettings(slots=slots)
    assert settings.slot_config(0).heap_mb == heap_mb and settings.deciding()["slots_memory_mb"] == [heap_mb] * slots
    assert TaskManagerSettings(slots=slots, heap_mb=700).slot_config(0).heap_mb == 700


def test_a_slot_whose_cores_nobody_chose_has_all_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container so many as that may use: a job that asks for more would get a slot that does not have them."""
    monkeypatch.setattr(settings_module, "usable_cores", lambda: 24)
    settings = TaskManagerSettings(slots=3)
    assert settings.slot_config(0).master == "local[*]" and settings.deciding()["slot_cores"] == 24
    few = TaskManagerSettings(slots=3, cores=2)
    assert few.slot_config(0).master == "local[2]" and few.deciding()["slot_cores"] == 2


def test_a_slot_is_told_what_the_settings_say(tmp_path: Path) -> None:
    settings = TaskManagerSettings(id="one", work_folder=str(tmp_path), cores=3, heap_mb=600, python="", log_tail_mb=0)
    config = settings.slot_config(1)
    assert (config.master, config.heap_mb, config.python) == ("local[3]", 600, sys.executable)
    assert (config.slot, config.folder) == ("one-1", str(tmp_path / "one/slots/1"))
    assert (config.log_head_bytes, config.log_tail_bytes) == (8 << 20, 0)
    remote = TaskManagerSettings(master="spark://h:7077", conf={"spark.x": "1"}, python="/p").slot_config(0)
    assert (remote.master, remote.conf, remote.python) == ("spark://h:7077", {"spark.x": "1"}, "/p")
    deciding = settings.deciding()
    assert (config.archive_folder, remote.archive_folder) == (str(tmp_path / "archives"), str(Path("data/work/archives").absolute()))
    shared = TaskManagerSettings(work_folder=str(tmp_path), class_data_folder=str(tmp_path / "all")).slot_config(0)
    assert shared.archive_folder == str(tmp_path / "all"), "several TaskManagers of a machine have one"
    assert deciding["slots_memory_mb"] == [600, 600] and deciding["allocation_timeout_ms"] == 10_000


def test_java_and_python_are_looked_for_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as bad:
        TaskManagerSettings(java_home=str(tmp_path), python=str(tmp_path / "python")).check()
    java, python = bad.value.problems
    assert java.startswith(f"There is no Java at {tmp_path}/bin/java. Install a Java runtime, version 17 or newer")
    assert python.startswith(f"The Python {tmp_path}/python cannot be started")
    assert python.endswith("Name a Python of at least 3.10 with PySpark 4.2 in the setting python.")


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "has no PySpark."),
        ("exit 0", "has no PySpark."),
        ("echo 3.5.1 True", "has PySpark 3.5.1; this release needs 4.2."),
        ("echo 4.20.0 True", "has PySpark 4.20.0; this release needs 4.2."),
        ("echo 4.2.0 False", "is older than 3.10."),
    ],
)
def test_a_python_that_does_not_fit_is_told(tmp_path: Path, script: str, said: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(BadSettings) as bad:
        TaskManagerSettings(python=str(python)).check()
    assert bad.value.problems[-1].startswith(f"The Python {python} {said}")


def test_what_fits_is_taken(tmp_path: Path) -> None:
    TaskManagerSettings(python=sys.executable).check()
    TaskManagerSettings(python="").check()
    wrapped = tmp_path / "python"
    wrapped.write_text(f'#!/bin/sh\necho Loading python\nexec {sys.executable} "$@"\n')
    wrapped.chmod(0o755)
    TaskManagerSettings(python=str(wrapped)).check()


def test_two_processes_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import fcntl

    (tmp_path / "one").mkdir()
    with open(tmp_path / "one/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code = main(["--id", "one", "--work-folder", str(tmp_path)], factory=pytest.fail)
    assert code == 2
    told = f"task-manager: Another TaskManager one runs in {tmp_path}/one: give this one another id.\n"
    assert capsys.readouterr().err == told


def test_a_work_folder_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    code = main(["--id", "one", "--work-folder", str(tmp_path / "file")], factory=pytest.fail)
    assert code == 2
    assert "cannot be written (Not a directory): name another one." in capsys.readouterr().err
