"""How the JVM of a slot is found, configured and started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from . import java_text
from .conf import MASTER, is_remote
from .config import SlotConfig

JAVA_MINIMUM = 17
CWD, TEMPORARY = "cwd", "tmp"

_LOG4J = """\
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
# The first two print 8 KB for each error that the attempt reports anyway; the others warn of what is meant to be so.
_LOGGERS = {
    "SQLQueryContextLogger": "off",
    "DataFrameQueryContextLogger": "off",
    "org.apache.hadoop.util.NativeCodeLoader": "error",
    "org.apache.spark.sql.classic.SparkSession": "error",
    "org.apache.spark.util.Utils": "error",
    "org.apache.spark.api.python.PythonWorkerFactory": "error",
    "org.apache.spark.util.SparkUncaughtExceptionHandler": "off",  # of threads that are ended between attempts, and no others
}

BATCHES_TO_UDFS = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
"""Hands a UDF the batches of a Parquet or ORC scan as they are. PySpark 4.2.0 has it on, and there such a query waits for ever: an input of
a vertex is a Parquet scan wherever rows come from other attempts."""
_DEFAULTS = {
    "spark.app.name": "millrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.task.killTimeout": "0ms",
    "spark.files.overwrite": "true",
    "spark.sql.catalogImplementation": "in-memory",
    BATCHES_TO_UDFS: "false",
    # What an ended job leaves in the memory of a JVM that runs a thousand of them.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.ui.retainedDeadExecutors": "2",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.streaming.ui.retainedBatches": "10",
    "spark.cleaner.periodicGC.interval": "24h",
    # A query of six tables is 25 pieces of generated code. Spark keeps 100, so a slot that runs several queries by turns compiled
    # them over and over, and Java began with each anew.
    "spark.sql.codegen.cache.maxEntries": "1000",
}
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and executor are one process: nobody listens to these but an idle processor.
    "spark.executor.heartbeatInterval": "600s",
    "spark.network.timeout": "1800s",
}
_REMOTE = {
    # Workers of executors elsewhere cannot be killed between attempts, and would keep the modules of the last one.
    "spark.python.worker.reuse": "false",
    # Dynamic allocation gives back an executor once the driver has collected the plan whose shuffle it holds.
    "spark.cleaner.periodicGC.interval": "30min",
}


# What a JVM that cannot start prints, and Spark before there is a context: an unknown option, an exception.
_COMPLAINT = re.compile(
    r"^(?:Error occurred during initialization of VM\n|Error: |Exception in thread \"main\" (?:[\w.$]+: )?)(.+)"
    r"|^((?:Unrecognized|Invalid|Missing|Unsupported) .+)",
    re.MULTILINE,
)


class CannotStart(Exception):
    """The slot cannot be started; ``hint`` is one sentence that says what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


def find_java(java_home: str | None) -> str:
    """The path of a ``java`` of at least ``JAVA_MINIMUM``; raises CannotStart."""
    hint = f"Install a Java runtime, version {JAVA_MINIMUM} or newer, and put it on PATH or name it in JAVA_HOME."
    home = java_home or os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if not java or not os.access(java, os.X_OK):
        raise CannotStart(f"There is no Java at {java}." if java else "There is no Java on PATH.", hint)
    version = _java_version(java)
    if version is None:
        raise CannotStart(f"{java} does not print its version.", hint)
    if version < JAVA_MINIMUM:
        raise CannotStart(f"{java} is Java {version}; Spark needs {JAVA_MINIMUM} or newer.", hint)
    return java


def _java_version(java: str) -> int | None:
    release = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(java))), "release")
    try:
        with open(release) as lines:
            found = re.search(r'^JAVA_VERSION="(1\.)?(\d+)', lines.read(), re.MULTILINE)
    except OSError:
        found = None
    if found is None:
        try:
            printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r'version "(1\.)?(\d+)', printed.stderr + printed.stdout)
    return int(found.group(2)) if found else None


def find_spark(version: str) -> str:
    """SPARK_HOME of this Python's PySpark, which must be of ``version`` ("4.2"); raises CannotStart."""
    spec = find_spec("pyspark")
    hint = f"Run {sys.executable} -m pip install 'pyspark~={version}.0', or have another Python (millrace up --python)."
    if spec is None or spec.origin is None:
        raise CannotStart(f"The Python {sys.executable} has no PySpark.", hint)
    home = os.path.dirname(spec.origin)
    try:
        with open(os.path.join(home, "version.py")) as lines:
            found = re.search(r"__version__.*=\s*['\"]([^'\"]+)", lines.read())
    except OSError:
        found = None
    present = found.group(1) if found else "unknown"
    if (present + ".").startswith(version + "."):
        return home
    raise CannotStart(f"The Python {sys.executable} has PySpark {present}; this release needs {version}.", hint)


STACK = "-Xss4m"
"""Of a thread, taken as it is used. Spark plans recursively: the plan of 200 vertices in a chain is too deep for Java's own 1 MB."""


METASPACE = "-XX:MetaspaceSize=256m"
"""Below so much of classes the JVM collects no garbage on their account. Java's own limit is 21 MB, and the first job met it: all of the
heap was collected. Memory is taken as it is used."""


WAREHOUSE = "spark.sql.warehouse.dir"


def warehouse(folder: str) -> str:
    """Where warehouses lie that nobody chose."""
    return "file:" + os.path.join(folder, "warehouse")


def spark_conf(config: SlotConfig, static_conf: dict[str, str], folder: str) -> dict[str, str]:
    """The whole configuration of one JVM: ours, then the slot's, then the job's static one."""
    conf, master = dict(_DEFAULTS), static_conf.get(MASTER, config.master)
    if not is_remote(master):
        conf.update(_LOCAL)
    else:
        conf.update(_REMOTE)
        if re.match(r"spark://(127\.|localhost[:,])", master):
            conf.update({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
    conf["spark.driver.memory"] = f"{config.heap_mb}m"
    conf[WAREHOUSE] = warehouse(folder)
    conf.update(config.conf)
    conf.update(static_conf)
    conf[MASTER] = master
    return conf


def write_files(config: SlotConfig, conf: dict[str, str], folder: str, options: list[str]) -> None:
    """Writes log4j2.properties and spark.properties (readable by the owner: a configuration may hold secrets)."""
    for name in ("local", CWD, TEMPORARY):
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
    log4j = os.path.join(folder, "log4j2.properties")
    with open(log4j, "w") as file:
        file.write(_LOG4J)
        for number, (name, level) in enumerate(_LOGGERS.items()):
            file.write(f"logger.l{number}.name = {name}\nlogger.l{number}.level = {level}\n")
    java_options = [
        STACK,
        METASPACE,
        *config.java_options,
        *options,
        f"-Dlog4j2.configurationFile={Path(log4j).as_uri()}",  # it takes a list of URLs, parted by commas
        # Native libraries and folders of sessions lie here: a JVM that is killed removes none of them.
        f"-Djava.io.tmpdir={os.path.join(folder, TEMPORARY)}",
        f"-XX:OnOutOfMemoryError=/usr/bin/env touch {shlex.quote(out_of_memory_mark(folder))}",
        f"-XX:ErrorFile={folder}/hs_err.log",
        "-XX:-UsePerfData",  # a file outside this folder, which a killed JVM leaves, and 20 looks a second for who might read it
    ]
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    conf = {**conf, "spark.driver.extraJavaOptions": " ".join([*map(_quoted, java_options), theirs]).strip()}
    path = os.path.join(folder, "spark.properties")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(fd, "w", encoding="ascii") as file:
        file.write(java_text.properties(conf))


def out_of_memory_mark(folder: str) -> str:
    """A file that the JVM makes when it first runs out of memory."""
    return os.path.join(folder, "out_of_memory")


def _quoted(option: str) -> str:
    """As Spark reads it back: at spaces it parts options, and quotes and backslashes mean something to it."""
    return option if re.fullmatch(r"[^\s\"'\\]+", option) else '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def command(spark_home: str, folder: str) -> list[str]:
    """The command that starts the JVM with a Py4J gateway for Python and no Spark context yet."""
    properties = os.path.join(folder, "spark.properties")
    submit = os.path.join(spark_home, "bin", "spark-submit")
    return [submit, "--load-spark-defaults", "--properties-file", properties, "pyspark-shell"]


def environment(spark_home: str, java: str, folder: str, conn_info: str) -> dict[str, str]:
    """The environment of the JVM; ``conn_info`` is the file it will write port and secret of its gateway to."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_SUBMIT_ARGS", "SPARK_TESTING", "SPARK_REMOTE")}
    env.update(
        java_text.locale(env),
        SPARK_HOME=spark_home,
        JAVA_HOME=os.path.dirname(os.path.dirname(os.path.realpath(java))),
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
        SPARK_CONNECT_MODE="0",
        SPARK_LOCAL_DIRS=os.path.join("..", "local"),  # from the JVM's `cwd`: a list parted by commas, which a folder's name may hold
        _PYSPARK_DRIVER_CONN_INFO_PATH=conn_info,
    )
    return env


def read_conn_info(path: str) -> tuple[int, str] | None:
    """Port and secret of the gateway, or None while the JVM has not written them (it renames a complete file)."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    port, length = struct.unpack(">ii", data[:8])
    return port, data[8 : 8 + length].decode()


def exit_reason(status: int, folder: str) -> str:
    """One sentence on why the JVM ended, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        cause = " (killed, perhaps for lack of memory on the machine)" if number == 9 else ""
        return f"The slot's JVM was ended by signal {number}{cause}."
    code = os.WEXITSTATUS(status)
    if code == 52 or os.path.exists(out_of_memory_mark(folder)):
        return "The slot's JVM ran out of memory: give it more (heap per slot), or make the data per task smaller."
    return f"The slot's JVM ended with exit code {code}."


def ended_from_outside(status: int, folder: str) -> bool:
    """Whether a JVM with this wait status was ended by a signal of somebody else. One that crashed ended itself by a signal, and one that
    had run out of memory is the job's doing, whoever ends it then. It handles those that ask, and ends with 128 and the signal's number."""
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) - 128
    outside = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return number in outside and not os.path.exists(out_of_memory_mark(folder))


def complaint(log: str) -> str | None:
    """What a JVM that ended at its start complains of, on one line; None if it printed no complaint that is known."""
    found = _COMPLAINT.search(log)
    return (found.group(1) or found.group(2)).strip() if found else None
