"""Mutants of what is done to the outside world."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import millrace.core.fold as fold
import millrace.core.speaking as speaking
import millrace.runtime.outcomes as outcomes
import millrace.runtime.parked as parked
import millrace.runtime.performer as performer
import services.dispatcher.cleaning as cleaning
import services.dispatcher.client_port as client_port
import services.dispatcher.ports as ports
import services.dispatcher.request_marks as request_marks
import services.dispatcher.trial as trial
import services.job_master.core.publication as publication
import services.job_master.ports as job_master_ports
from millrace.core.machine import Born, PassedOver
from millrace.core.messages import effects
from millrace.core.messages.records import Client
from millrace.core.states import ENDED_JOB
from millrace.io.interfaces import Compare, Delete, Txn, UnknownOutcome
from services.dispatcher.core import lookups, questions, retirement
from services.dispatcher.core.machine import HANDLERS as DISPATCHER
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from tests.simulation import performing
from tests.simulation.mutants.registry import around, around_handler, mutant

NOTHING = Compare("nothing", 0)


@mutant(17, "runtime/performer.py:Fence.compare", "a leader of the past writes beside the one of today")
def writes_are_not_fenced() -> None:
    performer.Fence.compare = lambda self: NOTHING
    performer.Fence.check_read = lambda self, reads: None


@mutant(17, "core/speaking.py:Speaking.begin", "what the old leader was about to do is never done")
def effects_are_not_performed_again() -> None:
    def begin(original: Any, self: Any, folded: Any) -> Any:
        seqs, _ = original(self, folded)
        return seqs, []

    around(speaking.Speaking, "begin", begin)


@mutant(17, "runtime/outcomes.py:Outcomes.lost", "an outcome that the log has lost is waited for until another replica leads")
def a_lost_outcome_is_waited_for() -> None:
    outcomes.Outcomes.lost = lambda self, folded: []


@mutant(17, "core/fold.py:Fold._outcome", "an effect that two leaders performed has two outcomes")
def an_outcome_counts_twice() -> None:
    def outcome(original: Any, self: Any, folded: Any, offset: int, record: Any) -> Any:
        pending = folded.effects.get(record.effect)
        told = original(self, folded, offset, record)
        if pending is not None:
            folded.effects[record.effect] = pending
        return told

    around(fold.Fold, "_outcome", outcome)


@mutant(17, "runtime/performer.py:Refused", "who leads no more takes its refusal for the answer: it is not there")
def a_refusal_is_an_outcome() -> None:
    def perform(original: Any, self: Any, name: str, batch: Any) -> Any:
        body, port = self._ports[name]

        def refused(given: Any, fence: Any) -> Any:
            try:
                return port(given, fence)
            except performer.Refused:
                if body is not effects.PutJobGraph:
                    raise
                return [effects.JobGraphStored(job=effect.job, stands=None) for effect in given]

        self._ports[name] = (body, refused)
        try:
            return original(self, name, batch)
        finally:
            self._ports[name] = (body, port)

    around(performing.SteppedPerformer, "_perform", perform)


@mutant(17, "dispatcher/ports.py:JobStore.put_graphs", "a put without an answer counts as failed, and its job runs")
def unknown_is_an_outcome() -> None:
    def put_batch(original: Any, self: Any, batch: Any, fence: Any, outcomes: Any) -> None:
        try:
            original(self, batch, fence, outcomes)
        except UnknownOutcome:
            outcomes.update((effect.job, effects.JobGraphStored(job=effect.job, stands=None)) for effect, _ in batch)

    around(ports.JobStore, "_put_batch", put_batch)


@mutant(17, "runtime/performer.py:Performer", "an effect whose outcome is not known yet is given up")
def an_effect_is_tried_once() -> None:
    def perform(original: Any, self: Any, name: str, batch: Any) -> Any:
        original(self, name, batch)
        return []

    around(performing.SteppedPerformer, "_perform", perform)


@mutant(18, "dispatcher/ports.py:JobStore.put_graphs", "a late repeat of a submission brings an ended job back")
def a_put_overwrites() -> None:
    def put_batch(self: Any, batch: Any, fence: Any, outcomes: Any) -> None:
        puts = [ports.Put(ports.key_of(effect.job), value) for effect, value in batch]
        if not self._store.txn(Txn([fence.compare()], puts)).succeeded:
            raise performer.Refused
        outcomes.update((e.job, effects.JobGraphStored(job=e.job, stands=e.stored)) for e, _ in batch)

    ports.JobStore._put_batch = put_batch


@mutant(30, "dispatcher/ports.py:JobStore._keep_modules", "a job is accepted whose files go with the uploads")
def modules_are_not_kept() -> None:
    ports.JobStore._keep_modules = lambda self, effect: True


@mutant(18, "dispatcher/ports.py:JobStore.put_graphs", "a job that is stored already has its files deleted as those of another one")
def what_stands_is_taken_for_another() -> None:
    def put_graphs(original: Any, self: Any, given: Any, fence: Any) -> Any:
        before = [self._store.get(ports.key_of(effect.job)) for effect in given]
        outcomes = original(self, given, fence)
        for effect, entry in zip(given, before, strict=True):
            if entry is not None:
                cleaning.delete_tree(self._storage, effect.job, f"blobs/{effect.job}/{effect.stored.acceptance}")
        return outcomes

    around(ports.JobStore, "put_graphs", put_graphs)


@mutant(18, "dispatcher/core/retirement.py:tombstone", "what is cleaned up is forgotten, and runs again when it is asked for again")
def no_tombstone_is_left() -> None:
    def clean(original: Any, self: Any, given: Any, fence: Any) -> Any:
        outcomes = original(self, given, fence)
        done = [effect for effect, outcome in zip(given, outcomes, strict=True) if outcome is not None]
        self._store.txn(Txn([], [Delete(ports.key_of(effect.job)) for effect in done]))
        return outcomes

    around(cleaning.Cleaning, "clean", clean)


@mutant(18, "dispatcher/core/lookups.py:on_job_graph_stored", "an id that etcd knows counts as accepted anew")
def what_is_stored_in_etcd_is_not_looked_at() -> None:
    def graph_stored(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        lookup, stored = state.lookups[body.job], body.stands
        if stored is not None and lookup.putting is not None:
            graph = json.loads(lookup.putting.submitted.graph)
            stored = stored.model_copy(update={"acceptance": lookup.acceptance, "state": "accepted", "graph": graph})
            body = body.model_copy(update={"stands": stored})
        return original(state, body, envelope)

    around_handler(DISPATCHER, effects.JobGraphStored, graph_stored)


@mutant(19, "dispatcher/ports.py:JobStore._put_batch", "one known id refuses a whole batch, for ever")
def a_refused_batch_is_not_split() -> None:
    def put_batch(self: Any, batch: Any, fence: Any, outcomes: Any) -> None:
        absent = [Compare(ports.key_of(effect.job), 0) for effect, _ in batch]
        puts = [ports.Put(ports.key_of(effect.job), value) for effect, value in batch]
        if self._store.txn(Txn([fence.compare(), *absent], puts)).succeeded:
            outcomes.update((e.job, effects.JobGraphStored(job=e.job, stands=e.stored)) for e, _ in batch)

    ports.JobStore._put_batch = put_batch


@mutant(20, "dispatcher/core/retirement.py:archive_path", "an archive of an older life of the JobMaster is kept as the one that counts")
def archives_have_one_name() -> None:
    retirement.archive_path = lambda job, acceptance, record: f"archives/{job}.json"


@mutant(20, "job_master/ports.py:publish_sink", "what an earlier life of the JobMaster published stays beside what counts")
def published_files_are_named_anew() -> None:
    turns = iter(range(1 << 30))

    def publish(original: Any, effect: Any, *rest: Any) -> Any:
        name = f"{effect.name}-{next(turns)}" if effect.mode != "error" else effect.name
        return original(effect.model_copy(update={"name": name, "mode": "append" if effect.mode != "error" else "error"}), *rest)

    around(job_master_ports, "_publish", publish)


@mutant(20, "job_master/core/publication.py:publish_sinks", "a sink takes whatever the first attempt staged")
def the_first_attempt_is_published() -> None:
    original = publication.PublishSink

    def first(**named: Any) -> Any:
        named["staged"] = [f"{folder.rpartition('/')[0]}/1" for folder in named["staged"]]
        return original(**named)

    publication.PublishSink = first


@mutant(24, "dispatcher/core/recovery.py:on_born", "accepted jobs are lost with the Dispatcher's log")
def a_reborn_dispatcher_recovers_nothing() -> None:
    DISPATCHER[Born] = lambda state, body, envelope: iter(())


@mutant(26, "runtime/parked.py:ParkedRecords.load", "a record that ends processes ends one after the other, for ever")
def a_bad_record_is_never_passed_over() -> None:
    parked.ENDED_MOST = 1 << 40


@mutant(26, "job_master/core/bad_records.py:on_passed_over", "the job that a bad record was about never ends")
def a_bad_record_fails_no_job() -> None:
    JOB_MASTER[PassedOver] = lambda state, body, envelope: iter(())


@mutant(26, "job_master/core/bad_records.py:on_passed_over", "a reborn Dispatcher waits for the end of a job that had failed so")
def a_bad_start_of_an_ended_job_is_not_answered() -> None:
    def passed_over(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        job = state.jobs.get(getattr(body.body, "job", ""))
        ended = job is not None and job.status in ENDED_JOB
        return iter(()) if ended else original(state, body, envelope)

    around_handler(JOB_MASTER, PassedOver, passed_over)


@mutant(26, "dispatcher/intake.py:Intake.record", "bytes that are no request leave no trace")
def what_is_no_request_is_dropped() -> None:
    def requested(original: Any, state: Any, record: Any, envelope: Any) -> Any:
        return iter(()) if record.refusal is not None else original(state, record, envelope)

    around_handler(DISPATCHER, Client, requested)


@mutant(26, "dispatcher/client_port.py:Copier._record", "bytes that are no request end the port, and with it all requests")
def what_is_no_request_ends_the_port() -> None:
    def record(original: Any, self: Any, received: Any) -> Any:
        json.loads(received.value)
        return original(self, received)

    around(client_port.Copier, "_record", record)


@mutant(18, "dispatcher/ports.py:JobStore._end_batch", "an ending whose answer was lost is stored over itself")
def an_ending_is_stored_over_an_ending() -> None:
    def end_batch(self: Any, batch: Any, fence: Any, outcomes: Any) -> None:
        puts = [ports.Put(ports.key_of(effect.job), ports.value_of(effect.ending)) for effect in batch]
        if self._store.txn(Txn([fence.compare()], puts)).succeeded:
            outcomes.update((e.job, effects.JobResultStored(job=e.job, stands=e.ending)) for e in batch)

    ports.JobStore._end_batch = end_batch


@mutant(24, "dispatcher/core/lookups.py:adopt", "jobs that had ended, and were not cleaned up, stay so for ever")
def a_reborn_dispatcher_passes_over_dirty_jobs() -> None:
    def adopt(original: Any, state: Any, job: str, stored: Any, envelope: Any) -> Any:
        return iter(()) if stored.state == "dirty" else original(state, job, stored, envelope)

    around(lookups, "adopt", adopt)


@mutant(30, "dispatcher/request_marks.py:RequestMarks.begin", "a request that ends who reads it ends one Dispatcher after the other")
def nobody_knows_where_others_began() -> None:
    def begin(original: Any, self: Any, *given: Any, **named: Any) -> Any:
        return replace(original(self, *given, **named), in_vain=0)

    around(request_marks.RequestMarks, "begin", begin)


@mutant(30, "dispatcher/client_port.py:Copier._try", "requests that cannot be read keep all behind them from being read")
def damaged_requests_are_tried_for_ever() -> None:
    client_port.Copier._try = lambda self: None


@mutant(30, "dispatcher/trial.py:Inconclusive", "a process that cannot be started to read requests counts against all that wait")
def what_nobody_could_try_is_passed_over() -> None:
    def untold(original: Any, self: Any) -> None:
        tried = self._trial

        def counted(offset: int, end: int, ended: Any) -> Any:
            try:
                return tried(offset, end, ended)
            except trial.Inconclusive:
                return trial.Unreadable(offset, end)

        self._trial = counted
        original(self)

    around(client_port.Copier, "_try", untold)


@mutant(30, "dispatcher/core/questions.py:_cancel_live", "a cancel that was refused cancels the job that came later")
def an_old_cancel_counts() -> None:
    row = questions._JOB_ROWS["CancelJob"]

    def cancel_live(state: Any, request: Any, envelope: Any, live: Any) -> Any:
        live.offset = -1
        return row.live(state, request, envelope, live)

    questions._JOB_ROWS["CancelJob"] = replace(row, live=cancel_live)
