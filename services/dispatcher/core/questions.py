"""What a client may request, and how it is answered: one row of a table for each request class.

To add a request about one job: a row in `JOB_REQUESTS` and its functions. About none by id: a row in `OTHER_REQUESTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from millrace.core.machine import Envelope, Output, Publish, Say
from millrace.core.messages import base, blocklist, client, events, jobs, processes
from millrace.core.messages.attempts import Fault
from millrace.core.messages.base import parsed
from millrace.core.messages.effects import StoredJob
from millrace.core.messages.processes import Ask, DescribeAsk, LogsAsk, SettingsAsk, ThreadsAsk, UploadAsk
from millrace.core.messages.records import Client
from millrace.core.messages.requirements import DescribeRequirements, UpdateRequirements
from millrace.core.messages.schedules import (
    DescribeSchedule,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    RunSchedule,
    SetSchedule,
)
from millrace.core.topics import RESOURCE_MANAGER, shard_scope
from millrace.core.trace_context import of_facts

from . import admission, answers, closing, forwarding, listing, requirements, schedules, submission, unsent, waiting
from .answers import refuse, reject, reply
from .state import EndedJob, EtcdLookup, JobRequest, LiveJob, State

UNHEARD = "the ResourceManager has not been heard yet; try again"

Outputs = Iterator[Output]
Live = Callable[[State, JobRequest, Envelope, LiveJob], Outputs]


def on_client(state: State, body: Client, envelope: Envelope) -> Outputs:
    """A record of client.commands, as the client port understood it."""
    request = body.request
    if body.refusal is not None:
        yield answers.park(answers.letter(body, body.refusal), envelope.at_ms, body.refusal.reason)
    elif isinstance(request, client.SubmitJob):
        submitted = submission.job_request(body, request)
        refusal = submission.refusal(state, body, submitted)
        if refusal is not None:
            yield from reject(submitted, envelope.at_ms, **refusal)
        else:
            yield from answer(state, submitted, envelope)
    elif isinstance(request, client.AboutJob):
        yield from answer(state, answers.job_request(body, request), envelope)
    else:
        assert request is not None, "a Client record has a request or a refusal"
        yield from OTHER_REQUESTS[type(request)].answer(state, request, envelope)


# Requests about one job


def answer(state: State, request: JobRequest, envelope: Envelope) -> Outputs:
    """Answers a request about a job. While the job is looked up in etcd, the request waits."""
    request.asked_ms = envelope.now_ms
    live, ended, lookup = state.live.get(request.job), state.ended.get(request.job), state.lookups.get(request.job)
    row = row_of(request)
    if live is not None:
        yield from row.live(state, request, envelope, live)
    elif ended is not None:
        yield from row.ended(state, request, envelope, ended, None)
    elif lookup is not None:
        yield from waiting.wait(state, request, envelope, lookup.behind, once=row.once)
    else:
        yield from row.unknown(state, request, envelope)


def answer_stored(state: State, request: JobRequest, envelope: Envelope, stored: StoredJob) -> Outputs:
    """Answers from what etcd holds: a job that is live now, or an ended one, which may be too old for the state."""
    live = state.live.get(request.job)
    if live is not None:
        yield from row_of(request).live(state, request, envelope, live)
    else:
        ended = state.ended.get(request.job) or answers.remembered(stored)
        yield from row_of(request).ended(state, request, envelope, ended, stored.cause)


def answer_waiting(state: State, envelope: Envelope, lookup: EtcdLookup, stored: StoredJob | None) -> Outputs:  # [R30]
    """Answers the requests that waited for a lookup, in the order in which they came."""
    for request in lookup.behind:
        if stored is not None:
            yield from answer_stored(state, request, envelope, stored)
        else:
            request.asked_ms = envelope.now_ms
            yield from row_of(request).absent(state, request, envelope)


def answer_without(state: State, request: JobRequest, envelope: Envelope, scope: str) -> Outputs:
    """Answers a forwarded request with what is known without the scope that is silent."""
    if request.job and request.job not in state.live:
        yield from answer(state, request, envelope)  # it has ended meanwhile
        return
    without = _WITHOUT[request.type]
    assert without is not None, "it is forwarded"
    yield from without(state, request, scope)


def forward(
    state: State, request: JobRequest, envelope: Envelope, scope: str, body: jobs.Question, *, changes: bool = False
) -> Outputs:
    """Forwards a request to the scope that knows the answer, or answers in its place while it is silent. What `changes` something is sent
    all the same: that the scope is silent does not say that it does nothing, and who wants no answer wants the change."""
    is_silent = forwarding.is_silent(state, scope, envelope.now_ms)
    if changes and (is_silent or not request.reply_to):
        yield Say(scope, body.model_copy(update={"number": forwarding.number(state)}) if request.reply_to else body)
    if not request.reply_to:
        return
    if is_silent:
        yield from answer_without(state, request, envelope, scope)
    else:
        yield from forwarding.forward(state, request, envelope, scope, body)


def on_question_answered(state: State, body: jobs.QuestionAnswered, envelope: Envelope) -> Outputs:
    """The answer may have come too late for its client, but shows that the scope is back."""
    asked = state.asked.pop(body.number, None)
    state.silent.pop(envelope.sender, None)
    if state.closing is not None and body.number == state.closing.number:
        state.closing.workers = body.workers
        yield from closing.advance(state, envelope)
    rescale = asked.asking if asked is not None and asked.asking.type == UpdateRequirements.__name__ else None
    live = state.live.get(rescale.job if rescale is not None else body.job)
    news = requirements.decide(state, live, body) if live is not None else None
    if rescale is not None and live is not None:
        news = rescale.arguments["changed"] if news is None else news
        yield from requirements.answer_decided(rescale, live, news, body.refused)
    elif rescale is not None:
        yield from answer(state, rescale, envelope)  # it has ended meanwhile


def answer_overdue(state: State, envelope: Envelope) -> Outputs:
    """Answers the requests that another scope, or etcd, has not answered in time [R31]."""
    for scope, request in forwarding.overdue(state, envelope.now_ms):
        yield from answer_without(state, request, envelope, scope)
    yield from waiting.refuse_overdue(state, envelope)


def _await_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Outputs:
    return waiting.wait(state, request, envelope, live.awaiting, once=True)


def _result_of_ended(
    state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None
) -> Outputs:
    return answers.result(request, ended, cause)


def _cancel_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Outputs:
    """A cancel that may come too late is answered when that is known."""
    late = waiting.late(state, request, envelope, live)
    if late is not None:
        yield from late
        return
    if not live.cancel:
        live.cancel = True
        yield Say(shard_scope(live.shard), jobs.CancelStartedJob(job=request.job))
        trace = of_facts(parsed(live.graph), live.acceptance)
        told = events.JobCancelling(job=request.job, at_ms=envelope.at_ms)
        yield Publish("job.events", request.job, told, trace, after="JobAccepted")
    yield from reply(request, client.CancelAccepted, job=request.job, status=live.shown)


def _cancel_ended(state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None) -> Outputs:
    reason = admission.cancel_refusal(request.job, ended.status)
    if reason is not None:
        yield from refuse(request, "conflict", reason)
    else:
        yield from reply(request, client.CancelAccepted, job=request.job, status=ended.status)


def _status_of_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Outputs:
    return reply(request, client.JobStatusAnswered, summary=live.summary(request.job))


def _status_of_ended(
    state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None
) -> Outputs:
    return reply(request, client.JobStatusAnswered, summary=ended.summary(request.job))


def _ask_job_master(question: type[jobs.JobQuestion], not_begun: Callable[[JobRequest, LiveJob], Outputs]) -> Live:
    """Its JobMaster answers, if it knows the job already; else `not_begun`."""

    def ask(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Outputs:
        scope = shard_scope(live.shard)
        if scope not in state.received_from:
            yield from answer_without(state, request, envelope, scope)
        elif request.job in state.starts_to_send.get(scope, ()):
            yield from not_begun(request, live)
        else:
            body = question(job=request.job, **request.arguments, reply_to=request.reply_to, correlation=request.correlation)
            yield from forward(state, request, envelope, scope, body)

    return ask


def _describe_not_begun(request: JobRequest, live: LiveJob) -> Outputs:
    return reply(request, client.JobDescribed, summary=live.summary(request.job))


def _describe_without(state: State, request: JobRequest, scope: str) -> Outputs:
    return reply(request, client.JobDescribed, summary=state.live[request.job].summary(request.job), silent=scope)


def _describe_ended(state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None) -> Outputs:
    return reply(request, client.JobDescribed, summary=ended.summary(request.job), archive=ended.archive)


def _report_not_begun(request: JobRequest, live: LiveJob) -> Outputs:
    return reply(request, client.JobReported, job=request.job, reason="its JobMaster has not begun with it")


def _report_without(state: State, request: JobRequest, scope: str) -> Outputs:
    return reply(request, client.JobReported, job=request.job, silent=scope)


def _report_ended(state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None) -> Outputs:
    return reply(request, client.JobReported, job=request.job, reason=f"the job has ended: it is {ended.status}")


def _not_found(state: State, request: JobRequest, envelope: Envelope) -> Outputs:
    """There is no such job, unless a submission that waited before this request is being stored now."""
    lookup = state.lookups.get(request.job)
    if lookup is not None:
        yield from waiting.wait(state, request, envelope, lookup.behind, once=row_of(request).once)
    else:
        yield from answers.not_found(request)


@dataclass(frozen=True)
class JobRow:
    """How a request about one job is answered when the job is live, ended, in no table, and in no table and absent from etcd."""

    live: Live
    ended: Callable[[State, JobRequest, Envelope, EndedJob, Fault | None], Outputs]
    """The last argument is the cause, where the ending has just been read from etcd: the state does not keep it."""
    unknown: Callable[[State, JobRequest, Envelope], Outputs] = waiting.look_up
    absent: Callable[[State, JobRequest, Envelope], Outputs] = _not_found
    without: Callable[[State, JobRequest, str], Outputs] | None = None
    """While its JobMaster is silent: only of a request that is forwarded to it."""
    once: bool = False
    """Of those that wait, the newest one of a client is answered."""


JOB_REQUESTS: dict[type[base.Request], JobRow] = {  # [R30]
    client.SubmitJob: JobRow(
        submission.repeat_live,
        submission.repeat_ended,
        submission.store_or_look_up,
        submission.store_absent,
    ),
    client.CancelJob: JobRow(_cancel_live, _cancel_ended),
    client.DescribeJob: JobRow(
        _ask_job_master(jobs.DescribeStartedJob, _describe_not_begun), _describe_ended, without=_describe_without
    ),
    client.ReportNow: JobRow(
        _ask_job_master(jobs.ReportStartedJob, _report_not_begun), _report_ended, without=_report_without
    ),
    client.AwaitJobResult: JobRow(_await_live, _result_of_ended, once=True),
    client.GetJobStatus: JobRow(_status_of_live, _status_of_ended),
    UpdateRequirements: JobRow(requirements.update_live, requirements.refuse_ended, without=requirements.without),
    DescribeRequirements: JobRow(requirements.describe_live, requirements.refuse_ended),
}
_JOB_ROWS = {kind.__name__: row for kind, row in JOB_REQUESTS.items()}


def row_of(request: JobRequest) -> JobRow:
    return _JOB_ROWS[request.type]


# Other requests


def _list_jobs(state: State, request: client.ListJobs, envelope: Envelope) -> Outputs:
    listed, total = answers.newest(state, request)
    return reply(request, client.JobsListed, jobs=listed, total=total)


def _describe_blob_server(state: State, request: client.DescribeBlobServer, envelope: Envelope) -> Outputs:
    url, most = state.settings.blob_url, state.settings.blob_max_bytes
    return reply(request, client.BlobServerDescribed, url=url, max_bytes=most)


def _cluster_overview(state: State, request: client.GetClusterOverview, envelope: Envelope) -> Outputs:
    return _ask_resource_manager(state, request, envelope, "overview")


def _overview_without(state: State, request: JobRequest, scope: str) -> Outputs:
    nothing = {"task_managers": 0, "slots": 0, "free_slots": 0, "waiting_jobs": 0}
    return reply(request, client.ClusterOverview, jobs=answers.counts(state), **nothing, silent=scope)


def _list_task_managers(state: State, request: client.ListTaskManagers, envelope: Envelope) -> Outputs:
    return _ask_resource_manager(state, request, envelope, "task_managers")


def _task_managers_without(state: State, request: JobRequest, scope: str) -> Outputs:
    return reply(request, client.TaskManagersListed, task_managers=[], total=0, silent=scope)


def _deregister_cluster(state: State, request: client.DeregisterCluster, envelope: Envelope) -> Outputs:
    """Once: read again by a Dispatcher that has lost its log, it would stop what was registered since."""
    if envelope.body.decided:
        yield from refuse(request, "conflict", "it was asked for before the Dispatcher lost its log; ask again")
    else:
        yield from _ask_resource_manager(state, request, envelope, "register" if request.undo else "deregister")


def _deregister_without(state: State, request: JobRequest, scope: str) -> Outputs:
    return reply(request, client.ClusterDeregistered, workers=0, silent=scope)


Asked = Literal["overview", "task_managers", "deregister", "register"]


def _ask_resource_manager(state: State, request: base.Request, envelope: Envelope, what: Asked) -> Outputs:
    kept = JobRequest(request.type, "", request.reply_to, request.correlation)
    query = jobs.Query(what=what, reply_to=request.reply_to, correlation=request.correlation, jobs=answers.counts(state))
    changes = what in ("deregister", "register")
    if RESOURCE_MANAGER in state.received_from:
        yield from forward(state, kept, envelope, RESOURCE_MANAGER, query, changes=changes)
    elif changes and not request.reply_to:
        unsent.keep(state, unsent.WORKERS, query)
    else:
        yield from refuse(request, "busy", UNHEARD)


def _ask_blocklist(state: State, request: BlocklistRequest, envelope: Envelope) -> Outputs:
    """A change once: read again by a Dispatcher that has lost its log, it would undo what was changed since."""
    what = BLOCKLIST[type(request)]
    if envelope.body.decided and what != "list":
        yield from refuse(request, "conflict", "it was asked for before the Dispatcher lost its log: see `millrace blocked`, and ask again")
        return
    fields = {name: getattr(request, name) for name in type(request).model_fields if name in blocklist.AskBlocklist.model_fields}
    body = blocklist.AskBlocklist(**{**fields, "type": "AskBlocklist", "version": 1, "what": what})
    kept = JobRequest(request.type, "", request.reply_to, request.correlation)
    if RESOURCE_MANAGER in state.received_from:
        yield from forward(state, kept, envelope, RESOURCE_MANAGER, body, changes=what != "list")
    elif what != "list" and not request.reply_to:
        unsent.keep(state, body.host, body)
    else:
        yield from refuse(request, "busy", UNHEARD)


def _blocklist_without(state: State, request: JobRequest, scope: str) -> Outputs:
    reason = f"{scope} does not answer: look later what it has done (`millrace blocked`)"
    return reply(request, client.RequestRefused, kind="busy", reason=reason, silent=scope)


BlocklistRequest = blocklist.BlockHost | blocklist.UnblockHost | blocklist.ListBlockedHosts
BLOCKLIST: dict[type[base.Request], Literal["block", "unblock", "list"]] = {
    blocklist.BlockHost: "block", blocklist.UnblockHost: "unblock", blocklist.ListBlockedHosts: "list",
}  # fmt: skip
ASKS: dict[type[base.Request], Callable[[Any], Ask]] = {
    processes.DescribeTaskManager: lambda request: DescribeAsk(),
    processes.DumpThreads: lambda request: ThreadsAsk(slot=request.slot),
    processes.ListLogs: lambda request: LogsAsk(),
    processes.UploadLog: lambda request: UploadAsk(log=request.log, start=request.start, length=request.length),
    processes.ListSettings: lambda request: SettingsAsk(),
}
"""What a TaskManager is asked for a client's request about it."""


def _ask_task_manager(state: State, request: processes.AboutTaskManager, envelope: Envelope) -> Outputs:
    """The ResourceManager knows it, and answers in its place while it is silent: later than others answer, so that is waited for."""
    if RESOURCE_MANAGER not in state.received_from:
        yield from refuse(request, "busy", UNHEARD)
        return
    kept = JobRequest(request.type, "", request.reply_to, request.correlation, arguments={"task_manager": request.task_manager})
    body = jobs.AskTaskManager(
        task_manager=request.task_manager, ask=ASKS[type(request)](request), reply_to=request.reply_to, correlation=request.correlation
    )  # fmt: skip
    yield from forward(state, kept, envelope, RESOURCE_MANAGER, body)


def _task_manager_without(state: State, request: JobRequest, scope: str) -> Outputs:
    reason = f"{scope} does not answer, and nobody else asks TaskManager {request.arguments['task_manager']}; try again"
    return reply(request, client.RequestRefused, kind="busy", reason=reason, silent=scope)


@dataclass(frozen=True)
class OtherRow:
    """How a request that names no job is answered. `without`: while the scope that it is forwarded to is silent."""

    answer: Callable[[State, Any, Envelope], Outputs]
    without: Callable[[State, JobRequest, str], Outputs] | None = None


OTHER_REQUESTS: dict[type[base.Request], OtherRow] = {
    client.ListJobs: OtherRow(_list_jobs),
    client.ListJobDetails: OtherRow(listing.list_job_details),
    client.DescribeBlobServer: OtherRow(_describe_blob_server),
    client.GetClusterOverview: OtherRow(_cluster_overview, _overview_without),
    client.ListTaskManagers: OtherRow(_list_task_managers, _task_managers_without),
    client.ShutDownCluster: OtherRow(closing.shut_down_cluster),
    client.DeregisterCluster: OtherRow(_deregister_cluster, _deregister_without),
    SetSchedule: OtherRow(schedules.set_schedule),
    PauseSchedule: OtherRow(schedules.pause_schedule),
    RemoveSchedule: OtherRow(schedules.remove_schedule),
    RunSchedule: OtherRow(schedules.run_schedule),
    DescribeSchedule: OtherRow(schedules.describe_schedule),
    ListSchedules: OtherRow(schedules.list_schedules),
    **dict.fromkeys(BLOCKLIST, OtherRow(_ask_blocklist, _blocklist_without)),
    **dict.fromkeys(ASKS, OtherRow(_ask_task_manager, _task_manager_without)),
}
_WITHOUT = {kind.__name__: row.without for kind, row in JOB_REQUESTS.items()} | {
    kind.__name__: row.without for kind, row in OTHER_REQUESTS.items()
}
