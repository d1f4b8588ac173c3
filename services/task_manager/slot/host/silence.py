"""The host: notices that its TaskManager hangs or is stopped, for others may have been given what runs here."""

from __future__ import annotations

import asyncio
import os
import sys

from .inbox import Inbox

_STEP_S = 0.05


async def silence(beats: int, inbox: Inbox) -> None:
    """Returns when an attempt is here and the TaskManager has been silent for too long: others may have been given the attempt.

    In the host's own working time: when it was starved of processor time or stopped as well, at most two of its steps count of that.
    ``beats``: a descriptor that gives, again and again, for how many milliseconds at most nothing may be read from it.
    """
    loop = asyncio.get_running_loop()
    silent_s, patience_s = 0.0, float("inf")

    def heard() -> None:
        nonlocal silent_s, patience_s
        lines = os.read(beats, 1 << 16).split()
        if lines:
            silent_s, patience_s = 0.0, int(lines[-1]) / 1000
        else:
            loop.remove_reader(beats)  # the TaskManager has ended, and so will this host

    loop.add_reader(beats, heard)
    while silent_s < patience_s:
        if inbox.empty:
            await inbox.some()
            silent_s = 0.0
        before = loop.time()
        await asyncio.sleep(_STEP_S)
        silent_s += min(loop.time() - before, 2 * _STEP_S)
    print(f"the TaskManager has not been heard for {silent_s:.2f} s: the slot ends", file=sys.stderr, flush=True)
