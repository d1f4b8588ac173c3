"""The process of one attempt: forked by the host as a spare, attached to the JVM, then given its attempt.

Exit code 0 and ``report.json`` in the log folder: finished. ``error.json``: failed. Neither: it was ended.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import io
import json
import os
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, cast

from .. import wire
from ..attempt_wire import AttemptProgress, AttemptReport, AttemptSpec, Fault
from ..common import attach
from ..common.config import Dirs
from ..common.faults import FAILED, fault, no_storage, not_ready
from ..common.left import ERROR, REPORT, SPARK
from .channel import Channel
from .own_time import SPENT
from .spark_json import SparkJson
from .spark_spans import SparkSpans

ROOM, ROOM_BYTES = ".room", 65536
"""A file in the folder of an attempt's logs, which is deleted at once."""


def main(sock: socket.socket, port: int, secret: str, application_id: str, known: attach.Known) -> None:
    """Attaches, sends `wire.Attached` on ``sock``, waits for a `wire.Assignment` there, answers with `wire.Took`, runs the attempt and
    ends the process."""
    os.setpgid(0, 0)  # to be killed as a group; in the slot's session, whose priority is low (`procs.lower_session`)
    _leave_the_host()
    channel = Channel(sock)
    first = not known["classes"]
    try:
        session = attach.attach(port, secret, application_id, known)
        spark = SparkJson(session._jsc)
    except Exception as error:
        channel.send({"attached": False, "reason": f"{type(error).__name__}: {error}"[:4000]})
        return
    told = first and len(json.dumps(known)) < wire.LINE_BYTES_MAX // 2  # a job's settings may be long
    channel.send({"attached": True, "known": known} if told else {"attached": True})
    assignment: wire.Assignment | None = channel.line()
    if assignment is None:
        return
    SPENT.begin()
    dirs = Dirs(**assignment["dirs"])
    if (refused := _begin(dirs)) is not None:
        channel.send({"refused": refused})
        os._exit(FAILED)
    channel.send({"took": assignment["attempt"]})
    spec = assignment["spec"]
    look_last = channel.serve(spark, dirs.work, SparkSpans(dirs.log) if spec.get("traced") else None)
    code = _run(spec, session, dirs, look_last)
    _close_files()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)


def _begin(dirs: Dirs) -> Fault | None:
    """Makes the attempt's folders ready; returns why it cannot begin. Not before, elsewhere: a storage that hangs holds up nobody."""
    try:
        if not dirs.have_storage():
            return no_storage(dirs.mark)
        _make_folders(dirs)
    except OSError as error:
        return not_ready(error)
    return None


def _make_folders(dirs: Dirs) -> None:
    """The attempt's own folder and that of its logs, with room for an end and without one that was written there before. Raises OSError."""
    for folder in (dirs.work, dirs.log):
        os.makedirs(folder, exist_ok=True)
    for name in (REPORT, ERROR, SPARK):
        try:
            os.unlink(os.path.join(dirs.log, name))
        except FileNotFoundError:
            pass
    _check_room(dirs.log)


def _check_room(folder: str) -> None:
    """A disk that is full still has room for a folder. An attempt that could not leave its end there would have run in vain."""
    name = os.path.join(folder, ROOM)
    try:
        with open(name, "wb") as file:
            file.write(bytes(ROOM_BYTES))
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _leave_the_host() -> None:
    """Makes the fork of the host look like a Python that has just started."""
    asyncio._set_running_loop(None)
    asyncio.set_event_loop_policy(None)  # the old one remembers the host's loop, and gives it to a script that asks for one
    if numbers := sys.modules.get("numpy.random"):
        numbers.seed()  # else all attempts of a host draw the same; Python's own generator does this by itself
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")
    sys.argv = [""]
    sys.modules["__main__"] = types.ModuleType("__main__")


def _run(spec: AttemptSpec, session: Any, dirs: Dirs, look_last: Callable[[], wire.Progress | None]) -> int:
    """Runs one attempt and writes its report or its fault; returns the exit code."""
    try:
        os.chdir(dirs.work)
        _resolve_paths_in(dirs.work, session)
        attach.give_environment(session, spec.get("env") or {})
        os.environ.update(_variables(spec))
        from . import run as attempt_run

        report = attempt_run.run(spec, session, dirs)
    except BaseException as error:
        described = _describe(error, spec)
        _end_threads()
        described["progress"] = _done(look_last)
        _write(os.path.join(dirs.log, ERROR), described)
        return FAILED
    _end_threads()
    report["progress"] = _done(look_last)
    _write(os.path.join(dirs.log, REPORT), report)
    return 0


def _done(look_last: Callable[[], wire.Progress | None]) -> AttemptProgress | None:
    """What the attempt's Spark has done in all; None where it does not answer."""
    try:
        return cast("AttemptProgress | None", look_last())
    except BaseException:  # also a signal that comes just now
        return None


def _resolve_paths_in(work: str, session: Any) -> None:
    """Has the JVM take relative paths from the attempt's folder, as Python does."""
    # A name as a whole is one call to the JVM; by its parts it is one for each.
    files = getattr(session._jvm, "org.apache.hadoop.fs.FileSystem").get(session._jsc.hadoopConfiguration())
    if files.getScheme() == "file":
        files.setWorkingDirectory(getattr(session._jvm, "org.apache.hadoop.fs.Path")("file:" + work))


def _variables(spec: AttemptSpec) -> dict[str, str]:
    """What a script may know of itself; the commit key is the same for every attempt of a subtask."""
    names = {key: str(spec.get(key, "")) for key in ("job", "task", "subtask", "attempt")}
    traceparent, resources, own = spec.get("traceparent"), spec.get("resources"), spec.get("env") or {}
    trace = {"TRACEPARENT": traceparent, "TRACESTATE": spec.get("tracestate")} if traceparent and "TRACEPARENT" not in own else {}
    return {
        **({"MILLRACE_RESOURCES": json.dumps(resources)} if resources else {}),
        **{name: text for name, text in trace.items() if text and name not in own},
        **{f"MILLRACE_{key.upper()}": value for key, value in names.items()},
        "MILLRACE_COMMIT_KEY": "{job}/{task}/{subtask}".format(**names),
    }


def _describe(error: BaseException, spec: AttemptSpec) -> Fault:
    """The fault of an exception; it is also printed, as Python would have."""
    if not isinstance(error, SystemExit):
        _print(lambda: traceback.print_exception(type(error), error, _below_ours(error.__traceback__)))
    elif error.code is not None and not isinstance(error.code, int):
        _print(lambda: print(error.code, file=sys.stderr))
    try:
        from . import errors

        return errors.describe(error, spec)
    except Exception:
        _print(traceback.print_exc)
        return fault("user", f"{type(error).__name__}: {error}")


def _print(printing: Callable[[], None]) -> None:
    """What cannot be printed changes no end: the user's code may have closed its output."""
    try:
        printing()
    except Exception:
        pass


def _below_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback without the frames that called the user's code."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((here, "<frozen ")):
        trace = trace.tb_next
    return trace


def _end_threads() -> None:
    """Waits for the threads and calls the exit handlers of the attempt, as Python does at its end."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # what Python calls at its end has no public name
        atexit._run_exitfuncs()
    except BaseException:
        _print(traceback.print_exc)


def _close_files() -> None:
    """Closes files that the user's code left open, as Python does at its end: their buffers hold the last lines written."""

    def by_layer(file: io.IOBase) -> int:
        """Text lies over compression, and that over the file: what lies above writes into what is below when it is closed."""
        return 0 if isinstance(file, io.TextIOBase) else 2 if type(file) in (io.BufferedWriter, io.BufferedRandom) else 1

    # By their types: to be asked for its class, an object of the user's may run code of its own.
    files = [each for each in gc.get_objects() if issubclass(type(each), (io.TextIOBase, io.BufferedIOBase))]
    for file in sorted(files, key=by_layer):
        try:
            if file is not sys.stdout and file is not sys.stderr and not file.closed and file.writable():
                file.close()
        except Exception:  # a full disk: as with Python's own end, it is printed and changes no end
            _print(traceback.print_exc)


def _write(path: str, body: AttemptReport | Fault) -> None:
    """Writes a file that is there whole or not at all. It outlives the process; if the machine stops, so does the slot."""
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(body, file)
    os.replace(part, path)
