"""The control process: it leads an idle JVM through what jobs do, so that the first job of its slot meets compiled code."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence

from ..common import procs

LOOK_S = 0.25
IDLE_SHARE = 0.5


def machine_idles() -> bool:
    """Whether half of the machine has nothing to do for a moment. A JVM's threads cannot be given a low priority and a normal one later."""
    before = procs.HERE.processor_times()
    time.sleep(LOOK_S)
    after = procs.HERE.processor_times()
    return before is None or after is None or after[0] - before[0] >= IDLE_SHARE * (after[1] - before[1])


class Warming:
    """A thread beside the one that answers the host. `steps`: of a session that no attempt sees, below `folder`, which goes after the last.

    It does the first step at once, the others while it may and `idles()`: other slots and services go first. A step that fails is passed
    over: the job that needs what is missing will say so.
    """

    def __init__(self, steps: Sequence[Callable[[], object]], folder: str, idles: Callable[[], bool] = machine_idles) -> None:
        self._idles = idles
        self._folder = folder
        self._may = threading.Event()
        self._step = threading.Lock()
        self._left = list(steps)
        self._done = 0
        connected = threading.Event()
        threading.Thread(target=self._run, args=(connected,), name="warming", daemon=True).start()
        connected.wait()  # its connection to the JVM is one of those that are there before any attempt

    @property
    def left(self) -> int:
        """The steps that were not begun."""
        return len(self._left)

    def go_on(self) -> None:
        self._may.set()

    def pause(self) -> bool:
        """Returns when no step runs and none will: whether any ran since the last pause. A step is waited for, not cancelled: what Spark
        prints of a cancelled job, and its last tasks, would come in the middle of the attempt."""
        self._may.clear()
        with self._step:
            done, self._done = self._done, 0
        return done > 0

    def _run(self, connected: threading.Event) -> None:
        if self._left:
            self._do_next()
        connected.set()
        while self._left:
            self._may.wait()
            if not self._idles():
                continue
            with self._step:
                if self._may.is_set():
                    self._do_next()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _do_next(self) -> None:
        self._done += 1
        try:
            self._left.pop(0)()
        except Exception:
            pass
