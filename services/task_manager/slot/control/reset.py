"""The control process: what an attempt can leave behind in a JVM, and how each of it is taken away.

A session of its own, with its own shared state, already keeps apart: temporary views and functions, settings, the current
database, global temporary views, databases, tables, functions, the warehouse folder and the cache of queries. The rest is here.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from typing import Any

from ..common.config import MODULES_FOLDER
from ..common.folders import remove
from ..common.jvm import WAREHOUSE

# Threads that serve the gateway have the JVM's default names. A thread of the pool is renamed when its task is over.
_CONNECTION = re.compile(r"Thread\[(?:#\d+,)?(Thread-\d+),")
_TASK = re.compile(r"Thread\[(?:#\d+,)?((?:Executor task launch worker for|stream execution thread for)[^,\]]*)")
# The JVM leaves them out itself: Spark keeps hundreds, and an answer above 8 KiB takes 40 ms (two writes, and Nagle's algorithm).
_OTHERS = r"Thread\[(?!(?:#\d+,)?(?:Thread-|Executor task launch|stream execution))[^\]]*\](?:, )?"
_SET_BY_SPARK = "hive.metastore.warehouse.dir"  # for each session that has state of its own

_OBJECT = re.compile(r"o\d+\Z")


def _values(java_map: Any) -> Any:
    """The Java collection of a map's values (Py4J's own ``values`` is Python's)."""
    return java_map.__getattr__("values")()


def _items(scala_set: Any) -> Iterator[Any]:
    sequence = scala_set.toSeq()
    return (sequence.apply(at) for at in range(sequence.size()))


class Baseline:
    """What the JVM was like before any attempt; ``restore`` makes it so again.

    ``cwd``: the JVM's own. ``local``: whether tasks run in this JVM. ``scala_context``: the JVM's SparkContext.
    """

    def __init__(self, gateway: Any, jsc: Any, cwd: str) -> None:
        # Not above: a host checks that its Python has Py4J after it has imported this.
        from py4j.java_gateway import JavaObject
        from py4j.protocol import DEFAULT_JVM_ID

        jvm = gateway.jvm
        self._jvm = jvm
        self._gateway = gateway
        self._jsc = jsc
        self.scala_context = sc = jsc.sc()
        self.local = sc.isLocal()
        self._scheduler = sc.taskScheduler()
        self._tracker = jsc.statusTracker()
        # The classes are kept: to find one again by its name takes a call for each part of that.
        self._thread, self._system = jvm.java.lang.Thread, jvm.java.lang.System
        self._lists, self._maps, self._sets = jvm.java.util.ArrayList, jvm.java.util.HashMap, jvm.java.util.HashSet
        self._zones, self._locales = jvm.java.util.TimeZone, jvm.java.util.Locale
        self._sequences = jvm.scala.collection.immutable.ArraySeq
        self._utils, self._java = jvm.org.apache.spark.util.Utils, jvm.scala.jdk.javaapi.CollectionConverters
        self._texts = jvm.java.lang.StringBuilder
        self._all_threads = getattr(jvm, "org.apache.commons.lang3.ThreadUtils")  # without their stacks, which Java itself would walk
        self._other_threads = jvm.java.util.regex.Pattern.compile(_OTHERS)
        self._bus = sc.listenerBus()
        self._listeners = self._lists(self._bus.listeners())
        self._spark_conf = sc.conf()
        self._hadoop_conf = jsc.hadoopConfiguration()
        self._env = jvm.org.apache.spark.SparkEnv.get()
        self._file_server = self._env.rpcEnv().fileServer()
        self._shuffles = self._env.mapOutputTracker().shuffleStatuses()
        self._cleaner = sc.cleaner().get()
        self._loggers = jvm.org.apache.logging.log4j.LogManager.getContext(False)
        self._files = jvm.org.apache.spark.SparkFiles.getRootDirectory()
        self._local_dir = os.path.dirname(self._files)
        self._cwd = cwd
        self._none = getattr(getattr(jvm, "scala.None$"), "MODULE$")
        cache = self._field(jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem"), "CACHE", None)
        self._file_systems = self._field(cache.getClass(), "map", cache)
        server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        self._bindings = server.getGateway().getBindings().keySet()
        self._fixed_references = [key for key in self._each(self._bindings) if not _OBJECT.match(key)]
        self._view = JavaObject(DEFAULT_JVM_ID[1:], gateway._gateway_client)  # without the letter that means a reference

    def remember(self) -> None:
        """Takes the snapshot, after the first query has loaded what loads itself."""
        self._properties = self._system.getProperties().clone()
        self._hadoop = self._hadoop_conf.getPropsWithPrefix("")
        self._conf = self._settings()
        self._warehouse = self._spark_conf.get(WAREHOUSE)
        self._zone, self._locale = self._zones.getDefault(), self._locales.getDefault()
        self._single_imports = self._maps(self._view.getSingleImportsMap())
        self._star_imports = self._sets(self._view.getStarImports())
        self._level = self._loggers.getRootLogger().getLevel()
        self._logger_count = self._loggers.getConfiguration().getLoggers().size()
        self._jars = self.scala_context.addedJars().toString()
        self._own_folders, self._own_files = set(os.listdir(self._local_dir)), set(os.listdir(self._cwd))
        self._threads = set(_CONNECTION.findall(self._thread_names()))
        self._own_file_systems = self._maps(self._file_systems)

    def living(self, closely: bool = False) -> str:
        """What of an attempt runs in the JVM, or "". ``closely`` looks at stacks (50 ms) where names are not proof."""
        names = self._thread_names()
        if tasks := _TASK.findall(names):
            return str(tasks[0])
        if len(self._tracker.getActiveJobIds()):
            return "a job"
        if re.search(r"-> [1-9]", self._scheduler.runningTasksByExecutors().toString()):
            return "a task"
        connections = set(_CONNECTION.findall(names)) - self._threads
        if connections and closely and not self._serving():
            self._threads |= connections
            return ""
        return f"a call of the attempt ({len(connections)})" if connections else ""

    def _thread_names(self) -> str:
        text = self._texts().append(self._all_threads.getAllThreads())
        return str(self._other_threads.matcher(text).replaceAll(""))

    def _serving(self) -> bool:
        """Whether a thread other than ours executes a command that came over the gateway."""
        stacks = _values(self._thread.getAllStackTraces()).toArray()
        traces = self._jvm.java.util.Arrays.deepToString(stacks).split("], [")
        return any("py4j.commands." in t and "Thread.getAllStackTraces" not in t for t in traces)

    def stop_streams(self, queries: Any) -> None:
        """Stops the streaming queries of a session."""
        for query in self._each(_values(queries)):
            query.stop()

    def restore(self) -> str | None:
        """Clears what the last attempt left; a reason to replace the JVM instead, or None. The JVM must be quiet."""
        sc = self.scala_context
        if sc.isStopped():
            return "the Spark context was stopped"
        if sc.addedJars().toString() != self._jars:
            return "a jar was added"
        if not self.local and not all(name.startswith(MODULES_FOLDER) for name in self._added()):
            # Executors keep what they were sent. The names of modules are an attempt's own, so these do no harm.
            return "a file was sent to the executors"
        self._bindings.retainAll(self._java.asJava(self._utils.stringToSeq(",".join(self._own_references()))))
        self.clear_storage()
        self._restore_files()
        self._restore_settings()
        self._close_file_systems()
        self._restore_logging()
        for listener in self._others(self._bus.listeners(), self._listeners):
            self._bus.removeListener(listener)
        return None

    def _own_references(self) -> list[str]:
        """The ids of the Java objects that this process uses; all others belong to processes that are gone."""
        from py4j.finalizer import ThreadSafeFinalizer

        gc.collect()  # objects in reference cycles would be kept as ours
        own = re.escape(f"{self._gateway._gateway_client.address}{self._gateway._gateway_client.port}")
        keys = list(ThreadSafeFinalizer.finalizers)
        return [*self._fixed_references, *(re.sub("^" + own, "", key) for key in keys)]

    def _others(self, collection: Any, known: Any) -> Iterator[Any]:
        rest = self._lists(collection)
        rest.removeAll(known)
        return self._each(rest)

    def _each(self, collection: Any) -> Iterator[Any]:
        """The elements of a Java collection. Py4J's own iteration ends with an exception, which PySpark makes readable by 70 calls."""
        listed = self._lists(collection)
        for at in range(listed.size()):
            yield listed.get(at)

    def clear_storage(self) -> None:
        """Drops cached data, shuffle files and the checkpoint folder. Nothing may run in the JVM."""
        cached = self._jsc.getPersistentRDDs()
        if cached.size():
            for rdd in self._each(_values(cached)):
                rdd.unpersist(False)
        shuffles = self._shuffles.keys().mkString(",")
        for number in filter(None, shuffles.split(",")):
            self._cleaner.doCleanupShuffle(int(number), False)
        getattr(self.scala_context, "checkpointDir_$eq")(self._none)

    def forget_daemons(self) -> None:
        """Spark's Python daemons are its own no more: the next function starts one. Nothing may run in the JVM. Raises what Py4J does.

        Spark gives no way to it, so its table is taken as it lies. The thread that each entry has would stay for ever, and with it the
        environment of an attempt that is gone: it waits, and ends when it is interrupted.
        """
        daemons = self._field(self._env.getClass(), "pythonWorkers", self._env)
        watched = set()
        for pair in _items(daemons):
            pair._2().stop()
            watched.add(f"Idle Worker Monitor for {pair._1().pythonExec()}")
        daemons.clear()
        silent = getattr(self._jvm, "org.apache.spark.util.SparkUncaughtExceptionHandler")(False)
        for name in sorted(watched):
            for thread in self._each(self._all_threads.findThreadsByName(name)):
                thread.setUncaughtExceptionHandler(silent)
                thread.interrupt()

    def _close_file_systems(self) -> None:
        """Those that Hadoop keeps: whoever opens `s3a://bucket` next would get the attempt's, with its keys. What it was to delete at the
        JVM's end goes now. Hadoop itself closes all of them or none, and the slot's own event log may be written to one."""
        if not self._file_systems.equals(self._own_file_systems):
            opened = self._maps(self._file_systems)
            opened.entrySet().removeAll(self._own_file_systems.entrySet())
            for each in self._each(_values(opened)):
                each.close()

    @staticmethod
    def _field(of: Any, name: str, where: Any) -> Any:
        """The value of a field of the Java class ``of`` that is not public."""
        field = of.getDeclaredField(name)
        field.setAccessible(True)
        return field.get(where)

    def _added(self) -> list[str]:
        """The names of the files and archives that were added to the context."""
        sc = self.scala_context
        uris = sc.listFiles().mkString("\n").split("\n") + sc.listArchives().mkString("\n").split("\n")
        return [uri.rpartition("/")[2] for uri in uris if uri]

    def _restore_files(self) -> None:
        """Those that were added, and those that Python workers wrote by relative paths: where they lie, workers look first for modules.
        Raises OSError where one stays."""
        if not self.local:
            for name in self._added():
                self._file_server.removeFile(name)
        self.scala_context.addedArchives().clear()
        self.scala_context.addedFiles().clear()
        for folder, kept in ((self._files, ()), (self._local_dir, self._own_folders), (self._cwd, self._own_files)):
            for name in os.listdir(folder):
                if name not in kept:
                    remove(os.path.join(folder, name))

    def _restore_settings(self) -> None:
        if not self._system.getProperties().equals(self._properties):
            self._system.setProperties(self._properties.clone())
        self._zones.setDefault(self._zone)
        self._locales.setDefault(self._locale)
        self._restore_imports()
        self._spark_conf.set(WAREHOUSE, self._warehouse)  # Spark sets it for each session that has state of its own
        settings = self._settings()
        if not settings.equals(self._conf):
            for pair in _items(settings.diff(self._conf)):
                self._spark_conf.remove(pair._1())
            for pair in _items(self._conf.diff(settings)):
                self._spark_conf.set(pair._1(), pair._2())
        if (warehouse := self._hadoop.get(_SET_BY_SPARK)) is not None:
            self._hadoop_conf.set(_SET_BY_SPARK, warehouse)
        now = self._hadoop_conf.getPropsWithPrefix("")
        if not now.equals(self._hadoop):
            for key in self._others(now.keySet(), self._hadoop.keySet()):
                self._hadoop_conf.unset(key)
            changed = self._maps(self._hadoop)
            changed.entrySet().removeAll(now.entrySet())
            for key in self._each(changed.keySet()):
                self._hadoop_conf.set(key, changed[key])

    def _restore_logging(self) -> None:
        if self._loggers.getConfiguration().getLoggers().size() != self._logger_count:
            self._loggers.reconfigure()
        if not self._loggers.getRootLogger().getLevel().equals(self._level):
            self._jvm.org.apache.logging.log4j.core.config.Configurator.setRootLevel(self._level)

    def _restore_imports(self) -> None:
        """The names that Python may use for Java's classes: a connection's imports are seen by all that come after it."""
        view = self._view
        if view.getSingleImportsMap().equals(self._single_imports) and view.getStarImports().equals(self._star_imports):
            return
        view.clearImports()
        for name in self._each(_values(self._single_imports)):
            view.addSingleImport(name)
        for name in self._each(self._star_imports):
            view.addStarImport(f"{name}.*")

    def _settings(self) -> Any:
        """The settings of the context: a Scala set of pairs. (Their text leaves out what looks like a secret.)"""
        return self._sequences.unsafeWrapArray(self._spark_conf.getAll()).toSet()
