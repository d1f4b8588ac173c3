"""Hosts of slots: starting, refusing to, ending; JVMs of their own; a Spark cluster elsewhere."""

from __future__ import annotations

import io
import os
import queue
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from services.task_manager.slot.client import SlotProcess, end_left_over
from services.task_manager.slot.common.config import SlotConfig
from services.task_manager.slot.common.jvm import find_java
from services.task_manager.slot.host.archive import make_now
from tests.conftest import stop_another
from tests.slot.lifecycle import FIRST_TIER, PATIENCE_S, SESSION, Slot, archive_of, below, jvm_of, lives, wait_until
from tests.slot.standalone import standalone

pytestmark = pytest.mark.timeout(600)
SLEEPS = "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '3600'])\nprint('begun', flush=True)\ntime.sleep(3600)"


def events_of(config: SlotConfig) -> list[dict]:
    """What a host says until it is gone."""
    events: queue.Queue[dict] = queue.Queue()
    SlotProcess(config, events.put)
    found = []
    while not found or found[-1]["is"] != "gone":
        found.append(events.get(timeout=PATIENCE_S))
    return found


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_a_slot_without_java_says_what_to_install(tmp_path: Path) -> None:
    config = SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=sys.executable, java_home=str(tmp_path / "none"))
    assert events_of(config) == [
        {
            "is": "broken",
            "reason": f"There is no Java at {tmp_path}/none/bin/java.",
            "hint": "Install a Java runtime, version 17 or newer, and put it on PATH or name it in JAVA_HOME.",
        },
        {"is": "gone", "code": 0, "log_tail": ""},
    ]


def test_a_slot_with_an_old_java_says_so(tmp_path: Path) -> None:
    java = script(tmp_path / "bin" / "java", "#!/bin/sh\nexit 1\n")
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="11.0.2"\n')
    config = SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=sys.executable, java_home=str(tmp_path))
    broken = events_of(config)[0]
    assert (broken["is"], broken["reason"]) == ("broken", f"{java} is Java 11; Spark needs 17 or newer.")


def test_a_slot_whose_python_has_no_pyspark_says_what_to_do(tmp_path: Path) -> None:
    python = script(tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    broken = events_of(SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=python))[0]
    assert broken["is"] == "broken"
    assert "has no PySpark" in broken["reason"]
    assert "pip install 'pyspark~=4.2.0'" in broken["hint"]
    assert "millrace up --python" in broken["hint"]


def test_a_slot_whose_pyspark_is_of_another_version_says_so(tmp_path: Path) -> None:
    config = SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=sys.executable, pyspark_version="3.5")
    broken = events_of(config)[0]
    assert f"has PySpark {pyspark.__version__}; this release needs 3.5" in broken["reason"]


def test_a_slot_whose_python_is_not_there_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SlotProcess(SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=str(tmp_path / "none")), print)


def test_a_slot_whose_folder_cannot_be_made_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        SlotProcess(SlotConfig(slot="s", folder=str(tmp_path / "file" / "slot"), python=sys.executable), print)


def test_a_slot_that_cannot_write_to_its_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "jvm.log").touch()
    (tmp_path / "jvm.log.1").mkdir()
    broken, gone = events_of(SlotConfig(slot="s", folder=str(tmp_path), python=sys.executable))
    assert broken["reason"].startswith(f"The slot cannot use its folder {tmp_path}: ")
    assert broken["hint"].startswith("Free space")
    assert gone == {"is": "gone", "code": 0, "log_tail": ""}


@pytest.mark.long
def test_a_slot_whose_settings_keep_spark_from_starting_is_broken(tmp_path: Path, archives: str) -> None:
    folder = str(tmp_path / "slot")
    events = events_of(
        SlotConfig(slot="s", folder=folder, python=sys.executable, heap_mb=256, archive_folder=archives)
    )
    assert [event["is"] for event in events] == ["replacing", "broken", "gone"]
    assert "System memory" in events[1]["reason"]
    assert events[1]["hint"] == f"The JVM's log is {tmp_path}/slot/jvm.log."


def reasons(slot: Slot) -> list[str]:
    return [event["reason"] for event in slot.seen if event["is"] == "replacing"]


def test_static_settings_and_jars_get_a_jvm_of_their_own(slot: Slot) -> None:
    slot.seen.clear()
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("of/mine.txt", "x")
    find = "str(sc._jvm.java.lang.Thread.currentThread().getContextClassLoader().getResource('of/mine.txt'))[-21:]"
    conf = {"spark.default.parallelism": "5", "spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "4"}
    code = f"""
        heap = sc._jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20
        [sc.defaultParallelism, 600 < heap < 710, spark.conf.get("spark.sql.shuffle.partitions"), {find}, sc._jsc.sc().appName()]
        """
    expected = [5, True, "4", "mine.jar!/of/mine.txt", "job-1: script"]
    assert slot.value(code, conf=conf, files={"mine.jar": jar.getvalue()}) == expected
    seen = [event["is"] for event in slot.seen if event["is"] != "progress"]  # which comes where it takes long
    assert seen == ["replacing", "running", "ended", "replacing", "ready"]
    assert slot.seen[0]["attempt"] == slot.seen[1]["attempt"]
    assert reasons(slot) == [
        "the attempt needs Spark settings of its own: spark.default.parallelism, spark.driver.memory, "
        "spark.jars",
        "back to the slot's own Spark settings",
    ]
    assert slot.value(f"[sc.defaultParallelism, sc._conf.get('spark.default.parallelism'), {find}]") == [2, None, "None"]


def test_static_settings_that_spark_refuses_fail_the_attempt(slot: Slot) -> None:
    attempt = slot.run("print('never')", conf={"spark.driver.memory": "a banana"})
    assert attempt.ended["status"] == "failed"
    assert attempt.ended["error"]["kind"] == "jvm"
    error = attempt.ended["error"]
    assert error["message"].startswith("Spark does not start with the settings spark.driver.memory: ")
    assert "banana" in error["message"]
    assert attempt.stderr == error["detail"]


@pytest.mark.long
def test_an_attempt_is_killed_while_its_own_jvm_starts(slot: Slot) -> None:
    attempt = slot.start("print('never')", conf={"spark.default.parallelism": "3"})
    slot.until("replacing")
    slot.kill(attempt, "too slow")
    assert slot.end(attempt).ended["status"] == "killed"


@pytest.mark.long
def test_an_idle_jvm_that_is_killed_is_replaced_by_one_that_uses_the_archive_of_classes(slot: Slot) -> None:
    archive = archive_of(slot.config).path  # archives of other flags lie beside it
    assert archive is not None
    wait_until(lambda: os.path.exists(archive), "an archive was made")
    jvm = jvm_of(slot)
    os.kill(jvm, signal.SIGKILL)
    assert "signal 9" in slot.until("replacing")["reason"]
    slot.until("ready")
    assert jvm_of(slot) != jvm
    assert archive in Path(f"/proc/{jvm_of(slot)}/maps").read_text()


def test_an_archive_is_one_for_all_that_it_fits_and_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def path(*options: str) -> str | None:
        return archive_of(SlotConfig(slot="s", folder="/s", python="p", java_options=options, archive_folder=str(tmp_path))).path

    made: list[str] = []

    def make(path: str, *_: object) -> None:
        made.append(path)
        Path(path).touch()

    monkeypatch.setattr("services.task_manager.slot.host.archive._make", make)
    said: list[str] = []
    for _ in range(2):
        make_now(str(tmp_path), said.append)
    assert made == [path(*SlotConfig.java_options)] == [path(*FIRST_TIER)] and len(said) == 1
    assert path("-XX:-UseCompressedOops") not in made, "its classes lie otherwise"


def test_a_broken_archive_is_no_harm_and_no_noise(tmp_path: Path) -> None:
    config = SlotConfig(slot="s", folder=str(tmp_path), python=sys.executable, archive_folder=str(tmp_path / "archives"))
    archive = archive_of(config)
    assert archive.options() == []
    assert archive.path is not None
    Path(archive.path).parent.mkdir()
    Path(archive.path).write_bytes(b"no archive at all")
    command = [find_java(None), *config.java_options, *archive.options(), "-version"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert (told.returncode, told.stdout) == (0, "")
    assert "archive" not in told.stderr


@pytest.mark.long
@pytest.mark.parametrize("stopped", [False, True])
def test_the_end_of_the_taskmanager_ends_everything(stopped: bool, tmp_path: Path, archives: str) -> None:
    """A host that is stopped ends when it is woken."""
    code = f"""
import sys
from pathlib import Path
from tests.slot.lifecycle import Slot, below, wait_until
slot = Slot(Path({str(tmp_path / "slot")!r}), archive_folder={archives!r})
slot.until("ready")
attempt = slot.start({SLEEPS!r})
slot.until("running")
wait_until(lambda: "begun" in attempt.stdout, "the script began")
print(slot.process.pid, *[process.pid for process in below(slot.process.pid)], flush=True)
sys.stdin.read()
"""
    manager = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert manager.stdout is not None
        pids = [int(pid) for pid in manager.stdout.readline().split()]
        assert len([pid for pid in pids if lives(pid)]) >= 6, "host, JVM, control process, attempt, its child, Python daemon"
        if stopped:
            stop_another(psutil.Process(pids[0]))
    finally:
        manager.kill()
        manager.communicate()
    if stopped:
        assert lives(pids[0])
        os.kill(pids[0], signal.SIGCONT)
    wait_until(lambda: not any(map(lives, pids)), "all have ended")


def test_what_a_stopped_host_has_left_is_ended_by_the_next_taskmanager(tmp_path: Path) -> None:
    """Its attempt went on for as long as it was stopped, beside the one that took its place."""
    host = script(tmp_path / "python", f"#!/bin/sh\nsleep 3600 &\necho $! > {tmp_path}/child\nkill -STOP $$\n")
    code = f"""
import sys
from services.task_manager.slot.client import SlotProcess
from services.task_manager.slot.common.config import SlotConfig
print(SlotProcess(SlotConfig(slot="0", folder={str(tmp_path / "slots" / "0")!r}, python={host!r}), print).pid, flush=True)
sys.stdin.read()
"""
    manager = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert manager.stdout is not None
        pid = int(manager.stdout.readline())
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "the host is stopped")
    finally:
        manager.kill()
        manager.communicate()
    pids = [pid, int((tmp_path / "child").read_text())]
    assert all(map(lives, pids))
    end_left_over(tmp_path / "slots")
    assert not any(map(lives, pids)) and list((tmp_path / "slots").glob("*/*.marker")) == []
    end_left_over(tmp_path / "none")


@pytest.mark.long
def test_a_host_that_does_not_read_holds_up_nobody_a_jvm_that_hangs_is_replaced_and_a_killed_host_leaves_nothing(
    tmp_path: Path, archives: str
) -> None:
    slot = Slot(tmp_path / "slot", archive_folder=archives, quiet_ms=500)
    for _ in range(100_000):  # far more than a pipe holds, while the host starts and reads nothing
        slot.process.beat(600_000)
    slot.until("ready")
    attempt = slot.start("import time; time.sleep(3600)")
    slot.until("running")
    jvm = jvm_of(slot)
    stop_another(psutil.Process(jvm))
    slot.kill(attempt, "it hangs")
    assert slot.until("ended")["status"] == "killed"
    assert not lives(jvm)
    assert slot.until("replacing")["reason"] == "it does not answer"
    slot.until("ready")
    attempt = slot.start(SLEEPS)
    slot.until("running")
    wait_until(lambda: "begun" in attempt.stdout, "the script began")
    pids = [slot.process.pid, *(process.pid for process in below(slot.process.pid))]
    assert len(pids) >= 6
    os.kill(slot.process.pid, signal.SIGKILL)
    assert slot.until_gone() == -signal.SIGKILL
    assert not any(map(lives, pids))
    slot.process.order({"do": "kill", "attempt": "late", "why": ""})  # must not raise


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone Spark cluster with one worker of two cores."""
    with standalone(tmp_path) as spark:
        yield spark.url


@pytest.mark.long
def test_a_slot_on_a_standalone_cluster(cluster: str, tmp_path: Path, archives: str) -> None:
    conf = {"spark.executor.memory": "512m", "spark.cores.max": "2"}
    slot = Slot(tmp_path / "slot", master=cluster, conf=conf, archive_folder=archives)
    try:
        slot.until("ready")
        assert slot.value("[sc.master, spark.range(10).count(), sc.range(4).map(lambda x: x * 2).sum()]") == [cluster, 10, 12]
        begun = tmp_path / "begun"
        attempt = slot.start(
            SESSION + f"def stuck(x):\n    open({str(begun)!r}, 'w').close()\n    while True: pass\n"
            "sc.parallelize([1, 2], 2).map(stuck).collect()"
        )
        slot.until("running")
        wait_until(begun.exists, "the script began")
        slot.kill(attempt, "enough")
        assert slot.end(attempt).ended["status"] == "killed"
        assert slot.value("sc.range(4).map(lambda x: x * 2).sum()") == 12
        assert reasons(slot) == [], "modules alone are no reason for a new JVM"
        slot.seen.clear()
        (tmp_path / "mine.txt").write_text("x")
        read = "lambda _: open(__import__('pyspark').SparkFiles.get('mine.txt')).read()"
        assert slot.value(f"sc.addFile({str(tmp_path / 'mine.txt')!r})\nsc.parallelize([0], 1).map({read}).first()") == "x"
        assert reasons(slot) == ["a file was sent to the executors"]
    finally:
        slot.close()


def test_a_host_that_is_killed_while_it_speaks_is_told_to_be_gone(tmp_path: Path) -> None:
    python = script(tmp_path / "python", '#!/bin/sh\nprintf \'{"is": "ready"}\\n{"is": "ended", "rep\'\nkill -9 $$\n')
    events = events_of(SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=python))
    assert events == [{"is": "ready"}, {"is": "gone", "code": -signal.SIGKILL, "log_tail": ""}]


def test_a_host_is_heard_also_behind_what_a_script_around_its_python_prints(tmp_path: Path) -> None:
    python = script(tmp_path / "python", f'#!/bin/sh\necho Loading python\necho 3\nexec {sys.executable} "$@"\n')
    events = events_of(SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=python, java_home=str(tmp_path / "none")))
    assert [event["is"] for event in events] == ["broken", "gone"]


def test_folders_that_cannot_be_made_fail_their_attempt_and_not_the_slot(slot: Slot) -> None:
    (slot.folder / f"attempt-{slot._count + 1}").write_text("a file stands where the attempt's folders belong")
    error = slot.run("print('never')").ended["error"]
    assert (error["kind"], error["retryable"]) == ("infrastructure", True)
    assert "folders cannot be made ready" in error["message"]
    assert slot.value("1 + 1") == 2


@pytest.mark.parametrize("conf", [{}, {"spark.driver.memory": "a banana"}], ids=["warm", "own"])
def test_nothing_of_an_attempt_is_written_below_the_place_of_a_missing_mount(slot: Slot, conf: dict[str, str]) -> None:
    slot.mark = str(slot.folder / "storage/owner.json")
    try:
        attempt = slot.start("print('never')", conf=conf)
        ended = slot.until("ended")
    finally:
        slot.mark = ""
    slot.until("ready")
    assert ended["status"] == "failed" and not attempt.log.exists()
    if not conf:
        assert ended["error"]["condition"] == "NOT_WRITABLE" and "it has no owner.json" in ended["error"]["message"]
    assert slot.value("1 + 1") == 2


def test_a_jar_whose_name_no_file_can_have_fails_its_attempt_and_not_the_slot(slot: Slot) -> None:
    attempt = slot.run("print('never')", files={"é" * 200 + ".jar": b"x"})
    assert (attempt.ended["status"], attempt.ended["error"]["kind"]) == ("failed", "user")
    assert "folders cannot be made ready" in attempt.ended["error"]["message"]
    assert slot.value("1 + 1") == 2
