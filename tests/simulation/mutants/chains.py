"""Mutants of what scopes say to each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import millrace.core.fold as fold
from millrace.core.chain import Offer, Peer
from millrace.core.machine import PeerBorn
from millrace.core.messages.records import Hello, Message, encode
from services.dispatcher.core.machine import HANDLERS as DISPATCHER
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from services.task_manager.core import machine as task_manager
from tests.simulation.mutants.registry import around, around_handler, mutant
from tests.simulation.mutants.silent import what_is_held_is_not_compared


def _taken_instead(verdict: Offer) -> None:
    def offer(original: Any, peer: Peer | None, my_life: int, message: Message) -> Offer:
        found = original(peer, my_life, message)
        if found is not verdict:
            return found
        return Offer.BORN if peer is None or peer.start is None or message.life != peer.life else Offer.TAKE

    around(fold, "offer", offer)


@mutant(7, "core/chain.py:offer", "a message to an earlier life acts on a state that knows nothing of it")
def messages_to_an_earlier_life_count() -> None:
    def offer(original: Any, peer: Peer | None, my_life: int, message: Message) -> Offer:
        return original(peer, my_life, message.model_copy(update={"to_life": my_life}))

    around(fold, "offer", offer)


@mutant(7, "core/chain.py:offer", "a zombie and its successor send the same message: it counts twice")
def duplicates_count() -> None:
    _taken_instead(Offer.DUPLICATE)


@mutant(8, "core/chain.py:offer", "a message is missing, and nobody ever sends it again")
def a_hole_is_taken_for_whole() -> None:
    _taken_instead(Offer.GAP)


@mutant(8, "core/chain.py:offer", "the sender's log was cut: it sends other messages with keys that were taken")
def a_fork_is_passed_over() -> None:
    def offer(original: Any, peer: Peer | None, my_life: int, message: Message) -> Offer:
        found = original(peer, my_life, message)
        return Offer.DUPLICATE if found is Offer.FORK else found

    around(fold, "offer", offer)


@mutant(8, "core/chain.py:offer", "what the sender sends behind the fork looks like a gap: a whole log is given up")
def what_follows_a_fork_is_a_hole() -> None:
    def offer(original: Any, peer: Peer | None, my_life: int, message: Message) -> Offer:
        if peer is not None:
            peer.forked = False
        return original(peer, my_life, message)

    around(fold, "offer", offer)


@mutant(8, "core/fold.py:Fold._message", "a chain starts at the first message that arrives, whichever it is")
def a_chain_starts_anywhere() -> None:
    def offer(original: Any, peer: Peer | None, my_life: int, message: Message) -> Offer:
        found = original(peer, my_life, message)
        first = peer is None or message.life > peer.life or peer.mark is None
        return Offer.BORN if found is Offer.GAP and first else found

    around(fold, "offer", offer)


@mutant(9, "core/fold.py:HELLO_TICKS", "the last message of a chain is lost, and nothing behind it shows that")
def no_hello_on_quiet_chains() -> None:
    fold.HELLO_TICKS = 1 << 40


@mutant(10, "core/fold.py:Fold._say", "a message to a peer that was not heard is taken by any of its lives, or by none: nobody sees which")
def peers_are_sent_messages_before_they_are_heard() -> None:
    def say(original: Any, self: Any, folded: Any, key: Any, output: Any) -> Any:
        peer = folded.peers.setdefault(output.to, Peer())
        if peer.life or peer.parted or isinstance(output.body, Hello):
            return original(self, folded, key, output)
        topic, partition = self.topology.inbox(output.to)
        scope, life = self.machine.scope, folded.generation
        message = Message(to=output.to, to_life=0, sender=scope, life=life, key=key, prev=None, body=output.body)
        return self._put(folded, topic, partition, output.to, output.body.type, encode(message).decode())

    around(fold.Fold, "_say", say)


@mutant(10, "dispatcher/core/births.py:on_peer_born", "a reborn shard never receives its live jobs")
def a_reborn_shard_is_sent_no_job() -> None:
    def peer_born(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        return iter(()) if body.peer.startswith("job-master/") else original(state, body, envelope)

    around_handler(DISPATCHER, PeerBorn, peer_born)


@mutant(10, "job_master/core/births.py:on_peer_born", "what jobs want is forgotten with the ResourceManager's log")
def a_reborn_resource_manager_is_sent_no_request() -> None:
    def peer_born(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        return iter(()) if body.peer == "resource-manager" else original(state, body, envelope)

    around_handler(JOB_MASTER, PeerBorn, peer_born)


@mutant(10, "task_manager/core/life.py:on_peer_born", "a reborn ResourceManager never knows the TaskManager")
def a_reborn_resource_manager_is_not_registered_with() -> None:
    original = task_manager.HANDLERS[PeerBorn]

    def peer_born(state: Any, body: Any, envelope: Any) -> Any:
        again = body.peer == "resource-manager" and envelope.life > 1
        return iter(()) if again else original(state, body, envelope)

    task_manager.HANDLERS[PeerBorn] = peer_born


@mutant(10, "task_manager/core/life.py:on_peer_born", "slots stay with jobs that a reborn shard knows nothing of")
def a_reborn_shard_is_offered_nothing() -> None:
    original = task_manager.HANDLERS[PeerBorn]

    def peer_born(state: Any, body: Any, envelope: Any) -> Any:
        return iter(()) if body.peer.startswith("job-master/") else original(state, body, envelope)

    task_manager.HANDLERS[PeerBorn] = peer_born
    what_is_held_is_not_compared()  # which finds them later


@mutant(28, "core/chain.py:offer", "messages of a dead process act beside its successor")
def messages_of_an_earlier_life_count() -> None:
    def offer(original: Any, peer: Peer | None, my_life: int, message: Message) -> Offer:
        if peer is not None and 0 < message.life < peer.life:
            return Offer.TAKE
        return original(peer, my_life, message)

    def take(original: Any, peers: dict[str, Peer], my_life: int, message: Message) -> None:
        peer = peers.get(message.sender)
        if peer is None or message.life >= peer.life:
            original(peers, my_life, message)

    around(fold, "offer", offer)
    around(fold, "take", take)


@mutant(28, "core/fold.py:Fold._message", "who was replaced goes on")
def a_later_life_of_its_own_id_is_not_noticed() -> None:
    def message(original: Any, self: Any, folded: Any, offset: int, record: Any) -> Any:
        return dataclasses.replace(original(self, folded, offset, record), superseded=False)

    around(fold.Fold, "_message", message)


@mutant(28, "core/fold.py:Fold._take_in", "messages of a TaskManager that was declared lost are still taken")
def messages_of_the_lost_still_count() -> None:
    def take_in(original: Any, self: Any, folded: Any, key: Any, told: Any, output: Any) -> Any:
        return key[1] if isinstance(output, fold.Forget) else original(self, folded, key, told, output)

    around(fold.Fold, "_take_in", take_in)
