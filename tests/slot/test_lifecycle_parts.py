"""The parts of a slot's lifecycle that need no Spark."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from millrace.edge.spark_conf import MASTER_RULE
from services.task_manager.slot import client, wire
from services.task_manager.slot.client import parse_event
from services.task_manager.slot.common import faults, jvm, left, platforms, procs
from services.task_manager.slot.common.conf import classify_conf
from services.task_manager.slot.common.config import SlotConfig
from services.task_manager.slot.host import driver, looks
from services.task_manager.slot.host.children import Child, ChildLost, Children
from services.task_manager.slot.host.driver import DriverLost
from services.task_manager.slot.host.output import CappedLog, Pipe
from tests.slot.lifecycle import PATIENCE_S, lives, wait_until


@pytest.mark.parametrize("message", ["m", "m" * (2 * left.ERROR_FILE_BYTES_MAX)], ids=len)
def test_a_fault_can_be_passed_on_however_long_its_message_is(message: str, tmp_path: Path) -> None:
    fault = faults.fault("user", message)
    (tmp_path / "error.json").write_text(json.dumps(fault))
    assert left.error(str(tmp_path)) == fault
    assert message.startswith(fault["message"].removesuffix("..."))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ([], b""),
        ([b"abc"], b"abc"),
        ([b"abcd", b"efghij"], b"abcdefghij"),
        ([b"abcdefghij", b"k"], b"abcd\n[... 1 bytes left out ...]\nfghijk"),
        ([b"abcd", b"efgh", b"ijkl", b"mn"], b"abcd\n[... 4 bytes left out ...]\nijklmn"),
        ([b"x" * 100 + b"123456"], b"xxxx\n[... 96 bytes left out ...]\n123456"),
        ([b"x" * 7, b"y" * 30, b"ab", b"cdefg"], b"xxxx\n[... 34 bytes left out ...]\nbcdefg"),
    ],
)
def test_a_capped_log_keeps_the_first_and_the_last_bytes(tmp_path: Path, written: list[bytes], kept: bytes) -> None:
    log = CappedLog(str(tmp_path / "log"), head=4, tail=6)
    for data in written:
        log.write(data)
    assert (tmp_path / "log").exists() == bool(written)
    assert not written or (tmp_path / "log").stat().st_size <= 4
    log.close()
    log.close()
    log.write(b"late")
    assert (tmp_path / "log").read_bytes() == kept
    assert os.listdir(tmp_path) == ["log"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_costs_output_and_is_noted(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    log = CappedLog(str(tmp_path / "log"), head=4, tail=6)
    log.write(b"abcdefghijklmnop")
    log.close()
    assert log.failed is not None
    assert log.failed.errno == 28


def test_a_pipe_passes_on_what_is_there_and_tells_its_end() -> None:
    got: list[bytes] = []
    pipe = Pipe(got.append)
    try:
        assert pipe.pump()
        os.write(pipe.fd_in, b"abc")
        assert pipe.pump()
        os.write(pipe.fd_in, b"def")
        pipe.close_in()
        assert not pipe.pump()
        assert got == [b"abc", b"def"]
    finally:
        pipe.close()


def test_a_tree_is_killed_with_those_that_left_their_session_and_the_spared_live() -> None:
    code = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from services.task_manager.slot.common import procs
import os
import queue
procs.adopt_orphans()
spared = subprocess.Popen(["sh", "-c", "sleep 3600 & wait"])
escaped = subprocess.Popen(["sh", "-c", "setsid sleep 3600 & exit"])
escaped.wait()
while len(procs.below(os.getpid())) < 3: pass
assert procs.kill_below(os.getpid(), [spared.pid]) == []
left = procs.below(os.getpid())
assert left[0] == spared.pid and len(left) == 2, left
assert procs.kill_below(os.getpid()) == []
print("done")
"""
    root = str(Path(procs.__file__).parents[3])
    done = subprocess.run([sys.executable, "-c", code, root], capture_output=True, text=True, timeout=180, check=False)
    assert done.stdout == "done\n", done.stderr


def test_what_was_started_below_a_host_is_found_by_its_marker() -> None:
    env = {**os.environ, procs.MARKER: "the-marker-of-this-test"}
    child = subprocess.Popen(["sh", "-c", "setsid sleep 3600 & echo $!; sleep 3600"], env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    escaped = int(child.stdout.readline())
    wait_until(lambda: psutil.Process(escaped).cmdline() == ["sleep", "3600"], "what left")  # while it becomes that, it has no marker
    assert set(procs.marked("the-marker-of-this-test")) >= {child.pid, escaped}
    assert procs.kill_marked("the-marker-of-this-test") == []
    assert not lives(child.pid)
    assert not lives(escaped)


def test_a_session_is_lowered_when_it_is_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "autogroup"
    monkeypatch.setattr(platforms, "AUTOGROUP", str(group))
    assert procs.lower_session(), "a Linux without them asks for nothing"
    group.touch()
    answers = [BlockingIOError(), PermissionError()]

    def write(fd: int, data: bytes) -> int:
        raise answers.pop(0)

    with monkeypatch.context() as refused:
        refused.setattr(os, "write", write)
        assert not procs.lower_session(), "another session was lowered a moment ago"
        assert procs.lower_session(), "who may not is not asked again"
    assert procs.lower_session() and group.read_text() == str(procs.NICENESS)


def test_a_child_dies_with_the_process_that_forked_it() -> None:
    code = """
import sys, time
sys.path.insert(0, sys.argv[1])
from services.task_manager.slot.common import procs
print(procs.fork(lambda: time.sleep(3600)), flush=True)
time.sleep(3600)
"""
    root = str(Path(procs.__file__).parents[3])
    parent = subprocess.Popen([sys.executable, "-c", code, root], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert lives(child)
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    wait_until(lambda: not lives(child), "the child ended")


def test_settings_of_a_job_are_runtime_static_or_refused_with_the_reason() -> None:
    runtime, static, refused = classify_conf(
        {
            "spark.app.name": "mine",
            "spark.sql.shuffle.partitions": "3",
            "spark.sql.catalog.lake": "org.example.Catalog",
            "spark.sql.extensions": "org.example.Extensions",
            "spark.driver.memory": "4g",
            "spark.jars.packages": "org.example:it:1",
            "spark.hadoop.fs.s3a.access.key": "x",
            "spark.submit.deployMode": "cluster",
            "spark.master": "local-cluster[2,1,512]",
            "spark.app.id": "7",
            "hive.metastore.uris": "thrift://x",
            "spark.x y": "1",
            "spark.x": "a\0b",
        }
    )
    assert list(runtime) == ["spark.app.name", "spark.sql.shuffle.partitions", "spark.sql.catalog.lake"]
    assert list(static) == [
        "spark.sql.extensions", "spark.driver.memory", "spark.jars.packages", "spark.hadoop.fs.s3a.access.key"
    ]  # fmt: skip
    assert refused == {
        "spark.submit.deployMode": "the driver always runs in a slot of the cluster",
        "spark.master": f"'local-cluster[2,1,512]' is no master: {MASTER_RULE}",
        "spark.app.id": "Spark gives it",
        "hive.metastore.uris": "Spark settings are called spark.something",
        "spark.x y": "Spark settings are called spark.something",
        "spark.x": "its value holds a NUL character",
    }


def test_the_jvm_of_a_job_with_a_master_listens_where_its_executors_are(tmp_path: Path) -> None:
    config = SlotConfig(slot="s", folder=str(tmp_path), python="/p", master="local[2]", conf={"spark.authenticate": "true"})
    own = jvm.spark_conf(config, {}, "/f")
    assert (own["spark.master"], own["spark.driver.host"], own["spark.network.timeout"]) == ("local[2]", "127.0.0.1", "1800s")
    here = jvm.spark_conf(config, {"spark.master": "spark://127.0.0.1:7077"}, "/f")
    there = jvm.spark_conf(config, {"spark.master": "spark://host:7077"}, "/f")
    assert (here["spark.driver.host"], "spark.driver.host" in there) == ("127.0.0.1", False)
    for conf in (here, there):
        assert not {"spark.network.timeout", "spark.executor.heartbeatInterval"} & conf.keys(), "a lost executor is to be noticed"
        assert (conf["spark.driver.memory"], conf["spark.authenticate"]) == ("1024m", "true")


def test_a_configuration_survives_the_way_to_the_host() -> None:
    config = SlotConfig(slot="s", folder="/f", python="/p", conf={"spark.x": "1"}, java_options=("-Xa", "-Xb"))
    assert SlotConfig.from_json(config.to_json()) == config


def test_a_text_of_a_users_error_that_is_no_unicode_is_heard_as_unicode() -> None:
    line = br'{"is": "ended", "error": {"message": "\udc80 \ud83d\ude00 \\ud", "retryable": true}}'
    assert parse_event(line) == {"is": "ended", "error": {"message": "? \U0001f600 \\ud", "retryable": True}}


@pytest.mark.parametrize("written", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_report_that_user_code_wrote_ends_no_host(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "report.json").write_bytes(written)
    with pytest.raises(left.Unreadable, match="^its process left a report that cannot be read: it is no JSON "):
        left.report(str(tmp_path))


@pytest.mark.parametrize(("name", "most"), [("report.json", 8 << 20), ("error.json", 1 << 20)])
def test_a_file_that_is_too_large_is_not_even_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """63 MB of empty lists took 41 s of the slot's host, and as long of the TaskManager, with all its other slots."""
    (tmp_path / name).write_bytes(b"{" + b"[]," * (most // 3 + 1) + b"[]}")
    monkeypatch.setattr(left.json, "loads", None)
    with pytest.raises(left.Unreadable, match=f"it has more than {most} bytes$"):
        (left.report if name == "report.json" else left.error)(str(tmp_path))


def test_the_number_and_the_depth_of_what_is_passed_on_have_a_limit() -> None:
    many = {"outputs": {}, "more": [[]] * left.VALUES_MAX}
    deep: Any = 1
    for _ in range(left.DEPTH_MAX + 1):
        deep = [deep]
    for found in (many, {"outputs": deep}, {"result": {"rows": deep}}, {"result": {"rows": [1]}}):
        with pytest.raises(left.Unreadable, match="^its process left a report that cannot be read: "):
            left.parted(found)
    with pytest.raises(left.Unreadable, match="^the rows of its result take "):
        left.parted({"result": {"rows": [["x" * left.ROWS_BYTES_MAX]]}})
    rows = [[n] for n in range(left.VALUES_MAX)]
    report, text = left.parted({"outputs": {}, "result": {"columns": ["n"], "rows": rows}})
    assert report == {"outputs": {}, "result": {"columns": ["n"]}}, "rows are no value to whoever passes them on: they are one text"
    assert text is not None and json.loads(text) == rows


def test_a_line_that_no_host_of_ours_says_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing takes the interpreter from the TaskManager's other slots and its heartbeats."""
    monkeypatch.setattr(client, "_LINE_BYTES_MAX", 100_000)
    talking = tmp_path / "host.py"
    talking.write_text("import json, time\nprint(json.dumps({'is': 'ready', 'x': '-' * 200_000}), flush=True)\ntime.sleep(3600)\n")
    monkeypatch.setattr(client, "_HOST", str(talking))
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    process = client.SlotProcess(SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=sys.executable), events.put)
    assert events.get(timeout=PATIENCE_S) == {"is": "gone", "code": -signal.SIGKILL, "log_tail": ""}
    process.close()


def test_a_host_that_cannot_go_on_tells_its_last_words_and_its_log_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    config = SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=sys.executable)
    failing = tmp_path / "host.py"
    monkeypatch.setattr(client, "_HOST", str(failing))
    for number in range(4):
        failing.write_text(f"import sys\nsys.stderr.write('x' * 100_000)\nraise RuntimeError('failed for the {number}. time')\n")
        process = client.SlotProcess(config, events.put)
        said = events.get(timeout=PATIENCE_S)
        assert (said["is"], said["code"]) == ("gone", 1)
        assert said["log_tail"].endswith(f"RuntimeError: failed for the {number}. time") and len(said["log_tail"]) <= 4096
        process.close()
    assert sorted(path.name for path in (tmp_path / "slot").iterdir()) == ["host.log", "host.log.1"]
    assert all(path.stat().st_size < 101_000 for path in (tmp_path / "slot").iterdir())


def test_what_may_not_be_killed_is_told_and_costs_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated, for the tests may run as root: the system refuses to signal the middle one of three, as if ``sudo`` had started it."""
    killed, refused = os.kill, set()

    def kill(pid: int, signum: int) -> None:
        if pid in refused and signum:
            raise PermissionError(1, "Operation not permitted")
        killed(pid, signum)

    children = [subprocess.Popen(["sleep", "3600"]) for _ in range(3)]
    spared = [pid for pid in procs.below(os.getpid()) if pid not in {each.pid for each in children}]
    refused.add(children[1].pid)
    monkeypatch.setattr(os, "kill", kill)
    assert procs.kill_below(os.getpid(), spared) == [children[1].pid]
    assert [lives(each.pid) for each in children] == [False, True, False]
    refused.clear()
    assert procs.kill_below(os.getpid(), spared) == []


def test_what_starts_others_for_ever_leaves_none_that_is_called_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a one would be spared from then on: on a busy machine a Python worker that starts others is ended only after them."""
    started, killed = iter(range(1_000_000, 2_000_000)), []
    monkeypatch.setattr(procs, "kill", lambda pids: killed.extend(pids) or [])
    assert procs._kill_all(lambda: [next(started)], 0.01) == []
    assert next(started) == killed[-1] + 1
    assert procs._kill_all(lambda: [7, next(started)], 0.01) == [7]


def test_a_fork_asks_no_thousand_million_file_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the limit is that, and a Python or a kernel knows no close_range, each fork took minutes."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "closerange", lambda low, high: asked.append((low, high)))
    monkeypatch.setattr(os, "sysconf", lambda name: 1_000_000_000)
    procs._close_all_but([7])
    assert asked == [(3, 7), (8, procs.FILES_MOST)]


@pytest.mark.timeout(120)
def test_a_pipe_or_a_folder_that_user_code_put_in_a_files_place_holds_up_no_host(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.json")
    (tmp_path / "error.json").mkdir()
    before = psutil.Process().num_fds()
    assert left.report(str(tmp_path)) is left.error(str(tmp_path)) is None
    assert psutil.Process().num_fds() == before, "it outlives its attempts"
    os.mkfifo(tmp_path / "stdout")
    log = CappedLog(str(tmp_path / "stdout"), 4, 4)
    log.write(b"abc")
    log.close()
    assert isinstance(log.failed, OSError)


def test_the_files_of_a_jvm_hold_secrets_for_the_owner_only_and_any_character(tmp_path: Path) -> None:
    config = SlotConfig(slot="s", folder=str(tmp_path), python=sys.executable)
    jvm.write_files(config, {"spark.secret": "a=b:c#d\\e\n\u20ac \U0001f600"}, str(tmp_path), ["-Xq=with space"])
    file = tmp_path / "spark.properties"
    assert file.stat().st_mode & 0o777 == 0o600
    text = file.read_text("ascii")
    assert "spark.secret=a\\u003db\\u003ac\\u0023d\\u005ce\\u000a\\u20ac\\u0020\\ud83d\\ude00\n" in text
    assert "with\\u0020space" in text


@pytest.mark.parametrize(
    ("status", "mark", "word"),
    [(9, False, "signal 9"), (52 << 8, False, "out of memory"), (1 << 8, True, "out of memory"), (1 << 8, False, "exit code 1")],
)
def test_the_end_of_a_jvm_is_told_in_one_sentence(tmp_path: Path, status: int, mark: bool, word: str) -> None:
    if mark:
        Path(jvm.out_of_memory_mark(str(tmp_path))).touch()
    told = jvm.exit_reason(status, str(tmp_path))
    assert word in told
    assert told.count("\n") == 0


@pytest.mark.parametrize(("release", "version"), [('JAVA_VERSION="17.0.15"', 17), ('JAVA_VERSION="1.8.0_402"', 8), ("", None)])
def test_the_version_of_a_java_is_read_without_running_it(tmp_path: Path, release: str, version: int | None) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text(release + "\n")
    assert jvm._java_version(str(java)) == version


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            ':: loading settings :: url = x\nException in thread "main" java.lang.RuntimeException: [unresolved dependency: '
            "a.b#c;1: not found]\n\tat org.apache.spark.util.MavenUtils$.resolve(MavenUtils.scala:539)\n",
            "[unresolved dependency: a.b#c;1: not found]",
        ),
        ("Invalid maximum heap size: -Xmx1q\nError: Could not create the Java Virtual Machine.\n", "Invalid maximum heap size: -Xmx1q"),
        ("Unrecognized option: -nosuch\nError: Could not create the Java Virtual Machine.\n", "Unrecognized option: -nosuch"),
        (
            "Error occurred during initialization of VM\nCould not find agent library nosuch on the library path\n",
            "Could not find agent library nosuch on the library path",
        ),
        ("Error: Unrecognized option: --x\n\nUsage: spark-submit [options]\n", "Unrecognized option: --x"),
        ("WARNING: Using incubator modules: jdk.incubator.vector\n", None),
        ("", None),
    ],
)
def test_why_a_jvm_did_not_start(log: str, told: str | None) -> None:
    assert jvm.complaint(log) == told


def test_orders_to_a_host_that_does_not_read_wait_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who orders goes on: this test would never end else, for its host reads only what was all ordered before."""
    awake, hanging = tmp_path / "awake", tmp_path / "host.py"
    hanging.write_text(
        "import json, os, sys, time\n"
        f"while not os.path.exists({str(awake)!r}): time.sleep(0.01)\n"
        "for line in sys.stdin:\n"
        "    order = json.loads(line)\n"
        "    print(json.dumps({'is': order['do'], 'of': order.get('attempt'), 'bytes': len(line)}), flush=True)\n"
        "    if order['do'] == 'stop': break\n"
    )
    monkeypatch.setattr(client, "_HOST", str(hanging))
    events: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    process = client.SlotProcess(SlotConfig(slot="s", folder=str(tmp_path / "slot"), python=sys.executable), events.put)
    for name in ("a", "b", "c"):
        dirs: wire.RunDirs = {"work": "work", "log": "log", "blobs": "blobs", "findings": "findings", "mark": ""}
        process.order({"do": "run", "attempt": name, "spec": {"text": "x" * 300_000}, "dirs": dirs})
        process.order({"do": "kill", "attempt": name, "why": "why"})
    awake.touch()
    wait_until(lambda: events.qsize() >= 7, "all that was ordered")
    process.order({"do": "kill", "attempt": "a", "why": "at once, for nothing waits any more"})
    process.close()
    said = [events.get_nowait() for _ in range(events.qsize())]
    orders = [("start", None), *((do, name) for name in "abc" for do in ("run", "kill")), ("kill", "a"), ("stop", None)]
    assert [(each["is"], each.get("of")) for each in said] == [*orders, ("gone", None)]
    assert [each["bytes"] > 300_000 for each in said[:-1]] == [do == "run" for do, _ in orders]
    process.order({"do": "stop"})  # nobody is there any more


class Deaf:
    """A control process whose JVM hangs: what it is asked is never answered."""

    pid = 0

    async def ask(self, body: wire.ControlOrder, within_s: float) -> wire.ControlAnswer:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    def close(self) -> None: ...


def test_an_attempt_that_is_killed_while_a_step_of_the_warming_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no later question is asked: it would be given the answer to the one before."""
    monkeypatch.setattr(driver, "RESET_S", 0.01)

    async def kill() -> None:
        config = SlotConfig(slot="slot-1", folder=str(tmp_path), python=sys.executable)
        loop = asyncio.get_running_loop()
        slot = driver.Driver(config, cast(Children, None), str(tmp_path / "driver-1"), {})
        slot.exited, killed = loop.create_future(), loop.create_future()
        slot._control, slot._warms = cast(Child, Deaf()), True
        killed.set_result("it was cancelled")
        for question in (slot.pause(killed), slot.quiet()):
            with pytest.raises(DriverLost, match=r"^it does not answer$"):
                await asyncio.wait_for(question, 60)

    asyncio.run(kill())


def test_a_probe_that_starts_python_anew_has_as_much_time_as_the_first(tmp_path: Path) -> None:
    """After an attempt with variables. On a machine whose cores are busy its JVM was taken for one that hangs, and replaced."""

    class Answers(Deaf):
        async def ask(self, body: wire.ControlOrder, within_s: float) -> wire.ControlAnswer:
            return cast(wire.ControlAnswer, {"ok": True, "replace": None})

    async def reset() -> None:
        slot = driver.Driver(SlotConfig(slot="slot-1", folder=str(tmp_path), python=sys.executable), cast(Children, None), "", {})
        slot.exited = asyncio.get_running_loop().create_future()
        slot._control = cast(Child, Answers())
        assert slot.probe_s == driver.START_S
        for had_variables, expected in [(False, driver.RESET_S), (True, driver.START_S)]:
            slot.probe_s = driver.RESET_S  # of one that has succeeded
            await slot.reset(had_variables)
            assert slot.probe_s == expected

    asyncio.run(reset())


def test_a_control_process_that_is_lost_loses_the_jvm(tmp_path: Path) -> None:
    """It alone can prepare that for the next attempt."""

    class Ended(Deaf):
        async def ask(self, body: wire.ControlOrder, within_s: float) -> wire.ControlAnswer:
            raise ChildLost("it ended")

    async def ask() -> None:
        slot = driver.Driver(SlotConfig(slot="slot-1", folder=str(tmp_path), python=sys.executable), cast(Children, None), "", {})
        slot.exited = asyncio.get_running_loop().create_future()
        slot._control = cast(Child, Ended())
        for _ in range(2):
            with pytest.raises(DriverLost, match=r"^it ended$"):
                await slot.quiet()

    asyncio.run(ask())


def test_a_look_for_which_there_is_no_process_is_answered_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*_: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(looks, "Child", no_process)
    told: list[Any] = []

    async def scene() -> None:
        jvm: Any = SimpleNamespace(port=1, secret="", exited=asyncio.get_running_loop().create_future())
        found = looks.Looks(cast(Children, None), told.append)
        found.order({"do": "look", "question": "1", "threads": False})
        async with found.at(jvm):
            found.order({"do": "look", "question": "2", "threads": False})
        found.order({"do": "look", "question": "3", "threads": False})

    asyncio.run(scene())
    again = "its JVM is being started, or made ready for the next attempt; ask again"
    assert [(each["question"], each["no_answer"]) for each in told] == [
        ("1", again), ("2", "its JVM cannot be looked at: Resource temporarily unavailable"), ("3", again),
    ]  # fmt: skip
