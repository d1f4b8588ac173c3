"""The parallelism of live jobs: what it is and may be, and another one, as a client asks.

It is kept as a cancel is: in the state, from which each StartJob carries it, and in client.commands, from where a Dispatcher that has lost
its log reads it again. And the job's JobMaster, which has taken it, tells it to each new life of the Dispatcher. The graph itself stays
as it was accepted, for by that a repeated submission is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.jobgraph.problems import Problem, bounded
from millrace.core.jobgraph.rescale import Bounds, bounds_of, changed, with_parallelism
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages import client, jobs
from millrace.core.messages.attempts import Fault
from millrace.core.messages.base import parsed
from millrace.core.messages.requirements import Rescale
from millrace.core.states import JobStatus
from millrace.core.topics import shard_scope

from . import admission, forwarding, waiting
from .answers import refuse, reply
from .state import EndedJob, JobRequest, LiveJob, Rescaled, State


def update_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output]:
    """Notes it and sends it to the job's JobMaster, which decides: the job may just have ended there. The client is answered when that is
    known. A job that its JobMaster has not begun yet begins with it."""
    late = waiting.late(state, request, envelope, live)
    if late is not None:
        yield from late
        return
    known = live.rescaled
    if known is not None and known.log == request.log and known.offset >= request.offset:  # read again, and decided before
        yield from _answer(request, {}, graph_of(live))
        return
    if live.shown in (JobStatus.CANCELLING, JobStatus.FAILING):
        yield from refuse(request, "conflict", f"job {request.job} is {live.shown}: it gets no other parallelism any more")
        return
    if live.publishing:  # its JobMaster would pass it over: what is published is not called back
        yield from refuse(request, "conflict", f"job {request.job} publishes its sinks: it ends with the parallelism that it has")
        return
    graph = graph_of(live)
    bounds = bounds_of(graph)
    vertices, every = request.arguments["vertices"], request.arguments["parallelism"]
    if not vertices and every is None:
        yield from _invalid(request, [Problem((), "nothing is asked for: give `parallelism`, or `vertices` with a number for each")])
        return
    news = changed(bounds, vertices, every)
    if isinstance(news, list):
        yield from _invalid(request, news)
        return
    graph = with_parallelism(graph, news)
    subtasks, settings = admission.subtasks_of(graph), state.settings
    more = subtasks - live.subtasks
    wide = admission.too_wide(subtasks=subtasks, max_subtasks=settings.max_live_subtasks)
    if wide is not None:
        yield from _invalid(request, [Problem(("vertices",), wide)])
    elif more > 0 and state.live_subtasks + more > settings.max_live_subtasks:
        reason = f"live jobs have {state.live_subtasks} subtasks, and max_live_subtasks is {settings.max_live_subtasks}; try again"
        yield from refuse(request, "busy", reason)
    elif not news or not request.reply_to:
        yield from _note(state, request, live, news, subtasks)
        yield from _answer(request, news, graph)
    else:
        yield from _ask_job_master(state, request, envelope, live, news, subtasks)


def _ask_job_master(
    state: State, request: JobRequest, envelope: Envelope, live: LiveJob, news: dict[str, int], subtasks: int
) -> Iterator[Output]:
    scope = shard_scope(live.shard)
    request.arguments["changed"] = news
    if request.job in state.starts_to_send.get(scope, ()):
        yield from _note(state, request, live, news, subtasks)
        yield from answer_decided(request, live, None)
    elif scope not in state.received_from or forwarding.is_silent(state, scope, envelope.now_ms):
        yield from _note(state, request, live, news, subtasks)
        yield from without(state, request, scope)
    elif forwarding.is_full(state, scope):
        yield from forwarding.refuse_full(request, scope)
    else:
        yield from _note(state, request, live, news, subtasks, forwarding.expect(state, request, envelope, scope))


def _note(
    state: State, request: JobRequest, live: LiveJob, news: dict[str, int], subtasks: int, number: int = 0
) -> Iterator[Output]:
    """Keeps what a client asks for, if it is anything new, and sends it to the JobMaster."""
    if news:
        state.live_subtasks += subtasks - live.subtasks
        live.subtasks = subtasks
        before = live.rescaled.parallelism if live.rescaled is not None else {}
        live.rescaled = Rescaled({**before, **news}, request.log, request.offset)
        yield Say(shard_scope(live.shard), jobs.RescaleStartedJob(job=request.job, rescale=rescale_of(live.rescaled), number=number))


def answer_decided(request: JobRequest, live: LiveJob, refused: str | None) -> Iterator[Output]:
    """The job's JobMaster has taken it, or refused it."""
    if refused is not None:
        yield from refuse(request, "conflict", refused)
    else:
        yield from _answer(request, request.arguments["changed"], graph_of(live))


def without(state: State, request: JobRequest, scope: str) -> Iterator[Output]:
    """Its JobMaster is silent: it is noted, and done when that one is back, unless the job has ended there."""
    return _answer(request, request.arguments["changed"], graph_of(state.live[request.job]), scope)


def _answer(request: JobRequest, changed: dict[str, int], graph: dict[str, Any], silent: str | None = None) -> Iterator[Output]:
    its = _listed(bounds_of(graph))
    return reply(request, client.RequirementsUpdated, job=request.job, changed=changed, vertices=its, silent=silent)


def take_back(state: State, live: LiveJob, told: Rescale) -> None:
    """What the job's JobMaster has taken, where this Dispatcher knows neither that nor a later one: it has lost its log, and the requests
    may be gone from client.commands."""
    known = live.rescaled
    if known is not None and (known.log != told.log or known.offset >= told.offset):
        return
    live.rescaled = Rescaled(dict(told.parallelism), told.log, told.offset)
    subtasks = admission.subtasks_of(graph_of(live))
    state.live_subtasks += subtasks - live.subtasks
    live.subtasks = subtasks


def rescale_of(rescaled: Rescaled) -> Rescale:
    return Rescale(parallelism=dict(rescaled.parallelism), log=rescaled.log, offset=rescaled.offset)


def describe_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output]:
    return reply(request, client.JobRequirements, job=request.job, vertices=_listed(bounds_of(graph_of(live))))


def refuse_ended(
    state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None
) -> Iterator[Output]:
    return refuse(request, "conflict", f"job {request.job} has ended already: it is {ended.status}")


def graph_of(live: LiveJob) -> dict[str, Any]:
    """With the parallelism that it has by now."""
    return with_parallelism(parsed(live.graph), live.rescaled.parallelism if live.rescaled is not None else {})


def _listed(bounds: dict[str, Bounds]) -> list[client.VertexRequirement]:
    return [
        client.VertexRequirement(vertex=name, parallelism=each.parallelism, most=each.most, group=each.group, why=each.why)
        for name, each in bounds.items()
    ]


def _invalid(request: JobRequest, problems: list[Problem]) -> Iterator[Output]:
    found = bounded(problems)
    hint = f" ({found[0].hint})" if found[0].hint else ""
    place = f"{found[0].place[-1]}: " if len(found[0].place) > 1 else ""
    reason = f"{place}{found[0].message}{hint}" if len(found) == 1 else f"{len(found)} things are wrong"
    told = [client.Problem(place=list(each.place), message=each.message, hint=each.hint) for each in found]
    yield from reply(request, client.RequestRefused, kind="invalid", reason=reason, problems=told)
