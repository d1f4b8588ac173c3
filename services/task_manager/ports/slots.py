"""The TaskManager's slots as its machine's effects reach them: LaunchAttempt, KillAttempt, and the facts that come back."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog

from millrace.core.messages.base import Body
from millrace.core.messages.effects import FindAnswer, KillAttempt, LaunchAttempt, OrderAttempt
from millrace.core.messages.processes import Setting
from millrace.io.storage.store import Storage

from ..kept_files import Keep
from ..slot.client import end_left_over
from ..slot.common.folders import why_kept
from ..traces import AttemptTraces
from .blob_cache import BlobCache, CacheLimits
from .inspecting import Inspecting
from .keeping import Keeping
from .lane import Lane, Shared, SlotFactory
from .progress import ProgressReports
from .spark_work import SparkWork

KEEP = Keep()
CACHE = CacheLimits()

log = structlog.get_logger("slots")


class Slots:
    """All slots of a process. `on_fact(body)` is called, on any thread, with what becomes of them."""

    def __init__(
        self,
        factory: SlotFactory,
        count: int,
        folder: Path,
        storage: Storage,
        on_fact: Callable[[Body], None],
        *,
        keep: Keep = KEEP,
        cache: CacheLimits = CACHE,
        submit: Callable[[Callable[[], None]], Any] | None = None,
        later: Callable[[float, Callable[[], None]], None] | None = None,
        traces: AttemptTraces | None = None,
        settings: Callable[[], list[Setting]] = list,
    ) -> None:
        """`folder`: the TaskManager's own, of its name. `keep`: of what attempts leave in theirs. `cache`: of the files of jobs.
        `submit` runs what may take long (default: threads), `later` after some seconds. `traces` makes spans. `settings`: what the
        process runs with."""
        self._folder = folder
        life = os.urandom(4).hex()  # what an earlier process could not remove is in no new attempt's way
        attempts, logs = folder / "attempts" / life, folder / "logs" / life
        self.blobs = BlobCache(folder / "blobs", storage, cache, later or _later)
        self.work = SparkWork()
        self._shared = Shared(
            factory,
            on_fact,
            attempts,
            logs,
            folder / "findings",
            self.blobs,
            storage,
            Keeping(storage, logs, keep),
            ProgressReports(on_fact, later or _later),
            self.work,
            # Two a slot: what fetches files for an attempt may wait for storage after that was canceled, while the slot has the next one.
            submit or ThreadPoolExecutor(min(2 * count, 64), thread_name_prefix="attempts").submit,
            later or _later,
            traces,
        )
        self._lanes = [Lane(self._shared, number) for number in range(count)]
        self._inspecting = Inspecting(folder.name, self._lanes, folder / "slots", storage, settings, on_fact)

    def start(self) -> None:
        """Starts all slots. What an earlier process has left is ended, and its working files go."""
        end_left_over(self._folder / "slots")
        attempts, logs = self._shared.attempts, self._shared.logs
        for folder in (attempts, logs):
            if why := why_kept(str(folder.parent)):
                log.warning("what earlier attempts left cannot be removed", reason=why)
            folder.mkdir(parents=True)
        self.blobs.start()
        for lane in self._lanes:
            lane.start()

    def launch(self, effect: LaunchAttempt) -> None:
        """Prepares an attempt and orders it; what becomes of it is reported by facts."""
        self._lanes[effect.slot].launch(effect)

    def kill(self, effect: KillAttempt) -> None:
        """Ends an attempt; its AttemptEnded follows, or is on the way already."""
        self._lanes[effect.slot].kill(effect)

    def order(self, effect: OrderAttempt) -> None:
        """Passes an order on to a running attempt; OrderAnswered follows."""
        self._lanes[effect.slot].order(effect)

    def answer(self, effect: FindAnswer) -> None:
        """Looks for what a client asks; AnswerFound follows."""
        self._inspecting.answer(effect)

    def beat(self, patience_ms: int) -> None:
        """The TaskManager is at work: sent to the slots with an attempt, which end when they do not get it for so long."""
        for lane in self._lanes:
            lane.beat(patience_ms)

    def close(self, timeout_s: float) -> None:
        """Ends all slots and what runs in them, within this time; what is left dies with this process."""
        self._shared.closing = True
        threads = [threading.Thread(target=lane.close, name=f"slot-{n}-close", daemon=True) for n, lane in enumerate(self._lanes)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + timeout_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def _later(seconds: float, do: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, do)
    timer.name, timer.daemon = "later", True
    timer.start()
