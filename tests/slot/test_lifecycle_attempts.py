"""How attempts start and end on a real slot."""

from __future__ import annotations

import gzip
import os
import signal
from pathlib import Path

import psutil
import pytest

from millrace.core.messages.progress import AttemptProgress
from services.task_manager.slot.common.procs import NICENESS
from tests.slot.cases import each_code
from tests.slot.lifecycle import SESSION, SPENT, Slot, archive_of, below, jvm_of, wait_until

pytestmark = pytest.mark.timeout(600)


def test_a_script_runs_and_its_output_is_kept(slot: Slot) -> None:
    attempt = slot.run("""
        import os, sys
        print(spark.sql("SELECT 1 + 1 AS two").collect(), sys.argv[1:], os.environ["MILLRACE_COMMIT_KEY"])
        print("to stderr", file=sys.stderr)
        """, args=["a", "b c"])  # fmt: skip
    assert attempt.ended["status"] == "finished"
    assert attempt.ended["error"] is None
    assert attempt.ended["report"].pop("spent").keys() == SPENT
    assert attempt.ended["report"].pop("progress").keys() == AttemptProgress.model_fields.keys()
    assert attempt.ended["report"] == {"outputs": {}, "result": None}
    assert attempt.stdout == "[Row(two=2)] ['a', 'b c'] job-1/script/0\n"
    assert "to stderr" in attempt.stderr


def test_each_attempt_says_running_then_ended_then_the_slot_is_ready(slot: Slot) -> None:
    slot.seen.clear()
    attempt = slot.run("print(1)")
    assert [(event["is"], event.get("attempt")) for event in slot.seen] == [
        ("running", attempt.name),
        ("ended", attempt.name),
        ("ready", None),
    ]


def test_relative_paths_of_python_and_spark_are_the_attempts_own_folder(slot: Slot) -> None:
    attempt = slot.run("""
        spark.range(3).write.parquet("numbers")
        open("by_python", "w").write("x")
        """)
    assert attempt.ended["status"] == "finished"
    assert list((attempt.work / "numbers").glob("*.parquet"))
    assert (attempt.work / "by_python").exists()


def test_files_that_a_script_left_open_are_whole(slot: Slot) -> None:
    """As Python writes them at its end: an attempt's process ends without that."""
    attempt = slot.run("""
        import csv, gzip
        text = open("by_line.txt", "w")
        rows = csv.writer(open("rows.csv", "w", newline=""))
        packed = gzip.open("packed.gz", "wt")
        full = open("/dev/full", "w")
        full.write("no room")
        text.write("one line\\n"), rows.writerow([1, "x"]), packed.write("packed\\n")
        """)
    assert attempt.ended["status"] == "finished"
    assert (attempt.work / "by_line.txt").read_text() == "one line\n"
    assert (attempt.work / "rows.csv").read_text() == "1,x\n"
    assert gzip.decompress((attempt.work / "packed.gz").read_bytes()) == b"packed\n"
    assert "No space left on device" in attempt.stderr


@pytest.mark.long
def test_queries_that_come_by_turns_are_compiled_once(slot: Slot) -> None:
    """More of them than Spark itself keeps generated code for."""
    code = """
        timing = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
        before = timing.getCount()
        for n in range(55):  # two pieces each
            spark.range(2).selectExpr(f"id + {n}").collect()
        timing.getCount() - before
        """
    assert slot.value(code) > 100, "the least that Spark keeps"
    assert slot.value(code) == 0


def test_a_python_worker_prints_into_the_attempts_stderr(slot: Slot) -> None:
    attempt = slot.run("""
        import sys
        sc.parallelize([1], 1).map(lambda x: print("from the worker", file=sys.stderr)).collect()
        """)
    assert "from the worker" in attempt.stderr
    assert "from the worker" not in (slot.folder / "slot/jvm.log").read_text(), "which goes into a bundle, for others to see"


def test_variables_reach_the_script_and_its_python_workers_and_no_later_attempt(slot: Slot) -> None:
    code = """
        import os
        from pyspark.sql.functions import udf
        seen = [os.environ.get("ETL_ENV")]
        look = lambda _: os.environ.get("ETL_ENV")
        seen += sc.parallelize([1], 1).map(look).collect()
        seen += [row[0] for row in spark.range(1).select(udf(look)("id")).collect()]
        spark.stop()
        seen += SparkSession.builder.getOrCreate().sparkContext.parallelize([1], 1).map(look).collect()
        seen
        """
    assert slot.value(code, env={"ETL_ENV": "prod"}) == ["prod"] * 4
    assert slot.value(code) == [None] * 4


def environment(pid: str) -> bytes:
    try:
        return Path("/proc", pid, "environ").read_bytes()
    except OSError:  # it is gone, or another user's
        return b""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="nothing tells environments")
def test_no_process_that_outlives_an_attempt_has_its_variables(slot: Slot) -> None:
    """Spark starts a Python daemon with them, and keeps it: the next attempt could read /proc/PID/environ."""
    secret = f"only-for-its-own-job-{os.getpid()}"  # others may run this test here
    look = "sc.parallelize([1], 1).map(lambda _: __import__('os').environ.get('PASSWORD')).first()"
    slot.seen.clear()
    assert slot.value(look, env={"PASSWORD": secret}) == secret
    assert not [pid for pid in map(str, psutil.pids()) if secret.encode() in environment(pid)]
    assert slot.value("__import__('os').environ['PASSWORD']", env={"PASSWORD": secret}) == secret
    watching = "str(sc._jvm.org.apache.commons.lang3.ThreadUtils.getAllThreads()).count('Idle Worker Monitor')"
    wait_until(lambda: slot.value(watching) <= 1, "no thread of Spark keeps the environment of an attempt that is gone")
    assert not [event for event in slot.seen if event["is"] == "replacing"], "Python daemons had them, not the JVM: it stays"


def test_a_function_that_returns_another_type_is_named(slot: Slot) -> None:
    """In a slot the workers have no module of ours: what looks at the value goes to them whole."""
    attempt = slot.run("""
        from pyspark.sql.functions import udf
        def price(x): return "0 euros"
        spark.range(1).select(udf(price, "decimal(5,2)")("id")).collect()
        """)
    error = attempt.ended["error"]
    assert error["message"] == "TypeError: price returned '0 euros', of type str, which is no decimal(5,2), the type that it declares"
    assert (error["file"], error["line"]) == ("script.py", 6)


def test_an_exception_of_the_script_fails_the_attempt(slot: Slot) -> None:
    attempt = slot.run("raise ValueError('no such luck')")
    assert attempt.ended["status"] == "failed"
    assert attempt.ended["report"] is None
    assert attempt.ended["error"]["kind"] == "user"
    assert "no such luck" in attempt.ended["error"]["message"]
    assert "ValueError: no such luck" in attempt.stderr


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        ("import sys; sys.exit(3)", "exit", "3"),
        ("import os; os._exit(4)", "exit", "4"),
        ("import os; os._exit(0)", "exit", "0"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed", "SIGSEGV"),
        ("raise KeyboardInterrupt", "killed", "KeyboardInterrupt"),  # its own doing: no reason to move it to another slot
    ],
)
def test_a_process_that_ends_itself_fails_the_attempt(slot: Slot, code: str, kind: str, word: str) -> None:
    attempt = slot.run(code)
    assert attempt.ended["status"] == "failed"
    assert attempt.ended["error"]["kind"] == kind
    assert word in attempt.ended["error"]["message"]


@pytest.mark.parametrize("gone", ["sys.stdout.close(); sys.stderr.close()", "sys.stdout = sys.stderr = None", "os.close(1); os.close(2)"])
def test_an_attempt_that_closed_its_output_ends_as_its_code_does(slot: Slot, gone: str) -> None:
    assert slot.run(f"import os, sys\n{gone}").ended["status"] == "finished"
    attempt = slot.run(f"import os, sys\n{gone}\nraise ValueError('no such luck')")
    assert (attempt.ended["status"], attempt.ended["error"]["message"]) == ("failed", "ValueError: no such luck")


def test_threads_that_are_no_daemons_and_exit_handlers_are_waited_for(slot: Slot) -> None:
    attempt = slot.run("""
        import atexit, threading, time
        go = threading.Event()
        threading.Thread(target=lambda: (go.wait(), print(spark.range(5).count()))).start()
        threading.Timer(0.2, go.set).start()
        atexit.register(lambda: print("goodbye"))
        """)
    assert attempt.ended["status"] == "finished"
    assert attempt.stdout == "5\ngoodbye\n"


def test_what_runs_on_a_slot_is_lower_in_priority_as_a_whole(slot: Slot) -> None:
    """Where sessions share the processor, a niceness counts in its session alone: a JVM in one of its own would take a service's share."""
    attempt = slot.run("""
        import os
        jvm = sc._jvm.java.lang.ProcessHandle.current().pid()
        worker = sc.parallelize([1], 1).map(lambda x: os.getppid()).first()  # the daemon, which stays
        for pid in (os.getpid(), jvm, worker):
            print(os.getsid(pid) == os.getsid(os.getppid()), os.getpriority(os.PRIO_PROCESS, pid))
        print(os.getpgid(0) == os.getpid(), os.getpgid(jvm) == jvm)
        if os.path.exists("/proc/self/autogroup"):
            print(open("/proc/self/autogroup").read().split()[1:])
        """)
    shared = f"['nice', '{NICENESS}']\n" if os.path.exists("/proc/self/autogroup") else ""
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    assert attempt.stdout == f"True {niceness}\n" * 3 + "True True\n" + shared


AS_IN_PYTHON = {
    "a reader that went away is an error": (
        "import os\nheard, told = os.pipe()\nos.close(heard)\n"
        "try: os.write(told, b'x')\nexcept BrokenPipeError: print('nobody hears')", "nobody hears\n"
    ),
    "an event loop of its own": (
        "import asyncio\nprint(asyncio.get_event_loop().run_until_complete(asyncio.sleep(0, 'slept')))", "slept\n"
    ),
    "records that a log keeps back are written at the end": (
        "import logging.handlers, sys\nshown = logging.StreamHandler(sys.stdout)\n"
        "logging.getLogger().addHandler(logging.handlers.MemoryHandler(100, target=shown))\nlogging.warning('kept back')",
        "kept back\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("code", "printed"), AS_IN_PYTHON.values(), ids=AS_IN_PYTHON.keys())
def test_a_script_finds_a_python_that_has_just_started(slot: Slot, code: str, printed: str) -> None:
    attempt = slot.end(slot.start(code))
    assert (attempt.ended["status"], attempt.stdout) == ("finished", printed), (attempt.ended["error"], attempt.stderr)


def test_no_two_attempts_draw_the_same_numbers(slot: Slot) -> None:
    draw = "[__import__('random').random(), __import__('numpy').random.random()]"
    assert len({number for _ in range(2) for number in slot.value(draw)}) == 4


@pytest.mark.parametrize("stop", ["spark.stop()", "sc.stop()", "spark.stop(); spark.stop()"])
def test_stop_ends_the_session_only(slot: Slot, stop: str) -> None:
    application = slot.value("sc.applicationId")
    attempt = slot.run(f"spark.range(1).createTempView('v')\n{stop}\nprint('stopped')")
    assert (attempt.ended["status"], attempt.stdout) == ("finished", "stopped\n")
    assert slot.value("sc.applicationId") == application


def test_after_stop_a_script_gets_a_new_session(slot: Slot) -> None:
    assert slot.value("""
        spark.range(1).createTempView("v")
        spark.conf.set("spark.sql.shuffle.partitions", "7")
        spark.stop()
        spark = SparkSession.builder.appName("again").getOrCreate()
        [spark.range(4).count(), spark.catalog.tableExists("v"), spark.conf.get("spark.sql.shuffle.partitions") == "7"]
        """) == [4, False, False]


def test_the_first_name_of_an_application_is_what_its_script_sees(slot: Slot) -> None:
    """As in Spark: whoever asks first makes the context. The slot's own keeps its name."""
    assert slot.value("""
        spark = SparkSession.builder.getOrCreate()
        [SparkSession.builder.appName(name).getOrCreate().sparkContext.appName for name in ("first", "second")]
        """) == ["millrace", "millrace"]
    attempt = slot.end(slot.start("""
        from pyspark.sql import SparkSession
        print([SparkSession.builder.appName(name).getOrCreate().sparkContext.appName for name in ("first", "second")])
        """))  # fmt: skip
    assert attempt.stdout == "['first', 'first']\n"
    assert slot.value("[sc.appName, sc._jsc.sc().appName()]") == ["millrace", "millrace"]


def test_a_script_may_make_its_context_itself_once(slot: Slot) -> None:
    attempt = slot.end(slot.start("""
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
        sc = SparkContext("yarn", "mine", conf=SparkConf().set("spark.executor.memory", "3g"))
        print(sc.appName, sc.parallelize([1, 2]).sum(), SparkSession.builder.getOrCreate().range(2).count())
        try:
            SparkContext()
        except ValueError as error:
            print("second:", str(error)[:39])
        """))  # fmt: skip
    assert attempt.ended["status"] == "finished"
    assert attempt.stdout == "mine 3 2\nsecond: Cannot run multiple SparkContexts at on\n"
    assert "spark.master=yarn has no effect" in attempt.stderr
    assert "spark.executor.memory=3g has no effect" in attempt.stderr


def test_the_users_packages_may_have_our_names(slot: Slot) -> None:
    import io
    import zipfile

    names = ["services", "shared", "deploy", "tests", "millrace", "host", "conf", "output"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(f"{name}/__init__.py", f"who = 'the user, {name}'\n")
    assert slot.value(f"""
        import importlib
        names = {names}
        def find(name):
            import importlib
            return importlib.import_module(name).who
        [[find(name) for name in names], sc.parallelize(names, 1).map(find).collect()]
        """, files={"mine.zip": packed.getvalue()}) == [[f"the user, {name}" for name in names]] * 2  # fmt: skip


def test_an_attempt_does_not_see_the_settings_of_the_taskmanager(slot: Slot) -> None:
    assert slot.value("sorted(name for name in __import__('os').environ if name.startswith('MILLRACE_'))") == [
        "MILLRACE_ATTEMPT", "MILLRACE_COMMIT_KEY", "MILLRACE_JOB", "MILLRACE_SLOT_HOST", "MILLRACE_SUBTASK", "MILLRACE_TASK"
    ]  # fmt: skip


def test_the_gateways_secret_is_in_no_environment_and_no_command_line(slot: Slot) -> None:
    secret, children = slot.value("""
        import os, subprocess
        secret = sc._gateway.gateway_parameters.auth_token
        [secret, [subprocess.check_output(["env"], text=True), str(dict(os.environ))]]
        """)
    assert not any(secret in text for text in children)
    commands = [" ".join(process.cmdline()) for process in below(slot.process.pid)]
    assert len(commands) >= 3
    assert not any(secret in command for command in commands)


KILLED = {
    "a busy loop in Python": "print('begun', flush=True)\nwhile True: pass",
    "a sleep": "import time\nprint('begun', flush=True)\ntime.sleep(3600)",
    "a signal it ignores": """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('begun', flush=True)
time.sleep(3600)""",
    "a UDF that never returns": """
from pyspark.sql.functions import udf
@udf("long")
def stuck(x):
    open(BEGUN, "w").write("x")
    while True: pass
spark.range(2, numPartitions=2).select(stuck("id")).collect()""",
    "a pandas UDF that sleeps": """
from pyspark.sql.functions import pandas_udf
@pandas_udf("long")
def stuck(x):
    import time
    open(BEGUN, "w").write("x")
    time.sleep(3600)
spark.range(2).select(stuck("id")).collect()""",
    "a loop in the JVM": "print('begun', flush=True)\nspark.range(10**15).selectExpr('sum(id % 7)').collect()",
    "jobs that a thread starts again and again": """
import threading
def loop():
    while True:
        try: spark.range(10**15).selectExpr('sum(id % 7)').collect()
        except BaseException: pass
[threading.Thread(target=loop).start() for _ in range(3)]
print('begun', flush=True)""",
    "a child that left its session": """
import subprocess, time
subprocess.Popen(["setsid", "sh", "-c", "(setsid sleep 3600 &) ; touch " + BEGUN + "; sleep 3600"])
time.sleep(3600)""",
    "a child of a Python worker": """
def escape(x):
    import subprocess, time
    subprocess.Popen(["setsid", "sleep", "3600"])
    open(BEGUN, "w").write("x")
    time.sleep(3600)
sc.parallelize([1], 1).map(escape).collect()""",
    "a Python worker that starts others again and again": """
def escape(x):
    import subprocess
    open(BEGUN, "w").write("x")
    while True:
        subprocess.run(["setsid", "--fork", "sleep", "3600"])
sc.parallelize([1], 1).map(escape).collect()""",
    "a streaming query": """
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
query.processAllAvailable
print('begun', flush=True)
query.awaitTermination()""",
}


@each_code(KILLED, quick=(
    "a signal it ignores", "a pandas UDF that sleeps", "a loop in the JVM", "a child that left its session", "a streaming query",
))  # fmt: skip
def test_a_kill_ends_whatever_runs_and_the_next_attempt_is_unaffected(slot: Slot, code: str, tmp_path: Path) -> None:
    slot.seen.clear()
    begun = tmp_path / "begun"
    attempt = slot.start(SESSION + f"BEGUN = {str(begun)!r}\n" + code)
    slot.until("running")
    wait_until(lambda: begun.exists() or "begun" in attempt.stdout, "the script began")
    slot.kill(attempt, "the user said so")
    attempt.ended = slot.until("ended")
    assert attempt.ended["status"] == "killed"
    assert attempt.ended["error"]["kind"] == "killed"
    assert "the user said so" in attempt.ended["error"]["message"]
    sleeping = [process.pid for process in below(slot.process.pid) if process.name() in ("sleep", "sh")]
    assert sleeping == []
    slot.until("ready")
    assert slot.value("[spark.range(10).count(), sc.parallelize([1, 2], 2).map(lambda x: x + 1).sum()]") == [10, 5]
    assert [event["reason"] for event in slot.seen if event["is"] == "replacing"] == []


def test_a_kill_of_an_attempt_that_waits_for_the_slot_ends_it_unrun(slot: Slot) -> None:
    first = slot.start("print('begun', flush=True)\nimport time; time.sleep(3600)")
    slot.until("running")
    second = slot.start("print('never')")
    slot.kill(second, "changed my mind")
    ended = slot.until("ended")
    assert (ended["attempt"], ended["status"]) == (second.name, "killed")
    slot.kill(first, "and the other")
    assert slot.end(first).ended["status"] == "killed"
    assert not second.log.exists()


def test_what_a_finished_attempt_left_running_is_ended_before_the_slot_is_ready(slot: Slot) -> None:
    attempt = slot.run("""
        import subprocess, threading
        subprocess.Popen(["setsid", "sleep", "3600"])
        job = threading.Thread(target=lambda: spark.range(10**15).selectExpr("sum(id % 7)").collect(), daemon=True)
        job.start()
        while not sc.statusTracker().getActiveJobsIds(): assert job.is_alive()
        """)
    assert attempt.ended["status"] == "finished", attempt.stderr
    assert [process for process in below(slot.process.pid) if process.name() == "sleep"] == []
    assert slot.value("list(sc.statusTracker().getActiveJobsIds())") == []


def test_more_output_than_the_bound_is_cut_in_the_middle_and_never_blocks(slot: Slot) -> None:
    attempt = slot.run("""
        line = "x" * 1023 + "\\n"
        print("first")
        for _ in range(150 * 1024): print(line, end="")
        print("last")
        """)
    text = attempt.stdout
    assert attempt.ended["status"] == "finished"
    assert text.startswith("first\n")
    assert text.endswith("x\nlast\n")
    assert f"[... {150 * 1024 * 1024 + 11 - 16 * 1024 * 1024} bytes left out ...]" in text
    assert len(text) < 16 * 1024 * 1024 + 100
    assert [path.name for path in attempt.log.iterdir() if path.suffix == ".tail"] == []


def test_an_attempt_whose_jvm_is_killed_is_moved_and_the_jvm_is_replaced(slot: Slot) -> None:
    slot.seen.clear()
    archive = archive_of(slot.config).path  # archives of other flags lie beside it
    assert archive is not None
    wait_until(lambda: os.path.exists(archive), "an archive was made")
    attempt = slot.start("import time\nprint('begun', flush=True)\ntime.sleep(3600)")
    slot.until("running")
    jvm = jvm_of(slot)
    os.kill(jvm, signal.SIGKILL)
    attempt.ended = slot.until("ended")
    assert attempt.ended["status"] == "failed"
    assert attempt.ended["error"]["kind"] == "infrastructure"
    assert attempt.ended["error"]["retryable"] is True
    assert "signal 9" in attempt.ended["error"]["message"]
    assert slot.until("replacing")["reason"] == attempt.ended["error"]["message"]
    slot.until("ready")
    assert jvm_of(slot) != jvm
    assert archive in Path(f"/proc/{jvm_of(slot)}/maps").read_text()
    assert slot.value("spark.range(3).count()") == 3


def test_a_spare_process_that_is_killed_is_replaced(slot: Slot) -> None:
    forked = [process for process in below(slot.process.pid) if "host/main.py" in " ".join(process.cmdline())]
    max(forked, key=psutil.Process.create_time).kill()  # the newest; ids begin anew now and then
    slot.until("ready")
    assert slot.value("spark.range(3).count()") == 3
