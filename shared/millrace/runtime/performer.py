"""Carries out the effects of a leader, fenced by its epoch, until their outcomes are known [R17]."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog
from pydantic import TypeAdapter

from millrace.core.messages.base import Body
from millrace.core.replica import Perform
from millrace.io.interfaces import Compare, Entry, Store, Txn, Unavailable
from millrace.io.storage.store import StorageError

from .metrics import EFFECT_RETRIES, EFFECT_SECONDS, FENCED

BATCH_MOST = 40  # effects a call: 41 compares and 40 puts are less than the 128 operations of a transaction [R19]
RETRY_FIRST_S, RETRY_MOST_S = 0.05, 2.0

log = structlog.get_logger("performer")


class Refused(Exception):  # [R6]
    """The leader key is no longer of this epoch: the term is over. Never an outcome."""


@dataclass(frozen=True)
class Fence:  # [R17]
    """Who performs: every write of a leader to etcd compares its key with its epoch."""

    scope: str
    epoch: int

    def compare(self) -> Compare:
        return Compare(f"leaders/{self.scope}", self.epoch)

    def check(self, store: Store) -> None:
        """Asks etcd, before something that no compare can guard. Raises Refused, Unavailable."""
        if not store.txn(Txn([self.compare()], [], [self.compare().key])).succeeded:
            raise Refused

    def check_read(self, reads: Mapping[str, Entry | None]) -> None:
        """As `check`, by what a transaction has read of the leader key. Raises Refused."""
        leader = reads[self.compare().key]
        if leader is None or leader.mod_revision != self.epoch:
            raise Refused


Port = Callable[[Any, Fence], Sequence[Body | None]]
"""The outcomes of some effects, of the type under which the port stands, in order. None: not known yet, to be performed again."""
E = TypeVar("E", bound=Body)


class PerEffect(Generic[E]):
    """A port of a function of one effect. One that cannot be carried out now is tried again, and does not hold up the others;
    `at_once` of them are under way together, so that one that takes long, or hangs, does not either."""

    def __init__(self, perform: Callable[[E, Fence], Body | None], at_once: int = 1) -> None:
        self._each, self.at_once = perform, at_once

    def __call__(self, effects: Sequence[E], fence: Fence) -> list[Body | None]:
        return [self._outcome(effect, fence) for effect in effects]

    def _outcome(self, effect: E, fence: Fence) -> Body | None:
        try:
            return self._each(effect, fence)
        except (Unavailable, StorageError) as failure:
            log.warning("an effect is not carried out yet", effect=type(effect).__name__, reason=str(failure))
        except Refused:
            raise
        except Exception:
            log.exception("an effect failed", effect=type(effect).__name__)
        return None


def each(perform: Callable[[Any], Body | None]) -> Port:
    """A port of a function of one effect that takes no time and needs no fence."""
    return lambda effects, fence: [perform(effect) for effect in effects]


class InOrder:
    """Carries out effects on the caller's thread, one after the other whatever their types: where none takes time, and none is tried
    again."""

    def __init__(self, scope: str, ports: Mapping[type[Body], Port]) -> None:
        self._scope = scope
        self._ports = {effect.model_fields["type"].default: (TypeAdapter(effect), port) for effect, port in ports.items()}

    def perform(self, action: Perform, kind: str) -> Body | None:
        """The outcome of an effect; None: it has none. KeyError for a type without a port: a bug of this build."""
        adapter, port = self._ports[kind]
        return port([adapter.validate_json(action.value)], Fence(self._scope, action.epoch))[0]


class Performer:  # [R17]
    """A lane for each type of effect, so that a slow one (storage) does not hold up another (etcd).

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

    def perform(self, action: Perform, kind: str) -> None:
        """Queues an effect. KeyError for a type without a port: a bug of this build."""
        self._lanes[kind].put(action)

    def stop(self, timeout_s: float) -> None:
        """Ends the threads after what they are doing."""
        for lane in self._lanes.values():
            lane.close()
        deadline = time.monotonic() + timeout_s
        for lane in self._lanes.values():
            lane.join(deadline)


@dataclass(order=True)
class _Waiting:
    due_s: float
    """By time.monotonic: when it is to be performed."""
    number: int
    action: Perform = field(compare=False)
    asked_s: float = field(compare=False)
    wait_s: float = field(compare=False, default=RETRY_FIRST_S)
    """How long it waits if it cannot be carried out."""


class _Lane:
    """Effects of one type, in the order they came. One that is to be tried again waits by itself: it may be so for ever."""

    def __init__(self, performer: Performer, effect: type[Body], port: Port) -> None:
        self._performer, self._port, self._adapter = performer, port, TypeAdapter(effect)
        self._waiting: list[_Waiting] = []  # a heap
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._closed = False
        self._effect, self._name = effect.__name__, f"effects-{effect.__name__}"
        EFFECT_SECONDS.begin(self._effect)
        EFFECT_RETRIES.begin(self._effect)
        at_once, self._most = (port.at_once, 1) if isinstance(port, PerEffect) else (1, BATCH_MOST)
        self._threads = [threading.Thread(target=self._run, name=self._name, daemon=True) for _ in range(at_once)]
        for thread in self._threads:
            thread.start()

    def put(self, action: Perform) -> None:
        now = time.monotonic()
        self._wait(_Waiting(now, next(self._numbers), action, now))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def join(self, deadline: float) -> None:
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        try:
            while taken := self._take():
                current = [each for each in taken if self._performer._current(each.action.epoch)]
                for each in self._perform(current) if current else ():
                    EFFECT_RETRIES.add(self._effect)
                    again_s = min(each.wait_s * 2, RETRY_MOST_S)
                    self._wait(_Waiting(time.monotonic() + each.wait_s, each.number, each.action, each.asked_s, again_s))
        except Exception as failure:  # else this kind of effect would never be carried out again
            log.exception("effects end", effect=self._name)
            self._performer.fatal(f"{self._name}: {type(failure).__name__}: {failure}")

    def _wait(self, waiting: _Waiting) -> None:
        with self._changed:
            heapq.heappush(self._waiting, waiting)
            self._changed.notify()

    def _take(self) -> list[_Waiting]:
        """What is due, at most a batch; waits for it. Nothing when the lane is closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                taken: list[_Waiting] = []
                while self._waiting and self._waiting[0].due_s <= now and len(taken) < self._most:
                    taken.append(heapq.heappop(self._waiting))
                if taken:
                    self._changed.notify()  # this thread may hang: another one is to wake for what is due next
                    return taken
                self._changed.wait(self._waiting[0].due_s - now if self._waiting else None)
            return []

    def _perform(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Performs what shares the newest epoch; returns what must be performed again."""
        epoch = max(each.action.epoch for each in batch)
        batch = [each for each in batch if each.action.epoch == epoch]
        started = time.monotonic()
        try:
            outcomes = self._port(
                [self._adapter.validate_json(each.action.value) for each in batch], Fence(self._performer._scope, epoch)
            )
        except Refused:
            FENCED.add(self._performer._scope)
            return []
        except (Unavailable, StorageError) as failure:
            log.warning("effect not carried out yet", effect=self._name, reason=str(failure), effects=len(batch))
            return batch
        except Exception:  # a port's own failure (a disk, a bug) must not lose the effect: it is tried again, and said each time
            log.exception("effect failed", effect=self._name, effects=len(batch))
            return batch
        again = []
        for each, outcome in zip(batch, outcomes, strict=True):
            if outcome is None:
                again.append(each)
            else:
                EFFECT_SECONDS.observe(time.monotonic() - each.asked_s, self._effect)
                self._performer._on_outcome(each.action, outcome)
        log.debug(
            "effects carried out",
            effect=self._name,
            effects=len(batch),
            ms=round((time.monotonic() - started) * 1000, 2),
        )
        return again
