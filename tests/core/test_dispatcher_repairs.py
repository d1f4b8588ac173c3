"""Repairs at the Dispatcher: what is kept of an ended job, what a repair is given, when it is refused, and when the data go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.core.messages import client, effects, events, jobs
from millrace.core.messages.effects import RepairRefused, StoredJob
from millrace.core.messages.execution import Archive
from millrace.core.messages.kept import Kept, KeptSubtask, KeptTask
from millrace.io.interfaces import Put, Txn, UnknownOutcome
from services.dispatcher.stored import value_of
from tests.core.of_dispatcher import GRAPH, JOB, OTHER, bodies, settled, stored
from tests.core.of_dispatcher_ports import World as Ports

HOUR_MS = 3_600_000
TASK = KeptTask(definition="d", files="f", schemas={"v": "{}"}, places=["0.9/1/0-v"], subtasks=[KeptSubtask(subtask=0, attempt=1)])
KEPT = Kept(bytes=100, jobs={"0.9": OTHER}, tasks={"v": TASK})
REPAIR = {**GRAPH, "origin": {"job": OTHER, "repair": True}}


# The machine


@pytest.mark.parametrize(
    ("status", "kept", "settings", "until_ms"),
    [
        ("FAILED", KEPT, {}, 2_000 + 24 * HOUR_MS),
        ("CANCELED", KEPT, {"keep_for_repair_ms": 5}, 2_005),
        ("FAILED", None, {}, None),
        ("FAILED", Kept(why="its sink out is published already"), {}, None),
        ("FAILED", KEPT, {"keep_for_repair_ms": 0}, None),
        ("FAILED", KEPT.model_copy(update={"bytes": 3 << 20}), {"keep_for_repair_mb": 2}, None),
    ],
)
def test_the_data_of_a_failed_job_stay_for_a_time(status: str, kept: Kept | None, settings: dict[str, int], until_ms: int | None) -> None:
    world = settled(**settings)
    world.accept(JOB)
    effect = world.end(JOB, status, kept=kept)
    assert effect.ending.kept_until_ms == until_ms and effect.archive.kept == kept
    assert effect.ending.kept_of == ({"0.9": OTHER} if until_ms is not None else {})
    [clean] = [
        body for body in bodies(world.tell(effects.JobResultStored(job=JOB, stands=effect.ending))) if isinstance(body, effects.CleanJob)
    ]
    assert clean.exchange == ("" if until_ms is not None else f"exchange/{effect.ending.acceptance}")
    assert clean.tombstone.kept_until_ms == until_ms


def test_a_repair_is_started_with_what_it_was_given_also_by_a_later_generation() -> None:
    world = settled()
    [put] = world.submit(JOB, graph=REPAIR)
    given = put.effect.stored.model_copy(update={"graph": None, "kept": KEPT, "kept_of": KEPT.jobs})
    accepted, start, answer = bodies(world.tell(effects.JobGraphStored(job=JOB, stands=given)))
    assert isinstance(accepted, events.JobAccepted) and accepted.origin is not None
    assert (accepted.origin.job, accepted.origin.repair) == (OTHER, True)
    assert isinstance(start, jobs.StartJob) and start.kept == KEPT and start.graph == REPAIR
    assert isinstance(answer, client.JobAcceptedReply)
    [answer] = bodies(world.submit(JOB, graph=REPAIR))
    assert isinstance(answer, client.JobAcceptedReply), "the same submission is the same job"
    later = settled()
    later.state.recovery = type(later.state.recovery).RUNNING
    stands = stored(JOB, graph=REPAIR, kept=KEPT, kept_of=KEPT.jobs)
    told = bodies(later.tell(effects.JobsRecovered(jobs={JOB: stands})))
    assert [body.kept for body in told if isinstance(body, jobs.StartJob)] == [KEPT]


@pytest.mark.parametrize("kind", ["conflict", "busy"])
def test_a_repair_that_is_refused_is_answered_with_the_reason(kind: Any) -> None:
    world = settled()
    world.submit(JOB, graph=REPAIR)
    world.request(client.GetJobStatus(job=JOB, reply_to="c", correlation="2"))
    refused = RepairRefused(kind=kind, reason="job-b is FINISHED: there is nothing to repair")
    answer, unknown = bodies(world.tell(effects.JobGraphStored(job=JOB, stands=None, refused=refused)))
    assert isinstance(answer, client.JobRejected) and (answer.kind, answer.reason) == (kind, refused.reason)
    assert (answer.retry_after_ms is not None) == (kind == "busy")
    assert isinstance(unknown, client.RequestRefused) and unknown.kind == "not_found"
    assert not world.state.lookups and not world.state.live


# The ports


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return Ports(tmp_path)


def ended(ports: Ports, job: str = OTHER, kept: Kept | None = KEPT, **fields: Any) -> StoredJob:
    """A job that has ended, with its archive."""
    path = f"archives/{job}/0.9/1.json"
    archive = Archive(job=job, name="one", status="FAILED", accepted_ms=5, ended_ms=7, kept=kept)
    ports.storage.put_if_absent(path, archive.model_dump_json().encode())
    until_ms = ports.clock.now_ms() + HOUR_MS
    stands = stored(job, "clean", status="FAILED", archive=path, **{"kept_until_ms": until_ms, "kept_of": {"0.9": job}, **fields})
    ports.store.txn(Txn([], [Put(f"jobs/{job}", value_of(stands))]))
    return stands


def repair(job: str = JOB, **fields: Any) -> effects.PutJobGraph:
    return effects.PutJobGraph(job=job, stored=stored(job, graph=REPAIR, acceptance=f"1.{job}"), **fields)


def put(ports: Ports, effect: effects.PutJobGraph | None = None) -> effects.JobGraphStored | None:
    [outcome] = ports.ports.put_graphs([effect or repair()], ports.fence)
    return outcome


def test_a_repair_is_stored_with_the_list_and_named_where_the_data_are(ports: Ports) -> None:
    ended(ports)
    outcome = put(ports)
    assert outcome is not None and outcome.stands is not None and outcome.stands.graph is None
    assert outcome.stands.kept == KEPT
    holds, source = ports.holds(JOB), ports.holds(OTHER)
    assert holds is not None and (holds.kept, holds.kept_of, holds.graph) == (KEPT, {"0.9": OTHER}, REPAIR)
    assert source is not None and source.repaired_by == [JOB]
    again = put(ports)
    assert again is not None and again.stands == holds, "a try whose answer was lost"
    assert ports.holds(OTHER) == source


@pytest.mark.parametrize(
    ("fields", "kind", "reason"),
    [
        ({"state": "accepted", "graph": GRAPH}, "conflict", "job job-b has not ended: it can be repaired once it has FAILED"),
        ({"status": "FINISHED"}, "conflict", "job job-b is FINISHED: there is nothing to repair, for only what FAILED or was CANCELED is"),
        ({"state": "dirty"}, "busy", "job job-b has ended just now; try again"),
        ({"kept_until_ms": None}, "conflict", "what it had finished is deleted already, or was not kept"),
        ({"kept_until_ms": 1}, "conflict", "what it had finished is deleted already, or was not kept"),
        ({"repaired_by": [f"r{n}" for n in range(20)]}, "conflict", "job job-b was repaired 20 times: repair the last one of those"),
        ({"archive": "archives/job-b/none.json"}, "conflict", "its archive is gone"),
    ],
)
def test_what_cannot_be_repaired_is_refused_with_what_to_do(ports: Ports, fields: dict[str, Any], kind: str, reason: str) -> None:
    stands = ended(ports).model_copy(update=fields)
    ports.store.txn(Txn([], [Put(f"jobs/{OTHER}", value_of(stands))]))
    outcome = put(ports)
    assert outcome is not None and outcome.stands is None and outcome.refused is not None
    assert outcome.refused.kind == kind and reason in outcome.refused.reason
    assert ports.holds(JOB) is None and ports.holds(OTHER) == stands


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        (None, "nothing of job job-b had finished that could be kept: run it again (millrace run-again job-b)"),
        (Kept(why="its sink out is published already"), "job job-b cannot be repaired: its sink out is published already; run it again"),
    ],
)
def test_a_job_that_left_nothing_says_so(ports: Ports, kept: Kept | None, reason: str) -> None:
    ended(ports, kept=kept, kept_until_ms=None)
    outcome = put(ports)
    assert outcome is not None and outcome.refused is not None and reason in outcome.refused.reason


def test_a_graph_without_a_vertex_of_the_job_does_not_repair_it(ports: Ports) -> None:
    stands = ended(ports)
    path = "archives/job-b/0.9/2.json"
    of = {"name": "one", "vertices": {"other": {"sql": "SELECT 1"}, "third": {"sql": "SELECT 2"}}}
    archive = Archive(job=OTHER, name="one", status="FAILED", accepted_ms=5, ended_ms=7, kept=KEPT, graph=of)
    ports.storage.put_if_absent(path, archive.model_dump_json().encode())
    ports.store.txn(Txn([], [Put(f"jobs/{OTHER}", value_of(stands.model_copy(update={"archive": path})))]))
    outcome = put(ports)
    assert outcome is not None and outcome.refused is not None and outcome.refused.kind == "conflict"
    assert outcome.refused.reason.startswith("no vertex of this graph is one of job job-b (other, third): nothing of it would be kept")
    mended = {**REPAIR, "vertices": {**REPAIR["vertices"], "third": {"sql": "SELECT 3"}}}
    outcome = put(ports, effects.PutJobGraph(job=JOB, stored=stored(JOB, graph=mended, acceptance=f"1.{JOB}")))
    assert outcome is not None and outcome.refused is None


def test_there_is_no_such_job(ports: Ports) -> None:
    outcome = put(ports)
    assert outcome is not None and outcome.refused == RepairRefused(kind="conflict", reason="there is no job job-b that could be repaired")


def test_a_chain_needs_all_whose_data_it_reads(ports: Ports) -> None:
    chain = Kept(bytes=1, jobs={"0.9": OTHER, "0.8": "job-c"}, tasks={"v": TASK})
    ended(ports, kept=chain)
    refused = put(ports)
    assert refused is not None and refused.refused is not None and "what it has of job-c is deleted already" in refused.refused.reason
    ended(ports, "job-c", acceptance="0.8")
    stored_now = put(ports)
    assert stored_now is not None and stored_now.stands is not None
    assert [stands.repaired_by for job in (OTHER, "job-c") if (stands := ports.holds(job))] == [[JOB], [JOB]]
    assert [stands.kept_of for job in (JOB,) if (stands := ports.holds(job))] == [chain.jobs]


def test_what_changes_meanwhile_is_looked_at_again(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    stands = ended(ports)
    look = ports.ports._repairs.look

    def changed(effect: effects.PutJobGraph, now_ms: int | None) -> Any:
        found = look(effect, now_ms)
        ports.store.txn(Txn([], [Put(f"jobs/{OTHER}", value_of(stands.model_copy(update={"kept_until_ms": None})))]))
        return found

    monkeypatch.setattr(ports.ports._repairs, "look", changed)
    assert put(ports) is None and ports.holds(JOB) is None, "its data may be gone"
    monkeypatch.undo()
    outcome = put(ports)
    assert outcome is not None and outcome.refused is not None


def test_a_try_that_may_have_worked_is_not_refused_by_the_time(ports: Ports, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(ports)
    txn = ports.store.txn

    def lost(what: Txn) -> Any:
        done = txn(what)
        if what.then:
            raise UnknownOutcome("the answer was lost")
        return done

    monkeypatch.setattr(ports.store, "txn", lost)
    assert put(ports) is None
    monkeypatch.undo()
    ports.clock.advance(2 * HOUR_MS)
    outcome = put(ports)
    assert outcome is not None and outcome.stands is not None and outcome.stands.kept == KEPT


def test_what_is_kept_is_not_cleaned_with_its_job(ports: Ports) -> None:
    for acceptance in ("0.9", "0.8"):
        ports.storage.put_new(f"exchange/{acceptance}/1/0-v/0/1/part", b"x")
    for job, acceptance, exchange in ((JOB, "0.9", ""), (OTHER, "0.8", "exchange/0.8")):
        stands = stored(job, "dirty", acceptance=acceptance, status="FAILED")
        ports.set(stands, job)
        effect = effects.CleanJob(job=job, tombstone=stands.model_copy(update={"state": "clean"}), exchange=exchange)
        assert ports.clean([effect], ports.fence) == [effects.JobCleaned(job=job)]
    assert [entry.path for entry in ports.storage.list("exchange")] == ["exchange/0.9/1/0-v/0/1/part"]
