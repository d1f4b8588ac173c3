"""A leader's outcomes on their way through its log [R17].

Kafka may lose an outcome that it had acknowledged, before any replica reads it. The log grows again over the place, and nothing shows
the loss: the effect would stay without an outcome until another replica leads and performs it again.
"""

from __future__ import annotations

from collections import deque

from millrace.core.fold import ScopeState
from millrace.core.messages.base import Body

TICKS = 2  # the next one may lie before the outcome: it was appended at the same moment. The one after that is made when it was read back


class Outcomes:  # [R17]
    """What this leader has appended and not read back."""

    def __init__(self) -> None:
        self._appended: deque[tuple[int, str, Body]] = deque()
        self._unread: dict[str, tuple[int, Body]] = {}  # effect -> the tick folded when its outcome had been appended
        self._looked = 0

    def appended(self, effect: str, outcome: Body, tick: int) -> None:
        """Any thread. `tick`: the last one folded, read after the outcome was appended."""
        self._appended.append((tick, effect, outcome))

    def lost(self, folded: ScopeState) -> list[tuple[str, Body]]:
        """Effects whose outcomes the log does not have, though it has what was appended behind them: they are to be appended again."""
        while self._appended:
            tick, effect, outcome = self._appended.popleft()
            self._unread[effect] = tick, outcome
        if folded.tick == self._looked:
            return []
        self._looked = folded.tick
        self._unread = {effect: each for effect, each in self._unread.items() if effect in folded.effects}
        return [(effect, outcome) for effect, (tick, outcome) in self._unread.items() if folded.tick >= tick + TICKS]

    def clear(self) -> None:
        """The term is over: the next leader performs again what has no outcome."""
        self._appended.clear()
        self._unread.clear()
