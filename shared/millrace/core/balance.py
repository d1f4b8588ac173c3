"""Which scope a process gives away, so that the scopes it hosts with others are led by all of them. Pure; safety never depends on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """One of the scopes that a process hosts, as its log tells: who leads it, and which standbys were heard lately."""

    scope: str
    leader: str
    standbys: tuple[str, ...]


def given_away(me: str, standings: Iterable[Standing]) -> str | None:
    """The scope that `me` leads and another one should, or None.

    A standby is given a scope when it leads at least two fewer: less would only move the difference to and fro.
    """
    standings = list(standings)
    led = Counter(each.leader for each in standings)
    # The later scope of equals: whatever the order of events, all processes then strive for one picture.
    choices = [
        (led[standby], index)
        for index, each in enumerate(standings)
        for standby in each.standbys
        if each.leader == me and led[standby] <= led[me] - 2
    ]
    return standings[min(choices, key=lambda choice: (choice[0], -choice[1]))[1]].scope if choices else None
