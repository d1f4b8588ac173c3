"""A slot where Linux's own calls are not to be had, as on macOS. Emulated: its processes find no ``prctl`` and no ``/proc``, and stand on
``ps``, sessions and pipes; the JVM and Spark are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.task_manager.slot.common import platforms, procs
from tests.slot import elsewhere
from tests.slot.lifecycle import PATIENCE_S, Slot, below, lives, wait_until

pytestmark = pytest.mark.timeout(600)
ROOT = str(Path(procs.__file__).parents[3])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    return elsewhere.site(tmp_path_factory.mktemp("site"))


def run(code: str, site: str, **more: str) -> subprocess.Popen[str]:
    env = {**os.environ, **more, "PYTHONPATH": os.pathsep.join([site, ROOT, f"{ROOT}/shared"])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], env=env, **pipes, text=True, start_new_session=True)


def test_a_machine_is_known_by_what_it_has(site: str) -> None:
    code = "from services.task_manager.slot.common import procs; print(type(procs.HERE).__name__)"
    assert run(code, site).communicate(timeout=PATIENCE_S)[0] == "Elsewhere\n"
    assert isinstance(platforms.here(), platforms.Linux if sys.platform == "linux" else platforms.Elsewhere)


def test_a_child_dies_with_the_process_that_forked_it(site: str) -> None:
    code = """
import time
from services.task_manager.slot.common import procs
print(procs.fork(lambda: time.sleep(3600)), flush=True)
time.sleep(3600)
"""
    parent = run(code, site)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: not lives(child), "the child ended")


@pytest.mark.parametrize("escape", ["sh -c 'sleep {} &'", "setsid --fork sleep {}", "setsid --fork env -i sleep {}"])
def test_orphans_are_a_hosts_by_their_session_or_by_their_environment(site: str, escape: str) -> None:
    """The last one has neither: nothing on such a machine tells whose it was. It is ended here by this test."""
    name = f"3600.{os.getpid()}"
    code = f"""
import os, subprocess
from services.task_manager.slot.common import procs
procs.adopt_orphans()
spared = subprocess.Popen(["sleep", "3600"])
subprocess.run({escape.format(name)!r}, shell=True)
input()
found = [pid for pid in procs.below(os.getpid()) if pid != spared.pid]
print(*found, flush=True)
print(procs.kill_below(os.getpid(), [spared.pid]), procs.below(os.getpid()) == [spared.pid], flush=True)
procs.kill_below(os.getpid())
"""
    host = run(code, site, **{procs.MARKER: "a-host-elsewhere"})
    assert host.stdout is not None and host.stdin is not None

    def sleeping() -> list[psutil.Process]:
        return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", name]]

    wait_until(sleeping, "what was started has become the sleep")  # until then it has the environment that it will not have
    host.stdin.write("\n")
    host.stdin.flush()
    found, told = host.stdout.readline().strip(), host.stdout.readline()
    assert told == "[] True\n"
    left = sleeping()
    try:
        assert bool(found) == (not left) == ("env -i" not in escape)
    finally:
        for each in left:
            each.kill()
        host.communicate()


def test_what_a_killed_host_leaves_is_found_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procs, "HERE", platforms.Elsewhere())
    env = {**os.environ, procs.MARKER: "a-killed-host"}
    child = subprocess.Popen(["sh", "-c", "setsid sleep 3600 & echo $!; sleep 3600"], env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    escaped = int(child.stdout.readline())
    wait_until(lambda: psutil.Process(escaped).cmdline() == ["sleep", "3600"], "what left")  # while it becomes that, it has no marker
    assert set(procs.marked("a-killed-host")) >= {child.pid, escaped}
    assert procs.kill_marked("a-killed-host") == []
    assert not lives(child.pid) and not lives(escaped)


@pytest.fixture(scope="module")
def slot(site: str, archives: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slot]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", site)
        patch.setattr(procs, "HERE", platforms.Elsewhere())  # the TaskManager's side
        slot = Slot(tmp_path_factory.mktemp("slot"), archive_folder=archives)
        try:
            slot.until("ready")
            yield slot
        finally:
            slot.close()


def test_attempts_run_one_after_the_other(slot: Slot) -> None:
    hidden = "[os.path.exists('/proc/self/stat'), spark.range(3).count(), sc.parallelize([1, 2]).map(lambda x: x + 1).collect()]"
    for _ in range(2):
        assert slot.value(f"import os\n{hidden}") == [False, 3, [2, 3]]


def test_what_an_attempt_started_ends_with_it(slot: Slot) -> None:
    attempt = slot.run("""
        import json, subprocess
        one = subprocess.Popen(["sleep", "3600"]).pid
        two = int(subprocess.run("setsid sleep 3600 >&- & echo $!", shell=True, stdout=subprocess.PIPE).stdout)
        print(json.dumps([one, two]))
    """)
    assert [lives(pid) for pid in attempt.value] == [False, False]


def test_a_python_worker_that_an_attempt_used_serves_no_other(slot: Slot) -> None:
    code = "import os\nsc.parallelize([1], 1).map(lambda _: os.getpid()).first()"
    assert slot.value(code) != slot.value(code)


def test_a_kill_ends_an_attempt_and_the_slot_goes_on(slot: Slot) -> None:
    attempt = slot.start("import time\ntime.sleep(3600)")
    slot.until("running")
    slot.kill(attempt, "it was cancelled")
    assert slot.end(attempt).ended["status"] == "killed"
    assert slot.value("1 + 1") == 2


def test_all_of_a_slot_ends_with_its_host(slot: Slot) -> None:
    family = [process.pid for process in below(slot.process.pid)]
    assert len(family) > 3
    os.kill(slot.process.pid, signal.SIGKILL)
    assert slot.until_gone() == -signal.SIGKILL
    wait_until(lambda: not any(lives(pid) for pid in family), "the end of all that the slot ran")
