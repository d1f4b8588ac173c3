"""The JobMaster: one per job, all jobs of a shard in one machine. From a JobGraph to an end, through slots and attempts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from millrace.core.election import QUIET_TICK_MS
from millrace.core.jobgraph.compile import Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph
from millrace.core.machine import (
    Born,
    Configured,
    Envelope,
    Forget,
    Output,
    PassedOver,
    PeerBorn,
    Publish,
    Say,
    Ticked,
    dispatch_old,
    settings_of,
)
from millrace.core.messages import client, effects, events, jobs, slots
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, TASK_MANAGER, shard_scope

from . import bad_records, earlier, failover, publication
from .execution_graph import attempt_name, begin, describe, published, task_folder
from .scheduling import (
    advance,
    attempt_event,
    count,
    drop,
    fail,
    job_ended,
    move,
    move_job,
    release,
    request_slots,
    status_of,
    tell_status,
)
from .state import Failure, HeldSlot, Job, Settings, State
from .transitions import ENDED_JOB, ENDING_JOB, IN_SLOT, ExecutionState, JobStatus

LOST_KEPT = 5_000  # TaskManagers: more do not fit into one message, and those lost before have long ended by themselves


class JobMaster:
    """One shard. Plans are computed from the stored graphs and kept aside: they follow from the state, and are no part of it."""

    peers = (DISPATCHER, RESOURCE_MANAGER)
    state_type = State

    def __init__(self, shard: int) -> None:
        self.scope = shard_scope(shard)
        self._plans: dict[str, Plan | None] = {}  # acceptance -> plan
        self.handlers: Mapping[type, Any] = {
            Configured: self.on_configured,
            Born: self.on_born,
            Ticked: self.on_ticked,
            PeerBorn: self.on_peer_born,
            PassedOver: self.on_passed_over,
            jobs.StartJob: self.on_start_job,
            jobs.CancelStartedJob: self.on_cancel,
            jobs.JobRetired: self.on_job_retired,
            jobs.DescribeStartedJob: self.on_describe,
            jobs.JobQueued: self.on_job_queued,
            jobs.DeclareAgain: self.on_declare_again,
            jobs.TaskManagerLost: self.on_task_manager_lost,
            slots.OfferSlots: self.on_offer_slots,
            slots.TaskStateChanged: self.on_task_state_changed,
            slots.FailSlot: self.on_fail_slot,
            effects.SinkPublished: self.on_sink_published,
        }

    def blank(self) -> State:
        return State()

    def handle(self, state: State, envelope: Envelope) -> Iterator[Output]:
        if isinstance(envelope.body, (Born, Ticked)):
            state.ticked_ms = envelope.at_ms
        state.now_ms = envelope.now_ms + min(max(envelope.at_ms - state.ticked_ms, 0), QUIET_TICK_MS)
        return dispatch_old(self.handlers, state, envelope)

    def is_idle(self, state: State) -> bool:
        return not state.jobs

    def plan(self, job: Job) -> Plan | None:
        """The job's plan; None if its graph cannot be read by this build."""
        if job.acceptance not in self._plans:
            self._plans[job.acceptance] = self._plan(job.graph)
        return self._plans[job.acceptance]

    @staticmethod
    def _plan(graph: dict[str, Any]) -> Plan | None:
        try:
            return compile_graph(JobGraph.model_validate(graph))
        except ValidationError:
            return None

    def of_earlier(self, field: str, value: Any) -> Any:
        """A field of a state that another build wrote into a snapshot, in this one's shape."""
        if field != "jobs":
            return value
        return {id_: earlier.today(job, self._plan(job["graph"])) if earlier.is_earlier(job) else job for id_, job in value.items()}

    # the core

    def on_configured(self, state: State, envelope: Envelope) -> Iterator[Output]:
        state.settings = settings_of(Settings, envelope.body)
        yield from ()

    def on_born(self, state: State, envelope: Envelope) -> Iterator[Output]:
        yield from ()

    def on_peer_born(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Declares all that the peer's new life needs [10]; slots of a TaskManager's earlier life are gone."""
        peer = envelope.body.peer
        if peer == DISPATCHER:
            for job in state.jobs.values():
                if job.status in ENDED_JOB:
                    yield job_ended(job, self.plan(job))
                else:
                    yield Say(DISPATCHER, jobs.JobMasterStarted(job=job.id, status=job.status.value))
                    yield from tell_status(job, envelope.at_ms)
        elif peer == RESOURCE_MANAGER:
            for job in state.jobs.values():
                if job.wanted:
                    yield request_slots(job)
                if job.waiting is not None:  # by what its life before said; this one says it anew, if it is so
                    job.waiting, job.position = None, None
                    yield status_of(job)
            if state.lost:
                yield Say(RESOURCE_MANAGER, jobs.TaskManagersParted(lost=dict(state.lost)))
            yield Say(RESOURCE_MANAGER, jobs.JobMasterDeclared(task_managers=_task_managers(state)))
            state.declared_to = envelope.body.life
        else:
            state.lost.pop(peer.partition("/")[2], None)
            yield from self._lose(state, peer, envelope.body.life - 1, "it was started anew", envelope.at_ms)

    def on_ticked(self, state: State, envelope: Envelope) -> Iterator[Output]:
        for name in [name for name, due in state.due.items() if due <= envelope.now_ms]:
            job = state.jobs[name]
            before = job.status
            if job.queue_due_ms is not None and job.queue_due_ms <= envelope.now_ms and job.status not in ENDING_JOB:
                waited = envelope.at_ms - job.accepted_ms
                message = f"no slot within {waited} ms (timeouts.queue_ms): {job.waiting or 'slots are short'}"
                fail(job, {"kind": "timeout", "retryable": False, "message": message}, envelope.at_ms)
            yield from advance(state, job, self.plan(job), envelope.at_ms, before)

    def on_passed_over(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """The jobs that a bad record was about fail, and nothing else does [26]. What is over by it is over: nobody says it again."""
        body, error = envelope.body.body, envelope.body.error
        if isinstance(body, jobs.DescribeStartedJob):
            refused = client.RequestRefused(
                correlation=body.correlation, kind="internal", reason=f"a fault of Millrace in handling this request: {error}"
            )
            yield Publish("client.replies", body.reply_to, refused)
            yield from _answered(body)
            return
        if isinstance(body, jobs.StartJob):
            yield from self._forget_other(state, body)
        if isinstance(body, jobs.StartJob) and body.job not in state.jobs:
            state.jobs[body.job] = Job(
                id=body.job,
                acceptance=body.acceptance,
                life=envelope.id.partition(".")[0],
                graph={},  # what is in it may be what ended the processes
                accepted_ms=body.accepted_ms,
                since_ms=envelope.at_ms,
            )
        cause = {"kind": "infrastructure", "retryable": False}
        cause["message"] = f"a fault of Millrace in handling a {body.type} of this job: {error}"
        for name, over in bad_records.concerned(state, body, self._current).items():
            job = state.jobs[name]
            before = job.status
            if before not in ENDED_JOB:
                fail(job, cause, envelope.at_ms)
                for task, index in over:
                    yield from self._attempt_failed(state, job, task, index, cause, envelope.at_ms)
                if isinstance(body, effects.SinkPublished) and body.vertex in job.sinks:
                    job.sinks[body.vertex] = True
                yield from advance(state, job, self.plan(job), envelope.at_ms, before)
            elif isinstance(body, jobs.StartJob):
                yield job_ended(job, self.plan(job))  # a Dispatcher that was born anew waits for it, as after any StartJob [21]
        if isinstance(body, slots.OfferSlots):
            freed = [offer.allocation for offer in body.offers if offer.allocation not in state.allocations]
            yield Say(envelope.sender, slots.FreeSlots(allocations=freed))
        elif isinstance(body, jobs.TaskManagerLost):
            yield from self._part(state, body)
        elif isinstance(body, jobs.DeclareAgain):
            yield from self.on_declare_again(state, envelope)

    # the Dispatcher

    def on_start_job(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """A job known already is answered with its state [21]; the Dispatcher may have been born anew."""
        start = envelope.body
        yield from self._forget_other(state, start)
        known = state.jobs.get(start.job)
        if known is not None:
            yield from self._known(known, envelope)
            if start.cancel:
                yield from self._cancel(state, known, envelope.at_ms)
            return
        job = Job(
            id=start.job,
            acceptance=start.acceptance,
            life=envelope.id.partition(".")[0],
            graph=dict(start.graph),
            accepted_ms=start.accepted_ms,
            since_ms=envelope.at_ms,
        )
        state.jobs[job.id] = job
        plan = self.plan(job)
        if plan is None:
            fail(job, _unreadable(), envelope.at_ms)
        else:
            begin(plan, job)
            queue_ms = plan.graph.timeouts.queue_ms
            job.queue_due_ms = None if queue_ms is None else state.now_ms + queue_ms
        if start.cancel and plan is not None:
            move_job(job, JobStatus.CANCELLING, envelope.at_ms)
        said = list(advance(state, job, plan, envelope.at_ms))
        yield from said[:1]  # RequestSlots: the way of a submission first
        yield Say(DISPATCHER, jobs.JobMasterStarted(job=job.id, status=job.status.value))
        yield from said[1:]

    def _forget_other(self, state: State, start: jobs.StartJob) -> Iterator[Output]:
        """Where the Dispatcher came back from an older store and accepted the id anew, the job known here is nobody's."""
        known = state.jobs.get(start.job)
        if known is not None and known.acceptance != start.acceptance:
            yield from self._abandon(state, known)

    def _known(self, job: Job, envelope: Envelope) -> Iterator[Output]:
        if job.status in ENDED_JOB:
            yield job_ended(job, self.plan(job))
        else:
            yield Say(DISPATCHER, jobs.JobMasterStarted(job=job.id, status=job.status.value))
            if job.waiting is not None:
                yield status_of(job)

    def on_cancel(self, state: State, envelope: Envelope) -> Iterator[Output]:
        job = state.jobs.get(envelope.body.job)
        if job is not None:  # else it has ended, and its JobEnded is on the way
            yield from self._cancel(state, job, envelope.at_ms)

    def _cancel(self, state: State, job: Job, now_ms: int) -> Iterator[Output]:
        """At any moment but two: an ended job stays what it is, and sinks being published are not called back."""
        if job.status in (*ENDED_JOB, JobStatus.CANCELLING) or job.sinks:
            return
        before = job.status
        move_job(job, JobStatus.CANCELLING, now_ms)
        yield from advance(state, job, self.plan(job), now_ms, before)

    def on_job_retired(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """The ending is stored: forget the job. Another acceptance under the same id is another job."""
        job = state.jobs.get(envelope.body.job)
        if job is None or job.acceptance != envelope.body.acceptance:
            return
        # While it runs here, the Dispatcher knows an ending that this state does not (it came back from an older log).
        yield from self._abandon(state, job)

    def _abandon(self, state: State, job: Job) -> Iterator[Output]:
        """Forgets the job and gives back what it holds."""
        self._plans.pop(job.acceptance, None)
        state.due.pop(job.id, None)
        del state.jobs[job.id]
        freed: dict[str, list[str]] = {}
        for allocation, slot in list(job.slots.items()):
            freed.setdefault(slot.task_manager, []).append(allocation)
            drop(state, job, allocation)
        for task_manager, allocations in freed.items():
            yield Say(task_manager, slots.FreeSlots(allocations=allocations))
        if job.wanted:
            job.wanted = 0
            yield request_slots(job)

    def on_describe(self, state: State, envelope: Envelope) -> Iterator[Output]:
        ask = envelope.body
        job = state.jobs.get(ask.job)
        if job is None:
            body: client.Reply = client.RequestRefused(
                correlation=ask.correlation, kind="not_found", reason=f"the job {ask.job} has just ended: ask again"
            )
        else:
            summary = client.JobSummary(
                job=job.id,
                name=job.graph.get("name", ""),
                status=job.status.value,
                accepted_ms=job.accepted_ms,
                ended_ms=job.ended_ms or None,
                waiting=job.waiting,
                position=job.position,
                running_ms=job.running_ms or None,
            )
            body = client.JobDescribed(
                correlation=ask.correlation, summary=summary, detail=describe(self.plan(job), job)
            )
        yield Publish("client.replies", ask.reply_to, body)
        yield from _answered(ask)

    # the ResourceManager

    def on_declare_again(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """It took this shard for away. What the jobs want it knows."""
        yield Say(RESOURCE_MANAGER, jobs.JobMasterDeclared(task_managers=_task_managers(state)))

    def on_job_queued(self, state: State, envelope: Envelope) -> Iterator[Output]:
        told = envelope.body
        job = state.jobs.get(told.job)
        if job is None or job.status in ENDED_JOB or not job.wanted:
            return
        if (job.waiting, job.position) == (told.reason, told.position):
            return
        job.waiting, job.position = told.reason, told.position
        if told.reason is None:  # a slot was given; its offer comes by way of the TaskManager, and needs not be told of again
            job.running_ms = job.running_ms or envelope.at_ms
        yield status_of(job)
        if told.reason is not None:
            event = events.JobWaiting(
                job=job.id,
                at_ms=envelope.at_ms,
                count=count(job, "JobWaiting"),
                reason=told.reason,
                position=told.position,
            )
            yield Publish("job.events", job.id, event)

    def on_task_manager_lost(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Decided by the ResourceManager, once, for all."""
        lost = envelope.body
        scope = f"{TASK_MANAGER}/{lost.task_manager}"
        yield from self._lose(state, scope, lost.incarnation, lost.reason, envelope.at_ms)
        yield from self._part(state, lost)

    def _part(self, state: State, lost: jobs.TaskManagerLost) -> Iterator[Output]:
        """Nothing more is taken of it, or said to it."""
        before = state.lost.pop(lost.task_manager, 0)
        state.lost[lost.task_manager] = max(lost.incarnation, before)
        if len(state.lost) > LOST_KEPT:
            del state.lost[next(iter(state.lost))]
        yield Forget(f"{TASK_MANAGER}/{lost.task_manager}", lost.incarnation)

    def _lose(self, state: State, scope: str, upto: int, reason: str, now_ms: int) -> Iterator[Output]:
        """All slots of a TaskManager's lives up to `upto` are gone; their attempts run elsewhere."""
        for job in list(state.jobs.values()):
            gone = bad_records.held_on(job, scope, upto)
            if gone:
                yield from self._lose_slots(state, job, gone, f"{scope.partition('/')[2]} was lost: {reason}", now_ms)

    def _lose_slots(self, state: State, job: Job, gone: list[str], reason: str, now_ms: int) -> Iterator[Output]:
        before = job.status
        for allocation in gone:
            slot = job.slots[allocation]
            if slot.task is not None:
                task, index = slot.task, slot.subtask
                yield from self._attempt_failed(state, job, task, index, failover.lost(reason), now_ms)
            drop(state, job, allocation)
        yield from advance(state, job, self.plan(job), now_ms, before)

    # TaskManagers

    def on_offer_slots(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Takes what the job wants and gives the rest back: also what was granted to a life before, with the attempt in it. That one must
        have ended before its subtask runs anew, and the ResourceManager, which counts all slots, grants nothing until then [11]. And what
        a life of the ResourceManager before the one declared to has granted: that one may never hear of the TaskManager, and would not
        tell that it is lost."""
        freed: list[str] = []
        changed: dict[str, None] = {}
        running = {report.allocation for report in envelope.body.attempts}
        for offer in envelope.body.offers:
            job = state.jobs.get(offer.job)
            if offer.allocation in state.allocations:
                continue  # taken before
            earlier = slots.life_of(offer.allocation) < envelope.generation or offer.allocation in running
            earlier = earlier or slots.granted_in(offer.allocation) < state.declared_to
            if job is None or job.status in ENDED_JOB or earlier:
                freed.append(offer.allocation)
                continue
            job.slots[offer.allocation] = HeldSlot(envelope.sender, envelope.life, offer.slot)
            state.allocations[offer.allocation] = job.id
            changed[job.id] = None
        for name in changed:
            job = state.jobs[name]
            yield from advance(state, job, self.plan(job), envelope.at_ms)
        if freed:
            yield Say(envelope.sender, slots.FreeSlots(allocations=freed))

    def on_task_state_changed(self, state: State, envelope: Envelope) -> Iterator[Output]:
        """Only the current attempt of a subtask counts; what an older one says changes nothing [20]."""
        told = envelope.body
        current = self._current(state, told)
        if current is None:
            return
        job, task, index = current
        subtask, plan, before = job.tasks[task].rows[index], self.plan(job), job.status
        assert plan is not None, f"{job.id} runs without a plan"
        if told.state == "RUNNING":
            if subtask.state is ExecutionState.DEPLOYING:
                move(subtask, ExecutionState.RUNNING)
                subtask.running_ms = envelope.at_ms
                yield attempt_event(job, task, index, envelope.at_ms)
            return
        report, error = told.report or {}, told.error
        if told.state == "FINISHED":
            error = publication.other_columns(job, task, index, report.get("outputs") or {})
            error = error or publication.too_much(job, plan, task, report)
        if told.state == "FINISHED" and error is None and subtask.state is not ExecutionState.CANCELING:
            yield from self._finished(job, plan, task, index, report, envelope.at_ms)
        else:
            error = error or {"kind": "killed", "retryable": False, "message": f"the attempt ended {told.state}"}
            yield from self._attempt_failed(state, job, task, index, error, envelope.at_ms)
        yield from advance(state, job, plan, envelope.at_ms, before)

    def _current(self, state: State, told: slots.TaskStateChanged) -> tuple[Job, str, int] | None:
        """The job, task and index of the subtask whose current attempt is spoken of; None: it is another's."""
        job = state.jobs.get(state.allocations.get(told.allocation, ""))
        slot = job.slots[told.allocation] if job is not None else None
        if job is None or slot is None or slot.task is None:
            return None
        task, index, plan = slot.task, slot.subtask, self.plan(job)
        if plan is None or told.attempt != attempt_name(job, task_folder(plan, task), index, job.tasks[task].rows[index].attempt):
            return None
        return job, task, index

    def _finished(
        self, job: Job, plan: Plan, task: str, index: int, report: Mapping[str, Any], now_ms: int
    ) -> Iterator[Output]:
        """Publication: from here on this attempt's output is the subtask's."""
        subtask = job.tasks[task].rows[index]
        release(job, subtask)
        move(subtask, ExecutionState.FINISHED)
        subtask.ended_ms = now_ms
        publication.keep(job, plan, task, index, report)
        published(plan, job, task, index)
        yield attempt_event(job, task, index, now_ms)

    def _attempt_failed(
        self, state: State, job: Job, task: str, index: int, error: Mapping[str, Any], now_ms: int
    ) -> Iterator[Output]:
        """The attempt is over without a result: it was canceled, or it failed and is tried again, or the job fails with it."""
        subtask = job.tasks[task].rows[index]
        assert subtask.state in IN_SLOT, f"{job.id}: {task}[{index}] is {subtask.state} and fails"
        release(job, subtask)
        subtask.ended_ms = now_ms
        if subtask.state is ExecutionState.CANCELING:
            move(subtask, ExecutionState.CANCELED)
            yield attempt_event(job, task, index, now_ms)
            return
        fault = dict(error)
        move(subtask, ExecutionState.FAILED)
        told = failover.short(fault)
        failover.keep(job, Failure(task, index, subtask.attempt, now_ms, subtask.task_manager, told))
        yield attempt_event(job, task, index, now_ms, error=told)
        if job.status in ENDING_JOB:
            return
        plan = self.plan(job)
        assert plan is not None
        delay = failover.restart_after_ms(plan.graph.restart, job, subtask, fault, state.settings.moves_most)
        if delay is None:
            fail(job, {**told, "task": task, "subtask": index, "attempt": subtask.attempt}, now_ms)
            return
        if failover.is_move(fault):
            subtask.moves += 1
        else:
            job.restarts += 1
        move(subtask, ExecutionState.CREATED)
        job.tasks[task].retry[index] = state.now_ms + delay

    def on_fail_slot(self, state: State, envelope: Envelope) -> Iterator[Output]:
        gone = envelope.body
        job = state.jobs.get(state.allocations.get(gone.allocation, ""))
        if job is not None:
            yield from self._lose_slots(state, job, [gone.allocation], gone.reason, envelope.at_ms)

    # storage

    def on_sink_published(self, state: State, envelope: Envelope) -> Iterator[Output]:
        told = envelope.body
        job = state.jobs.get(told.job)
        if job is None or told.vertex not in job.sinks or job.status in ENDED_JOB:
            return
        before = job.status
        job.sinks[told.vertex] = True
        if told.problem is not None and job.status not in ENDING_JOB:
            error = {"kind": "user", "retryable": False, "message": told.problem, "vertex": told.vertex}
            fail(job, error, envelope.at_ms)
        yield from advance(state, job, self.plan(job), envelope.at_ms, before)


def _answered(ask: jobs.DescribeStartedJob) -> Iterator[Output]:
    if ask.number:  # of a build before there is none
        yield Say(DISPATCHER, jobs.QuestionAnswered(number=ask.number))


def _task_managers(state: State) -> dict[str, int]:
    """The TaskManagers on which slots are held: id -> incarnation."""
    held = {}
    for job in state.jobs.values():
        for slot in job.slots.values():
            held[slot.task_manager.partition("/")[2]] = slot.incarnation
    return held


def _unreadable() -> dict[str, Any]:
    message = "the stored JobGraph cannot be read by this version of Millrace: submit it again"
    return {"kind": "infrastructure", "retryable": False, "message": message}
