"""The host: what is left of an attempt whose process has ended."""

from __future__ import annotations

from ..attempt_wire import Fault
from ..common import left
from ..common.faults import FAILED, OF_STORAGE, describe_exit, fault
from .attempts import OrderedAttempt
from .children import Spare
from .driver import Driver
from .output import CappedLog


def complete(logs: list[CappedLog], spare: Spare, driver: Driver) -> None:
    """Writes to the logs all that was printed until now."""
    spare.finish_output()
    driver.drain()
    for log in logs:
        log.close()


def failure(status: int, attempt: OrderedAttempt, jvm_lost: Fault | None) -> Fault | left.Unchecked:
    """The fault of an attempt that left no report."""
    if jvm_lost is not None:
        return jvm_lost
    if attempt.refused is not None:
        return attempt.refused
    try:
        described = left.error(attempt.dirs.log) if status == FAILED << 8 else None
    except left.Unreadable as error:
        return fault("user", str(error))
    if described and described.get("condition") in OF_STORAGE:  # user code wrote that, so that its job may wait without end
        described["condition"] = None
    return described or describe_exit(status)
