"""What one attempt leaves behind, the next does not find, nor does one beside it: an item of the reset a test. What does not touch how a
JVM works is left by an attempt with five others."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

from services.task_manager.slot.common.conf import STATIC_SQL, is_static
from tests.slot.lifecycle import SESSION, Slot, below, wait_until

pytestmark = pytest.mark.timeout(600)

# name: (what the first attempt does, the expression that both look at, what the second must find as the first did before)
LEFT = {
    "temporary view": ("spark.range(1).createTempView('v')", "spark.catalog.tableExists('v')"),
    "global temporary view": (
        "spark.range(1).createGlobalTempView('v')",
        "spark.catalog.tableExists('global_temp.v')",
    ),
    "table and its files": (
        "spark.range(3).write.saveAsTable('t')",
        "[[t.name for t in spark.catalog.listTables()], "
        "len(__import__('glob').glob(spark.conf.get('spark.sql.warehouse.dir')[5:] + '/*'))]",
    ),
    "database": ("spark.sql('CREATE DATABASE d')", "[d.name for d in spark.catalog.listDatabases()]"),
    "current database": ("spark.sql('CREATE DATABASE d'); spark.sql('USE d')", "spark.catalog.currentDatabase()"),
    "function": (
        "spark.sql('CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1')",
        "spark.catalog.functionExists('f')",
    ),
    "temporary function": (
        "spark.udf.register('g', lambda x: x)",
        "spark.catalog.functionExists('g')",
    ),
    "SQL variable": (
        "spark.sql('DECLARE VARIABLE answer INT DEFAULT 42')",
        "__import__('re').search('42|UNRESOLVED', str(tried(lambda: spark.sql('SELECT answer').collect())))[0]",
    ),
    "session setting": (
        "spark.conf.set('spark.sql.shuffle.partitions', '3')",
        "spark.conf.get('spark.sql.shuffle.partitions')",
    ),
    "cached query": (
        "spark.range(10).cache().count()",
        "[spark.range(10).storageLevel.useMemory, sc._jsc.getPersistentRDDs().size()]",
    ),
    "persistent RDD": ("sc.range(10).persist().count()", "sc._jsc.getPersistentRDDs().size()"),
    "shuffle files": (
        "sc.range(100).map(lambda x: (x % 3, x)).reduceByKey(max).collect()",
        "len(list(jvm.org.apache.spark.SparkEnv.get().mapOutputTracker().shuffleStatuses().keys().mkString(' ').split()))",
    ),
    "checkpoint folder": ("sc.setCheckpointDir('points')", "sc._jsc.sc().checkpointDir().isDefined()"),
    "streaming query": (
        "spark.readStream.format('rate').load().writeStream.format('noop').start()",
        "'stream execution thread' in jvm.Thread.getAllStackTraces().keySet().toString()",
    ),
    "Hadoop setting": (
        "h = sc._jsc.hadoopConfiguration(); h.set('my.own', '1'); h.set('io.file.buffer.size', '7')",
        "[sc._jsc.hadoopConfiguration().get(k) for k in ('my.own', 'io.file.buffer.size')]",
    ),
    "system property": (
        "sc.setSystemProperty('my.own', '1'); sc.setSystemProperty('user.dir', '/')",
        "[jvm.System.getProperty('my.own'), jvm.System.getProperty('user.dir')]",
    ),
    "Spark setting of the context": (
        "sc._conf.set('spark.my.own', '1'); sc._conf.set('spark.app.name', 'changed')",
        "[sc.getConf().get('spark.my.own'), sc.getConf().get('spark.app.name')]",
    ),
    "time zone": (
        "jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone('Asia/Tokyo'))",
        "[jvm.java.util.TimeZone.getDefault().getID(), spark.sql('SELECT current_timezone()').first()[0]]",
    ),
    "locale": (
        "jvm.java.util.Locale.setDefault(jvm.java.util.Locale('tr', 'TR'))",
        "jvm.java.util.Locale.getDefault().toString()",
    ),
    "name of a Java class": (
        "from py4j.java_gateway import java_import; java_import(jvm, 'java.util.Stack'); java_import(jvm, 'java.util.zip.*')",
        "[type(getattr(jvm, name)).__name__ for name in ('Stack', 'CRC32', 'SparkConf')]",
    ),
    "log level": ("sc.setLogLevel('DEBUG')", "jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()"),
    "logger of its own": (
        "c = jvm.org.apache.logging.log4j; "
        "c.core.config.Configurator.setLevel('org.apache.spark.sql', getattr(c.Level, 'ALL'))",
        "jvm.org.apache.logging.log4j.LogManager.getLogger('org.apache.spark.sql').getLevel().toString()",
    ),
    "listener": (
        "sc._jsc.sc().addSparkListener(jvm.org.apache.spark.scheduler.StatsReportListener())",
        "[n for n in sc._jsc.sc().listenerBus().listeners().toString().split(', ') if 'Stats' in n]",
    ),
    "job group and description": (
        "sc.setJobGroup('mine', 'all mine'); sc.setLocalProperty('my.own', '1')",
        "[sc.getLocalProperty('spark.jobGroup.id'), sc.getLocalProperty('my.own')]",
    ),
    "environment variable": ("import os; os.environ['MY_OWN'] = '1'", "__import__('os').environ.get('MY_OWN')"),
    "added file": (
        "open('mine.txt', 'w').write('1'); sc.addFile('mine.txt')",
        "[[f for f in sc.listFiles if 'millrace' not in f], __import__('os').path.exists(SparkFiles.get('mine.txt'))]",
    ),
    "added archive": (
        "import shutil, os; os.mkdir('a'); open('a/f', 'w').close(); "
        "sc.addArchive(shutil.make_archive('mine', 'zip', 'a') + '#unpacked')",
        "[sc.listArchives, __import__('os').path.exists(SparkFiles.get('unpacked'))]",
    ),
    "module in Python workers": (
        "open('mine.py', 'w').write('x = 1'); sc.addPyFile('mine.py'); sc.range(4).map(lambda x: __import__('mine').x).sum()",
        "sc.parallelize(range(4), 4).map(lambda x: can_import('mine')).collect()",
    ),
    "state in Python workers": (
        "sc.parallelize(range(4), 4).map(lambda x: setattr(__import__('os'), 'mine', x)).collect()",
        "sc.parallelize(range(4), 4).map(lambda x: hasattr(__import__('os'), 'mine')).collect()",
    ),
    "file that a Python worker wrote": (
        "def write(_): open('of_a_worker.py', 'w').close(); __import__('os').makedirs('of/a'); __import__('os').chmod('of', 0o500)\n"
        "sc.parallelize([0], 1).foreach(write)",
        "sc.parallelize([0], 1).map(lambda _: sorted(__import__('os').listdir())).first()",
    ),
    "file system with settings": (
        "opened().close(); sc._jsc.hadoopConfiguration().set('my.token', 'hush'); opened()",
        "opened().getConf().get('my.token')",
    ),
    "accumulator": ("a = sc.accumulator(0); sc.range(9).foreach(a.add)", "spark.range(1).count()"),
}

ALONE = ("current database", "Hadoop setting", "system property", "Spark setting of the context", "time zone", "locale",
         "name of a Java class", "log level", "logger of its own")  # fmt: skip
"""Others would meet these."""
TOGETHER = 6
BESIDE = ["temporary view", "global temporary view", "table and its files", "function", "cached query", "added file", "system property",
          "Hadoop setting", "environment variable"]  # fmt: skip
"""Of each kind one: what a test in `make test` leaves beside another attempt."""

HELPERS = """
import json
from pyspark import SparkFiles
jvm = sc._jvm
for name in ("java.lang.Thread", "java.lang.System"):
    from py4j.java_gateway import java_import
    java_import(jvm, name)
def tried(f):
    try: return f()
    except Exception as error: return error
def can_import(name):
    import importlib.util
    return importlib.util.find_spec(name) is not None
def opened():
    settings = jvm.org.apache.hadoop.conf.Configuration(sc._jsc.hadoopConfiguration())
    return jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI("http://of.nobody/"), settings)
def look():
    return json.loads(json.dumps(LOOK))
"""


def groups() -> list[list[str]]:
    """The items that an attempt leaves, for each attempt."""
    together = [name for name in LEFT if name not in ALONE]
    return [together[n : n + TOGETHER] for n in range(0, len(together), TOGETHER)] + [[name] for name in ALONE]


def looking(names: list[str]) -> str:
    """Code whose `look()` is what is found of these items now."""
    return HELPERS.replace("LOOK", "{" + ", ".join(f"{name!r}: {LEFT[name][1]}" for name in names) + "}")


@pytest.fixture(scope="module")
def left(slot: Slot) -> dict[str, tuple[Any, Any, Any]]:
    """Name -> what an attempt found, what it found when it had done its work, and what the next attempt found. That one does the work of
    the next items afterwards."""
    slot.seen.clear()
    found: list[tuple[dict[str, Any], ...]] = []
    for former, names in zip([[], *groups()], [*groups(), []], strict=True):
        code = looking(former) + "former = look()\n" + looking(names) + "before = look()\n"
        code += "\n".join(LEFT[name][0] for name in names)
        found.append(tuple(slot.run(code + "\nprint(json.dumps([former, before, look()]))").value))
    assert [event["reason"] for event in slot.seen if event["is"] == "replacing"] == []
    return {name: (found[n][1][name], found[n][2][name], found[n + 1][0][name]) for n, names in enumerate(groups()) for name in names}


@pytest.mark.parametrize("name", LEFT)
def test_it_is_gone(left: dict[str, tuple[Any, Any, Any]], name: str) -> None:
    before, after, following = left[name]
    assert before != after or name == "accumulator", "the first attempt left nothing: this test would prove nothing"
    assert following == before


@pytest.mark.parametrize("names", [
    pytest.param(BESIDE, id="a few"),
    # A look itself leaves some of these.
    pytest.param([name for name in LEFT if name not in (*ALONE, "shuffle files")] + list(ALONE), id="all", marks=pytest.mark.long),
])  # fmt: skip
def test_what_an_attempt_has_and_does_shows_in_no_attempt_that_runs_beside_it(
    slot: Slot, tmp_path: Path, archives: str, names: list[str]
) -> None:
    """On two slots of one TaskManager, at once: one looks before and after the other does all of it, and that one goes on until then."""
    waits = "\nimport os, time\ndef wait(path):\n    while not os.path.exists(path): time.sleep(0.05)\n"
    begun, done, seen = (str(tmp_path / name) for name in ("begun", "done", "seen"))
    beside = Slot(tmp_path, archive_folder=archives)
    try:
        beside.until("ready")
        token = "[os.environ.get('MY_TOKEN'), sc.range(1).map(lambda _: os.environ.get('MY_TOKEN')).first()]"
        looks = f"before = look()\nopen({begun!r}, 'w')\nwait({done!r})\nafter, token = look(), {token}\nopen({seen!r}, 'w')\n"
        looking_on = beside.start(SESSION + looking(names) + waits + looks + "print(json.dumps([before, after, token]))")
        does = [LEFT[name][0] for name in names if name != "database"]  # the current one is made, too
        code = "\n".join([f"wait({begun!r})", *does, f"open({done!r}, 'w')", f"wait({seen!r})", "print(1)"])
        assert slot.run(looking([]) + waits + code, env={"MY_TOKEN": "not for others"}).value == 1
        before, after, token = beside.end(looking_on).value
    finally:
        beside.close()
    assert after == before and token == [None, None]


@pytest.mark.long
def test_a_slot_that_runs_out_of_memory_leaves_the_attempt_of_another_going_on(slot: Slot, tmp_path: Path, archives: str) -> None:
    """On two slots of one TaskManager: each has a JVM of its own, and what the one lacks is not taken from the other."""
    begun, done = tmp_path / "begun", tmp_path / "done"
    beside = Slot(tmp_path, archive_folder=archives)
    try:
        beside.until("ready")
        going_on = beside.start(SESSION + f"""
import json, os, time
rows = spark.range(1000).cache()
counts = [rows.count()]
open({str(begun)!r}, 'w').close()
while not os.path.exists({str(done)!r}): time.sleep(0.05)
print(json.dumps([*counts, rows.count(), sc.range(4).map(lambda x: x * x).sum(), sc._jsc.sc().getPersistentRDDs().size()]))
""")  # fmt: skip
        wait_until(begun.exists, "the attempt beside it began")
        slot.seen.clear()
        lost = slot.run("held = [sc._jvm.java.nio.ByteBuffer.allocate(1 << 28) for _ in range(16)]")
        assert (lost.ended["status"], lost.ended["error"]["condition"]) == ("failed", "OUT_OF_MEMORY")
        assert [each["reason"] for each in slot.seen if each["is"] == "replacing"] == ["it ran out of memory"]
        beside.seen.clear()
        done.touch()
        assert beside.end(going_on).value == [1000, 1000, 14, 1], "and what it keeps in memory is there"
        assert not [each for each in beside.seen if each["is"] == "replacing"], "nor does its JVM begin anew"
    finally:
        beside.close()
    assert slot.value("spark.range(3).count()") == 3


def test_two_attempts_may_add_different_files_of_one_name(slot: Slot, tmp_path: Path) -> None:
    for content in ("one", "two"):
        path = tmp_path / content / "same.txt"
        path.parent.mkdir()
        path.write_text(content)
        assert slot.value(f"""
            from pyspark import SparkFiles
            sc.addFile({str(path)!r})
            def read(_): return open(SparkFiles.get("same.txt")).read()
            [read(0), sc.parallelize([0], 1).map(read).first()]
            """) == [content, content]


def test_the_gateways_references_to_java_objects_do_not_grow(slot: Slot) -> None:
    count = (
        "from py4j.java_gateway import JavaObject\n"
        "bindings = JavaObject('GATEWAY_SERVER', sc._gateway._gateway_client).getGateway().getBindings()\n"
    )
    slot.value(count + "kept = [sc._jvm.java.util.ArrayList() for _ in range(500)]\nbindings.size()")
    sizes = [slot.value(count + "bindings.size()") for _ in range(6)]
    # A probe that runs at the same time holds some dozens; what an attempt holds at its end, six times, is over 300.
    assert max(sizes) < 300, sizes


def test_a_worker_that_ran_nothing_is_kept_and_one_that_did_is_not(slot: Slot) -> None:
    def workers() -> set[int]:
        daemons = [p for p in below(slot.process.pid) if "pyspark.daemon" in " ".join(p.cmdline())]
        pids = {p.pid for p in daemons}
        return {p.pid for p in daemons if p.ppid() in pids}

    slot.value("sc.parallelize(range(2), 2).map(lambda x: x).sum()")
    first = workers()
    assert first
    slot.value("spark.range(3).count()")
    assert first <= workers()  # the JVM that makes the class archive may have begun to have some, too
    used = slot.value("sc.parallelize(range(2), 2).map(lambda x: __import__('os').getpid()).collect()")
    assert workers().isdisjoint(used)


def test_folders_of_the_slot_do_not_pile_up(slot: Slot) -> None:
    def entries() -> list[str]:
        root = slot.folder / "slot"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if "blockmgr" not in str(path) and path.is_dir())

    code = "spark.range(9).write.saveAsTable('t'); sc.setCheckpointDir(sc._temp_dir)\nspark.range(3).count()"
    slot.value(code)
    before = entries()
    slot.value(code)
    assert len(entries()) == len(before)


def test_what_a_jvm_unpacks_lies_in_its_own_folder(slot: Slot) -> None:
    """Native libraries and folders of sessions: a JVM that is killed leaves them, and nobody knows whose they were."""
    folder = Path(slot.value("spark.range(9).write.parquet('x')\nsc._jvm.java.lang.System.getProperty('java.io.tmpdir')"))
    assert (slot.folder / "slot") in folder.parents
    assert [path for path in folder.iterdir() if path.suffix == ".so"], "Spark unpacks none any more: what else shows it?"
    pid = slot.value("sc._jvm.java.lang.ProcessHandle.current().pid()")
    assert not list(Path(tempfile.gettempdir()).glob(f"hsperfdata_*/{pid}"))


@pytest.mark.long
def test_a_jar_that_was_added_is_a_reason_for_a_new_jvm(slot: Slot) -> None:
    slot.seen.clear()
    jar = "__import__('glob').glob(__import__('os').path.dirname(__import__('pyspark').__file__) + '/jars/jsr305*.jar')[0]"
    slot.value(f"sc._jsc.addJar({jar})\n1")
    assert [event["reason"] for event in slot.seen if event["is"] == "replacing"] == ["a jar was added"]
    assert slot.value("sc._jsc.sc().addedJars().toString()") == slot.value("sc._jsc.sc().addedJars().toString()")


@pytest.mark.long
def test_a_context_that_was_really_stopped_is_a_reason_for_a_new_jvm(slot: Slot) -> None:
    slot.seen.clear()
    slot.run("sc._jsc.sc().stop()")
    assert [event["is"] for event in slot.seen].count("replacing") == 1
    assert slot.value("spark.range(2).count()") == 2


@pytest.mark.long
def test_memory_that_ran_out_is_a_reason_for_a_new_jvm_and_named(slot: Slot) -> None:
    slot.seen.clear()
    attempt = slot.run("spark.range(0, 1, 1, 1).selectExpr('repeat(repeat(\"x\", 1000000), 2000) AS x').selectExpr("
                       "'count(distinct x)').collect(); sc._jvm.java.nio.ByteBuffer.allocate(2000000000)")  # fmt: skip
    assert attempt.ended["status"] == "failed"
    assert [event["is"] for event in slot.seen].count("replacing") == 1
    assert slot.value("spark.range(2).count()") == 2


def test_the_static_settings_of_sql_are_those_that_spark_says_are_static(slot: Slot) -> None:
    keys = slot.value("""
        field = sc._jvm.java.lang.Class.forName("org.apache.spark.sql.internal.SQLConf$").getDeclaredField("staticConfKeys")
        field.setAccessible(True)
        getattr(sc._jvm, "org.apache.spark.sql.internal.StaticSQLConf$")
        list(field.get(None))
        """)
    assert " ".join(sorted(key for key in keys if not is_static(key))) == ""
    hive = {key for key in STATIC_SQL if key.startswith("spark.sql.hive.")}  # known only once Hive's classes are loaded
    assert " ".join(sorted(STATIC_SQL - hive - set(keys))) == ""
