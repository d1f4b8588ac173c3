"""Mutants of the inbox, of who leads, and of snapshots."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import millrace.core.election as election
import millrace.core.fold as fold
import millrace.core.replica as replica
import millrace.core.speaking as speaking
import millrace.runtime.generations as generations
import millrace.runtime.loop as loop
import millrace.runtime.saving as saving
import millrace.runtime.sending as sending
import millrace.runtime.service as service
import millrace.runtime.snapshots as snapshots
from millrace.core.machine import Configured
from millrace.io.interfaces import Delete, Put, Txn
from services.dispatcher.client_port import Copier
from services.job_master.core import execution_graph
from services.resource_manager.core.machine import HANDLERS as RESOURCE_MANAGER
from tests.simulation import world
from tests.simulation.mutants.registry import around, around_handler, mutant


@mutant(1, "core/machine.py:Envelope.id", "names are drawn: each replica has its own")
def names_are_drawn() -> None:
    drawn = itertools.count()
    original = fold.Envelope

    def envelope(*given: Any) -> Any:
        return original(*given[:3], f"0.{next(drawn)}", *given[4:])

    fold.Envelope = envelope


@mutant(1, "resource_manager/core/births.py:on_configured", "a setting that decides is the process's own")
def settings_that_decide_are_local() -> None:
    calls = itertools.count()

    def configured(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        yield from original(state, body, envelope)
        state.limits.ageing_ms += next(calls)

    around_handler(RESOURCE_MANAGER, Configured, configured)


@mutant(2, "core/fold.py:Fold._client", "a request that two leaders copied is answered twice")
def requests_are_folded_twice() -> None:
    def client(original: Any, self: Any, folded: Any, offset: int, record: Any) -> Any:
        folded.client_mark, folded.client_stamp = record.prev, (record.prev, 0, folded.client_stamp[2])
        return original(self, folded, offset, record)

    around(fold.Fold, "_client", client)


@mutant(2, "dispatcher/client_port.py:Copier", "a new leader's port begins where requests are now, not where they were folded")
def the_client_port_begins_at_the_end() -> None:
    def init(original: Any, self: Any, bus: Any, *others: Any) -> None:
        original(self, bus, *others)
        end = bus.offsets("client.commands", 0)[1]
        self._prev, self._next, self._last = max(self._prev, end - 1), max(self._next, end), None

    around(Copier, "__init__", init)


@mutant(3, "core/fold.py:Fold._tick", "an old leader's tick counts as the new one's")
def ticks_of_any_leader_count() -> None:
    def tick(original: Any, self: Any, folded: Any, offset: int, stamp_ms: int, record: Any) -> Any:
        return original(self, folded, offset, stamp_ms, record.model_copy(update={"epoch": folded.epoch}))

    around(fold.Fold, "_tick", tick)


@mutant(3, "core/fold.py:Fold._tick", "a tick that comes twice or late counts again")
def ticks_of_any_number_count() -> None:
    def tick(original: Any, self: Any, folded: Any, offset: int, stamp_ms: int, record: Any) -> Any:
        return original(self, folded, offset, stamp_ms, record.model_copy(update={"n": folded.tick + 1}))

    around(fold.Fold, "_tick", tick)


@mutant(4, "core/fold.py:Fold._tick", "a pause of the broker, or its clock, ages everybody at once")
def machine_time_follows_any_clock() -> None:
    def tick(original: Any, self: Any, folded: Any, offset: int, stamp_ms: int, record: Any) -> Any:
        told = original(self, folded, offset, stamp_ms, record)
        if told.taken:
            folded.now_ms = stamp_ms
        return told

    around(fold.Fold, "_tick", tick)


@mutant(6, "core/replica.py:Replica.beat", "a leader that lost its key goes on sending and reads no refusal")
def a_leader_does_not_look_at_its_key() -> None:
    def beat(original: Any, self: Any, now_ms: int, view: Any, *rest: Any) -> Any:
        if self.leads:
            view = election.View(self.election.epoch, True)
        return original(self, now_ms, view, *rest)

    def elected(original: Any, self: Any, *given: Any) -> Any:
        return [] if self.leads else original(self, *given)

    around(replica.Replica, "beat", beat)
    around(replica.Replica, "_elected", elected)


@mutant(6, "core/election.py:Election.campaigns", "a resigned leader's key stays its own, and nobody else may have it")
def a_key_of_its_own_is_never_taken_anew() -> None:
    def campaigns(original: Any, self: Any, now_ms: int, view: Any, *rest: Any) -> Any:
        return None if view.mine else original(self, now_ms, view, *rest)

    around(election.Election, "campaigns", campaigns)


@mutant(12, "runtime/sending.py:Sending.send", "records to one partition overtake each other")
def records_overtake_each_other() -> None:
    def append(original: Any, self: Any, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        if len(self._queue) > 1 and self.appended % 5 == 0:
            self._queue.insert(len(self._queue) - 2, self._queue.pop())

    around(world.PacedBus, "append", append)


@mutant(12, "runtime/sending.py:Sending.send", "a job's end is published before its other events")
def a_message_does_not_wait_for_the_events_before_it() -> None:
    sending.Sending._before = lambda self, said: {}


@mutant(12, "runtime/service.py:Process.fatal", "who could not deliver one record goes on with the next")
def a_refused_record_does_not_end_the_process() -> None:
    def serve(original: Any, self: Any, patience_ms: int = 0, topic: str = "") -> None:
        self._fatal = None
        original(self, patience_ms, topic)

    around(world.PacedBus, "serve", serve)


def _thawed(change: Any) -> None:
    def thaw(original: Any, machine: Any, data: bytes) -> Any:
        folded = original(machine, data)
        change(folded)
        return folded

    around(snapshots, "thaw", thaw)


@mutant(13, "runtime/snapshots.py:freeze", "what was not in Kafka yet is never sent")
def a_snapshot_without_the_outbox() -> None:
    def change(folded: Any) -> None:
        folded.outbox, folded.published_through = {}, folded.said

    _thawed(change)


@mutant(13, "runtime/snapshots.py:freeze", "effects without an outcome are forgotten")
def a_snapshot_without_effects() -> None:
    _thawed(lambda folded: folded.effects.clear())


@mutant(13, "runtime/snapshots.py:freeze", "who starts from it takes again what was taken")
def a_snapshot_without_marks() -> None:
    def change(folded: Any) -> None:
        for peer in folded.peers.values():
            peer.start = peer.mark = None

    _thawed(change)


@mutant(14, "core/speaking.py:Speaking.published_through", "what is on its way is taken for published, and lost with its sender")
def the_mark_is_before_what_is_on_its_way() -> None:
    speaking.Speaking.published_through = lambda self: self.queued


@mutant(14, "core/speaking.py:Speaking.begin", "a new leader does not send what the old one may not have sent")
def the_outbox_is_not_sent_again() -> None:
    def begin(original: Any, self: Any, folded: Any) -> Any:
        _, performed = original(self, folded)
        self.unacked.clear()
        self.queued = folded.said
        return [], performed

    around(speaking.Speaking, "begin", begin)


@mutant(14, "core/replica.py:Replica._elected", "a new leader sends before it has folded what the old one sent")
def who_won_sends_at_once() -> None:
    def won(original: Any, self: Any, epoch: int) -> Any:
        actions = original(self, epoch)
        self.election.elected(self.election._leader_seen_ms, epoch, own=True)
        self.speaking = speaking.Speaking()
        seqs, _ = self.speaking.begin(self.folded)
        return [*actions, *(replica.Speak(epoch, self.folded.outbox[seq]) for seq in seqs)]

    around(replica.Replica, "won", won)


@mutant(22, "runtime/snapshots.py:Snapshots.newest", "a snapshot of the log before is taken for this one's")
def a_snapshot_of_another_generation_counts() -> None:
    wanted: dict[Any, int] = {}

    def newest(original: Any, self: Any, generation: int) -> Any:
        wanted[self] = generation
        entry = self._store.get(self._key)
        return snapshots.Pointer.parse(entry.value) if entry is not None else None

    def load(original: Any, self: Any, pointer: Any) -> Any:
        loaded = original(self, pointer)
        if loaded is not None:
            loaded[0].generation = wanted[self]
        return loaded

    around(snapshots.Snapshots, "newest", newest)
    around(snapshots.Snapshots, "load", load)


@mutant(22, "core/fold.py:Fold._elected", "a zombie of an earlier epoch is followed")
def any_election_counts() -> None:
    def elected(original: Any, self: Any, folded: Any, offset: int, stamp_ms: int, record: Any) -> Any:
        if folded.epoch and record.epoch < folded.epoch:
            folded.epoch = record.epoch - 1
        return original(self, folded, offset, stamp_ms, record)

    around(fold.Fold, "_elected", elected)


@mutant(8, "runtime/loop.py:ScopeLoop.turn", "a log that was cut is read again as if nothing had been folded")
def a_cut_is_taken_for_a_late_start() -> None:
    def turn(original: Any, self: Any) -> bool:
        cut = self._be_reborn
        self._be_reborn = lambda reason: self._leave() if reason.startswith("the log was cut") else cut(reason)
        try:
            return original(self)
        finally:
            del self._be_reborn

    around(loop.ScopeLoop, "turn", turn)


@mutant(8, "core/fold.py:Fold._go_on", "missing records are folded over, and what was in them is never sent again")
def a_hole_in_the_offsets_is_folded_over() -> None:
    def go_on(original: Any, self: Any, folded: Any, offset: int) -> Any:
        folded.next_offset = offset
        return original(self, folded, offset)

    around(fold.Fold, "_go_on", go_on)


@mutant(8, "runtime/loop.py:ScopeLoop._meet_damage", "who starts reads the same bytes in vain, for ever")
def what_cannot_be_read_is_tried_for_ever() -> None:
    loop.ScopeLoop._meet_damage = lambda self, offset, reason: self._leave()


@mutant(31, "core/election.py:View.foreign", "a key that somebody wrote by hand keeps its scope without a leader")
def a_key_without_a_lease_is_waited_for() -> None:
    def campaigns(original: Any, self: Any, now_ms: int, view: Any, *rest: Any) -> Any:
        return original(self, now_ms, dataclasses.replace(view, foreign=False), *rest)

    around(election.Election, "campaigns", campaigns)


@mutant(23, "runtime/generations.py:Generations.raise_", "the leader of the log before still passes its compares")
def a_generation_is_raised_without_the_key() -> None:
    def txn(store: Any, txn: Txn) -> Any:
        raised = [one for one in txn.then if isinstance(one, Put) and one.key.startswith("generations/")]
        if len(txn.then) == 2 and raised:
            return store.txn(Txn(txn.compares[1:], raised))
        return store.txn(txn)

    class Apart:
        def __init__(self, store: Any) -> None:
            self._store = store

        def txn(self, given: Txn) -> Any:
            return txn(self._store, given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    def init(original: Any, self: Any, store: Any, *rest: Any) -> None:
        original(self, Apart(store), *rest)

    around(generations.Generations, "__init__", init)


@mutant(23, "runtime/loop.py:ScopeLoop._be_reborn", "a damaged log is led on")
def a_damaged_log_is_led_on() -> None:
    def be_reborn(original: Any, self: Any, reason: str) -> None:
        self._leave()

    around(loop.ScopeLoop, "_be_reborn", be_reborn)


@mutant(23, "runtime/loop.py:ScopeLoop._be_reborn", "who lost its key forgets that the log is damaged")
def damage_is_forgotten_with_the_key() -> None:
    def be_reborn(original: Any, self: Any, reason: str) -> None:
        original(self, reason)
        if not self.stale and self.replica.election.epoch == 0:
            self._damage, self.stale = None, True

    around(loop.ScopeLoop, "_be_reborn", be_reborn)


@mutant(6, "runtime/generations.py:Generations.campaign", "a key is taken away from whoever holds it")
def a_campaign_takes_any_key() -> None:
    def campaign(original: Any, self: Any, expected: int, *rest: Any) -> Any:
        entry = self._store.get(self.leader_key)
        return original(self, entry.mod_revision if entry is not None else 0, *rest)

    around(generations.Generations, "campaign", campaign)


@mutant(6, "runtime/generations.py:Generations.resign", "who resigns gives back a key that is another's by now")
def a_resignation_deletes_any_key() -> None:
    generations.Generations.resign = lambda self, epoch: self._store.txn(Txn([], [Delete(self.leader_key)]))


@mutant(25, "runtime/snapshots.py:Snapshots.keep", "a slow old leader writes an older snapshot last")
def the_pointer_to_a_snapshot_goes_back() -> None:
    def keep(self: Any, generation: int, offset: int, build: str, data: bytes, final: bool = False) -> Any:
        sha256 = snapshots.hashlib.sha256(data).hexdigest()
        pointer = snapshots.Pointer(generation, offset, sha256, build, final)
        self._storage.put_new(pointer.path(self._machine.scope), data)
        self._store.txn(Txn([], [Put(self._key, pointer.value())]))
        return pointer

    snapshots.Snapshots.keep = keep


@mutant(25, "runtime/saving.py:Saving._clean", "records are deleted that the snapshot does not hold yet")
def records_above_the_snapshot_are_deleted() -> None:
    def clean(self: Any, pointer: Any) -> None:
        if pointer is not None:
            self._delete_below(pointer.offset + 1)

    def delete_below(original: Any, self: Any, topic: str, partition: int, offset: int) -> None:
        original(self, topic, partition, min(offset, self.offsets(topic, partition)[1]))

    saving.Saving._clean = clean
    around(world.PacedBus, "delete_below", delete_below)


@mutant(1, "job_master/core/execution_graph.py:schedule", "the order of a set is another in every process")
def a_set_is_iterated() -> None:
    turns = itertools.count()  # as hashes of objects, not the same twice

    def schedule(original: Any, task: Any, *given: int) -> None:
        original(task, *given)
        task.ready.sort(reverse=next(turns) % 2 == 1)

    around(execution_graph, "schedule", schedule)


@mutant(6, "core/election.py:ELECTED_BACK_MS", "who cannot write that it leads keeps its key for ever")
def who_cannot_write_its_election_keeps_the_key() -> None:
    election.ELECTED_BACK_MS = 1 << 40


@mutant(25, "runtime/snapshots.py:_parts", "of a large table a snapshot holds the first piece")
def a_table_is_kept_by_its_first_piece() -> None:
    snapshots.CHUNK_ENTRIES = 1
    around(snapshots, "_parts", lambda original, value: itertools.islice(original(value), 1))


@mutant(25, "runtime/saving.py:Saving.save", "a snapshot is made of a state that goes on meanwhile")
def a_snapshot_is_of_a_later_moment() -> None:
    def save(original: Any, self: Any, folded: Any) -> None:
        beside = self._beside

        def later(make: Any, then: Any) -> None:
            pieces = make()
            first = [*itertools.islice(pieces, 5)]
            beside(lambda: iter(()), lambda data: then(b"".join((*first, *pieces))))

        self._beside = later
        original(self, folded)
        self._beside = beside

    around(saving.Saving, "save", save)


@mutant(25, "runtime/snapshots.py:Snapshots.load", "a damaged snapshot counts, and the one before it does not")
def a_torn_snapshot_counts() -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

    def load(original: Any, self: Any, pointer: Any) -> Any:
        path = pointer.path(self._machine.scope)
        any_hash = dataclasses.replace(pointer, before=None)
        object.__setattr__(any_hash, "path", lambda scope: path)
        object.__setattr__(any_hash, "sha256", Same())
        return original(self, any_hash)

    around(snapshots.Snapshots, "load", load)


@mutant(6, "core/balance.py:given_away", "one process leads all shards, and the others none")
def nobody_gives_a_scope_away() -> None:
    service.given_away = lambda me, standings: None


@mutant(6, "core/balance.py:given_away", "scopes go to and fro between equals")
def a_scope_is_given_to_an_equal() -> None:
    def given_away(me: str, standings: Any) -> str | None:
        mine = [each.scope for each in standings if each.leader == me and each.standbys]
        return mine[-1] if mine else None

    service.given_away = given_away
