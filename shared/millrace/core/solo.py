"""A scope without election, sans-IO: one process folds and speaks for a whole generation, from its first record on.

It has no log to read back. Its shell puts the one input in order, stamps each record, and gives it once. Every input method returns
the actions to carry out, in order, in the words of `replica`: Append means here that the record is given back at once.
"""

from __future__ import annotations

from typing import Any

from .clocks import OwnMs
from .fold import TICK_MS, Fold, ScopeState
from .messages.records import Elected, Record, Tick
from .replica import Action, Append, BaseReplica, BeReborn, End


class SoloReplica(BaseReplica):
    """`folded` is blank at the start of its generation. `who` names the process, `build` the code."""

    def __init__(self, core: Fold, folded: ScopeState, *, who: str, build: str, own_ms: OwnMs) -> None:
        super().__init__(core, folded, who=who, build=build)
        self.ticked_ms = own_ms

    @property
    def epoch(self) -> int:
        """Its one term is its generation."""
        return self.folded.generation

    def begin(self, settings: dict[str, Any]) -> list[Action]:
        """Its Elected record, with the settings that decide."""
        return [Append(Elected(
            generation=self.epoch, epoch=self.epoch, build=self.build, who=self.who, settings=settings
        ))]  # fmt: skip

    def record(self, stamp_ms: int, record: Record) -> list[Action]:  # [R8]
        """Folds the next record of the input."""
        result = self.fold.fold(self.folded, self.folded.next_offset, stamp_ms, record)
        if result.superseded:
            return [End(f"{self.fold.machine.scope} lives in a later life than {self.folded.generation}")]
        if result.damage is not None:
            return [BeReborn(result.damage)]
        return self._speak(result)

    def acked(self, seq: int) -> list[Action]:
        """An output is in Kafka."""
        return self._perform(*self.speaking.acked(seq))

    def tick(self, own_ms: OwnMs, rest_ms: int) -> list[Action]:
        """`rest_ms`: how long its ticks may be apart where nobody needs it."""
        self.ticked_ms = own_ms
        return [Append(Tick(
            epoch=self.epoch,
            n=self.folded.tick + 1,
            published_through=self.speaking.published_through(),
            digest=self.folded.ticked_digest,
            next_ms=self._interval_ms(rest_ms),
        ))]  # fmt: skip

    def next_tick_ms(self, rest_ms: int) -> OwnMs:
        """When the next tick is due, if nothing comes before: never later than the last one promised [R4]."""
        return OwnMs(self.ticked_ms + min(self.folded.next_ms, self._interval_ms(rest_ms)))

    def _interval_ms(self, rest_ms: int) -> int:
        """Between two ticks. At rest nobody needs it, all peers have heard it and all it said is in Kafka."""
        awaits_peers = any(not peer.life and not peer.parted for peer in self.folded.peers.values())
        if awaits_peers or self.speaking.unacked or not self.fold.machine.is_idle(self.folded.state):
            return TICK_MS
        return rest_ms
