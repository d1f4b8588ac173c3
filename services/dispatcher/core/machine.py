"""The Dispatcher's decisions: what it answers, stores, starts, recovers and retires, record by record."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from millrace.core.cluster import acceptance_of
from millrace.core.machine import (
    Born,
    Configured,
    Do,
    Envelope,
    Output,
    PassedOver,
    PeerBorn,
    Publish,
    Say,
    Ticked,
    dispatch_old,
    settings_of,
)
from millrace.core.messages import client, effects, events, jobs
from millrace.core.messages.base import parsed, written
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.records import Client
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, Topology, shard_scope

from . import admission, answers, bad_records, questions, retirement, waiting
from .answers import asking_of, letter, park, refuse, reject, reply
from .state import Asking, EndedJob, Ending, Fate, LiveJob, Recovery, Settings, State, Submitted
from .waiting import close, wait

DECLARED_A_TICK = 500  # jobs that a shard is told of at once at a tick: more would hold the loop for too long
FLOOD_A_TICK = 32  # submissions put since the last tick; at a tick behind as many ...
STARTED_A_TICK = 5  # ... no more jobs than these are started: what is not stored yet comes first

UNDONE = "it was decided on before the Dispatcher lost its log, and no job came of it; submit again"

Outputs = Iterator[Output]


class Dispatcher:
    """See `millrace.core.machine.Machine`."""

    scope = DISPATCHER
    state_type = State

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.peers = tuple(scope for scope in topology.scopes() if scope != DISPATCHER)
        self.handlers = {
            Born: self.born,
            Configured: self.configured,
            Ticked: self.ticked,
            PeerBorn: self.peer_born,
            PassedOver: self.passed_over,
            Client: self.requested,
            effects.JobGraphStored: self.graph_stored,
            effects.JobFound: self.job_found,
            effects.JobResultStored: self.result_stored,
            effects.JobCleaned: self.nothing_left,
            effects.JobKept: self.nothing_left,
            effects.JobsRecovered: self.jobs_recovered,
            jobs.JobMasterStarted: self.status_told,
            jobs.JobStatusChanged: self.status_told,
            jobs.JobEnded: self.job_ended,
            jobs.QuestionAnswered: self.answered,
        }

    def blank(self) -> State:
        return State()

    def handle(self, state: State, envelope: Envelope) -> Outputs:
        return dispatch_old(self.handlers, state, envelope)

    def is_idle(self, state: State) -> bool:
        return not (state.live or state.fates or state.declaring or state.asked)

    # from the core

    def born(self, state: State, envelope: Envelope) -> Outputs:
        """A new generation knows nothing: accepted jobs come back from etcd."""
        state.recovery = Recovery.RUNNING
        yield Do("jobs", effects.RecoverJobs(retained=state.settings.retained_jobs))

    def configured(self, state: State, envelope: Envelope) -> Outputs:
        state.settings = settings_of(Settings, envelope.body)
        retirement.forget_oldest(state)
        yield from ()

    def ticked(self, state: State, envelope: Envelope) -> Outputs:
        for scope in list(state.declaring):
            yield from self.declare(state, scope)
        state.put_since_tick = 0
        yield from questions.tick(self, state, envelope)

    def peer_born(self, state: State, envelope: Envelope) -> Outputs:
        """A shard's new life is told of all its live jobs. What it still holds of ended ones it tells by itself, and is
        answered with JobRetired."""
        scope = envelope.body.peer
        state.heard[scope] = None
        yield from questions.forget(self, state, envelope, scope)
        if scope.startswith(f"{JOB_MASTER}/"):
            mine = [job for job, live in state.live.items() if shard_scope(live.shard) == scope]
            state.declaring[scope] = mine[::-1]
            yield from self.declare(state, scope)

    def declare(self, state: State, scope: str) -> Outputs:
        """The next few jobs that the shard must hear of [10]."""
        left = state.declaring[scope]
        most = DECLARED_A_TICK if state.put_since_tick < FLOOD_A_TICK else STARTED_A_TICK
        for _ in range(min(most, len(left))):
            job = left.pop()
            live = state.live.get(job)
            if live is not None and live.ending is None:  # what is ended must not be started again
                yield start(job, live)
        if not left:
            del state.declaring[scope]

    # from clients

    def passed_over(self, state: State, envelope: Envelope) -> Outputs:
        return bad_records.passed_over(self, state, envelope)

    def requested(self, state: State, envelope: Envelope) -> Outputs:
        """A record of client.commands, as the client port understood it."""
        record: Client = envelope.body
        request = record.request
        if record.refusal is not None:
            yield park(letter(record, record.refusal), envelope.at_ms, record.refusal.reason)
        elif isinstance(request, client.SubmitJob) and record.graph is None:
            count = len(record.problems)
            reason = record.problems[0].message if count == 1 else f"{count} things are wrong"
            yield from reject(asking_of(record, request), envelope.at_ms, "invalid", reason, problems=record.problems)
        elif isinstance(request, client.SubmitJob):
            submitted = Submitted(
                digest=record.digest or "",
                graph=written(record.graph),
                warnings=written(record.warnings),
                accept_before_ms=request.accept_before_ms,
                decided=record.decided,
            )
            asking = asking_of(record, request, submitted)
            known = request.job in state.live or request.job in state.ended or request.job in state.fates
            if record.lack and not record.decided and not known:
                yield from reject(asking, envelope.at_ms, "busy", record.lack, retry_after_ms=admission.RETRY_AFTER_MS)
            else:
                yield from self.ask(state, envelope, asking)
        elif isinstance(request, (client.CancelJob, client.DescribeJob, client.AwaitJobResult, client.GetJobStatus)):
            yield from self.ask(state, envelope, asking_of(record, request))
        else:
            assert isinstance(request, client.Request), "a Client record has a request or a refusal"
            yield from self.general(state, envelope, request)

    def general(self, state: State, envelope: Envelope, request: client.Request) -> Outputs:
        """A request that is about no job by id."""
        if isinstance(request, client.ListJobs):
            listed, total = answers.newest(state, request)
            yield from reply(request, client.JobsListed, jobs=listed, total=total)
        elif isinstance(request, client.DescribeBlobServer):
            url, most = state.settings.blob_url, state.settings.blob_max_bytes
            yield from reply(request, client.BlobServerDescribed, url=url, max_bytes=most)
        elif RESOURCE_MANAGER not in state.heard:
            yield from refuse(request, "busy", "the ResourceManager has not been heard yet; try again")
        else:
            asking = Asking(request.type, "", request.reply_to, request.correlation)
            what = "overview" if isinstance(request, client.GetClusterOverview) else "task_managers"
            query = jobs.Query(
                what=what, reply_to=request.reply_to, correlation=request.correlation, jobs=answers.counts(state)
            )
            yield from questions.ask(self, state, envelope, RESOURCE_MANAGER, asking, query)

    def ask(self, state: State, envelope: Envelope, asking: Asking) -> Outputs:
        """Answers a request about a job, or asks etcd about an id not known here; whoever asks meanwhile waits."""
        asking.asked_ms = envelope.now_ms
        live, ended = state.live.get(asking.job), state.ended.get(asking.job)
        fate = state.fates.get(asking.job)
        if live is not None:
            yield from self.ask_live(state, envelope, asking, live)
        elif ended is not None:
            yield from self.ask_ended(envelope, asking, ended)
        elif fate is not None:
            yield from wait(state, envelope, fate.behind, asking)
        elif asking.submitted is not None and not asking.submitted.decided:
            yield from self.put(state, envelope, asking, asking.submitted)
        elif state.waiting >= waiting.WAITING_MOST:
            reason = f"{state.waiting} requests wait already; try again"
            if asking.submitted is not None:
                yield from reject(asking, envelope.at_ms, "busy", reason, retry_after_ms=admission.RETRY_AFTER_MS)
            else:
                yield from refuse(asking, "busy", reason)
        else:
            yield from self.find(state, asking)

    def find(self, state: State, asking: Asking) -> Outputs:
        """Asks etcd about an id that is in no table."""
        state.fates[asking.job] = Fate(acceptance="", putting=None, behind=[asking])
        state.waiting += 1
        yield Do(key(asking.job), effects.FindJob(job=asking.job))

    def put(self, state: State, envelope: Envelope, asking: Asking, submitted: Submitted) -> Outputs:
        """A submission of an id that is not known here goes to etcd, where create-if-absent decides [18]."""
        settings = state.settings
        graph = parsed(submitted.graph)
        subtasks = admission.subtasks_of(graph)
        wide = admission.too_wide(subtasks=subtasks, max_subtasks=settings.max_live_subtasks)
        if wide is not None:
            problems = [client.Problem(place=["vertices"], message=wide)]
            yield from reject(asking, envelope.at_ms, "invalid", wide, problems=problems)
            return
        reason = admission.no_room(
            live=len(state.live),
            putting=state.putting,
            graphs_bytes=state.live_graphs,
            graph_bytes=len(submitted.graph),
            live_subtasks=state.live_subtasks,
            subtasks=subtasks,
            max_live=settings.max_live_jobs,
            max_graphs_mb=settings.max_live_graphs_mb,
            max_subtasks=settings.max_live_subtasks,
        )
        if reason is not None:
            yield from reject(asking, envelope.at_ms, "busy", reason, retry_after_ms=admission.RETRY_AFTER_MS)
            return
        acceptance = acceptance_of(settings.cluster, envelope.id)
        stored = StoredJob(
            state="accepted",
            digest=submitted.digest,
            acceptance=acceptance,
            shard=self.topology.shard_of(asking.job),
            accepted_ms=envelope.at_ms,
            graph=graph,
            name=graph["name"],
            asked_log=asking.log,
            asked=asking.offset,
        )
        state.fates[asking.job] = Fate(acceptance=acceptance, putting=asking, subtasks=subtasks)
        state.putting += 1
        state.live_subtasks += subtasks
        state.put_since_tick += 1
        put = effects.PutJobGraph(job=asking.job, stored=stored, accept_before_ms=submitted.accept_before_ms)
        yield Do(key(asking.job), put)

    def ask_live(self, state: State, envelope: Envelope, asking: Asking, live: LiveJob) -> Outputs:
        if asking.type == "SubmitJob":
            yield from self.same_or_conflict(envelope, asking, live)
        elif asking.type == "GetJobStatus":
            yield from reply(asking, client.JobStatusAnswered, summary=live.summary(asking.job))
        elif asking.type == "DescribeJob":
            scope = shard_scope(live.shard)
            if scope not in state.heard:  # shown, not left out
                yield from questions.instead(self, state, envelope, scope, asking)
            elif asking.job in state.declaring.get(scope, ()):
                yield from reply(asking, client.JobDescribed, summary=live.summary(asking.job))
            else:
                body = jobs.DescribeStartedJob(job=asking.job, reply_to=asking.reply_to, correlation=asking.correlation)
                yield from questions.ask(self, state, envelope, scope, asking, body)
        elif asking.type == "AwaitJobResult" or live.ending is not None:
            # A cancel that may come too late is answered when that is known.
            yield from wait(state, envelope, live.awaiting, asking)
        else:
            assert asking.type == "CancelJob", asking.type
            if asking.log == live.log and asking.offset < live.offset:  # read again in a new generation: it was refused
                yield from answers.not_found(asking)
                return
            if not live.cancel:
                live.cancel = True
                yield Say(shard_scope(live.shard), jobs.CancelStartedJob(job=asking.job))
            yield from reply(asking, client.CancelAccepted, job=asking.job, status=live.shown)

    def ask_ended(self, envelope: Envelope, asking: Asking, ended: EndedJob) -> Outputs:
        if asking.type == "SubmitJob":
            yield from self.same_or_conflict(envelope, asking, ended)
            if envelope.at_ms - ended.ended_ms > retirement.KEPT_AFTER_MS:
                stone = retirement.tombstone_of(ended, self.topology.shard_of(asking.job))
                yield Do(key(asking.job), effects.KeepJob(job=asking.job, at_ms=envelope.at_ms, tombstone=stone))
        elif asking.type == "GetJobStatus":
            yield from reply(asking, client.JobStatusAnswered, summary=ended.summary(asking.job))
        elif asking.type == "DescribeJob":
            yield from reply(asking, client.JobDescribed, summary=ended.summary(asking.job), archive=ended.archive)
        elif asking.type == "AwaitJobResult":
            yield from answers.result(asking, ended)
        else:
            assert asking.type == "CancelJob", asking.type
            reason = admission.cancel_refusal(asking.job, ended.status)
            if reason is not None:
                yield from refuse(asking, "conflict", reason)
            else:
                yield from reply(asking, client.CancelAccepted, job=asking.job, status=ended.status)

    def same_or_conflict(self, envelope: Envelope, asking: Asking, known: LiveJob | EndedJob) -> Outputs:
        """The same id and graph again is the same job; another graph is refused."""
        assert asking.submitted is not None
        reason = admission.conflict(asking.job, asking.submitted.digest, known.digest)
        if reason is not None:
            yield from reject(asking, envelope.at_ms, "conflict", reason)
        else:
            yield from answers.accepted(asking, known.summary(asking.job).status, self.topology.events_partition(asking.job))

    # from etcd

    def graph_stored(self, state: State, envelope: Envelope) -> Outputs:
        body: effects.JobGraphStored = envelope.body
        fate = close(state, body.job)
        asking = fate.putting
        assert asking is not None, "only a put has this outcome"
        if body.unreadable is not None:
            yield from bad_records.unreadable(state, [asking, *fate.behind], envelope.at_ms, body.unreadable)
            return
        if body.stands is None:
            reason = "it came too late: accept_before_ms had passed by the Dispatcher's clock; submit again"
            yield from reject(asking, envelope.at_ms, "late", reason)
        elif body.stands.acceptance == fate.acceptance and body.stands.state == "accepted":  # a cut log may give a name again
            assert asking.submitted is not None, "only a submission is put"
            yield from self.accept(state, body.job, body.stands, envelope, asking.submitted.graph)
            yield from answers.accepted(asking, "INITIALIZING", self.topology.events_partition(body.job))
        else:
            yield from self.know(state, body.job, body.stands, envelope)
            yield from self.ask_stands(state, envelope, asking, body.stands)
        yield from self.answer_early(state, body.job, body.stands)
        yield from self.ask_behind(state, envelope, fate, body.stands)

    def job_found(self, state: State, envelope: Envelope) -> Outputs:
        body: effects.JobFound = envelope.body
        fate = close(state, body.job)
        if body.unreadable is not None:
            yield from bad_records.unreadable(state, fate.behind, envelope.at_ms, body.unreadable)
            return
        if body.stands is not None:
            yield from self.know(state, body.job, body.stands, envelope)
        yield from self.answer_early(state, body.job, body.stands)
        yield from self.ask_behind(state, envelope, fate, body.stands)

    def ask_behind(self, state: State, envelope: Envelope, fate: Fate, stands: StoredJob | None) -> Outputs:
        """Answers those who waited for what etcd holds, in the order they came."""
        for asking in fate.behind:
            if stands is not None:
                yield from self.ask_stands(state, envelope, asking, stands)
            elif asking.submitted is not None and asking.submitted.decided:
                yield from reject(asking, envelope.at_ms, "late", UNDONE)
            elif asking.submitted is not None or asking.job in state.fates:
                yield from self.ask(state, envelope, asking)  # the first of them is stored now, the others wait for it
            else:
                yield from answers.not_found(asking)

    def ask_stands(self, state: State, envelope: Envelope, asking: Asking, stands: StoredJob) -> Outputs:
        """Answers from what etcd holds: a job made live by it, or an ended one that may be too old for the state."""
        live = state.live.get(asking.job)
        if live is not None:
            yield from self.ask_live(state, envelope, asking, live)
        elif asking.type == "AwaitJobResult":
            yield from answers.result(asking, answers.remembered(stands), stands.cause)
        else:
            yield from self.ask_ended(envelope, asking, state.ended.get(asking.job) or answers.remembered(stands))

    def know(self, state: State, job: str, stands: StoredJob, envelope: Envelope) -> Outputs:
        """An id that is not in state turned out to be a job in etcd: what is not done for it yet is done now. A clean
        one needs nothing, and stays out of the state: it is an old one."""
        if stands.state == "accepted":
            yield from self.accept(state, job, stands, envelope)
        elif stands.state == "dirty":
            yield from self.finish(state, job, stands, envelope)

    def accept(self, state: State, job: str, stands: StoredJob, envelope: Envelope, put: str = "") -> Outputs:
        """A job whose graph stands in etcd is live; `put` is the graph where `stands` leaves it out. It is announced before its
        JobMaster hears of it: else what that one says of the job could stand before JobAccepted on job.events."""
        graph = parsed(put) if stands.graph is None else stands.graph
        live = state.live[job] = LiveJob(
            acceptance=stands.acceptance,
            digest=stands.digest,
            shard=stands.shard,
            accepted_ms=stands.accepted_ms,
            name=stands.name,
            log=stands.asked_log,
            offset=stands.asked,
            graph=put if stands.graph is None else written(graph),
            subtasks=admission.subtasks_of(graph),
        )
        state.live_graphs += len(live.graph)
        state.live_subtasks += live.subtasks
        state.early.pop(job, None)  # its JobMaster answers StartJob with the end again
        event = events.JobAccepted(job=job, at_ms=stands.accepted_ms, name=live.name, tasks=answers.tasks_of(graph))
        yield Publish("job.events", job, event)
        scope = shard_scope(live.shard)
        if scope in state.heard and (scope in state.declaring or state.put_since_tick >= FLOOD_A_TICK):
            state.declaring.setdefault(scope, []).insert(0, job)  # the last of those that wait
        else:
            yield start(job, live, graph)

    def jobs_recovered(self, state: State, envelope: Envelope) -> Outputs:
        """A page of what stands in etcd. Known jobs, and those that an effect in flight is about, are passed over."""
        body: effects.JobsRecovered = envelope.body
        for job, stands in body.jobs.items():
            if job in state.live or job in state.ended or job in state.fates:
                continue
            yield from self.know(state, job, stands, envelope)
            if stands.state == "clean":
                answers.remember(state, job, stands)
        yield from self.recover_on(state, envelope, body.through)

    def recover_on(self, state: State, envelope: Envelope, through: str | None) -> Outputs:
        """The next page, or all is known."""
        if through is not None:
            yield Do("jobs", effects.RecoverJobs(after=through, retained=state.settings.retained_jobs))
            return
        state.recovery = Recovery.DONE
        state.ended = OrderedDict(sorted(state.ended.items(), key=lambda item: (item[1].ended_ms, item[0])))
        retirement.forget_oldest(state)
        for job in [job for job in state.early if job not in state.fates]:
            unnamed = state.early[job] == "" and job not in state.ended
            yield from self.answer_early(state, job)
            if unnamed:
                yield from self.unknown_told(state, envelope, job)

    def result_stored(self, state: State, envelope: Envelope) -> Outputs:
        """The ending that counts is the one that stands [16]."""
        body: effects.JobResultStored = envelope.body
        live = retirement.no_longer_live(state, body.job)
        assert live.ending is not None, "only a job that ended has this outcome"
        ours = body.stands.acceptance == live.acceptance and body.stands.status == live.ending.status
        yield from self.finish(state, body.job, body.stands, envelope, live.ending.result if ours else None)
        ended = answers.remembered(body.stands)
        for asking in live.awaiting:
            if asking.type == "AwaitJobResult":
                yield from answers.result(asking, ended, body.stands.cause)
            else:
                yield from self.ask_ended(envelope, asking, ended)

    def finish(
        self, state: State, job: str, stands: StoredJob, envelope: Envelope, result: str | None = None
    ) -> Outputs:
        """An ending stands in etcd: the world is told, the JobMaster forgets the job, its leavings are deleted."""
        answers.remember(state, job, stands)
        retirement.forget_oldest(state)
        state.early.pop(job, None)
        told = {"job": job, "at_ms": envelope.at_ms, "archive": stands.archive}
        body: events.JobEvent
        if stands.status == "FINISHED":
            body = events.JobFinished(**told, result=parsed(result) if result is not None else None)
        elif stands.status == "FAILED":
            body = events.JobFailed(**told, cause=stands.cause)
        else:
            body = events.JobCanceled(**told)
        yield Publish("job.events", job, body)
        yield Say(shard_scope(stands.shard), jobs.JobRetired(job=job, acceptance=stands.acceptance))
        if stands.state == "dirty":
            clean = effects.CleanJob(
                job=job,
                tombstone=retirement.tombstone(stands),
                exchange=retirement.exchange_path(stands.acceptance),
                staging=stands.staging,
            )
            yield Do(key(job), clean, after_said=True)  # while it is dirty, a new generation says the ending again

    def nothing_left(self, state: State, envelope: Envelope) -> Outputs:
        """Nothing is left to do for the job."""
        yield from ()

    # from those who were asked

    def answered(self, state: State, envelope: Envelope) -> Outputs:
        questions.answered(state, envelope.sender, envelope.body)
        yield from ()

    # from JobMasters

    def status_told(self, state: State, envelope: Envelope) -> Outputs:
        """JobMasterStarted or JobStatusChanged. A JobMaster that still works for an ended job is told so."""
        body: jobs.JobMasterStarted | jobs.JobStatusChanged = envelope.body
        live, ended = state.live.get(body.job), state.ended.get(body.job)
        if live is not None:
            live.status = body.status
            said = body if isinstance(body, jobs.JobStatusChanged) else None  # a JobMaster that has just begun says so if it waits
            live.waiting, live.position = (said.waiting, said.position) if said is not None else (None, None)
            live.running_ms = said.running_ms if said is not None else live.running_ms
        elif ended is not None:
            yield Say(envelope.sender, jobs.JobRetired(job=body.job, acceptance=ended.acceptance))
        else:
            yield from self.unknown_told(state, envelope, body.job)

    def unknown_told(self, state: State, envelope: Envelope, job: str) -> Outputs:
        """A job that is in no table runs at a shard."""
        if self.is_known(state, job):  # it may have ended too long ago for the state
            yield from self.ask(state, envelope, Asking("GetJobStatus", job, "", ""))
        if not self.is_known(state, job):
            state.early.setdefault(job, "")

    def job_ended(self, state: State, envelope: Envelope) -> Outputs:
        body: jobs.JobEnded = envelope.body
        live = state.live.get(body.job)
        if live is not None and live.acceptance == body.acceptance:
            if live.ending is not None:
                return  # told again by a new life of the JobMaster: the first telling is on its way to etcd
            live.ending = Ending(body.status, retirement.small_result(body.archive))
            graph = parsed(live.graph)
            stored = retirement.ending(
                body,
                digest=live.digest,
                shard=live.shard,
                accepted_ms=live.accepted_ms,
                name=live.name,
                path=retirement.archive_path(body.job, body.acceptance, envelope.id),
                graph=graph,
            )
            kept = retirement.archive(body, name=live.name, accepted_ms=live.accepted_ms, graph=graph)
            yield Do(key(body.job), effects.EndJob(job=body.job, ending=stored, archive=kept))
        elif live or body.job in state.ended or self.is_known(state, body.job):
            yield Say(envelope.sender, jobs.JobRetired(job=body.job, acceptance=body.acceptance))
        else:
            # Still to be recovered, or etcd is being asked about it (its submission was read again, and the recovery passed it over). If
            # it stands as accepted StartJob follows, and the JobMaster answers with the end again; else it hears so then [21].
            state.early[body.job] = body.acceptance

    def is_known(self, state: State, job: str) -> bool:
        """Whether it is known what etcd has of the job; of one that is in no table: nothing, or an end too old for the state."""
        return state.recovery is Recovery.DONE and job not in state.fates

    def answer_early(self, state: State, job: str, stands: StoredJob | None = None) -> Outputs:
        """What a shard told of a job before it was known what etcd has of it. It may be clean, with nobody left to say JobRetired: a
        generation says it before it cleans up, but to a shard that it has not heard yet nothing is said. `stands`: what etcd has of it."""
        acceptance, ended = state.early.pop(job, None), state.ended.get(job) or stands
        if acceptance == "" and ended is not None:  # it runs there still, though it has ended
            acceptance = ended.acceptance
        if acceptance:
            yield Say(shard_scope(self.topology.shard_of(job)), jobs.JobRetired(job=job, acceptance=acceptance))


def key(job: str) -> str:
    """Effects on one job go one after the other, as on its key in etcd."""
    return f"jobs/{job}"


def start(job: str, live: LiveJob, graph: dict | None = None) -> Say:
    body = jobs.StartJob(
        job=job,
        acceptance=live.acceptance,
        graph=graph if graph is not None else parsed(live.graph),
        accepted_ms=live.accepted_ms,
        cancel=live.cancel,
    )
    return Say(shard_scope(live.shard), body, after="job.events")  # the JobMaster goes on with them
