"""What a receiver does with every message that a sender, its zombie, its successor or its damaged log can say."""

from __future__ import annotations

import pytest

from millrace.core.chain import Offer, Peer, offer, take
from millrace.core.messages.records import Hello, Key, Message

ME = 3


def said(key: Key, prev: Key | None, *, life: int = 1, to_life: int = ME) -> Message:
    return Message(to="me", to_life=to_life, sender="peer", life=life, key=key, prev=prev, body=Hello())


HEARD = Peer(life=1, start=(5, 0), mark=(9, 2), knew=True)
FORKED = Peer(life=1, start=(5, 0), mark=(9, 2), knew=True, forked=True)
UNHEARD = Peer(life=1, start=(5, 0), mark=(5, 0), knew=False)

CASES = [
    ("the first ever, before the sender heard us", None, said((5, 0), None, to_life=0), Offer.BORN),
    ("the first ever, after the sender heard us", None, said((5, 0), None), Offer.BORN),
    ("the first ever is no start: our log lost it", None, said((6, 0), (5, 0)), Offer.GAP),
    ("addressed to a life of ours that is gone", None, said((5, 0), None, to_life=2), Offer.OTHER_LIFE),
    ("addressed to a life of ours that is to come", HEARD, said((9, 3), (9, 2), to_life=4), Offer.OTHER_LIFE),
    ("the next", HEARD, said((9, 3), (9, 2)), Offer.TAKE),
    ("the last again: zombie and successor say the same", HEARD, said((9, 2), (9, 1)), Offer.DUPLICATE),
    ("an old one again", HEARD, said((6, 0), (5, 0)), Offer.DUPLICATE),
    ("the start again", HEARD, said((5, 0), None), Offer.DUPLICATE),
    ("one was lost here", HEARD, said((12, 0), (11, 0)), Offer.GAP),
    ("the sender's log was cut below our mark", HEARD, said((12, 0), (8, 0)), Offer.FORK),
    ("the sender's log was cut to the chain's start", HEARD, said((12, 0), (5, 0)), Offer.FORK),
    ("the sender forgot that it ever spoke to us", HEARD, said((12, 0), None), Offer.FORK),
    ("what follows in a log that was cut, before its leader hears of that", FORKED, said((12, 1), (12, 0)), Offer.FORK),
    ("what a zombie still says of the log before the cut", FORKED, said((9, 3), (9, 2)), Offer.FORK),
    ("a late repeat of what was taken before the cut", FORKED, said((9, 2), (9, 1)), Offer.DUPLICATE),
    ("the life after a log that was cut", FORKED, said((13, 0), None, life=2), Offer.BORN),
    ("of a chain before this one", HEARD, said((12, 0), (4, 0)), Offer.OTHER_LIFE),
    ("the sender has heard us now and starts anew", UNHEARD, said((12, 0), None), Offer.TAKE),
    ("the sender still has not heard us", UNHEARD, said((12, 0), None, to_life=0), Offer.TAKE),
    ("a new life starts", HEARD, said((2, 0), None, life=2, to_life=0), Offer.BORN),
    ("a new life's start was lost here", HEARD, said((3, 0), (2, 0), life=2), Offer.GAP),
    ("an older life's zombie", Peer(life=2, start=(1, 0), mark=(1, 0)), said((99, 0), (98, 0)), Offer.OTHER_LIFE),
    ("a life that was declared over", Peer(life=1, parted=True), said((99, 0), None), Offer.OTHER_LIFE),
    ("the life after one that was declared over", Peer(life=1, parted=True), said((1, 0), None, life=2), Offer.BORN),
]


@pytest.mark.parametrize(("peer", "message", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_offer(peer: Peer | None, message: Message, expected: Offer) -> None:
    assert offer(peer, ME, message) is expected


def test_taking_moves_the_mark_and_keeps_the_start() -> None:
    peers: dict[str, Peer] = {}
    take(peers, ME, said((5, 0), None, to_life=0))
    take(peers, ME, said((7, 0), None))
    take(peers, ME, said((7, 1), (7, 0)))
    assert peers == {"peer": Peer(life=1, start=(7, 0), mark=(7, 1), knew=True)}


@pytest.mark.parametrize("over", ("parted", "forked"))
def test_a_new_life_forgets_the_old_chain_and_its_end(over: str) -> None:
    peers = {"peer": Peer(life=1, start=(5, 0), mark=(9, 2), knew=True, **{over: True})}
    take(peers, ME, said((2, 0), None, life=2, to_life=0))
    assert peers == {"peer": Peer(life=2, start=(2, 0), mark=(2, 0), knew=False)}


def test_every_prefix_of_a_chain_with_any_repeats_is_taken_once_and_in_order() -> None:
    chain = [said((5, 0), None)] + [said((5 + n, 0), (4 + n, 0)) for n in range(1, 8)]
    for again in range(len(chain)):
        peers: dict[str, Peer] = {}
        taken = []
        for message in [*chain[: again + 1], *chain]:
            if offer(peers.get("peer"), ME, message) in (Offer.TAKE, Offer.BORN):
                take(peers, ME, message)
                taken.append(message.key)
        assert taken == [message.key for message in chain]
