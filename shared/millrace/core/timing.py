"""What scopes promise each other about time, and how much they ask of each other: numbers that must agree."""

from __future__ import annotations

QUIET_BEATS = 5
"""A TaskManager without an allocation sends heartbeats at this multiple of the interval, and may be silent for this multiple of the
time after which it counts as lost: nothing would have to be moved."""

UNREAD_MOST_MS = 1_200
"""A TaskManager that has not read its inbox for this long may miss that a new life of the ResourceManager waits for it no more."""

BROKER_RETURN_MS = 3_000
"""After a pause of the broker, clients find their way back to it at different times: the last ones so much later."""

INSPECTION_ANSWER_MS = 2_500
"""After so long a JobMaster answers what running attempts do with what these have answered, and a ResourceManager in place of a
TaskManager. A slot's host answers for an attempt or a JVM after `task_manager/slot/wire.py:ANSWER_S` at most, which is less."""

FORWARDED_ANSWER_MS = 3_000
"""After so long a Dispatcher answers in place of the scope that it has forwarded a request to."""

FORWARDED_MOST = 250
"""Requests that a Dispatcher has forwarded to one scope and that have no answer: those about one that is gone leave room for others."""


def registration_ms(lost_after_ms: int) -> int:
    """How long a TaskManager that a shard knows may take to register with a new life of the ResourceManager.

    It learns of that life by the answer to its next heartbeat, at the latest to its next Hello, a second later.
    """
    return 1_000 + max(2 * lost_after_ms, UNREAD_MOST_MS)
