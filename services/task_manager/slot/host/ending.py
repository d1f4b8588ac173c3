"""The host: what is left of an attempt whose process has ended."""

from __future__ import annotations

from typing import Any

from ..common import left
from ..common.faults import FAILED, describe_exit, plain_error
from .children import Spare
from .driver import Driver
from .inbox import Command
from .output import CappedLog


def complete(logs: list[CappedLog], spare: Spare, driver: Driver) -> None:
    """Writes to the logs all that was printed until now."""
    spare.finish_output()
    driver.drain()
    for log in logs:
        log.close()


def failure(status: int, command: Command, jvm_lost: dict[str, Any] | None) -> dict[str, Any]:
    """The error of an attempt that left no report."""
    if jvm_lost is not None:
        return jvm_lost
    if command.refused is not None:
        return command.refused
    try:
        described = left.error(command.dirs.log) if status == FAILED << 8 else None
    except left.Unreadable as error:
        described = plain_error("user", str(error))
    return described or describe_exit(status)
