"""Graphs that others put into etcd, or take out of it: what Flink's JobGraphListener is told.

While the log is whole it wins [R24]. What it does not know is accepted as a submission is, by a new acceptance: names in storage that the
other value carries are of another job, or of a life that is over. What it knows is put back. A delete that etcd has told of is somebody's
wish, and cancels the job. A key that is merely gone, as from an etcd that was restored from a backup, is put back.
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.cluster import place_of, short
from millrace.core.machine import Do, Envelope, Output, Publish, Say
from millrace.core.messages import client, effects, events, graphs, jobs
from millrace.core.messages.base import parsed, written
from millrace.core.states import Recovery
from millrace.core.topics import shard_scope
from millrace.core.trace_context import of_facts

from . import answers, retirement, starting, submission, waiting
from .state import JobRequest, Letter, State, Submission, job_key

TOPIC = "etcd"
SPOILT_MOST = 1_000
REMOVED = "its graph was removed from etcd"

Outputs = Iterator[Output]


def on_job_graph_added(state: State, body: graphs.JobGraphAdded, envelope: Envelope) -> Outputs:  # [R18], [R24]
    """A job that is known, or that an effect in flight is about, is none that others have added: our own put was read as theirs."""
    if state.recovery is not Recovery.DONE or state.closing is not None or _is_known(state, body.job):
        return
    letter = _letter(body)
    if body.graph is None:
        first = body.problems[0].message if len(body.problems) == 1 else f"{len(body.problems)} things are wrong: "
        more = "" if len(body.problems) == 1 else "; ".join(each.message for each in body.problems)
        yield answers.park(letter, envelope.at_ms, f"invalid: graph in etcd of job {body.job}: {first}{more}"[:1_000])
    elif _is_of_lost_records(state, body.acceptance, envelope):
        yield from waiting.look_up(state, answers.nobodys_request(body.job), envelope)  # its shard may run it by this acceptance
    elif submission.no_room(state, body.graph) is None:  # else it is noticed again, until there is
        put = Submission(body.digest, written(body.graph), "[]", None, replaces=body.revision)
        request = JobRequest(client.SubmitJob.__name__, body.job, "", "", put, letter)
        request.asked_ms = envelope.now_ms
        yield from submission.store_submission(state, request, envelope)


def on_job_graph_removed(state: State, body: graphs.JobGraphRemoved, envelope: Envelope) -> Outputs:
    """The job is canceled. Its ending is put where its graph was, so whoever asks for it is answered, and no late repeat runs it again."""
    live = state.live.get(body.job)
    if live is None or live.acceptance != body.acceptance or live.cancel or live.ending is not None:
        return  # its end is on its way already
    live.cancel = True
    yield Say(shard_scope(live.shard), jobs.CancelStartedJob(job=body.job))
    trace = of_facts(parsed(live.graph), live.acceptance)
    told = events.JobCancelling(job=body.job, at_ms=envelope.at_ms, reason=REMOVED)
    yield Publish("job.events", body.job, told, trace, after="JobAccepted")


def on_job_graph_changed(state: State, body: graphs.JobGraphChanged, envelope: Envelope) -> Outputs:  # [R24]
    """What the log knows is put back: else a new generation, which knows nothing but etcd, would run something else, or nothing."""
    live, ended = state.live.get(body.job), state.ended.get(body.job)
    if live is not None and live.acceptance == body.acceptance and live.ending is None:
        why = "it lives, with what the log has of it: that is put back. To run another graph, put it under another id"
        stored = starting.stored_of(live)
    elif ended is not None and ended.acceptance == body.acceptance and body.revision:
        why = f"it has ended: it is {ended.status}, and an id is one job for ever. Put it under another id"
        stored = retirement.tombstone_of(ended, state.topology.shard_of(body.job))
    else:
        return
    if body.revision:
        yield answers.park(_letter(body), envelope.at_ms, f"conflict: graph in etcd of job {body.job}: {why}")
    yield Do(job_key(body.job), effects.KeepJobGraph(job=body.job, stored=stored))


def on_job_graph_kept(state: State, body: effects.JobGraphKept, envelope: Envelope) -> Outputs:
    """Nothing is left to do for the job."""
    yield from ()


def is_copied(state: State, job: str, acceptance: str) -> bool:
    """Whether an accepted graph that etcd has, of a job in no table, is another job's, or of another cluster, by the acceptance that it
    names: then it is not run by that. Asked for before the graph is noticed, and of what a new life has not read yet."""
    if job in state.spoilt:
        return False
    others = any(each.acceptance == acceptance for jobs in (state.live, state.ended) for each in jobs.values())
    return others or is_of_another_cluster(state, acceptance)


def note_spoilt(state: State, job: str) -> None:
    """Its record was passed over. It would be noticed again, and end processes again."""
    state.spoilt[job] = None
    while len(state.spoilt) > SPOILT_MOST:
        del state.spoilt[next(iter(state.spoilt))]


def is_of_another_cluster(state: State, acceptance: str) -> bool:
    """What names no cluster was accepted before there were names of clusters [R29]."""
    cluster = state.settings.cluster
    return acceptance.count(".") >= 2 and not (cluster and acceptance.startswith(f"{short(cluster)}."))


def park_internal(body: graphs.JobGraphAdded, envelope: Envelope, error: str) -> Outputs:
    what = f"internal: graph in etcd of job {body.job}: a fault of Millrace in handling it: {error}"
    yield answers.park(_letter(body), envelope.at_ms, what[:1_000])


def _is_known(state: State, job: str) -> bool:
    return job in state.live or job in state.ended or job in state.lookups or job in state.spoilt


def _is_of_lost_records(state: State, acceptance: str, envelope: Envelope) -> bool:
    """Whether a job was accepted here, by records that this log has lost and that are still ahead of it: a shard may run it."""
    parts = acceptance.split(".")
    if is_of_another_cluster(state, acceptance) or len(parts) < 2 or not all(each.isascii() and each.isdecimal() for each in parts[-2:]):
        return False
    generation, offset = envelope.id.split(".")
    return place_of(acceptance) >= (int(generation), int(offset))


def _letter(body: graphs.JobGraphAdded | graphs.JobGraphChanged) -> Letter:
    return Letter(0, body.revision, body.size_bytes, body.sha256, body.head_base64, f"{TOPIC} jobs/{body.job}")
