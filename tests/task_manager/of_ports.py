"""Slots of one lane over a slot that the test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from millrace.core.messages.effects import LaunchAttempt
from millrace.core.messages.slots import AttemptEnded, SlotReady
from millrace.io.storage.store import Storage
from services.task_manager.ports.blob_cache import CacheLimits
from services.task_manager.ports.slots import Slots
from tests.core.of_attempts import spec_of
from tests.task_manager.simulated_slot import SimulatedSlot

ATTEMPT = "j/0-t/0/1"
CACHE = CacheLimits(retries=0)


class World:
    """Slots of one lane over a slot that the test moves; work and timers wait until the test lets them go."""

    def __init__(self, folder: Path, storage: str = "", cache: CacheLimits = CACHE, slots: int = 1) -> None:
        self.folder = folder
        self.storage = Storage(storage or str(folder / "storage"))
        self.made: list[SimulatedSlot] = []
        self.facts: list[Any] = []
        self.work: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.fail: OSError | None = None
        self.slots = Slots(
            self._make,
            slots,
            folder / "tm",
            self.storage,
            self.facts.append,
            cache=cache,
            submit=self.work.append,
            later=lambda s, do: self.timers.append((s, do)),
        )
        self.slots.start()

    def _make(self, number: int, on_event: Any) -> SimulatedSlot:
        if self.fail is not None:
            raise self.fail
        self.made.append(SimulatedSlot(number, on_event, prompt=False))
        return self.made[-1]

    @property
    def slot(self) -> SimulatedSlot:
        return self.made[-1]

    def launch(self, attempt: str = ATTEMPT, **spec: Any) -> None:
        self.slots.launch(LaunchAttempt(
            slot=0, attempt=attempt, acceptance="ac", folder=f"ac/{attempt}", spec=spec_of(**spec)
        ))  # fmt: skip

    def go(self) -> None:
        """Lets the submitted work run."""
        while self.work:
            self.work.pop(0)()

    def told(self) -> list[Any]:
        told = list(self.facts)
        self.facts.clear()
        return told


def ended(status: Any, **more: Any) -> AttemptEnded:
    return AttemptEnded(slot=0, attempt=ATTEMPT, status=status, **more)




READY = SlotReady(slot=0)
