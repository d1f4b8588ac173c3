"""The Dispatcher: admits submissions, stores accepted jobs, starts them on shards, stores how they end, answers clients.

This file is the table of contents: which function handles what.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import (
    Born,
    Configured,
    Envelope,
    Handler,
    Output,
    PassedOver,
    PeerBorn,
    Ticked,
    dispatch,
)
from millrace.core.messages import effects, graphs, jobs, schedule_effects
from millrace.core.messages.records import Client
from millrace.core.states import ClosingStep
from millrace.core.topics import DISPATCHER, Topology

from . import (
    bad_records,
    births,
    changed_graphs,
    closing,
    ending,
    listing,
    lookups,
    questions,
    recovery,
    reports,
    schedules,
    timers,
)
from .state import State

HANDLERS: dict[type, Handler] = {
    # from the core
    Born: recovery.on_born,
    Configured: births.on_configured,
    PeerBorn: births.on_peer_born,
    Ticked: timers.on_ticked,
    PassedOver: bad_records.on_passed_over,
    # from clients
    Client: questions.on_client,
    # from etcd
    effects.JobGraphStored: lookups.on_job_graph_stored,
    effects.JobGraphKept: changed_graphs.on_job_graph_kept,
    effects.JobFound: lookups.on_job_found,
    effects.JobsRecovered: recovery.on_jobs_recovered,
    effects.JobResultStored: ending.on_job_result_stored,
    effects.JobCleaned: ending.on_job_cleaned,
    effects.JobKept: ending.on_job_kept,
    effects.StoredJobsListed: listing.on_stored_jobs_listed,
    effects.ClusterEnded: closing.on_cluster_ended,
    schedule_effects.ScheduleStored: schedules.on_schedule_stored,
    schedule_effects.ScheduleChanged: schedules.on_schedule_changed,
    schedule_effects.SchedulesFound: schedules.on_schedules_found,
    # from etcd, where others have changed something
    graphs.JobGraphAdded: changed_graphs.on_job_graph_added,
    graphs.JobGraphRemoved: changed_graphs.on_job_graph_removed,
    graphs.JobGraphChanged: changed_graphs.on_job_graph_changed,
    # from JobMasters
    jobs.JobMasterStarted: reports.on_job_master_started,
    jobs.JobStatusChanged: reports.on_job_status_changed,
    jobs.JobEnded: ending.on_job_ended,
    jobs.JobsSuspended: closing.on_jobs_suspended,
    # from JobMasters and the ResourceManager
    jobs.QuestionAnswered: questions.on_question_answered,
}


class Dispatcher:
    """See `millrace.core.machine.Machine`."""

    scope = DISPATCHER
    state_type = State

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.peers = tuple(scope for scope in topology.scopes() if scope != DISPATCHER)

    def blank(self) -> State:
        return State()

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        state.topology = self.topology
        return dispatch(HANDLERS, state, envelope)

    def is_idle(self, state: State) -> bool:
        if state.closing is not None:
            return state.closing.step is ClosingStep.ENDING
        return not (state.live or state.lookups or state.starts_to_send or state.asked or state.listings or state.schedule_requests)
