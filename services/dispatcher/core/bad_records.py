"""A record that is passed over because it ended processes [26]: who waits for it is told, and nothing waits for ever."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from millrace.core.machine import Envelope, Output, Say
from millrace.core.messages import client, effects, jobs
from millrace.core.messages.records import Client
from millrace.core.topics import shard_scope

from . import answers, retirement
from .answers import asking_of, refuse, reject
from .state import Asking, State
from .waiting import close

if TYPE_CHECKING:
    from .machine import Dispatcher


def passed_over(dispatcher: Dispatcher, state: State, envelope: Envelope) -> Iterator[Output]:
    """Of what else others said nothing is done, and nobody waits for it."""
    body, error = envelope.body.body, envelope.body.error
    if isinstance(body, Client) and body.request is not None:
        about = isinstance(body.request, client.SubmitJob)
        yield from _refuse([asking_of(body, body.request) if about else body.request], envelope.at_ms, error)
    elif isinstance(body, (effects.JobGraphStored, effects.JobFound)):
        fate = close(state, body.job)
        state.early.pop(body.job, None)  # its shard says it again to the next life
        yield from _refuse([*([fate.putting] if fate.putting else []), *fate.behind], envelope.at_ms, error)
    elif isinstance(body, jobs.JobEnded):
        message = f"a fault of Millrace in handling the end of this job: {error}"
        cause = {"kind": "infrastructure", "retryable": False, "message": message}
        # Nothing of what it said: that may be what ended the processes.
        failed = body.model_copy(update={"status": "FAILED", "cause": cause, "archive": {}})
        yield from dispatcher.job_ended(state, envelope._replace(body=failed))
    elif isinstance(body, effects.JobResultStored):
        yield from _ended(state, body, envelope.at_ms, error)
    elif isinstance(body, effects.JobsRecovered):
        # Each is asked for by itself, so that the others do not share the fate of the bad one. Clean ones need nothing.
        for job, stands in body.jobs.items():
            if stands.state != "clean" and not (job in state.live or job in state.ended or job in state.fates):
                yield from dispatcher.find(state, Asking("GetJobStatus", job, "", ""))  # however many requests wait
        yield from dispatcher.recover_on(state, envelope, body.through)


def _ended(state: State, body: effects.JobResultStored, now_ms: int, error: str) -> Iterator[Output]:
    """The end is known here; the job stays dirty in etcd, and a new generation says it to the world and cleans up."""
    live = retirement.no_longer_live(state, body.job)
    answers.remember(state, body.job, body.stands)
    retirement.forget_oldest(state)
    yield Say(shard_scope(live.shard), jobs.JobRetired(job=body.job, acceptance=live.acceptance))
    yield from _refuse(live.awaiting, now_ms, error)


def unreadable(state: State, waiting: Iterable[Asking], now_ms: int, reason: str) -> Iterator[Output]:
    """The key of a job holds what is none: whoever asks for it is told. Its shard, if it has it, says it again to the next life."""
    for asking in waiting:
        state.early.pop(asking.job, None)
        yield from _refuse([asking], now_ms, f"{asking.job}: {reason}; `millrace doctor` says what to do", fault=False)


def _refuse(waiting: Iterable[Asking | client.Request], now_ms: int, error: str, fault: bool = True) -> Iterator[Output]:
    reason = f"a fault of Millrace in handling this request: {error}" if fault else error
    for asking in waiting:
        if isinstance(asking, Asking) and asking.type == "SubmitJob":
            yield from reject(asking, now_ms, "internal", reason)
        else:
            yield from refuse(asking, "internal", reason)
