"""The JobMaster: a shard is one machine with many jobs. From a JobGraph to an end, through slots and attempts.

This file is its table of contents. What a record leads to is in the file of its subject; each ends with `scheduling.advance`, which moves
the job on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.clocks import after
from millrace.core.election import QUIET_TICK_MS
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
from millrace.core.messages import blocklist, effects, jobs, slots
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, shard_scope

from . import (
    attempts,
    bad_records,
    births,
    blocking,
    earlier,
    holding,
    inspection,
    lifecycle,
    suspension,
    ticks,
)
from .plans import compile_stored
from .state import State

HANDLERS: dict[type, Handler] = {
    Configured: births.on_configured,
    Born: births.on_born,
    PeerBorn: births.on_peer_born,
    Ticked: ticks.on_ticked,
    PassedOver: bad_records.on_passed_over,
    # from the Dispatcher
    jobs.StartJob: lifecycle.on_start_job,
    jobs.CancelStartedJob: lifecycle.on_cancel_started_job,
    jobs.RescaleStartedJob: lifecycle.on_rescale_started_job,
    jobs.JobRetired: lifecycle.on_job_retired,
    jobs.DescribeStartedJob: lifecycle.on_describe_started_job,
    jobs.ReportStartedJob: inspection.on_report_started_job,
    jobs.SuspendJobs: suspension.on_suspend_jobs,
    jobs.ResumeJobs: suspension.on_resume_jobs,
    # from the ResourceManager
    jobs.JobQueued: holding.on_job_queued,
    jobs.NotEnoughResources: holding.on_not_enough_resources,
    jobs.TaskManagerLost: holding.on_task_manager_lost,
    jobs.DeclareAgain: births.on_declare_again,
    blocklist.TaskManagersBlocked: blocking.on_task_managers_blocked,
    jobs.ReconcileSlots: holding.on_reconcile_slots,
    # from TaskManagers
    slots.OfferSlots: holding.on_offer_slots,
    slots.FailSlot: holding.on_fail_slot,
    slots.TaskStateChanged: attempts.on_task_state_changed,
    slots.ProgressReported: inspection.on_progress_reported,
    slots.AttemptAnswered: inspection.on_attempt_answered,
    # from storage
    effects.SinkPublished: lifecycle.on_sink_published,
}


class JobMaster:
    """One shard. See `millrace.core.machine.Machine`."""

    peers: tuple[str, ...] = (DISPATCHER, RESOURCE_MANAGER)
    state_type: type = State

    def __init__(self, shard: int) -> None:
        self.scope: str = shard_scope(shard)

    def blank(self) -> State:
        return State()

    def is_idle(self, state: State) -> bool:
        return not state.jobs and not state.inspections

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Timers go by `state.now_ms`: machine time, carried on by the broker's clock for at most one slow tick."""
        if isinstance(envelope.body, (Born, Ticked)):
            state.ticked_ms = envelope.at_ms
        since_tick_ms = min(max(envelope.at_ms - state.ticked_ms, 0), QUIET_TICK_MS)
        state.now_ms = after(envelope.now_ms, since_tick_ms)
        if state.plans is None:
            state.plans, state.wholes, state.patterns = {}, {}, {}
        yield from dispatch(HANDLERS, state, envelope)
        if state.suspending:
            yield from suspension.report(state)

    def of_earlier(self, field: str, value: Any) -> Any:
        """A field of a state that another build wrote into a snapshot, in this one's shape."""
        if field != "jobs":
            return value
        return {
            name: earlier.today(job, compile_stored(job["graph"], 0)) if earlier.is_earlier(job) else job
            for name, job in value.items()
        }
