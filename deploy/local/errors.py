"""The one error of this package, and the operating system's errors in its words."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path


class LocalError(Exception):
    """Something a user can mend. ``str()`` is one sentence: what is wrong and what to do.

    ``detail`` holds what helps to find the cause (the end of a log), or is empty.
    """

    exit_code = 3
    """Of `millrace`, as where a cluster does not answer."""

    def __init__(self, sentence: str, detail: str = "") -> None:
        super().__init__(sentence)
        self.detail = detail


@contextlib.contextmanager
def plain_errors(folder: Path) -> Iterator[None]:
    """Turns an ``OSError`` of work below ``folder`` into a ``LocalError``."""
    try:
        yield
    except OSError as error:
        raise LocalError(_sentence(error, folder), detail=str(error)) from error


def disk_full(folder: Path) -> str:
    return f"The disk of {folder} is full: free some space, or choose a folder on another disk."


def no_permission(folder: Path) -> str:
    return f"No permission to write below {folder}: make it yours, or choose another folder."


def _sentence(error: OSError, folder: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(folder)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return no_permission(folder)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "Too many files are open: raise the limit with 'ulimit -n 4096'."
    return f"{folder} cannot be used: {error.strerror or error}."
