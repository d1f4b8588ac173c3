"""When a TaskManager ends itself, because others may have given its tasks to somebody else.

The ResourceManager declares it lost `lost_after_ms` after its last heartbeat, or up to a tick before. By then it must have stopped
what runs here. It cannot see itself declared lost while it hears nothing, so silence counts: nothing it said to the ResourceManager was
acknowledged by Kafka, and etcd has not answered either. A broker that pauses makes nobody lost (machine time stands still there), and
etcd answers meanwhile: no reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.core.clocks import OwnMs
from millrace.core.fold import TICK_MS
from millrace.core.timing import UNREAD_MOST_MS

STEP_MAX_MS = 200
UNREAD_MS = UNREAD_MOST_MS * 3 // 4
"""How long it may not know that it has read its inbox. Kafka may take all that it says and give it nothing: a ResourceManager that was
born anew hears it then, and waits for it to register, but not for ever."""


def patience_ms(lost_after_ms: int) -> int:  # [R28]
    """How long a TaskManager bears silence: less than it takes to be declared lost, by what ending its attempts takes."""
    return lost_after_ms * 3 // 4


def is_over(silent_ms: int, lost_after_ms: int) -> bool:  # [R28]
    """Whether its patience ends before the next look, a tick later."""
    return silent_ms + TICK_MS > patience_ms(lost_after_ms)


def asks_etcd(silent_ms: int, lost_after_ms: int) -> bool:
    """Whether Kafka has been silent long enough for etcd to be asked."""
    return silent_ms * 3 >= lost_after_ms


@dataclass
class Silence:
    """How long nothing has been heard, in this process's own working time.

    A process that was stopped and wakes, or was starved of processor time, has not listened meanwhile: at most STEP_MAX_MS of such a
    gap count. What became of it in the meantime it reads in its inbox.
    """

    turned_ms: OwnMs
    kafka_ms: int = 0
    """Since Kafka acknowledged something that was sent to the ResourceManager."""
    both_ms: int = 0
    """Since either Kafka or etcd answered."""

    def turn(self, own_ms: OwnMs) -> None:
        """Time has gone on (monotonic milliseconds)."""
        step = min(max(own_ms - self.turned_ms, 0), STEP_MAX_MS)
        self.turned_ms = own_ms
        self.kafka_ms += step
        self.both_ms += step

    def kafka_answered(self) -> None:
        self.kafka_ms = self.both_ms = 0

    def etcd_answered(self) -> None:
        self.both_ms = 0
