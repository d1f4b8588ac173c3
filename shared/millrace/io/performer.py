"""Carries out the effects of a leader, fenced by its epoch, until their outcomes are known [17]."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from pydantic import TypeAdapter

from millrace.core.messages.base import Body
from millrace.core.replica import Perform

from .interfaces import Compare, Unavailable
from .storage import StorageError

BATCH_MOST = 40
RETRY_FIRST_S, RETRY_MOST_S = 0.05, 2.0

log = structlog.get_logger("performer")


class Refused(Exception):
    """The leader key is no longer of this epoch: the term is over. Never an outcome."""


@dataclass(frozen=True)
class Fence:
    """Who performs: every write of a leader to etcd compares its key with its epoch."""

    scope: str
    epoch: int

    def compare(self) -> Compare:
        return Compare(f"leaders/{self.scope}", self.epoch)


Port = Callable[[list[Body], Fence], "list[Body | None]"]
"""The outcomes of some effects of one type, in order; None: not known yet, to be performed again."""


def one_by_one(perform: Callable[[Body, Fence], Body | None]) -> Port:
    """A port of a function of one effect. One that cannot be carried out now is tried again, and does not hold up the others."""

    def each(effects: list[Body], fence: Fence) -> list[Body | None]:
        outcomes: list[Body | None] = []
        for effect in effects:
            try:
                outcomes.append(perform(effect, fence))
            except (Unavailable, StorageError) as failure:
                log.warning("an effect is not carried out yet", effect=type(effect).__name__, reason=str(failure))
                outcomes.append(None)
            except Refused:
                raise
            except Exception:
                log.exception("an effect failed", effect=type(effect).__name__)
                outcomes.append(None)
        return outcomes

    return each


class Performer:
    """One thread for each type of effect, so that a slow one (storage) does not hold up another (etcd).

    on_outcome(perform, outcome) is called on these threads; a term that is over is known by `current(epoch)` being false: its
    effects are dropped unperformed, for the next leader performs them again.
    """

    def __init__(
        self,
        scope: str,
        ports: Mapping[type[Body], Port],
        on_outcome: Callable[[Perform, Body], None],
        current: Callable[[int], bool],
        fatal: Callable[[str], None],
    ) -> None:
        self.fatal = fatal
        self._scope, self._on_outcome, self._current = scope, on_outcome, current
        self._lanes = {effect.model_fields["type"].default: _Lane(self, effect, port) for effect, port in ports.items()}

    def perform(self, action: Perform, type: str) -> None:
        """Queues an effect. KeyError for a type without a port: a bug of this build."""
        self._lanes[type].put(action)

    def stop(self, timeout_s: float) -> None:
        """Ends the threads after what they are doing."""
        for lane in self._lanes.values():
            lane.close()
        deadline = time.monotonic() + timeout_s
        for lane in self._lanes.values():
            lane.join(max(0.0, deadline - time.monotonic()))


class _Lane(threading.Thread):
    def __init__(self, performer: Performer, effect: type[Body], port: Port) -> None:
        super().__init__(name=f"effects-{effect.__name__}", daemon=True)
        self._performer, self._port, self._adapter = performer, port, TypeAdapter(effect)
        self._queue: queue.SimpleQueue[Perform | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.start()

    def put(self, action: Perform) -> None:
        self._queue.put(action)

    def close(self) -> None:
        self._closed.set()
        self._queue.put(None)

    def run(self) -> None:
        try:
            self._live()
        except Exception as failure:  # else this kind of effect would never be carried out again
            log.exception("effects end", effect=self.name)
            self._performer.fatal(f"{self.name}: {type(failure).__name__}: {failure}")

    def _live(self) -> None:
        again: list[Perform] = []
        wait_s = RETRY_FIRST_S
        while not self._closed.is_set():
            batch = again + self._take(block=not again, most=BATCH_MOST - len(again))
            batch = [action for action in batch if self._performer._current(action.epoch)]
            again = self._perform(batch) if batch else []
            if not again:
                wait_s = RETRY_FIRST_S
            elif self._closed.wait(wait_s):
                return
            else:
                wait_s = min(wait_s * 2, RETRY_MOST_S)

    def _take(self, block: bool, most: int) -> list[Perform]:
        taken: list[Perform] = []
        try:
            while len(taken) < most:
                action = self._queue.get(block=block and not taken)
                if action is None:
                    break
                taken.append(action)
        except queue.Empty:
            pass
        return taken

    def _perform(self, batch: list[Perform]) -> list[Perform]:
        """Performs what shares the newest epoch; returns what must be performed again."""
        epoch = batch[-1].epoch
        batch = [action for action in batch if action.epoch == epoch]
        started = time.monotonic()
        try:
            outcomes = self._port(
                [self._adapter.validate_json(action.value) for action in batch], Fence(self._performer._scope, epoch)
            )
        except Refused:
            return []
        except (Unavailable, StorageError) as failure:
            log.warning("effect not carried out yet", effect=self.name, reason=str(failure), effects=len(batch))
            return batch
        except (
            Exception
        ):  # a port's own failure (a disk, a bug) must not lose the effect: it is tried again, and said each time
            log.exception("effect failed", effect=self.name, effects=len(batch))
            return batch
        again = []
        for action, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                again.append(action)
            else:
                self._performer._on_outcome(action, outcome)
        log.debug(
            "effects carried out",
            effect=self.name,
            effects=len(batch),
            ms=round((time.monotonic() - started) * 1000, 2),
        )
        return again
