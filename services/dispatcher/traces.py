"""The spans of a job that a Dispatcher makes, of the effects that it has carried out.

An effect has all that its span says, so a leader that carries it out once more makes the same span again, with a later end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from millrace.core.messages.base import Body
from millrace.core.messages.effects import EndJob, JobGraphStored, JobResultStored, PutJobGraph
from millrace.core.trace_context import job_span, of_job, span_of
from millrace.runtime.performer import Fence, Port
from millrace.runtime.spans import ERROR, FINISH, ID, JOB, SPENT, STORE, Span, failed
from millrace.runtime.traces import Traces


def performing(ports: Mapping[type[Body], Port], traces: Traces | None) -> Mapping[type[Body], Port]:
    """`ports`, and where traces are on, those that also make spans of what they have carried out."""
    if traces is None:
        return ports

    def both(port: Port, spans: Callable[[Any, Any, int], Iterator[Span]]) -> Port:
        def perform(effects: Sequence[Any], fence: Fence) -> Sequence[Body | None]:
            outcomes = port(effects, fence)
            wall_ms = time.time_ns() // 1_000_000
            for effect, outcome in zip(effects, outcomes, strict=True):
                if outcome is not None:
                    traces.put(spans(effect, outcome, wall_ms))
            return outcomes

        return perform

    return {**ports, **{effect: both(ports[effect], spans) for effect, spans in SPANS.items()}}


def accepted(effect: PutJobGraph, outcome: JobGraphStored, wall_ms: int) -> Iterator[Span]:
    """What etcd has under the id may be another submission: then this one has come to nothing."""
    stored, stands = effect.stored, outcome.stands
    if stands is not None and stands.acceptance == stored.acceptance:
        context = of_job(effect.job, stored.graph or {})
        parent = job_span(stored.acceptance)
        own = context.below(span_of(stored.acceptance, STORE.name))
        yield STORE.span(own, parent, stored.accepted_ms, wall_ms, {ID: effect.job})


def ended(effect: EndJob, outcome: JobResultStored, wall_ms: int) -> Iterator[Span]:
    """What stands may be an ending that an earlier report led to: it has its span already."""
    ending, archive, job = effect.ending, effect.archive, effect.job
    if (outcome.stands.acceptance, outcome.stands.archive) != (ending.acceptance, ending.archive):
        return
    context = of_job(job, archive.graph)
    own = context.below(job_span(ending.acceptance))
    ended_ms = ending.ended_ms or wall_ms
    yield FINISH.span(own.below(span_of(ending.acceptance, FINISH.name)), own.span, ended_ms, wall_ms, {ID: job})
    spent = archive.detail.spent if archive.detail is not None else None
    attributes = {
        ID: job, "millrace.job.name": ending.name, "millrace.job.status": ending.status,
        "millrace.job.acceptance": ending.acceptance, ERROR: ending.cause.kind if ending.cause is not None else None,
        **({f"millrace.job.spent.{phase}_ms": getattr(spent, f"{phase}_ms") for phase in SPENT} if spent is not None else {}),
    }  # fmt: skip
    why = failed(ending.cause) if ending.status == "FAILED" else None
    yield JOB.span(own, context.span, ending.accepted_ms, wall_ms, attributes, ending.name, why)


SPANS: Mapping[type[Body], Callable[[Any, Any, int], Iterator[Span]]] = {PutJobGraph: accepted, EndJob: ended}
"""Effect -> the spans that are over when it is carried out: (effect, outcome, Unix time in ms)."""
