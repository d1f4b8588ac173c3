"""What was observed in a simulated cluster, and what must hold of it. Every entry is checked when it is made."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import ScopeState
from millrace.core.machine import Envelope, Machine, Output
from millrace.core.messages.jobs import StartJob
from millrace.runtime.snapshots import freeze
from services.task_manager.slot.attempt.exchange import folders_of

STATES_EVERY = 250  # offsets between two comparisons of whole states
FENCED_MS = 2_000  # after it is heard again, a TaskManager knows whether it was declared lost
HELD_BACK_MS = 400  # heartbeats that Kafka gets so late may be missed: one comes every 100 ms, and 500 ms after it the sender may be lost

Where = tuple[str, int, int, tuple[tuple[int, int], ...]]
"""(scope, generation, offset, the strays of who folded it)"""


@dataclass(frozen=True)
class Living:
    """An attempt that runs in a simulated slot."""

    task_manager: str  # its process: <id>.<number of its start>
    slot: int
    attempt: str


@dataclass(frozen=True)
class Branch:
    """What a replica has folded of its log, if that was cut. `strays`: (number of the cut, offset at that time) of cuts below what it
    had folded by then: it knows records that are gone. `seen`: how many cuts it has lived through."""

    strays: tuple[tuple[int, int], ...] = ()
    seen: int = 0


@dataclass
class Book:
    """The records of a run. Raises AssertionError with the invariant's number when one is broken."""

    folded: int = 0  # records, by all replicas and TaskManagers together
    digests: dict[Where, str] = field(default_factory=dict)  # outputs
    states: dict[Where, str] = field(default_factory=dict)  # hash of the state
    asked_again: bool = False  # requests of clients were played again
    holes: dict[tuple[str, int], None] = field(default_factory=dict)  # partitions of which a session lost a record
    damaged: dict[str, int] = field(default_factory=dict)  # scope -> the last generation whose log was cut before living eyes
    spoiled: dict[str, None] = field(default_factory=dict)  # scopes of whose logs a record cannot be read, or is missing
    unseen: int = 0  # cuts of JobMasters' logs of which no replica knows that lives and can say so
    cuts: dict[str, list[int]] = field(default_factory=dict)  # scope -> where its log was cut, one after the other
    snapshots: dict[tuple[str, int, int], Branch] = field(default_factory=dict)  # (scope, generation, offset) -> of what
    living: dict[tuple[str, str, int], Living] = field(default_factory=dict)  # (job, task, subtask) -> its attempt
    slots: dict[tuple[str, int], str] = field(default_factory=dict)  # (TaskManager's process, slot) -> attempt
    launched: dict[str, int] = field(default_factory=dict)  # attempt -> how many such cuts there had been; in order
    unheard: dict[str, None] = field(default_factory=dict)  # processes of TaskManagers that may live beside their successors for a moment
    held_back: dict[str, int] = field(default_factory=dict)  # such a process -> when a stall last held its heartbeats back so long
    replaced: dict[str, None] = field(default_factory=dict)  # those that were stopped while another was started in their place
    speculative: dict[str, None] = field(default_factory=dict)  # jobs whose subtasks may have two attempts, on two TaskManagers
    mates: dict[str, None] = field(default_factory=dict)  # attempts that ran beside as many as they wait for
    asked: dict[str, int] = field(default_factory=dict)  # attempts that were asked to end, and had begun -> ms until they had ended
    finished: dict[str, None] = field(default_factory=dict)  # attempts that did
    written: dict[str, str] = field(default_factory=dict)  # folder of an output -> the attempt that finished it
    read: dict[str, list[str]] = field(default_factory=dict)  # attempt -> folders that it was given

    def record_folded(self, machine: Machine, folded: ScopeState, branch: Branch, before_ms: int, before_epoch: int) -> None:
        """I9: replicas that have folded the same records would say the same, and know the same. Machine time neither jumps, whatever the
        broker's clock does, nor goes back [R4]. I1: nor does the epoch. `before_ms`, `before_epoch`: before this record; 0: there was
        none yet."""
        self.folded += 1
        passed_ms = folded.now_ms - before_ms if before_ms else 0
        assert 0 <= passed_ms <= 2 * QUIET_TICK_MS, f"[R4]: machine time of {machine.scope} goes on by {passed_ms} ms"
        assert folded.epoch >= before_epoch, f"I1: {machine.scope} goes back from epoch {before_epoch} to {folded.epoch}"
        where = (machine.scope, folded.generation, folded.next_offset, branch.strays)
        before = self.digests.setdefault(where, folded.digest)
        assert before == folded.digest, f"I9: replicas of {machine.scope} differ at {where}"
        if folded.next_offset % STATES_EVERY == 0:
            state = hashlib.blake2b(freeze(machine, folded)).hexdigest()
            assert self.states.setdefault(where, state) == state, f"I9: states of {machine.scope} differ at {where}"

    def cut(self, scope: str, end: int) -> None:
        """The log of a scope was cut: other records may stand at these offsets now."""
        self.cuts.setdefault(scope, []).append(end)
        for noted in (self.digests, self.states):
            for where in [where for where in noted if where[0] == scope and where[2] > end]:
                del noted[where]

    def branch(self, scope: str, branch: Branch, offset: int) -> Branch:
        """The branch of a replica that stands at `offset` since before the cuts that it has not seen."""
        cuts = self.cuts.get(scope, [])
        strays = [(number, offset) for number in range(branch.seen, len(cuts)) if offset > cuts[number]]
        return Branch((*branch.strays, *strays), len(cuts))

    # attempts

    def met(self, job: str, living: Living, mates: int) -> bool:
        """Whether this attempt has run beside so many of its job, itself among them."""
        together = [each.attempt for (its, _, _), each in self.living.items() if its == job]
        if len(together) >= mates:
            self.mates |= dict.fromkeys(together)
        return living.attempt in self.mates

    def attempt_started(self, spec: dict[str, Any], living: Living, over: bool = False, now_ms: int = 0) -> None:
        """I5: nothing starts of a job that is `over`. I6: a slot has one attempt. I7: a subtask has one living attempt, and no attempt runs
        twice. What it reads was published."""
        subtask = (spec["job"], spec["task"], spec["subtask"])
        slot = (living.task_manager, living.slot)
        assert slot not in self.slots, f"I6: {living.attempt} starts beside {self.slots[slot]} in {slot}"
        other = self.living.get(subtask)
        if other is not None and spec["job"] in self.speculative and other.task_manager != living.task_manager:
            subtask = (spec["job"], f"{spec['task']}, second", spec["subtask"])
            other = self.living.get(subtask)
        stray = living.task_manager in self.replaced  # who was stopped and wakes carries out first what it was told before
        assert not over or stray, f"I5: {living.attempt} starts when its job has ended"
        alone = other is None or stray or self._may_be_replaced(other.task_manager, now_ms)
        assert alone, f"I7: {living.attempt} starts while {other} lives"
        # After a cut that nobody can tell of, a log goes on in its generation, and may give a name again.
        assert self.launched.get(living.attempt, -1) < self.unseen, f"I7: {living.attempt} starts twice"
        for vertex in spec["vertices"]:
            for each in vertex["inputs"].values():
                for folder in folders_of(each):
                    assert folder in self.written, f"I7: {living.attempt} reads {folder}, which no attempt finished"
                    self.read.setdefault(living.attempt, []).append(folder)
        if other is None or not stray:
            self.living[subtask] = living
        self.slots[slot] = living.attempt
        self.launched[living.attempt] = self.unseen

    def _may_be_replaced(self, task_manager: str, now_ms: int) -> bool:
        """Whether a process may live beside its successors: Kafka does not get what it sends, or got it late just now."""
        return task_manager in self.unheard or now_ms - self.held_back.get(task_manager, now_ms - FENCED_MS) < FENCED_MS

    def attempt_ended(self, spec: dict[str, Any], living: Living, finished: bool) -> None:
        """Nothing of it lives any more."""
        if finished:
            self.finished[living.attempt] = None
            for output in spec["outputs"]:
                folder = output.get("folder")
                if folder is not None:
                    assert folder not in self.written, f"I7: {folder} is written twice"
                    self.written[folder] = living.attempt
        for task in (spec["task"], f"{spec['task']}, second"):
            if self.living.get((spec["job"], task, spec["subtask"])) == living:
                del self.living[spec["job"], task, spec["subtask"]]
        del self.slots[living.task_manager, living.slot]

    def task_manager_died(self, name: str) -> None:
        """Its attempts died with it."""
        self.living = {subtask: each for subtask, each in self.living.items() if each.task_manager != name}
        self.slots = {slot: attempt for slot, attempt in self.slots.items() if slot[0] != name}


class Poisoned(Exception):
    """A bug in a handler that one job meets [R26]."""


class Checked:
    """A machine whose invariants are asserted after every record. To handle the start of a job in `poison` ends its process."""

    def __init__(self, machine: Machine, check: Callable[[Any], None], poison: tuple[str, ...] = ()) -> None:
        self._machine, self._check, self._poison = machine, check, poison
        self.scope, self.peers, self.state_type = machine.scope, machine.peers, machine.state_type

    def blank(self) -> Any:
        return self._machine.blank()

    def is_idle(self, state: Any) -> bool:
        return self._machine.is_idle(state)

    def handle(self, state: Any, envelope: Envelope) -> Iterator[Output]:
        if isinstance(envelope.body, StartJob) and envelope.body.job in self._poison:
            raise Poisoned(f"the start of {envelope.body.job}")
        yield from self._machine.handle(state, envelope)
        self._check(state)
