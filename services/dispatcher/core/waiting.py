"""Requests that wait: for the end of a job, or for what etcd holds of one. Bounded, all together and for each job."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.machine import Envelope, Output

from .admission import RETRY_AFTER_MS
from .answers import refuse, reject
from .state import Asking, Fate, State

WAITING_A_JOB = 100
WAITING_MOST = 50_000


def wait(state: State, envelope: Envelope, queue: list[Asking], asking: Asking) -> Iterator[Output]:
    """Lets a request wait in `queue`, if there is room for it. Who asks the same again waits once: its newest asking is answered."""
    same = [one for one in queue if asking.reply_to and (one.reply_to, one.type) == (asking.reply_to, asking.type)]
    if same and asking.type == "AwaitJobResult":
        queue.remove(same[0])
        state.waiting -= 1
    if len(queue) < WAITING_A_JOB and state.waiting < WAITING_MOST:
        queue.append(asking)
        state.waiting += 1
    elif asking.submitted is not None:
        reason = f"too many requests wait for job {asking.job}"
        yield from reject(asking, envelope.at_ms, "busy", reason, retry_after_ms=RETRY_AFTER_MS)
    else:
        yield from refuse(asking, "busy", f"too many requests wait for job {asking.job}; try again")


def close(state: State, job: str) -> Fate:
    """The question to etcd has its answer."""
    fate = state.fates.pop(job)
    state.waiting -= len(fate.behind)
    state.putting -= fate.putting is not None
    state.live_subtasks -= fate.subtasks
    return fate
