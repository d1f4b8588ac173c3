"""What follows a failed attempt: pure policy."""

from __future__ import annotations

from typing import Any

from millrace.core.jobgraph.model import Restart

from .state import Job, Subtask

MOVED = ("infrastructure", "lost")
"""Kinds of errors that are not the job's own doing: the attempt is moved, and that does not count as a failure."""

MOVE_FIRST_MS, MOVE_MOST_MS = 100, 10_000
"""Delay of a subtask's second move, and the longest one."""


def restart_after_ms(
    restart: Restart, job: Job, subtask: Subtask, error: dict[str, Any], moves_most: int
) -> int | None:
    """The delay until the subtask's next attempt; None: the job fails. fixed-delay or none, as the graph says.

    A moved attempt goes on at once, the next ones ever later (what moved them may need a moment), and none when the subtask was
    moved too often: then it is likely to be what ends its slots.
    """
    if is_move(error):
        if subtask.moves >= moves_most:
            return None
        return min(MOVE_FIRST_MS << subtask.moves - 1, MOVE_MOST_MS) if subtask.moves else 0
    if not error.get("retryable", False) or restart.strategy == "none" or job.restarts >= restart.attempts:
        return None
    return restart.delay_ms


def is_move(error: dict[str, Any]) -> bool:
    return error.get("kind") in MOVED and bool(error.get("retryable", True))


def lost(reason: str) -> dict[str, Any]:
    """The error of an attempt that was lost with its TaskManager."""
    return {"kind": "lost", "retryable": True, "message": reason}
