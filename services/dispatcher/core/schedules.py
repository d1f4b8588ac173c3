"""Requests about schedules. etcd alone has them: each request is an effect, and is answered by its outcome.

Nothing here looks at a clock: which times have come, and which of them are run, the leader's thread finds (`dispatcher/schedules`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from millrace.core.cluster import acceptance_of
from millrace.core.machine import Do, Envelope, Output, Publish
from millrace.core.messages import base, client, schedule_effects, schedules
from millrace.core.messages.base import Body
from millrace.core.messages.records import Client
from millrace.core.messages.schedules import Scheduled, ScheduleGraph, ScheduleRun, ScheduleSummary, StoredSchedule
from millrace.core.timing import FORWARDED_ANSWER_MS

from .answers import CLIENT, refuse, reply
from .state import EndedJob, JobRequest, LiveJob, ScheduleRequest, State

MOST = 16
"""Requests whose effects are under way: one that sets a schedule has its graph with it."""
RUNS_MOST = 20
DECIDED = "it was decided on before the Dispatcher lost its log: look at the schedule, and ask again for what is not so"
SILENT = f"etcd has not answered within {FORWARDED_ANSWER_MS // 1000} s"
READS = ("DescribeSchedule", "ListSchedules", "RunSchedule")
"""While etcd is silent nothing comes of them. What changes something is carried out when it is back."""

Outputs = Iterator[Output]


# Requests


def set_schedule(state: State, request: schedules.SetSchedule, envelope: Envelope) -> Outputs:
    """The client port has checked graph, cron and time zone."""
    record: Client = envelope.body
    if record.problems:
        count = len(record.problems)
        reason = record.problems[0].message if count == 1 else f"{count} things are wrong"
        yield from reply(request, client.RequestRefused, kind="invalid", reason=reason, problems=record.problems)
        return
    stored = StoredSchedule(
        revision=acceptance_of(state.settings.cluster, envelope.id),
        cron=request.cron,
        time_zone=request.time_zone,
        missed=request.missed,
        overlap=request.overlap,
        paused=request.paused,
        since_ms=envelope.at_ms if request.since_ms is None else request.since_ms,
        set_ms=envelope.at_ms,
        name=str(request.graph.get("name", "")),
        modules=_modules(request),
    )
    graph = ScheduleGraph(graph=request.graph, parameters=request.parameters)
    effect = schedule_effects.StoreSchedule(number=state.schedules_asked + 1, schedule=request.schedule, stored=stored, graph=graph)
    yield from _ask(state, request, envelope, request.schedule, effect)


def pause_schedule(state: State, request: schedules.PauseSchedule, envelope: Envelope) -> Outputs:
    yield from _change(state, request, envelope, "resume" if request.undo else "pause")


def remove_schedule(state: State, request: schedules.RemoveSchedule, envelope: Envelope) -> Outputs:
    yield from _change(state, request, envelope, "remove")


def _change(state: State, request: schedules.PauseSchedule | schedules.RemoveSchedule, envelope: Envelope, change: str) -> Outputs:
    name = request.schedule
    effect = schedule_effects.ChangeSchedule.model_validate(
        {"number": state.schedules_asked + 1, "schedule": name, "change": change, "at_ms": envelope.at_ms}
    )
    yield from _ask(state, request, envelope, name, effect)


def run_schedule(state: State, request: schedules.RunSchedule, envelope: Envelope) -> Outputs:
    effect = schedule_effects.FindSchedules(number=state.schedules_asked + 1, schedule=request.schedule, run_at_ms=envelope.at_ms)
    yield from _ask(state, request, envelope, request.schedule, effect)


def describe_schedule(state: State, request: schedules.DescribeSchedule, envelope: Envelope) -> Outputs:
    if request.reply_to:
        effect = schedule_effects.FindSchedules(number=state.schedules_asked + 1, schedule=request.schedule)
        yield from _ask(state, request, envelope, request.schedule, effect)


def list_schedules(state: State, request: schedules.ListSchedules, envelope: Envelope) -> Outputs:
    if request.reply_to:
        effect = schedule_effects.FindSchedules(number=state.schedules_asked + 1, after=request.after, limit=request.limit)
        yield from _ask(state, request, envelope, "", effect)


def _ask(state: State, request: base.Request, envelope: Envelope, schedule: str, effect: Body) -> Outputs:  # [R36]
    """Has etcd asked. A request that a Dispatcher without its log reads again is not carried out: an old one would bring back what was
    removed or changed since."""
    if envelope.body.decided:
        yield from refuse(request, "busy", DECIDED)
    elif len(state.schedule_requests) >= MOST:
        yield from refuse(request, "busy", f"{MOST} requests about schedules wait for etcd already; try again")
    else:
        state.schedules_asked += 1
        run = request if isinstance(request, schedules.RunSchedule) else None
        waiting = ScheduleRequest(request.type, schedule, request.reply_to, request.correlation, envelope.now_ms, run)
        state.schedule_requests[state.schedules_asked] = waiting
        yield Do(f"schedules/{schedule}", effect)


def _modules(request: schedules.SetSchedule) -> list[str]:
    modules = request.graph.get("modules") or ()
    return list(dict.fromkeys(str(each["sha256"]) for each in modules))


# Outcomes


def on_schedule_stored(state: State, body: schedule_effects.ScheduleStored, envelope: Envelope) -> Outputs:
    asking = _asking(state, body.number)
    if body.summary is not None:
        yield from reply(asking, schedules.ScheduleDescribed, schedule=body.summary)
    else:
        yield from refuse(asking, "conflict", body.problem or "")


def on_schedule_changed(state: State, body: schedule_effects.ScheduleChanged, envelope: Envelope) -> Outputs:
    waiting = state.schedule_requests[body.number]
    asking = _asking(state, body.number)
    if not body.found:
        yield from _not_found(asking, waiting.schedule)
    elif waiting.type == schedules.RemoveSchedule.__name__:
        yield from reply(asking, schedules.ScheduleRemoved, schedule=waiting.schedule)
    elif body.summary is not None:
        yield from reply(asking, schedules.ScheduleDescribed, schedule=body.summary)
    else:
        yield from refuse(asking, "internal", body.problem or "")


def on_schedules_found(state: State, body: schedule_effects.SchedulesFound, envelope: Envelope) -> Outputs:
    waiting = state.schedule_requests[body.number]
    asking = _asking(state, body.number)
    if waiting.type == schedules.ListSchedules.__name__:
        yield from reply(asking, schedules.SchedulesListed, schedules=body.schedules, next=body.next)
    elif body.problem is not None:
        yield from refuse(asking, "internal", body.problem)
    elif not body.schedules:
        yield from _not_found(asking, waiting.schedule)
    elif waiting.run is not None:
        yield from _submit(waiting.run, body.schedules[0], body.graph)
    else:
        runs = _runs(state, waiting.schedule, body.left_out)
        yield from reply(asking, schedules.ScheduleDescribed, schedule=body.schedules[0], runs=runs)


def refuse_overdue(state: State, envelope: Envelope) -> Outputs:
    """Answers those that wait for an etcd that is silent [R31]. Their effects are under way still, and so they keep their places."""
    for waiting in state.schedule_requests.values():
        if waiting.reply_to and envelope.now_ms - waiting.asked_ms >= FORWARDED_ANSWER_MS:
            reason = f"{SILENT}, and it alone has the schedules; try again"
            if waiting.type not in READS:
                reason = f"{SILENT} (nor storage, perhaps): it is kept, and carried out when that is back; look then (`millrace schedule`)"
            yield from reply(_request(waiting), client.RequestRefused, kind="busy", reason=reason, silent="etcd")
            waiting.reply_to = ""
            waiting.run = None  # its client has given up: nothing is to run that it does not know of


def _submit(run: schedules.RunSchedule, schedule: ScheduleSummary, graph: ScheduleGraph | None) -> Outputs:
    """The Dispatcher submits in the client's place, and answers it as any submission: with the checks, limits and promises of one."""
    assert graph is not None, "it was asked for"
    scheduled = Scheduled(schedule=run.schedule, time_zone=schedule.time_zone)
    body = client.SubmitJob(
        job=run.job, graph=graph.graph, parameters=graph.parameters, accept_before_ms=run.accept_before_ms,
        reply_to=run.reply_to, correlation=run.correlation, scheduled=scheduled,
    )  # fmt: skip
    yield Publish(CLIENT, run.job, body)  # the key of its trace, too


def _runs(state: State, schedule: str, left_out: list[ScheduleRun]) -> list[ScheduleRun]:
    """Newest first. Several runs have one due time only if somebody asked for them."""
    jobs: dict[str, LiveJob | EndedJob] = {**state.ended, **state.live}
    mine = ((job, each) for job, each in jobs.items() if each.scheduled is not None and each.scheduled.schedule == schedule)
    newest = heapq.nlargest(RUNS_MOST, mine, key=lambda item: (item[1].accepted_ms, item[0]))
    return [*map(_run, newest), *left_out]


def _run(item: tuple[str, LiveJob | EndedJob]) -> ScheduleRun:
    job, known = item
    due = known.scheduled.due if known.scheduled is not None else ""
    return ScheduleRun(due=due or None, job=job, state=known.state, accepted_ms=known.accepted_ms)


def _asking(state: State, number: int) -> JobRequest:
    return _request(state.schedule_requests.pop(number))


def _request(waiting: ScheduleRequest) -> JobRequest:
    return JobRequest(waiting.type, "", waiting.reply_to, waiting.correlation)


def _not_found(asking: JobRequest, schedule: str) -> Outputs:
    return refuse(asking, "not_found", f"there is no schedule {schedule}")
