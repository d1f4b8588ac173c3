"""Children end with their parent, whole families end, and ports are told."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from deploy.local.processes import (
    PORTS,
    cut_log,
    end_tree,
    free_port,
    is_running,
    log_tail,
    port_is_free,
    port_owner,
    put_aside,
    spawn,
)

ROOT = Path(__file__).parents[2]
SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {SLEEP}"
# A process with a child in its own session and a grandchild; prints both ids.
FAMILY = f"""
import subprocess, sys, time
middle = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); print(p.pid, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE, text=True, start_new_session=True)
print(child.pid, child.stdout.readline(), flush=True)
time.sleep(600)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def wait_for(condition, seconds: float = 120.0) -> None:
    """Polls a condition that another process makes true."""
    done = threading.Event()
    for _ in range(int(seconds * 50)):
        if condition():
            return
        done.wait(0.02)
    raise AssertionError("did not come true")


def test_output_goes_to_the_log_and_the_exit_code_is_told(tmp_path):
    child = spawn(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"), log=tmp_path / "log")
    child.popen.wait(120)
    assert child.exit_code() == 3
    assert set((tmp_path / "log").read_text().split()) == {"out", "err"}


def test_the_log_of_a_process_is_cut_while_it_runs(tmp_path):
    """They were cut at a start alone: a service that ran for months filled the disk that all share."""
    log = tmp_path / "log"
    code = f"import os, time\nwhile not os.path.exists({str(tmp_path / 'end')!r}): print('x' * 99, flush=True); time.sleep(0.0005)"
    child = spawn(python(code), log=log)
    for _ in range(3):
        wait_for(lambda: log.stat().st_size > 2_000)
        cut_log(log, most_bytes=2_000)
    (tmp_path / "end").touch()
    child.popen.wait(120)
    assert (tmp_path / "log.old").stat().st_size > 2_000
    assert b"\0" not in log.read_bytes(), "it goes on at the new end"


def test_on_a_full_disk_a_log_is_cut_without_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cut the logs ended at that, when it was needed most."""

    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"what fitted")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("deploy.local.processes.shutil.copyfile", full)
    (tmp_path / "log").write_bytes(b"x" * 3_000)
    cut_log(tmp_path / "log", most_bytes=2_000)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"log": b"", "log.old": b"what fitted"}


def test_a_child_has_a_session_of_its_own_and_exactly_our_arguments(tmp_path):
    child = spawn(python(SLEEP), log=tmp_path / "log")
    wait_for(lambda: psutil.Process(child.pid).cmdline() == python(SLEEP))
    assert os.getsid(child.pid) == child.pid
    child.stop()
    assert child.exit_code() == -signal.SIGTERM


def test_a_program_that_is_not_there(tmp_path):
    child = spawn(["/nowhere/program"], log=tmp_path / "log")
    assert child.popen.wait(120) != 0
    assert "/nowhere/program could not be run: No such file or directory" in log_tail([tmp_path / "log"])


def test_what_ignores_sigterm_is_killed(tmp_path):
    child = spawn(python(STUBBORN), log=tmp_path / "log")
    wait_for(lambda: "deaf" in (tmp_path / "log").read_text())
    child.stop(patience_s=0.2)
    assert child.exit_code() == -signal.SIGKILL


def test_the_whole_family_ends(tmp_path):
    child = spawn(python(FAMILY), log=tmp_path / "log")
    wait_for(lambda: len((tmp_path / "log").read_text().split()) == 2)
    family = [psutil.Process(int(pid)) for pid in (tmp_path / "log").read_text().split()]
    assert all(is_running(process) for process in family)
    child.stop()
    assert not any(is_running(process) for process in family)


def test_ending_what_has_ended_is_nothing(tmp_path):
    child = spawn(python("pass"), log=tmp_path / "log")
    child.popen.wait(120)
    child.stop()
    end_tree(child.pid)
    assert child.exit_code() == 0


def test_who_has_the_number_of_a_child_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    child = spawn(python("pass"), log=tmp_path / "log")
    child.popen.wait(120)
    with subprocess.Popen(python(SLEEP)) as stranger:
        child.popen.pid = stranger.pid  # as the system may give it
        child.stop(patience_s=0.1)
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                stranger.wait(0.3)
        finally:
            stranger.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_child_ends_when_its_parent_is_killed(tmp_path, number):
    code = f"""
from pathlib import Path
from deploy.local.processes import spawn
import signal, time
print(spawn({python(SLEEP)!r}, log=Path({str(tmp_path / "log")!r})).pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen(python(code), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    child = psutil.Process(int(parent.stdout.readline()))
    assert is_running(child)
    parent.send_signal(number)
    parent.wait(120)
    wait_for(lambda: not is_running(child))


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path):
    children = []
    thread = threading.Thread(target=lambda: children.append(spawn(python(STUBBORN), log=tmp_path / "log")))
    thread.start()
    thread.join()
    wait_for(lambda: "deaf" in (tmp_path / "log").read_text())
    assert children[0].exit_code() is None
    children[0].stop(patience_s=0)


def test_a_forked_process_can_spawn_too(tmp_path):
    code = f"""
import os, sys
from pathlib import Path
from deploy.local.processes import spawn
def wait_for_one(name):
    return spawn([sys.executable, "-c", "print('done')"], log=Path({str(tmp_path)!r}, name)).popen.wait(120)
wait_for_one("first")
pid = os.fork()
if pid == 0:
    os._exit(wait_for_one("second"))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run(python(code), cwd=ROOT, timeout=150, check=False).returncode == 0
    assert (tmp_path / "second").read_text() == "done\n"


def test_free_ports_differ_and_stay_out_of_the_systems_range():
    ports: list[int] = []
    for _ in range(20):
        ports.append(free_port(taken=ports))
    assert len(set(ports)) == 20
    assert all(port in PORTS for port in ports)


def test_who_has_a_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not port_is_free(port)
        assert port_owner(port) == f"{psutil.Process().name()} (process {os.getpid()})"
    assert port_is_free(port)
    assert port_owner(port) is None


def test_the_ends_of_logs(tmp_path):
    (tmp_path / "a").write_bytes(b"1\n2\n\xff3\n")
    (tmp_path / "b").write_text("x" * 100_000 + "\nlast\n")
    assert log_tail([tmp_path / "a", tmp_path / "missing"], lines=2) == "2\n\ufffd3"
    tail = log_tail([tmp_path / "b"])
    assert tail.endswith("x\nlast")
    assert len(tail) < 16_384 + 10


def test_the_log_of_a_process_that_failed_by_itself_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "dispatcher.log"
    for words, code in (("killed", -9), ("failed", 1), ("asked to end", 0), ("first", None)):
        log.write_text(words)
        put_aside(log, code)
    put_aside(log, None)  # there is none
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {
        "dispatcher.log.1": "first", "dispatcher.log.failed": "failed",
    }  # fmt: skip
