"""Joining a Spark context that lives in another process's JVM, and what ``stop`` means there."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TypedDict

from . import conf as spark_settings

SESSION = "org.apache.spark.sql.classic.SparkSession"

_MEANINGS = ("yc", "ym", "yp")
"""How Py4J's answers begin that a name is a class, a method or a package. Others refer to an object of the one who asked."""
_VARIABLES = "spark.executorEnv.*"

APP_NAME = "spark.app.name"
PARTITIONS = "spark.sql.shuffle.partitions"
ADAPTIVE = "spark.sql.adaptive.enabled"

_WORKERS: dict[str, str] = {}
"""Environment variables that Spark gives to the Python workers of this process's jobs, whichever of its contexts runs them."""


class Known(TypedDict):
    """What a JVM answers each process that attaches itself. `classes`: by Py4J's question, what a name means. `settings`: None where
    there is none."""

    classes: dict[str, str]
    settings: dict[str, str | None]


def give_environment(session: Any, env: dict[str, str]) -> None:
    """The user's variables, for this process and the Python workers of its jobs."""
    os.environ.update(env)
    _WORKERS.update(env)
    session.sparkContext.environment.update(env)


class OtherContext(Exception):
    """The JVM does not hold the context that was expected: somebody stopped it."""


def connect(port: int, secret: str, imported: bool = False) -> Any:
    """A Py4J gateway to the JVM that listens on ``port``.

    imported: what PySpark imports was imported by a connection before; a JVM keeps that for all, and each import is a call.

    The secret is in the environment for this call only: a child of the attempt would join our JVM instead of starting its own.
    """
    from pyspark import java_gateway

    names = vars(java_gateway)
    java_import = names["java_import"]
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    if imported:
        names["java_import"] = lambda *_: None
    try:
        return java_gateway.launch_gateway()
    finally:
        names["java_import"] = java_import
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


@contextlib.contextmanager
def _asked_once(client: Any, classes: dict[str, str]) -> Iterator[None]:
    """Meanwhile Py4J's questions what a name means are answered by `classes`, which also takes up new answers."""
    ask = client.send_command

    def send_command(command: str, *others: Any, **named: Any) -> Any:
        if command in classes:
            return classes[command]
        answer = ask(command, *others, **named)
        if command.startswith("r\n") and answer[:2] in _MEANINGS:
            classes[command] = answer
        return answer

    client.send_command = send_command
    try:
        yield
    finally:
        del client.send_command


def attach(port: int, secret: str, application_id: str, known: Known) -> Any:
    """The SparkSession that was prepared in the JVM for this process; raises OtherContext.

    known: what an earlier process of this JVM was told, before it ran any attempt; it takes up what it has not. PySpark asks for half
    a hundred things that stay as they are while the JVM lives, because the reset restores imports and settings.

    Afterwards ``SparkSession.builder.getOrCreate()``, ``SparkContext.getOrCreate()`` and a first ``SparkContext(...)`` give
    this session's context, and stopping it ends the session, not the JVM's context.
    """
    gateway = connect(port, secret, imported=True)
    with _asked_once(gateway._gateway_client, known["classes"]):
        return _attached(gateway, application_id, known)


def _attached(gateway: Any, application_id: str, known: Known) -> Any:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized(gateway=gateway)
    # A name as a whole is one call; by its parts it is one for each.
    prepared = getattr(gateway.jvm, SESSION).getDefaultSession()
    if not prepared.isDefined():
        raise OtherContext("No session was prepared in the JVM.")
    jsession = prepared.get()
    jsc = getattr(gateway.jvm, "org.apache.spark.api.java.JavaSparkContext").fromSparkContext(jsession.sparkContext())
    # After a real stop getOrCreate would silently build a new context.
    found = jsc.sc().applicationId()
    if found != application_id or jsc.sc().isStopped():
        raise OtherContext(f"The JVM runs {found}, not {application_id}, or stopped it.")
    conf = _attached_conf(jsc, known["settings"])
    context = SparkContext(gateway=gateway, jsc=jsc, conf=conf)
    for key in (PARTITIONS, ADAPTIVE):  # each attempt wants to know whether the slot's settings have them
        conf.contains(key)
    session = SparkSession(context, jsession)
    _own_session_only(gateway, jsc)
    return session


def _attached_conf(jsc: Any, known: dict[str, str | None]) -> Any:
    """The JVM's settings for a context that is being made, as far as they are not `known`. Of all of them that only asks for the variables
    of executors; PySpark would make three calls to the JVM for each setting that there is."""
    from pyspark import SparkConf

    class AttachedConf(SparkConf):
        def get(self, key: str, defaultValue: str | None = None) -> Any:
            if key not in known:
                known[key] = super().get(key)
            return defaultValue if known[key] is None else known[key]

        def contains(self, key: str) -> bool:
            return self.get(key) is not None

        def set(self, key: str, value: str) -> Any:
            known.pop(key, None)
            return super().set(key, value)

        def getAll(self) -> list[tuple[str, str]]:
            if _VARIABLES not in known:
                found = jsc.sc().conf().getExecutorEnv()
                pairs = [found.apply(at) for at in range(found.size())]
                known[_VARIABLES] = json.dumps([(f"spark.executorEnv.{pair._1()}", pair._2()) for pair in pairs])
            return [(name, value) for name, value in json.loads(str(known[_VARIABLES]))]

    return AttachedConf(_jconf=jsc.sc().conf())


def _own_session_only(gateway: Any, jsc: Any) -> None:
    """Changes SparkContext and SparkSession of this process so that they never make or end a context in the JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    make_context = SparkContext.__init__
    get_session = SparkSession.Builder.getOrCreate
    given = True  # the attached context has not been asked for by name yet
    sessions = getattr(gateway.jvm, SESSION)

    def init(self: Any, master: Any = None, appName: Any = None, sparkHome: Any = None, pyFiles: Any = None,
             environment: Any = None, batchSize: int = 0, serializer: Any = None, conf: Any = None,
             **others: Any) -> None:  # fmt: skip
        nonlocal given
        if given:
            SparkContext._active_spark_context = None
            SparkSession._instantiatedSession = None
            given = False
        wanted = dict(conf.getAll()) if conf is not None else {}
        if master:
            wanted["spark.master"] = master
        _warn(wanted, jsc)
        others = {k: v for k, v in others.items() if k not in ("gateway", "jsc")}
        if serializer is not None:
            others["serializer"] = serializer
        make_context(self, pyFiles=pyFiles, environment={**_WORKERS, **(environment or {})}, batchSize=batchSize, gateway=gateway, jsc=jsc,
                     conf=_attached_conf(jsc, {}), **others)  # fmt: skip
        if appName or APP_NAME in wanted:
            self.appName = appName or wanted[APP_NAME]

    def stop(self: Any) -> None:
        # The stopped object stays usable: whoever holds the attempt's session may still need it after the script.
        nonlocal given
        if SparkContext._active_spark_context is not self:
            return
        given = False
        jsc.sc().cancelAllJobs()
        # What comes next is a session without the views and settings of this one.
        current = sessions.getDefaultSession()
        if current.isDefined():
            successor = current.get().newSession()
            sessions.setDefaultSession(successor)
            sessions.setActiveSession(successor)
        with SparkContext._lock:
            SparkContext._active_spark_context = None
            SparkSession._instantiatedSession = None
            SparkSession._activeSession = None
            SQLContext._instantiatedContext = None

    def stop_session(self: Any) -> None:
        self._sc.stop()

    def get_or_create(self: Any) -> Any:
        _warn(self._options, jsc)
        return _named(get_session(self), self._options)

    def absolute(add: Any) -> Any:
        def add_from_here(self: Any, path: str, *args: Any, **kwargs: Any) -> None:
            # The JVM's current directory is not the attempt's.
            add(self, path if ":" in path else os.path.abspath(path), *args, **kwargs)

        return functools.wraps(add)(add_from_here)

    SparkContext.addFile = absolute(SparkContext.addFile)  # type: ignore[method-assign]  # PySpark's own, replaced
    SparkContext.addArchive = absolute(SparkContext.addArchive)  # type: ignore[method-assign]  # PySpark's own, replaced
    SparkContext.__init__ = init  # type: ignore[method-assign, assignment]  # PySpark's own, replaced
    SparkContext.stop = stop  # type: ignore[method-assign]  # PySpark's own, replaced
    SparkSession.stop = stop_session  # type: ignore[method-assign]  # PySpark's own, replaced
    SparkSession.Builder.getOrCreate = get_or_create  # type: ignore[method-assign]  # PySpark's own, replaced


def _named(session: Any, options: dict[str, Any]) -> Any:
    """The session, whose context is called as the first who asks for it says: as far as a script can see, that one makes it."""
    context = session.sparkContext
    if not hasattr(context, "_named"):
        context._named, context.appName = True, options.get(APP_NAME, context.appName)
    return session


def _warn(wanted: dict[str, Any], jsc: Any) -> None:
    """Names on stderr the settings of a script that come too late for a Spark that runs already."""
    effective = jsc.sc().conf()
    for key, value in wanted.items():
        late = spark_settings.is_static(key) or key in spark_settings.REFUSED
        if late and key != APP_NAME and effective.get(key, "") != str(value):
            what = "is the cluster's to set" if key in spark_settings.REFUSED else "has to be given with the job, as --conf"
            print(f"millrace: {key}={value} has no effect in a script: it {what}.", file=sys.stderr)
