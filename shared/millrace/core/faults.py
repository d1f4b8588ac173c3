"""Why attempts and jobs fail: one table, by which the JobMaster decides what follows, and which the documents show to users."""

from __future__ import annotations

from typing import Any, NamedTuple

from .messages.attempts import Decided, Fault, FaultKind

MOVE, RESTART, FAIL = "moves", "restarts", "fails"
THEN = {
    MOVE: "runs elsewhere at once, and does not count as a failure; at most `moves_most` times (20) a subtask, ever later",
    RESTART: "runs again as the graph's `restart` says, after it ran out of memory by its `out_of_memory_attempts`; a script submitted by"
    " itself has none",
    FAIL: "the job fails at once, whatever `restart` says: it would end so again",
}


LOST, INFRASTRUCTURE, STORAGE, MEMORY = "lost executor", "infrastructure", "storage", "out of memory"
USER, ANALYSIS = "user", "analysis"
CLASSES: dict[str, tuple[str, str]] = {
    LOST: ("the TaskManager or the slot of an attempt is lost", "`moves_most` moves a subtask"),
    INFRASTRUCTURE: ("a slot breaks, or its JVM is ended from outside", "`moves_most` moves a subtask"),
    STORAGE: (
        "an attempt cannot begin, or what it leaves cannot be kept; its folders or storage cannot be written or read, for the disk is full"
        " or read-only, a right or a mount is missing, or storage does not answer",
        "no limit: the job waits, and tries again every 10 seconds",
    ),
    MEMORY: (
        "the JVM or Python of an attempt runs out of memory; its process is ended by SIGKILL, which the system does then",
        "`out_of_memory_attempts` restarts of the job; none with the strategy `none`",
    ),
    USER: ("all else that may heal", "what the strategy says"),
    ANALYSIS: ("what would fail again", "none: the job fails"),
}
"""Class of a fault -> what it is, and its budget. Each class has its own, and spends of no other."""
EXCHANGE_LOST = "EXCHANGE_LOST"
"""Condition of an error: rows that a finished task handed on are not in the exchange. `lost` has where."""
NOT_READABLE = "NOT_READABLE"
"""Condition of an error: the cluster's storage does not give a file, whoever asks for which."""
OF_STORAGE = {
    "NOT_WRITABLE": ("storage cannot be written:", "storage: it waits until it can be written"),
    NOT_READABLE: ("storage cannot be read:", "storage: it waits until it can be read"),
}
"""Conditions of the faults of class STORAGE -> what the job waits for, and what is decided."""
_FOR_STORAGE = tuple(waits for waits, _ in OF_STORAGE.values())
OF_MEMORY = ("OUT_OF_MEMORY", "MemoryError", "SIGKILL")
"""Conditions of the faults of class MEMORY. SIGKILL: of an attempt's process, which nobody but the system ends so."""


class Row(NamedTuple):
    """What faults of one kind mean."""

    then: str  # a key of THEN
    what: str  # what ended the attempt
    help: str  # what the job's owner, or the cluster's, may do


FAULTS: dict[tuple[str, bool], Row] = {
    ("lost", True): Row(
        MOVE, "its TaskManager or its slot was lost, or ended",
        "nothing; if it goes on, look at `millrace taskmanagers` and at the log of that TaskManager",
    ),
    ("infrastructure", True): Row(
        MOVE, "its slot's JVM was ended by a signal from outside; its slot broke; its folders or modules could not be made ready",
        "nothing; if it goes on, look at memory and disk of that machine; while storage cannot be written or read, the job waits",
    ),
    ("timeout", True): Row(
        RESTART, "it took longer than `timeouts.start_ms` or `run_ms`", "raise the time-out in the graph, or give the vertex less to do",
    ),
    ("user", True): Row(
        RESTART,
        "a Python error that may heal: an `OSError` (files, network, time-outs), a library's own, a `RuntimeError`, one whose"
        " `retryable` is true; an error of Spark while it runs that is in none of the classes below",
        "see what it reads from or writes to; more attempts: `restart` in the graph",
    ),
    ("jvm", True): Row(
        RESTART,
        "the JVM ran out of memory, crashed, or ended by itself; the `master` did not answer; an error in it that Spark gives no name",
        "give the job more memory (`resources.memory_mb`) or smaller parts; `millrace logs` has the rest",
    ),
    ("killed", True): Row(
        RESTART, "its Python process was ended by a signal: native code crashed, or the machine was out of memory",
        "need less memory in Python (no `toPandas()` of all rows), or find the library that crashes",
    ),
    ("exit", True): Row(
        RESTART, "its Python process ended without a word, by `os._exit` or as its disk was full",
        "see the disk of that machine, and code that calls `os._exit`",
    ),
    ("user", False): Row(
        FAIL,
        "a Python error that says that code or data are wrong (`ArithmeticError`, `AssertionError`, `AttributeError`, `ImportError`,"
        " `LookupError`, `NameError`, `NotImplementedError`, `RecursionError`, `SyntaxError`, `TypeError`, `ValueError` and what is"
        " made from them, unless it is an `OSError` too), in a UDF as well; one whose `retryable` is false; an error of Spark whose"
        " SQLSTATE says so (classes 07, 0A, 21, 22, 23, 2B, 2D, 42, 44, 54, P0: a bad cast, a division by zero,"
        " `raise_error`); a sink that cannot be published; columns that differ; executors that do not see the storage",
        "mend the code or the data at the place that the message names, and submit anew; where it may heal: `error.retryable = True`",
    ),
    ("exit", False): Row(
        FAIL, "its code called `sys.exit` with another code than 0", "see why: what it printed is in `millrace logs`",
    ),
    ("analysis", False): Row(
        FAIL, "Spark does not accept the query: a wrong name, a wrong type, no such data source",
        "mend the query at the line that the message names",
    ),
    ("missing_path", False): Row(
        FAIL, "a path that it reads is not there", "put the data there, or mend the path; TaskManagers must see it under this name",
    ),
    ("jvm", False): Row(
        FAIL, "Spark does not start with the job's own settings", "mend `conf` or the packages that the message names",
    ),
    ("killed", False): Row(FAIL, "it was ended because its job is", "nothing"),
    ("timeout", False): Row(
        FAIL, "no slot within `timeouts.queue_ms`; or it wants what the cluster has not had for `not_enough_resources_ms`",
        "raise the time-out, want less, or start more or larger TaskManagers",
    ),
    ("infrastructure", False): Row(
        FAIL, "rows that a finished task handed on are gone from the exchange, though it ran anew; a fault of Millrace",
        "submit the job under another id; see what deletes files in the cluster's storage; report a fault of Millrace",
    ),
    ("internal", False): Row(
        FAIL, "how the job ended was lost with etcd, and its archive is gone", "submit the job under another id if its rows are not there",
    ),
}  # fmt: skip
"""(kind, `retryable`) -> what follows, what ended the attempt, what to do."""


def fault(kind: FaultKind, message: str, *, retryable: bool = False, **more: Any) -> Fault:
    """The one constructor of faults but those of a slot: the Python that runs there is the user's, and may have neither Millrace nor
    pydantic. That one is `slot/common/faults.py:fault`, whose faults become this model when its TaskManager reads them. A test holds both
    to FAULTS. `more`: fields of Fault."""
    assert (kind, retryable) in FAULTS, f"{kind}, retryable {retryable}: no such fault"
    return Fault.model_validate({"kind": kind, "retryable": retryable, "message": message, **more})


def infrastructure(message: str) -> Fault:
    """Of what is not the job's: the attempt may run elsewhere."""
    return fault("infrastructure", message, retryable=True)


def then(error: Fault) -> str:
    """What follows this fault. One of an unknown kind goes by its `retryable`: it may be of another build's TaskManager."""
    row = FAULTS.get((error.kind, error.retryable))
    return row.then if row is not None else RESTART if error.retryable else FAIL


def class_of(error: Fault) -> str:
    """A key of CLASSES: whose budget a failure spends."""
    follows = then(error)
    if follows is MOVE:
        return LOST if error.kind == "lost" else STORAGE if error.condition in OF_STORAGE else INFRASTRUCTURE
    if follows is FAIL:
        return ANALYSIS
    return MEMORY if error.condition in OF_MEMORY else USER


def is_for_storage(waiting: str | None) -> bool:
    """Whether a job that waits for this reason waits for its storage: not for a slot."""
    return (waiting or "").startswith(_FOR_STORAGE)


def decision_text(decided: Decided | None) -> str:
    """What was decided on a failure, in a few words; empty: that is not known, for an earlier build decided it."""
    if decided is None:
        return ""
    after = f"after {decided.delay_ms} ms" if decided.delay_ms else "at once"
    words = {"restart": f"restarted {after}", "move": f"moved {after}", "fail": "the job failed", "none": "nothing followed"}
    follows = words.get(decided.then, decided.then)
    return f"{follows} ({decided.why})" if decided.why else follows
