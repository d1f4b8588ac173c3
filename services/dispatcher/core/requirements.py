"""The parallelism of live jobs: what it is and may be, and another one, as a client asks.

It is kept as a cancel is: in the state, from which each StartJob carries it, and in client.commands, from where a Dispatcher that has lost
its log reads it again. And the job's JobMaster, which has taken it, tells it to each new life of the Dispatcher. The graph itself stays
as it was accepted, for by that a repeated submission is known.

Until the JobMaster has decided, a request is `undecided`, with its own numbers and those before it, as the JobMaster was sent them. So
what that one refuses leaves nothing, and what it takes is taken here with the very same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace.core.jobgraph.problems import Problem, bounded
from millrace.core.jobgraph.rescale import Bounds, bounds_of, changed, with_parallelism
from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages import client, jobs, requirements
from millrace.core.messages.attempts import Fault
from millrace.core.messages.base import parsed
from millrace.core.messages.requirements import Rescale
from millrace.core.states import JobStatus
from millrace.core.topics import shard_scope

from . import admission, forwarding, waiting
from .answers import refuse, reply
from .state import EndedJob, JobRequest, LiveJob, Rescaled, State

UNDECIDED_MOST = 20  # requests of one job that its JobMaster has not decided yet


def update_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output]:
    """Sends it to the job's JobMaster, which decides: the job may just have ended there. The client is answered when that is known, and the
    numbers are kept then. A job that its JobMaster has not begun yet begins with them."""
    late = waiting.late(state, request, envelope, live)
    if late is not None:
        yield from late
        return
    known = _newest(live)
    if known is not None and known.log == request.log and known.offset >= request.offset:  # read again, and decided before
        yield from _answer(request, {}, graph_of(live))
        return
    if live.shown in (JobStatus.CANCELLING, JobStatus.FAILING):
        yield from refuse(request, "conflict", f"job {request.job} is {live.shown}: it gets no other parallelism any more")
        return
    if live.publishing:  # its JobMaster would pass it over: what is published is not called back
        yield from refuse(request, "conflict", f"job {request.job} publishes its sinks: it ends with the parallelism that it has")
        return
    graph = _asked_graph(live)
    bounds = bounds_of(graph)
    vertices, every = request.arguments["vertices"], request.arguments["parallelism"]
    if not vertices and every is None:
        yield from _invalid(request, [Problem((), "nothing is asked for: give `parallelism`, or `vertices` with a number for each")])
        return
    news = changed(bounds, vertices, every)
    if isinstance(news, list):
        yield from _invalid(request, news)
        return
    subtasks, settings = admission.subtasks_of(with_parallelism(graph, news)), state.settings
    more = subtasks - live.subtasks
    wide = admission.too_wide(subtasks=subtasks, max_subtasks=settings.max_live_subtasks)
    if wide is not None:
        yield from _invalid(request, [Problem(("vertices",), wide)])
    elif more > 0 and state.live_subtasks + more > settings.max_live_subtasks:
        reason = f"live jobs have {state.live_subtasks} subtasks, and max_live_subtasks is {settings.max_live_subtasks}; try again"
        yield from refuse(request, "busy", reason)
    elif not news and not live.undecided:
        yield from _answer(request, {}, graph)
    else:
        request.arguments["changed"] = news
        yield from _ask_job_master(state, request, envelope, live)


def _ask_job_master(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output]:
    """Also where an earlier request, not decided yet, asks for the same: that one may still be refused."""
    scope = shard_scope(live.shard)
    if request.job in state.starts_to_send.get(scope, ()):
        _begin_with(state, request, live)
        yield from _answer(request, request.arguments["changed"], graph_of(live))
    elif scope not in state.received_from:
        _begin_with(state, request, live)
        yield from without(state, request, scope)
    elif len(live.undecided) >= UNDECIDED_MOST:
        yield from refuse(request, "busy", f"{UNDECIDED_MOST} rescales of job {request.job} wait for {scope} already; try again")
    elif forwarding.is_silent(state, scope, envelope.now_ms):
        if request.arguments["changed"]:
            yield from _send(state, request, live, scope, forwarding.number(state))
        yield from without(state, request, scope)
    elif not request.reply_to:
        yield from _send(state, request, live, scope, forwarding.number(state))
    elif forwarding.is_full(state, scope):
        yield from forwarding.refuse_full(request, scope)
    else:
        yield from _send(state, request, live, scope, forwarding.expect(state, request, envelope, scope))


def _asked(request: JobRequest, live: LiveJob) -> Rescaled:
    before = _newest(live)
    return Rescaled({**(before.parallelism if before is not None else {}), **request.arguments["changed"]}, request.log, request.offset)


def _begin_with(state: State, request: JobRequest, live: LiveJob) -> None:
    """StartJob, which is still to be sent, carries it."""
    if request.arguments["changed"]:
        live.rescaled, live.undecided = _asked(request, live), {}
        _count(state, live)


def _send(state: State, request: JobRequest, live: LiveJob, scope: str, number: int) -> Iterator[Output]:
    live.undecided[number] = _asked(request, live)
    _count(state, live)
    yield Say(scope, jobs.RescaleStartedJob(job=request.job, rescale=rescale_of(live.undecided[number]), number=number))


def decide(state: State, live: LiveJob, answered: jobs.QuestionAnswered) -> dict[str, int] | None:
    """The job's JobMaster has taken a request, or refused it: vertex -> its new parallelism; None: it is not known which it was. A client
    may have been answered before, while the JobMaster was silent."""
    asked = live.undecided.pop(answered.number, None)
    if asked is None:
        return None
    news: dict[str, int] = {}
    known = live.rescaled
    if answered.refused is None and (known is None or known.log != asked.log or known.offset < asked.offset):
        before = bounds_of(graph_of(live))
        live.rescaled = asked
        news = {name: number for name, number in asked.parallelism.items() if name in before and before[name].parallelism != number}
    _count(state, live)
    return news


def answer_decided(request: JobRequest, live: LiveJob, news: dict[str, int], refused: str | None) -> Iterator[Output]:
    """The job's JobMaster has taken it, or refused it."""
    if refused is not None:
        yield from refuse(request, "conflict", refused)
    else:
        yield from _answer(request, news, graph_of(live))


def without(state: State, request: JobRequest, scope: str) -> Iterator[Output]:
    """Its JobMaster is silent: it is noted, and done when that one is back, unless the job has ended there."""
    return _answer(request, request.arguments["changed"], _asked_graph(state.live[request.job]), scope)


def _answer(request: JobRequest, changed: dict[str, int], graph: dict[str, Any], silent: str | None = None) -> Iterator[Output]:
    its = _listed(bounds_of(graph))
    return reply(request, requirements.RequirementsUpdated, job=request.job, changed=changed, vertices=its, silent=silent)


def take_back(state: State, live: LiveJob, told: Rescale) -> None:
    """What the job's JobMaster has taken, where this Dispatcher knows neither that nor a later one: it has lost its log, and the requests
    may be gone from client.commands."""
    known = live.rescaled
    if known is not None and (known.log != told.log or known.offset >= told.offset):
        return
    live.rescaled = Rescaled(dict(told.parallelism), told.log, told.offset)
    _count(state, live)


def at_start(live: LiveJob) -> Rescale | None:
    """What a StartJob says of it. A life of the JobMaster that is sent one has lost what was asked before, and answers none of it."""
    live.rescaled, live.undecided = _newest(live), {}
    return rescale_of(live.rescaled) if live.rescaled is not None else None


def rescale_of(rescaled: Rescaled) -> Rescale:
    return Rescale(parallelism=dict(rescaled.parallelism), log=rescaled.log, offset=rescaled.offset)


def describe_live(state: State, request: JobRequest, envelope: Envelope, live: LiveJob) -> Iterator[Output]:
    return reply(request, requirements.JobRequirements, job=request.job, vertices=_listed(bounds_of(graph_of(live))))


def refuse_ended(
    state: State, request: JobRequest, envelope: Envelope, ended: EndedJob, cause: Fault | None
) -> Iterator[Output]:
    return refuse(request, "conflict", f"job {request.job} has ended already: it is {ended.status}")


def _newest(live: LiveJob) -> Rescaled | None:
    return next(reversed(live.undecided.values()), live.rescaled)


def _count(state: State, live: LiveJob) -> None:
    subtasks = admission.subtasks_of(_asked_graph(live))
    state.live_subtasks += subtasks - live.subtasks
    live.subtasks = subtasks


def graph_of(live: LiveJob) -> dict[str, Any]:
    """With the parallelism that it has by now."""
    return with_parallelism(parsed(live.graph), live.rescaled.parallelism if live.rescaled is not None else {})


def _asked_graph(live: LiveJob) -> dict[str, Any]:
    """With the parallelism that it has once its JobMaster has taken all that it was asked."""
    newest = _newest(live)
    return with_parallelism(parsed(live.graph), newest.parallelism if newest is not None else {})


def _listed(bounds: dict[str, Bounds]) -> list[requirements.VertexRequirement]:
    return [
        requirements.VertexRequirement(vertex=name, parallelism=each.parallelism, most=each.most, group=each.group, why=each.why)
        for name, each in bounds.items()
    ]


def _invalid(request: JobRequest, problems: list[Problem]) -> Iterator[Output]:
    found = bounded(problems)
    hint = f" ({found[0].hint})" if found[0].hint else ""
    place = f"{found[0].place[-1]}: " if len(found[0].place) > 1 else ""
    reason = f"{place}{found[0].message}{hint}" if len(found) == 1 else f"{len(found)} things are wrong"
    told = [client.Problem(place=list(each.place), message=each.message, hint=each.hint) for each in found]
    yield from reply(request, client.RequestRefused, kind="invalid", reason=reason, problems=told)
