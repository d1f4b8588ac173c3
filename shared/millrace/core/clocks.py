"""The two clocks of a machine, and that of a process, each with a type of its own: no timer can be set by the wrong one [R4]."""

from __future__ import annotations

from typing import NewType

AtMs = NewType("AtMs", int)
"""The broker's clock, in ms since 1970: when something happened, as people read it. It may jump, so no timer goes by it."""

TIME_MOST_MS = 253_402_300_799_000
"""The last moment that can be written as a date."""

NowMs = NewType("NowMs", int)
"""Machine time, in ms: for timers. It goes on with the leader's ticks, neither jumps nor runs ahead, and lags behind after a pause."""

OwnMs = NewType("OwnMs", int)
"""A process's own steady clock, in ms: how long it waits for Kafka, etcd or a leader. No machine and no record has it."""


def after(now_ms: NowMs, ms: int) -> NowMs:
    """The machine time at which a timer of `ms` is due."""
    return NowMs(now_ms + ms)
