"""The process of one attempt: what went wrong in it, as one readable `Fault`.

Of a sql vertex `file` is the user's own, if the graph has where its queries are; else `line` and `column` count in the query's text.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..attempt_wire import AttemptSpec, Fault, FaultKind
from ..common import conf
from ..common.faults import JVM_LOST, bounded, fault
from . import recurring, udfs

DETAIL_BYTES = 16 * 1024
VALUE_CHARS = 100  # of a user's value in a message
RELATIVE = (
    "A relative path starts at the attempt's own folder, where only those files are that go with the job: "
    "name the whole path, or send the file along (--files; in a graph, modules)"
)
_MISSING_PATH = ("PATH_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST", "LOAD_DATA_PATH_NOT_EXISTS")
_MISSING_PATH_CLASSES = ("InvalidInputException", "FileNotFoundException", "NoSuchFileException")
_FRAME = re.compile(r'^\s*File "([^"]+)", line (\d+)(?:, in (.+))?$')
_ANSI_PREFIX = re.compile(r"^\[[A-Z][A-Z0-9_.]*\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\b.*", re.DOTALL)
_LAST_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*\Z")
_HERE = str(Path(__file__).resolve().parents[1]) + os.sep
_LIBRARIES = (
    _HERE,
    *(
        os.path.realpath(sysconfig.get_paths()[name]) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
)


class AttemptError(Exception):
    """An error that this package found itself; `condition` is its name, the other fields are those of the fault."""

    def __init__(
        self,
        condition: str,
        message: str,
        *,
        kind: FaultKind = "analysis",
        retryable: bool = False,
        vertex: str | None = None,
        lost: str | None = None,
    ) -> None:
        super().__init__(message)
        self.condition, self.message, self.retryable, self.vertex = condition, message, retryable, vertex
        self.lost = lost
        self.kind: FaultKind = kind


class _Progress:
    """The attempt's folder, and the vertex that is worked on; where an exception passes, it is written down which one that was."""

    def __init__(self) -> None:
        self.vertex: str | None = None
        self.work: str | None = None

    @contextmanager
    def at(self, vertex: str) -> Iterator[None]:
        """While inside, errors belong to `vertex`; after an exception it stays the vertex in progress."""
        before, self.vertex = self.vertex, vertex
        yield
        self.vertex = before


PROGRESS = _Progress()  # one attempt per process


def silence_context_loggers() -> None:
    """PySpark writes each error with a query context to stderr as 8 KB of JSON, whether it is caught or not."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


_LACKS_CLASS = r"ClassNotFoundException|Class (\S+) not found|No FileSystem for scheme"
_CANNOT_HEAL = ("DATA_SOURCE_NOT_FOUND", "CANNOT_READ_FILE_FOOTER", "FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER")
"""Conditions of Spark that only another graph or other data would change; Spark reports them while it runs."""


def describe(exception: BaseException, spec: AttemptSpec) -> Fault:
    """The fault of an exception that left `run.run(spec, ...)`."""
    # Not above: a host imports this before it knows that its Python has PySpark.
    from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
    from pyspark.errors import PySparkException

    if isinstance(exception, AttemptError):
        error = fault(exception.kind, exception.message, retryable=exception.retryable, condition=exception.condition)
        error["vertex"] = exception.vertex
        if exception.lost is not None:
            error["lost"] = exception.lost
    elif isinstance(exception, SystemExit):
        error = _exit_call(exception)
    elif isinstance(exception, KeyboardInterrupt):
        error = fault("killed", "The attempt was interrupted (KeyboardInterrupt, SIGINT)", retryable=True)
    elif isinstance(exception, PySparkException):
        error = _spark(exception, spec)
    elif isinstance(exception, Py4JJavaError):
        error = _java(exception.java_exception)
    elif isinstance(exception, (Py4JNetworkError, ConnectionError)) and _is_gateway(exception):
        message = "The JVM of the slot ended or stopped answering during the attempt"
        error = fault("jvm", message, retryable=True, condition=JVM_LOST)
    elif isinstance(exception, Py4JError):
        error = fault("jvm", _first_line(str(exception)), retryable=True)
    else:
        error = _python(exception)
    if error["file"] is None and error["line"] is None:
        raised = exception.__cause__ if isinstance(exception, AttemptError) else exception
        _place_python(error, _frames_of(raised), driver=True)
    if error["vertex"] is None:
        error["vertex"] = _vertex_of_file(error["file"], spec) or PROGRESS.vertex
    if isinstance(exception, ImportError) or error["condition"] in _CANNOT_HEAL:
        error["retryable"] = False
    _name_package(error)
    _explain_relative(error, exception)
    _explain_elsewhere(error, spec)
    _point_into_file(error, spec)
    error["detail"] = _detail(exception)
    return error


def _exit_call(exception: SystemExit) -> Fault:
    code = exception.code
    if isinstance(code, int):
        return fault("exit", f"The user's code called sys.exit({code})") | {"exit_code": code & 0xFF or 1}
    return fault("exit", f"The user's code called sys.exit: {str(code).strip()}") | {"exit_code": 1}


def _spark(exception: Any, spec: AttemptSpec) -> Fault:
    """A Spark exception that PySpark translated, or one of PySpark's own."""
    from pyspark.errors import AnalysisException, ParseException, PythonException

    condition = exception.getCondition()
    text = exception.getMessage() or str(exception)
    if isinstance(exception, PythonException) and "Traceback (most recent call last)" in text:
        return _python_worker(text)
    java = getattr(exception, "_origin", None)
    message = _sentence(text, _values_of(exception))
    if condition in _MISSING_PATH:
        error = fault("missing_path", message, condition=condition)
    elif isinstance(exception, AnalysisException):
        error = fault("analysis", message, condition=condition)
    elif condition is None and java is not None:
        error = _java(java)
    else:
        internal = condition is None or condition.startswith("INTERNAL_ERROR")
        again = recurring.sqlstate(exception) or recurring.exception(exception)
        error = fault("jvm" if internal and java is not None else "user", message, retryable=not again, condition=condition)
    _place_sql(error, exception, spec)
    if isinstance(exception, ParseException) and error["vertex"] is None:
        place = re.search(r"\(line (\d+), pos (\d+)\)", str(exception))
        if place:
            error["line"], error["column"] = int(place.group(1)), int(place.group(2)) + 1
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        _name_inputs(error, spec)
    return error


def _place_sql(error: Fault, exception: Any, spec: AttemptSpec) -> None:
    """Vertex, line and column from the query context; for a DataFrame call the place of the call."""
    for context in exception.getQueryContext() or []:
        if context.contextType().name == "SQL":
            start, fragment = context.startIndex(), context.fragment()
            vertices = {vertex["id"]: sql for vertex in spec["vertices"] if (sql := vertex.get("sql"))}
            matching = [vertex for vertex, sql in vertices.items() if sql[start : start + len(fragment)] == fragment]
            if not matching:
                continue  # a spark.sql(...) of the user's Python: the Python frame tells more
            name = PROGRESS.vertex if PROGRESS.vertex in matching else matching[0]
            before = vertices[name][:start]
            error["vertex"] = name
            error["line"], error["column"] = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
            return
        site = re.match(r"^(.*\.py):(\d+)$", context.callSite() or "")
        if site and _is_users(site.group(1)):
            error["file"], error["line"] = _short(site.group(1)), int(site.group(2))
            return


def _name_inputs(error: Fault, spec: AttemptSpec) -> None:
    """A sql vertex sees exactly its inputs: say which these are."""
    vertex = error["vertex"] or PROGRESS.vertex
    inputs = next((v["inputs"] for v in spec["vertices"] if v["id"] == vertex and v.get("sql")), None)
    if inputs is not None:
        first = error["message"].split(". ")[0].rstrip(".")
        error["message"] = f"{first}. Vertex {vertex!r} sees its inputs: {', '.join(inputs) or 'it has none'}"


def _java(java: Any) -> Fault:
    """A Java exception: the innermost cause that says something."""
    chain = [java]
    while len(chain) < 30 and (cause := chain[-1].getCause()) is not None and cause != chain[-1]:
        chain.append(cause)
    names = [each.getClass().getName() for each in chain]
    conditions = [_condition_of(each) for each in chain]
    for each, name in zip(chain, names, strict=True):
        if name == "java.lang.OutOfMemoryError":
            message = f"The JVM of the slot is out of memory: {each.getMessage()}"
            return fault("jvm", message, retryable=True, condition="OUT_OF_MEMORY")
    for each, name, condition in zip(chain, names, conditions, strict=True):
        text = each.getMessage() or ""
        if name.endswith("PythonException") and "Traceback (most recent call last)" in text:
            return _python_worker(text)
        if condition in _MISSING_PATH or name.rsplit(".", 1)[-1] in _MISSING_PATH_CLASSES:
            return fault("missing_path", _sentence(text, _values_of(each)), condition=condition or name.rsplit(".", 1)[-1])
    last = max((i for i, each in enumerate(chain) if each.getMessage()), default=0)
    named = [i for i, condition in enumerate(conditions) if condition]
    pick = named[-1] if named else last
    text = _sentence(chain[pick].getMessage() or names[pick], _values_of(chain[pick]))
    if not named:
        text = f"{names[pick].rsplit('.', 1)[-1]}: {text}"
    if recurring.sqlstate(chain[pick]):
        return fault("user", text, condition=conditions[pick])
    return fault("jvm", text, retryable=True, condition=conditions[pick])


def _condition_of(java: Any) -> str | None:
    try:
        condition: str | None = java.getCondition()
        return condition
    except Exception:  # not a SparkThrowable: py4j raises for a method that is not there
        return None


def _python(exception: BaseException) -> Fault:
    name = type(exception).__name__
    text = "".join(traceback.format_exception_only(type(exception), exception)).strip()
    if isinstance(exception, MemoryError):
        return fault("user", "The attempt's Python process is out of memory", retryable=True, condition="MemoryError")
    if isinstance(exception, SyntaxError) and _is_users(exception.filename or "<>"):
        error = fault("user", f"{name}: {exception.msg}", condition=name)
        error["file"] = _short(str(exception.filename))
        error["line"], error["column"] = exception.lineno, exception.offset
        return error
    return fault("user", text, retryable=not recurring.exception(exception), condition=name)


def _python_worker(text: str) -> Fault:
    """An exception of a Python worker (a UDF), which arrives as text: frames, then the exception."""
    _, _, trace = _LAST_SQLSTATE.sub("", text).rpartition("Traceback (most recent call last):")
    frames: list[tuple[str, int, str]] = []
    rest: list[str] = []
    for line in trace.splitlines():
        match = _FRAME.match(line)
        if match:
            frames.append((match.group(1), int(match.group(2)), match.group(3) or ""))
            rest = []
        elif line.strip() and not line.startswith("    "):
            rest.append(line.rstrip())
    message = "\n".join(rest).strip() or "an exception in a Python worker"
    name = re.match(r"^([\w.]+?)(?::|$)", message, re.MULTILINE)
    again = name is not None and recurring.named(name.group(1))
    condition = name.group(1).rsplit(".", 1)[-1] if name else None
    error = fault("user", message, retryable=not again, condition=condition)
    _place_python(error, frames, driver=False)
    if error["line"] is None:
        _place_function(error)
    return error


def _place_function(error: Fault) -> None:
    """No frame of the user's: Spark could not convert what one of the user's functions returned."""
    declared = udfs.at_fault(error["message"])
    if not declared:
        return
    if "the type that it declares" not in error["message"]:
        names = ", ".join(f"{each.name} ({each.returns})" for each in declared[:5]) + ", ..." * (len(declared) > 5)
        which = "a function" if len(declared) == 1 else "one of the functions"
        what = f"what {which} returned cannot be made the type that it declares: {names}"
        error["message"] = bounded(f"{what}; Spark says {error['message']}")
    if len({(each.file, each.line, each.vertex) for each in declared}) == 1:
        only = declared[0]
        error["file"], error["line"], error["vertex"] = _short(only.file), only.line, only.vertex
        error["frame"] = f"{_short(only.file)}:{only.line} in {only.name} (in a Python worker)"


def _place_python(error: Fault, frames: list[tuple[str, int, str]], *, driver: bool) -> None:
    """File, line and frame: the last frame in the user's own files."""
    users = [frame for frame in frames if _is_users(frame[0])]
    if users:
        path, line, function = users[-1]
        error["file"], error["line"] = _short(path), line
        where = "" if driver else " (in a Python worker)"
        error["frame"] = f"{_short(path)}:{line} in {function}{where}" if function else f"{_short(path)}:{line}{where}"


def _frames_of(exception: BaseException | None) -> list[tuple[str, int, str]]:
    """The frames below this package's own: what called an attempt is not the user's."""
    if exception is None:
        return []
    frames = [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(exception.__traceback__)]
    own = [number for number, (path, _, _) in enumerate(frames) if os.path.realpath(path).startswith(_HERE)]
    return frames[own[0] :] if own else frames


def _is_users(path: str) -> bool:
    """Not Python's, not a library's, not ours."""
    if path.startswith("<") or "/pyspark.zip/" in path or "/site-packages/" in path or "/dist-packages/" in path:
        return False
    if "/userFiles-" in path:
        return True
    if path.endswith((".pyx", ".pxi")):  # of a compiled library, named from within it
        return False
    return not os.path.realpath(path).startswith(_LIBRARIES)


def _short(path: str) -> str:
    """A file as the user knows it: without the folders that it was copied into."""
    for mark in (r"/userFiles-[^/]+/", r"/millrace-modules[^/]*/"):
        path = re.sub(r"^.*" + mark, "", path)
    path = re.sub(r"^millrace-modules[^/]*\.zip/", "", path)
    return Path(path).name if Path(path).is_absolute() else path


def _vertex_of_file(file: str | None, spec: AttemptSpec) -> str | None:
    """The python or spark_app vertex that this file alone belongs to."""
    if file is None:
        return None
    found = []
    for vertex in spec["vertices"]:
        module = (vertex.get("python") or "").partition(":")[0].replace(".", "/") + ".py"
        app = vertex.get("spark_app")
        if file in (module, app["script"] if app else None):
            found.append(vertex["id"])
    return PROGRESS.vertex if PROGRESS.vertex in found else found[0] if len(found) == 1 else None


def _name_package(error: Fault) -> None:
    """What lacks a package lacks it again: which one is to be added."""
    found = re.search(_LACKS_CLASS, error["message"])
    if found is None and "Failed to find" not in error["message"]:
        return
    error["retryable"] = False
    what = conf.lacking(error["message"])
    if what is not None:
        name, package = what
        error["message"] = f"{name} needs a package that Spark does not bring along: {conf.ADD_PACKAGE.format(package)}"


def _explain_relative(error: Fault, exception: BaseException) -> None:
    """A path that is not there, as the user wrote it, if it was relative."""
    if isinstance(exception, FileNotFoundError) and isinstance(exception.filename, str) and not os.path.isabs(exception.filename):
        error["message"] = f"{error['message']}. {RELATIVE}"
    if error["kind"] != "missing_path" or PROGRESS.work is None:
        return
    for folder, written in ((PROGRESS.work, ""), (os.path.dirname(PROGRESS.work), "../")):
        pattern = rf"(?:file:(?://)?)?{re.escape(folder)}/"
        message, relative = re.subn(pattern, written, error["message"])
        if relative:
            error["message"] = f"{message.rstrip('.')}. {RELATIVE}"
            return


def _explain_elsewhere(error: Fault, spec: AttemptSpec) -> None:
    """A file of this machine that is missing where executors run."""
    master = spec["conf"].get(conf.MASTER, "local")
    if error["kind"] == "missing_path" and conf.is_remote(master) and re.search(r"\bfile:/", error["message"]):
        error["message"] += f". Executors of {master} must see it, too: a URL that all machines reach, or a volume mounted at one path"


def _point_into_file(error: Fault, spec: AttemptSpec) -> None:
    """A place in a query becomes the place in the user's file."""
    vertex, line = error["vertex"], error["line"]
    standing = spec.get("sources", {}).get(vertex) if vertex is not None else None
    if standing is None or error["file"] is not None or line is None:
        return
    error["file"], indent = standing["file"], standing.get("indent")
    if indent is None:  # its lines are not the file's
        error["line"], error["column"] = standing["line"], None
        return
    error["line"] = standing["line"] + line - 1
    if error["column"] is not None:
        error["column"] += indent


def _sentence(text: str, values: Iterable[str] = ()) -> str:
    """Spark's message without its name, its SQLSTATE and what follows (plans, contexts, hints). values: those of users in it, which may
    have lines of their own and any length."""
    text = _ANSI_PREFIX.sub("", text.strip())
    for value in sorted(values, key=len, reverse=True):
        if len(value) > VALUE_CHARS or "\n" in value:
            text = text.replace(value, _short_value(value))
    text, marked = _SQLSTATE.subn("", text)
    return " ".join(line.strip() for line in text.splitlines() if line.strip()) if marked else _first_line(text)


def _values_of(spark: Any) -> list[str]:
    """What Spark has put into a message, but paths: those are needed whole, however long they are."""
    try:
        given = spark.getMessageParameters()
        return [str(given[name]) for name in given or () if "path" not in str(name).lower()]
    except Exception:  # not a SparkThrowable: py4j raises for a method that is not there
        return []


def _short_value(value: str) -> str:
    """On one line: its start and its end, and how long it is where that is not all."""
    if len(value) > VALUE_CHARS:
        half = VALUE_CHARS // 2
        value = f"{value[:half]}...{value[-half:]} ({len(value)} characters)"
    return value.replace("\r", "\\r").replace("\n", "\\n")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _is_gateway(exception: BaseException) -> bool:
    """Whether it was py4j whose connection broke, not a socket of the user's own."""
    frames = _frames_of(exception)
    return any(f"{os.sep}py4j{os.sep}" in path for path, _, _ in frames)


def _detail(exception: BaseException) -> str:
    """The stack trace, at most DETAIL_BYTES of UTF-8: its head and its tail."""
    text = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    raw = text.encode("utf-8", "replace")
    if len(raw) <= DETAIL_BYTES:
        return text
    mark = b"\n... (cut) ...\n"
    half = (DETAIL_BYTES - len(mark)) // 2
    return (raw[:half] + mark + raw[-half:]).decode("utf-8", "ignore")
