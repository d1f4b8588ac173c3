"""What a TaskManager and its ResourceManager promise each other about time."""

from __future__ import annotations

QUIET_BEATS = 5
"""A TaskManager without an allocation sends heartbeats at this multiple of the interval, and may be silent for this multiple of the
time after which it counts as lost: nothing would have to be moved."""

UNREAD_MOST_MS = 1_200
"""A TaskManager that has not read its inbox for this long may miss that a new life of the ResourceManager waits for it no more."""


def registration_ms(lost_after_ms: int) -> int:
    """How long a TaskManager that a shard knows may take to register with a new life of the ResourceManager.

    It learns of that life by the answer to its next heartbeat, at the latest to its next Hello, a second later.
    """
    return 1_000 + max(2 * lost_after_ms, UNREAD_MOST_MS)
