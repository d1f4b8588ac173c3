"""What follows the end of an attempt that did not finish: one table, for the JobMaster and for the documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOVE, RESTART, FAIL = "moves", "restarts", "fails"

THEN = {
    MOVE: "runs elsewhere at once, and does not count as a failure; at most `moves_most` times (20) a subtask, ever later",
    RESTART: "runs again as the graph's `restart` says; a script submitted by itself has none",
    FAIL: "the job fails at once, whatever `restart` says: it would end so again",
}

FAULTS: dict[tuple[str, bool], tuple[str, str]] = {
    ("lost", True): (MOVE, "its TaskManager or its slot was lost, or ended"),
    ("infrastructure", True): (
        MOVE, "its slot's JVM was ended by a signal from outside; its slot broke; its folders or modules could not be made ready",
    ),
    ("timeout", True): (RESTART, "it took longer than `timeouts.start_ms` or `run_ms`"),
    ("user", True): (
        RESTART,
        "a Python error that may heal: an `OSError` (files, network, time-outs), a library's own, a `RuntimeError`, one whose"
        " `retryable` is true; an error of Spark while it runs that is in none of the classes below",
    ),
    ("jvm", True): (RESTART, "the JVM ran out of memory, crashed, or ended by itself; an error in it that Spark gives no name"),
    ("killed", True): (RESTART, "its Python process was ended by a signal: native code crashed, or the machine was out of memory"),
    ("exit", True): (RESTART, "its Python process ended without a word, by `os._exit` or as its disk was full"),
    ("user", False): (
        FAIL,
        "a Python error that says that code or data are wrong (`ArithmeticError`, `AssertionError`, `AttributeError`, `ImportError`,"
        " `LookupError`, `NameError`, `NotImplementedError`, `RecursionError`, `SyntaxError`, `TypeError`, `ValueError` and what is"
        " made from them, unless it is an `OSError` too), in a UDF as well; one whose `retryable` is false; an error of Spark whose"
        " SQLSTATE says so (classes 07, 0A, 21, 22, 23, 2B, 2D, 42, 44, 54, P0: a bad cast, a division by zero,"
        " `raise_error`); a sink that cannot be published; columns that differ",
    ),
    ("exit", False): (FAIL, "its code called `sys.exit` with another code than 0"),
    ("analysis", False): (FAIL, "Spark does not accept the query: a wrong name, a wrong type, no such data source"),
    ("missing_path", False): (FAIL, "a path that it reads is not there"),
    ("jvm", False): (FAIL, "Spark does not start with the job's own settings"),
    ("killed", False): (FAIL, "it was ended because its job is"),
    ("timeout", False): (FAIL, "no slot within `timeouts.queue_ms`"),
    ("infrastructure", False): (FAIL, "rows that a finished task handed on are gone from the exchange; a fault of Millrace"),
}  # fmt: skip
"""(kind of an error, its `retryable`) -> what follows, and when that is reported."""


def then(error: Mapping[str, Any]) -> str:
    """What follows this error. One of an unknown kind goes by its `retryable`: it may be of another build's TaskManager."""
    kind, retryable = str(error.get("kind")), bool(error.get("retryable", False))
    return FAULTS.get((kind, retryable), (RESTART if retryable else FAIL, ""))[0]
