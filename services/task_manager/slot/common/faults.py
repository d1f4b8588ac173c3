"""Any process of a slot: errors of attempts of which little is known, and how an attempt's process tells that it failed."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

FAILED = 1
"""Exit code of an attempt that left an error."""

JVM_LOST = "JVM_LOST"
"""Condition of an error: the connection to the gateway broke."""


def plain_error(kind: str, message: str, *, retryable: bool = False, detail: str = "") -> dict[str, Any]:
    """An error of which nothing more is known than ``message``, in the shape that all errors of attempts have."""
    unknown = dict.fromkeys(("condition", "vertex", "line", "column", "file", "frame"))
    return {"kind": kind, "retryable": retryable, "message": message, "detail": detail[-16384:], **unknown}


def not_ready(error: OSError) -> dict[str, Any]:
    """The error of an attempt whose folders cannot be made: a name that no file can have, a full disk."""
    user = error.errno == errno.ENAMETOOLONG
    message = f"The attempt's folders cannot be made ready: {error}"
    return plain_error("user" if user else "infrastructure", message, retryable=not user)


def describe_exit(wait_status: int) -> dict[str, Any]:
    """The error of a process that ended with this `os.waitpid` status and left no report."""
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
        error = plain_error("killed", f"The attempt's process was ended by {name}{hint}", retryable=True)
        return error | {"condition": name, "exit_code": 128 + number}
    code = os.WEXITSTATUS(wait_status)
    why = " before it could report (os._exit?)" if code == 0 else ""
    error = plain_error("exit", f"The attempt's process ended with exit code {code}{why}", retryable=True)
    return error | {"exit_code": code or 1}
