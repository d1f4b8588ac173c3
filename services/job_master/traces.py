"""The spans of a job that a JobMaster makes, of what it sends. What it sends again makes the same span again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from millrace.core.fold import OutboxRecord
from millrace.core.messages.attempts import Fault
from millrace.core.states import ExecutionState
from millrace.core.trace_context import TraceContext, job_span, of_attempt, of_job, span_of
from millrace.runtime.hosting import Count, Term
from millrace.runtime.spans import ATTEMPT, ERROR, ID, PUBLISH, QUEUE, START, Span, failed
from millrace.runtime.traces import Traces

from .core.execution_graph import attempt_name, task_folder
from .core.plans import plan_of
from .core.speculation import of_slot
from .core.state import Job, State

Attempt = tuple[str, str, int, int]
"""Job, task, subtask, number."""
ENDS = (ExecutionState.FINISHED.value, ExecutionState.FAILED.value, ExecutionState.CANCELED.value)


class JobSpans:
    """Of one shard, where traces are on. What a leader has sent of an attempt may be of the past when its end is sent: a failed attempt is
    followed by the next one in the same record. So who leads keeps when those that have not ended were deployed."""

    def __init__(self, traces: Traces) -> None:
        self._traces = traces
        self._deployed: dict[Attempt, int] = {}

    def lead(self, term: Term) -> None:
        """What leaders before this one have deployed."""
        jobs: Mapping[str, Job] = term.folded.state.jobs
        self._deployed = {}
        for job in jobs.values():
            for allocation, slot in job.slots.items():
                if slot.task is not None:
                    row = of_slot(job, allocation)
                    self._deployed[job.id, slot.task, slot.subtask, row.attempt] = row.deployed_ms

    def counting(self, counts: Mapping[str, Count]) -> Mapping[str, Count]:
        """`counts`, with what makes spans of the same outputs."""

        def both(type: str, spans: Callable[[dict[str, Any], State], Iterator[Span]]) -> Count:
            def count(record: OutboxRecord, state: State) -> None:
                if type in counts:
                    counts[type](record, state)
                self._traces.put(spans(json.loads(record.value), state))

            return count

        return {**counts, "AttemptStateChanged": both("AttemptStateChanged", self._attempt), "JobEnded": both("JobEnded", _ended)}

    def _attempt(self, event: dict[str, Any], state: State) -> Iterator[Span]:
        job = state.jobs.get(event["job"])
        plan = plan_of(state, job) if job is not None else None
        if job is None or plan is None:
            return
        task, index, number, at_ms = event["task"], event["subtask"], event["attempt"], event["at_ms"]
        context = of_attempt(job.id, job.graph, job.acceptance, attempt_name(job, task_folder(plan, task), index, number))
        if event["state"] == ExecutionState.DEPLOYING.value:
            self._deployed[job.id, task, index, number] = at_ms
            if event["count"] == 1:
                yield _queue(job, context, at_ms)
            return
        deployed_ms = self._deployed_ms(job, (job.id, task, index, number))
        if deployed_ms is None:
            return
        if event["state"] == ExecutionState.RUNNING.value:
            yield START.span(context.below(span_of(context.span, START.name)), context.span, deployed_ms, at_ms, {ID: job.id})
        elif event["state"] in ENDS:
            self._deployed.pop((job.id, task, index, number), None)
            error = Fault.model_validate(event["error"]) if event["error"] is not None else None
            attributes = {
                ID: job.id, "millrace.task": task, "millrace.subtask": index, "millrace.attempt": number,
                "millrace.task_manager": event["task_manager"], "millrace.outcome": event["state"],
                ERROR: error.kind if error is not None else None,
            }  # fmt: skip
            why = failed(error) if error is not None else None
            yield ATTEMPT.span(context, job_span(job.acceptance), deployed_ms, at_ms, attributes, task, why)

    def _deployed_ms(self, job: Job, attempt: Attempt) -> int | None:
        """None: it is sent again, and others have followed it. A span with other times would have its identifier."""
        _, task, index, number = attempt
        row = job.tasks[task].rows.get(index)
        known = row.deployed_ms if row is not None and row.attempt == number else None
        return self._deployed.get(attempt, known)


def _ended(message: dict[str, Any], state: State) -> Iterator[Span]:
    """Of a JobEnded."""
    job = state.jobs.get(message["body"]["job"])
    if job is None:
        return
    context = of_job(job.id, job.graph)
    if not job.running_ms:
        yield _queue(job, context, job.ended_ms)
    if job.sinks:
        last_ms = max(row.ended_ms for task in job.tasks.values() for row in task.rows.values())
        own = context.below(span_of(job.acceptance, PUBLISH.name))
        yield PUBLISH.span(own, job_span(job.acceptance), last_ms, job.ended_ms, {ID: job.id, "millrace.sinks": len(job.sinks)})


def _queue(job: Job, context: TraceContext, until_ms: int) -> Span:
    own = context.below(span_of(job.acceptance, QUEUE.name))
    return QUEUE.span(own, job_span(job.acceptance), job.accepted_ms, until_ms, {ID: job.id})
