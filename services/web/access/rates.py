"""How much one client may ask for: a bucket of tokens for each, of which there are at most so many."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

CLIENTS_MOST = 10_000
BURST_S = 5.0
"""What a bucket holds: what flows in during this time."""


class Rates:
    """For one event loop. A client that is forgotten, because many others came after it, begins with a full bucket."""

    def __init__(self, a_second: float | None, now_s: Callable[[], float] = time.monotonic, most: int = CLIENTS_MOST) -> None:
        """`a_second` None: whatever is asked."""
        self._a_second, self._now_s, self._most = a_second, now_s, most
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Takes one; 0.0. Or takes none: for so long there is none."""
        if self._a_second is None:
            return 0.0
        most, now = max(1.0, self._a_second * BURST_S), self._now_s()
        held, at = self._held.pop(client, (most, now))
        held = min(most, held + (now - at) * self._a_second)
        taken = held >= 1
        self._held[client] = (held - 1 if taken else held, now)
        if len(self._held) > self._most:
            self._held.popitem(last=False)
        return 0.0 if taken else (1 - held) / self._a_second


def network(address: str) -> str:
    """What an address counts as: of IPv6 its /64, which is what one customer has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
