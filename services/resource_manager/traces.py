"""The spans of a job that a ResourceManager makes: one of each slot that it grants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.core.fold import OutboxRecord
from millrace.core.messages.slots import AllocateSlot, AllocateSlots, SlotAllocation
from millrace.core.topics import Scope, task_manager_name
from millrace.core.trace_context import of_one, span_of
from millrace.runtime.hosting import Count
from millrace.runtime.spans import ID, SLOT, Span, Value
from millrace.runtime.traces import Traces

from .core.state import State


def counting(counts: Mapping[str, Count], traces: Traces | None) -> Mapping[str, Count]:
    """`counts`, and where traces are on, what makes spans of what is sent."""
    if traces is None:
        return counts

    def count(said: OutboxRecord, state: State) -> None:
        traces.put(granted(json.loads(said.value), state))

    return {**counts, **{body.model_fields["type"].default: count for body in (AllocateSlot, AllocateSlots)}}


def granted(message: dict[str, Any], state: State) -> Iterator[Span]:
    """Of an AllocateSlot or AllocateSlots; the state has when. None where the job's JobMaster makes no spans, and none of a grant that is
    over already: one that is sent again by a later leader."""
    body, name = message["body"], task_manager_name(Scope(message["to"]))
    job, task_manager = state.jobs.get(body["job"]), state.task_managers.get(name)
    context = of_one(job.trace) if job is not None else None
    if context is None or task_manager is None:
        return
    for each in map(SlotAllocation.model_validate, body.get("slots") or [{"slot": body["slot"], "allocation": body["allocation"]}]):
        slot = task_manager.slots.get(each.slot)
        if slot is not None and slot.allocation == each.allocation and slot.waited is not None:
            own = context.below(span_of(context.span, SLOT.name, each.allocation))
            attributes: dict[str, Value | None] = {ID: body["job"], "millrace.task_manager": name, "millrace.slot": each.slot}
            yield SLOT.span(own, context.span, *slot.waited, attributes)
