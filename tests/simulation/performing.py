"""Effects of a simulated process, performed with the real ports, in turns of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from millrace.core.messages.base import Body
from millrace.core.replica import Perform
from millrace.io.interfaces import Unavailable
from millrace.io.storage.store import StorageError
from millrace.runtime.performer import BATCH_MOST, Fence, Port, Refused
from services.dispatcher.staging import Staging, delete_staging
from tests.simulation.world import STALLED_MS, World

AGAIN_MS = 50


class SteppedPerformer:
    """As `millrace.runtime.performer.Performer`, without its threads: each turn performs a batch of one type of effect, or
    lets that type wait for a while."""

    def __init__(
        self,
        world: World,
        scope: str,
        ports: Mapping[type[Body], Port],
        on_outcome: Callable[[Perform, Body], None],
        current: Callable[[int], bool],
        fatal: Callable[[str], None],
    ) -> None:
        del fatal  # nothing here runs on a thread of its own
        self._world, self._scope, self._on_outcome, self._current = world, scope, on_outcome, current
        self._ports = {effect.model_fields["type"].default: (effect, port) for effect, port in ports.items()}
        self._lanes: dict[str, deque[Perform]] = {name: deque() for name in self._ports}
        self._wait_ms: dict[str, int] = {}

    def perform(self, action: Perform, type: str) -> None:
        self._lanes[type].append(action)

    def stop(self, timeout_s: float) -> None:
        for lane in self._lanes.values():
            lane.clear()

    @property
    def waits(self) -> bool:
        """Whether an effect waits to be performed."""
        return any(self._lanes.values())

    def turn(self) -> bool:
        now_ms = self._world.clock.now_ms()
        ready = [name for name, lane in self._lanes.items() if lane and self._wait_ms.get(name, 0) <= now_ms]
        if not ready:
            return False
        name = self._world.random.choice(ready)
        if self._world.stalls and self._world.random.random() < self._world.stalls:
            self._wait_ms[name] = now_ms + self._world.random.choice(STALLED_MS)
            return True
        lane = self._lanes[name]
        most = self._world.random.choice((1, 3, BATCH_MOST))
        batch = [lane.popleft() for _ in range(min(most, len(lane)))]
        again = self._perform(name, [action for action in batch if self._current(action.epoch)])
        if again:
            lane.extend(again)
            self._wait_ms[name] = now_ms + AGAIN_MS
        return True

    def _perform(self, name: str, batch: list[Perform]) -> list[Perform]:
        if not batch:
            return []
        body, port = self._ports[name]
        epoch = max(action.epoch for action in batch)
        batch = [action for action in batch if action.epoch == epoch]
        try:
            outcomes = port([body.model_validate_json(action.value) for action in batch], Fence(self._scope, epoch))
        except Refused:
            return []
        except (Unavailable, StorageError):
            return batch
        again = []
        for action, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                again.append(action)
            else:
                self._on_outcome(action, outcome)
        return again


class StagingAtOnce(Staging):
    """The deletion of staged output, without its threads."""

    def delete(self, folders: Sequence[str]) -> dict[str, str]:
        problems = {}
        for folder in folders:
            try:
                delete_staging(folder, self._schemes)
            except Exception as failure:
                problems[folder] = f"{type(failure).__name__}: {failure}"[:500]
        return problems
