"""Any process of a slot: the constructor of faults, and those that are made without a look into the attempt's process."""

from __future__ import annotations

import errno
import os
import signal

from ..attempt_wire import Fault, FaultKind

MESSAGE_CHARS = 1000
DETAIL_CHARS = 16384

FAILED = 1
"""Exit code of an attempt that left an error."""

NOT_WRITABLE = "NOT_WRITABLE"
"""Condition of an error: where attempts write, nobody can at present."""

OF_STORAGE = (NOT_WRITABLE, "NOT_READABLE")
"""Conditions by which a job waits: `millrace.core.faults` has what follows. No attempt has one once it runs."""

OF_DISKS = (
    errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE,
    errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH,  # a mount whose server, or whose own process, is gone
)  # fmt: skip
"""What a disk says that cannot be written to, whoever writes what."""

JVM_LOST = "JVM_LOST"
"""Condition of an error: the connection to the gateway broke."""


def fault(kind: FaultKind, message: str, *, retryable: bool = False, condition: str | None = None, detail: str = "") -> Fault:
    """The one constructor of faults in a slot, where nothing of Millrace can be imported; elsewhere it is `millrace.core.faults:fault`.
    What more is known is put in afterwards."""
    return {
        "kind": kind,
        "retryable": retryable,
        "condition": condition,
        "message": bounded(message),
        "vertex": None,
        "line": None,
        "column": None,
        "file": None,
        "frame": None,
        "detail": detail[-DETAIL_CHARS:],
    }


def bounded(message: str) -> str:
    """The start of a message that may be of any length."""
    return message if len(message) <= MESSAGE_CHARS else message[: MESSAGE_CHARS - 3] + "..."


def not_ready(error: OSError) -> Fault:
    """The fault of an attempt whose folders cannot be made: a name that no file can have, a full disk."""
    user = error.errno == errno.ENAMETOOLONG
    message = f"The attempt's folders cannot be made ready: {error}"
    unwritable = NOT_WRITABLE if error.errno in OF_DISKS else None
    return fault("user" if user else "infrastructure", message, retryable=not user, condition=unwritable)


def no_storage(mark: str) -> Fault:
    """The fault of an attempt that would write below the place of a missing mount, where nobody finds it later."""
    folder, name = os.path.split(mark)
    message = f"{folder}: is not there: it has no {name}, which its cluster wrote; mount it, or restore it"
    return fault("infrastructure", message, retryable=True, condition=NOT_WRITABLE)


def describe_exit(wait_status: int) -> Fault:
    """The fault of a process that ended with this `os.waitpid` status and left no report."""
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = {
            "SIGKILL": "; if nobody cancelled it, the system was out of memory",
            "SIGSEGV": ": native code of a library crashed",
            "SIGABRT": ": native code of a library aborted",
        }.get(name, "")
        message = f"The attempt's process was ended by {name}{hint}"
        return fault("killed", message, retryable=True, condition=name) | {"exit_code": 128 + number}
    code = os.WEXITSTATUS(wait_status)
    why = " before it could report (os._exit?)" if code == 0 else ""
    message = f"The attempt's process ended with exit code {code}{why}"
    return fault("exit", message, retryable=True) | {"exit_code": code or 1}
