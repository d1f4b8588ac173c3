"""The slots of `tests.task_manager.timed`: what the long runs with processes rely on."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

from millrace.core.messages.effects import KillAttempt, LaunchAttempt
from millrace.core.messages.slots import AttemptEnded, AttemptRunning, SlotReady
from millrace.io.storage.store import Storage
from services.task_manager.ports.slots import Slots
from tests.core.of_attempts import spec_of
from tests.task_manager.simulated_slot import OnEvent
from tests.task_manager.timed import TimedSlot, query

LIMIT_S = 120
ATTEMPT = "j/one/0/1"


class Killed(TimedSlot):
    """A slot that says when it is asked to kill."""

    def __init__(self, number: int, on_event: OnEvent) -> None:
        self.asked = threading.Event()
        super().__init__(number, on_event)

    def kill(self, attempt: str, why: str) -> None:
        self.asked.set()
        super().kill(attempt, why)


def test_an_attempt_that_is_killed_while_it_tells_its_end_ends_once(tmp_path: Path) -> None:
    """Who kills holds the lane's lock, and the end needs it: with a lock of the slot around both, each waits for the other for ever, and
    with it the TaskManager's loop, so that nothing starts it again."""
    facts: queue.SimpleQueue[Any] = queue.SimpleQueue()
    killer = threading.Thread(target=lambda: slots.kill(KillAttempt(slot=0, attempt=ATTEMPT, why="canceled")), daemon=True)

    def make(number: int, on_event: OnEvent) -> TimedSlot:
        def told(event: dict[str, Any]) -> None:
            if event["is"] == "ended":
                killer.start()
                assert slot.asked.wait(LIMIT_S)
            on_event(event)

        slot = Killed(number, told)
        return slot

    slots = Slots(make, 1, tmp_path, Storage(str(tmp_path / "storage")), facts.put)
    slots.start()
    vertex = {"id": "one", "sql": query(0.01), "parallelism": 1, "inputs": {}}
    spec = spec_of(task="one", vertices=[vertex])
    slots.launch(LaunchAttempt(slot=0, attempt=ATTEMPT, acceptance="ac", folder="ac/1", spec=spec))
    said = [facts.get(timeout=LIMIT_S) for _ in range(4)]
    assert [type(each) for each in said] == [SlotReady, AttemptRunning, AttemptEnded, SlotReady]
    killer.join(LIMIT_S)
    assert not killer.is_alive() and facts.empty()
    assert said[2].status == "finished"
