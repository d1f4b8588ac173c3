"""What a process may use of its machine, by the files that Linux has of it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from millrace.runtime import machine_limits
from millrace.runtime.machine_limits import memory_bytes, usable_cores

GIB = 1 << 30
OWN = "0::/system.slice/tm.service\n"
OLD = "4:memory:/docker/ab12\n2:cpu,cpuacct:/docker/ab12\n1:name=systemd:/docker/ab12\n"


@pytest.mark.parametrize(("own", "files", "cores", "memory"), [
    pytest.param("", {}, 8, 16 * GIB, id="no control groups"),
    pytest.param("0::/\n", {"cpu.max": "max 100000", "memory.max": "max"}, 8, 16 * GIB, id="a container without a limit"),
    pytest.param("0::/\n", {"cpu.max": "150000 100000", "memory.max": str(2 * GIB)}, 2, 2 * GIB, id="a container"),
    pytest.param("0::/\n", {"cpu.max": "20000 100000", "memory.max": str(64 * GIB)}, 1, 16 * GIB, id="less than a core, more than memory"),
    pytest.param(OWN, {"system.slice/tm.service/cpu.max": "300000 100000"}, 3, 16 * GIB, id="a service"),
    pytest.param(OWN, {"system.slice/tm.service/cpu.max": "max 100000", "system.slice/cpu.max": "200000 50000",
                       "system.slice/memory.max": str(GIB)}, 4, GIB, id="what is around a service"),
    pytest.param("0::/../../outside\n", {"cpu.max": "200000 100000"}, 2, 16 * GIB, id="a group that cannot be seen"),
    pytest.param(OLD, {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000",
                       "memory/memory.limit_in_bytes": str(3 * GIB)}, 3, 3 * GIB, id="version 1, a container"),
    pytest.param(OLD, {"cpu/docker/ab12/cpu.cfs_quota_us": "50000", "cpu/docker/ab12/cpu.cfs_period_us": "50000",
                       "memory/docker/ab12/memory.limit_in_bytes": str(GIB)}, 1, GIB, id="version 1, from outside"),
    pytest.param(OLD, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000",
                       "memory/memory.limit_in_bytes": "9223372036854771712"}, 8, 16 * GIB, id="version 1, no limit"),
])  # fmt: skip
def test_the_limits_of_a_container_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str], cores: int, memory: int
) -> None:
    for name, content in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(machine_limits, "OWN", tmp_path / "own")
    monkeypatch.setattr(machine_limits, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"total": 16 * GIB}))
    assert (usable_cores(), memory_bytes()) == (cores, memory)


def test_cores_that_a_process_may_not_run_on_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_limits, "OWN", tmp_path / "none")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 24)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")  # macOS has none
    assert usable_cores() == 24
