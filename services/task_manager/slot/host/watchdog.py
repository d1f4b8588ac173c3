"""The host: watches the heartbeats of its TaskManager. When that hangs or is stopped, others may have been given what runs here."""

from __future__ import annotations

import asyncio
import os
import sys

from .attempts import Attempts

_STEP_S = 0.05


async def watchdog(beats: int, attempts: Attempts) -> None:
    """Returns when an attempt is here and no heartbeat was received for too long.

    In the host's own working time: when it was starved of processor time or stopped as well, at most two of its steps count of that.
    ``beats``: a descriptor that gives, again and again, for how many milliseconds at most nothing may be read from it.
    """
    loop = asyncio.get_running_loop()
    elapsed_s, timeout_s = 0.0, float("inf")

    def received() -> None:
        nonlocal elapsed_s, timeout_s
        lines = os.read(beats, 1 << 16).split()
        if lines:
            elapsed_s, timeout_s = 0.0, int(lines[-1]) / 1000
        else:
            loop.remove_reader(beats)  # the TaskManager has ended, and so will this host

    loop.add_reader(beats, received)
    while elapsed_s < timeout_s:
        if attempts.empty:
            await attempts.some()
            elapsed_s = 0.0
        before = loop.time()
        await asyncio.sleep(_STEP_S)
        elapsed_s += min(loop.time() - before, 2 * _STEP_S)
    print(f"no heartbeat of the TaskManager for {elapsed_s:.2f} s: the slot ends", file=sys.stderr, flush=True)
