"""What the Spark of all slots has done since this process began, for its metrics: by what attempts report as they run and end."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from millrace.core.messages.progress import AttemptProgress

PEAK = "bytes_memory_peak"
Figures = Mapping[str, int]


class SparkWork:
    """Any thread. Figures only grow: what an attempt's user code reports in its place takes nothing back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, dict[str, int]] = {}  # by slot
        self._ended = dict.fromkeys(AttemptProgress.model_fields, 0)

    def note(self, slot: int, progress: AttemptProgress) -> None:
        """The attempt in this slot has done so much."""
        with self._lock:
            known = self._running.setdefault(slot, {})
            for name, count in progress.model_dump(exclude_none=True).items():
                known[name] = max(count, known.get(name, 0))

    def end(self, slot: int, progress: AttemptProgress | None) -> None:
        """It has ended. `progress`: as it reported in the end."""
        if progress is not None:
            self.note(slot, progress)
        with self._lock:
            for name, count in self._running.pop(slot, {}).items():
                self._ended[name] += count

    def read(self) -> tuple[Figures, int]:
        """All together; and the most memory that a stage of an attempt has needed of those that run."""
        with self._lock:
            total = dict(self._ended)
            for known in self._running.values():
                for name, count in known.items():
                    total[name] += count
            return total, max((known.get(PEAK, 0) for known in self._running.values()), default=0)
