"""What an attempt can leave behind in a JVM, and how each of it is taken away.

A session of its own, with its own shared state, already keeps apart: temporary views and functions, settings, the current
database, global temporary views, databases, tables, functions, the warehouse folder and the cache of queries. The rest is here.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
from collections.abc import Iterator
from typing import Any

from ..common.config import MODULES_FOLDER

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


class Baseline:
    """What the JVM was like before any attempt; ``restore`` makes it so again.

    ``local``: whether tasks run in this JVM. ``scala_context``: the JVM's SparkContext.
    """

    def __init__(self, gateway: Any, jsc: Any) -> None:
        # Not above: a host checks that its Python has Py4J after it has imported this.
        from py4j.java_gateway import JavaObject

        jvm = gateway.jvm
        self._jvm = jvm
        self._gateway = gateway
        self._jsc = jsc
        self.scala_context = sc = jsc.sc()
        self.local = sc.isLocal()
        self._scheduler = sc.taskScheduler()
        self._tracker = jsc.statusTracker()
        self._thread = jvm.java.lang.Thread
        self._lists = jvm.java.util.ArrayList
        self._maps = jvm.java.util.HashMap
        self._texts = jvm.java.lang.StringBuilder
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
        self._none = getattr(getattr(jvm, "scala.None$"), "MODULE$")
        server = JavaObject("GATEWAY_SERVER", gateway._gateway_client)
        self._bindings = server.getGateway().getBindings().keySet()
        self._fixed_references = [key for key in self._lists(self._bindings) if not _OBJECT.match(key)]

    def remember(self) -> None:
        """Takes the snapshot, after the first query has loaded what loads itself."""
        system = self._jvm.java.lang.System
        self._properties = system.getProperties().clone()
        self._hadoop = self._hadoop_conf.getPropsWithPrefix("")
        self._conf_text = self._spark_conf.toDebugString()
        self._conf = dict(self._pairs())
        self._zone = self._jvm.java.util.TimeZone.getDefault()
        self._locale = self._jvm.java.util.Locale.getDefault()
        self._level = self._loggers.getRootLogger().getLevel()
        self._logger_count = self._loggers.getConfiguration().getLoggers().size()
        self._jars = self.scala_context.addedJars().toString()
        self._own_folders = set(os.listdir(self._local_dir))
        self._threads = set(_CONNECTION.findall(self._thread_names()))

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
        text = self._texts().append(self._thread.getAllStackTraces().keySet())
        return str(self._other_threads.matcher(text).replaceAll(""))

    def _serving(self) -> bool:
        """Whether a thread other than ours executes a command that came over the gateway."""
        stacks = _values(self._thread.getAllStackTraces()).toArray()
        traces = self._jvm.java.util.Arrays.deepToString(stacks).split("], [")
        return any("py4j.commands." in t and "Thread.getAllStackTraces" not in t for t in traces)

    def stop_streams(self, queries: Any) -> None:
        """Stops the streaming queries of a session."""
        for query in self._lists(_values(queries)):
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
        self._bindings.retainAll(self._own_references())
        self.clear_storage()
        self._restore_added_files()
        self._restore_settings()
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
        yield from rest

    def clear_storage(self) -> None:
        """Drops cached data, shuffle files and the checkpoint folder. Nothing may run in the JVM."""
        cached = self._jsc.getPersistentRDDs()
        if cached.size():
            for rdd in self._lists(_values(cached)):
                rdd.unpersist(False)
        shuffles = self._shuffles.keys().mkString(",")
        for number in filter(None, shuffles.split(",")):
            self._cleaner.doCleanupShuffle(int(number), False)
        getattr(self.scala_context, "checkpointDir_$eq")(self._none)

    def _added(self) -> list[str]:
        """The names of the files and archives that were added to the context."""
        sc = self.scala_context
        uris = sc.listFiles().mkString("\n").split("\n") + sc.listArchives().mkString("\n").split("\n")
        return [uri.rpartition("/")[2] for uri in uris if uri]

    def _restore_added_files(self) -> None:
        if not self.local:
            for name in self._added():
                self._file_server.removeFile(name)
        self.scala_context.addedArchives().clear()
        self.scala_context.addedFiles().clear()
        for folder, kept in ((self._files, ()), (self._local_dir, self._own_folders)):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if name in kept:
                    continue
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)

    def _restore_settings(self) -> None:
        jvm = self._jvm
        system = jvm.java.lang.System
        if not system.getProperties().equals(self._properties):
            system.setProperties(self._properties.clone())
        jvm.java.util.TimeZone.setDefault(self._zone)
        jvm.java.util.Locale.setDefault(self._locale)
        if self._spark_conf.toDebugString() != self._conf_text:
            now = dict(self._pairs())
            for key in now.keys() - self._conf.keys():
                self._spark_conf.remove(key)
            for key, value in self._conf.items():
                if now.get(key) != value:
                    self._spark_conf.set(key, value)
        if (warehouse := self._hadoop.get(_SET_BY_SPARK)) is not None:
            self._hadoop_conf.set(_SET_BY_SPARK, warehouse)
        now = self._hadoop_conf.getPropsWithPrefix("")
        if not now.equals(self._hadoop):
            for key in self._others(now.keySet(), self._hadoop.keySet()):
                self._hadoop_conf.unset(key)
            changed = self._maps(self._hadoop)
            changed.entrySet().removeAll(now.entrySet())
            for key in self._lists(changed.keySet()):
                self._hadoop_conf.set(key, changed[key])

    def _restore_logging(self) -> None:
        if self._loggers.getConfiguration().getLoggers().size() != self._logger_count:
            self._loggers.reconfigure()
        if not self._loggers.getRootLogger().getLevel().equals(self._level):
            self._jvm.org.apache.logging.log4j.core.config.Configurator.setRootLevel(self._level)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        for pair in self._spark_conf.getAll():
            yield pair._1(), pair._2()
