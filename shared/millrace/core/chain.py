"""Chains between two lives: what a receiver takes, drops, or finds damaged.

A scope lives a generation (a log), a TaskManager an incarnation (a process). Every message carries its key, the key of the
sender's message before it to the same receiver (`prev`), and the receiver's life that the sender last heard. The receiver keeps a
mark per sender, in folded state; with it delivery is exactly once and in order over crashes, zombies and cut logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .messages.records import Key, Message


class Offer(Enum):
    """What becomes of a message."""

    TAKE = "take"
    BORN = "take, the first of a new life"
    DUPLICATE = "duplicate"
    OTHER_LIFE = "addressed to, or said by, another life"
    GAP = "my log lost a record"
    FORK = "the sender's log was cut"


@dataclass
class Peer:
    """Another scope, as this one hears it and speaks to it."""

    # hearing
    life: int = 0  # last heard; 0: never
    start: Key | None = None  # where its chain to us started; None: not heard in this life
    mark: Key | None = None  # the last taken; start <= mark
    knew: bool = False  # that chain was started by a peer that had heard us: it will not start again in this life
    parted: bool = False  # this life is over: nothing more is taken of it, or said to it
    forked: bool = False  # the log of this life was cut: it will be given up, and nothing more is taken of it
    # speaking
    said: Key | None = None  # the last said; None: our chain to it has not started
    said_to: int = 0  # the life that our chain is addressed to; 0: said before it was heard


def offer(peer: Peer | None, my_life: int, message: Message) -> Offer:
    """What a scope living `my_life`, that knows `peer` of the sender, does with a message. Changes nothing.

    The counterexamples behind the lines:

    - OTHER_LIFE: a message that was sent to a log that is gone must not count in the new one [R7].
    - DUPLICATE: a zombie leader and its successor send the same messages. So what is not above the mark is a duplicate.
    - GAP: prev above the mark. My log lost a message that the sender knows it sent [R8].
    - FORK: prev below the mark. The sender's log was truncated: it lost a message that I have taken [R8]. The sender may have sent more
      before it learns of that. Those messages look like gaps and are none, so once `forked` everything is FORK.
    """
    if message.to_life not in (0, my_life):
        return Offer.OTHER_LIFE
    if peer is None or message.life > peer.life:
        # A first message that is not a chain's start: its start was lost here, or is dropped for an older life of ours.
        return Offer.BORN if message.prev is None else Offer.GAP
    if message.life < peer.life or peer.parted:
        return Offer.OTHER_LIFE
    if peer.mark is None or peer.start is None:
        return Offer.BORN if message.prev is None else Offer.GAP
    if message.key <= peer.mark:
        return Offer.DUPLICATE
    if peer.forked:
        return Offer.FORK
    if message.prev is None:
        # A sender starts anew with each Hello until it hears us, and once more when it does. After that it has forgotten us.
        return Offer.FORK if peer.knew else Offer.TAKE
    if message.prev == peer.mark:
        return Offer.TAKE
    if message.prev > peer.mark:
        return Offer.GAP
    return Offer.FORK if message.prev >= peer.start else Offer.OTHER_LIFE


def take(peers: dict[str, Peer], my_life: int, message: Message) -> None:
    """Moves the mark: the message was offered and is TAKE or BORN."""
    peer = peers.get(message.sender)
    if peer is None:
        peer = peers[message.sender] = Peer()
    if message.life > peer.life:
        peer.life, peer.parted, peer.forked, peer.start = message.life, False, False, None
    if message.prev is None or peer.start is None:
        peer.start = message.key
        peer.knew = message.to_life == my_life
    peer.mark = message.key
