"""The Dispatcher's machine: how a job ends, and how a new generation comes back."""

from __future__ import annotations

import pytest

from millrace.core.machine import Born, Configured, Do, PeerBorn, Publish, Say, Ticked
from millrace.core.messages import client, effects, events, jobs, slots
from millrace.core.messages.contracts import CONTRACTS
from millrace.core.messages.links import LINKS
from millrace.core.states import RECOVERY_TRANSITIONS, Recovery
from millrace.core.topics import DISPATCHER
from services.dispatcher.core import starting
from services.dispatcher.core.machine import HANDLERS
from tests.core.of_dispatcher import (
    GRAPH,
    JOB,
    OTHER,
    SHARD,
    SINKS,
    TOPOLOGY,
    World,
    asks,
    bodies,
    described,
    end_effect,
    ended,
    of_shard,
    settled,
    stored,
)
from tests.core.of_job_master import ONE, TM, Shard

CAUSE = {"kind": "analysis", "message": "no such column", "vertex": "v", "detail": "a stack trace", "retryable": False}


def test_an_end_is_stored_with_its_archive_before_anybody_hears_of_it() -> None:
    world = settled()
    stands = world.accept(graph=SINKS)
    told = ended(JOB, stands.acceptance, "FAILED", cause=CAUSE)
    [output] = world.tell(told, sender=SHARD)
    path = f"archives/{JOB}/{stands.acceptance}/1.{world.offset}.json"
    ending = stored(
        state="dirty",
        acceptance=stands.acceptance,
        accepted_ms=stands.accepted_ms,
        status="FAILED",
        ended_ms=2_000,
        archive=path,
        cause={"kind": "analysis", "message": "no such column", "vertex": "v"},
        staging=[f"/data/.out.staging/{stands.acceptance}"],
    )
    archive = {
        "job": JOB,
        "name": "one",
        "status": "FAILED",
        "accepted_ms": stands.accepted_ms,
        "ended_ms": 2_000,
        "cause": CAUSE,
        "graph": SINKS,
        "detail": described(JOB, stands.acceptance, "FAILED"),
    }
    assert output == Do(f"jobs/{JOB}", effects.EndJob(job=JOB, ending=ending, archive=archive))


def test_a_stored_end_is_announced_answered_and_cleaned_up() -> None:
    world = settled()
    world.accept()
    rows = {"columns": ["a"], "types": ["int"], "rows": [[1]], "truncated": False}
    stands = world.end(result=rows).ending
    world.request(asks(client.AwaitJobResult))
    finished = events.JobFinished(job=JOB, at_ms=world.now_ms, archive=stands.archive, result=rows)
    result = client.JobResult(correlation="2", job=JOB, status="FINISHED", ended_ms=2_000, archive=stands.archive)
    tombstone = stands.model_copy(update={"state": "clean"})
    clean = effects.CleanJob(job=JOB, tombstone=tombstone, exchange=f"exchange/{stands.acceptance}")
    assert world.tell(effects.JobResultStored(job=JOB, stands=stands)) == [
        Publish("job.events", JOB, finished, after="JobCancelling"),
        Say(SHARD, jobs.JobRetired(job=JOB, acceptance=stands.acceptance)),
        Do(f"jobs/{JOB}", clean, after_said=True),
        Publish("client.replies", "c", result),
    ]
    assert (world.state.live, list(world.state.ended), world.state.live_graphs) == ({}, [JOB], 0)
    assert world.tell(effects.JobCleaned(job=JOB)) == []


def test_a_failed_job_says_why() -> None:
    world = settled()
    world.accept()
    stands = world.end(status="FAILED", cause=CAUSE).ending
    world.request(asks(client.AwaitJobResult))
    failed, *_, result = bodies(world.tell(effects.JobResultStored(job=JOB, stands=stands)))
    assert failed.cause == result.cause
    assert failed.cause.json_value() == {"kind": "analysis", "message": "no such column", "vertex": "v"}


def test_a_canceled_job() -> None:
    world = settled()
    world.accept()
    stands = world.end(status="CANCELED").ending
    first = world.tell(effects.JobResultStored(job=JOB, stands=stands))[0]
    assert first.body == events.JobCanceled(job=JOB, at_ms=world.now_ms, archive=stands.archive)


def test_the_ending_that_stands_is_the_one_that_counts() -> None:
    world = settled()
    world.accept()
    rows = {"columns": ["a"], "types": ["int"], "rows": [[1]], "truncated": False}
    acceptance = world.end(result=rows).ending.acceptance
    stands = stored(state="dirty", status="CANCELED", acceptance=acceptance)
    canceled = world.tell(effects.JobResultStored(job=JOB, stands=stands))[0].body
    assert canceled == events.JobCanceled(job=JOB, at_ms=world.now_ms, archive=stands.archive)
    assert world.state.ended[JOB].status == "CANCELED"


def test_a_result_that_is_not_small_is_left_to_the_archive() -> None:
    world = settled()
    world.accept()
    rows = {"columns": ["a"], "types": ["string"], "rows": [["x" * 20_000]], "truncated": False}
    effect = world.end(result=rows)
    finished = world.tell(effects.JobResultStored(job=JOB, stands=effect.ending))[0].body
    assert finished.result is None
    assert effect.archive.detail.result.json_value() == rows


def test_an_end_that_is_told_again_changes_nothing() -> None:
    world = settled()
    acceptance = world.accept().acceptance
    world.end()
    assert world.tell(ended(JOB, acceptance, "FAILED"), sender=SHARD) == []
    assert world.state.live[JOB].ending.status == "FINISHED"


def test_a_job_master_that_holds_an_ended_job_is_told_to_forget_it() -> None:
    world = settled()
    acceptance = world.accept().acceptance
    world.finish()
    retired = [Say(SHARD, jobs.JobRetired(job=JOB, acceptance=acceptance))]
    assert world.tell(ended(JOB, acceptance), sender=SHARD) == retired
    assert world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD) == retired
    assert world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING"), sender=SHARD) == retired


def test_a_job_master_that_holds_an_unknown_job_or_acceptance() -> None:
    world = settled()
    world.accept()
    assert world.tell(ended(JOB, "0.1"), sender=SHARD) == [Say(SHARD, jobs.JobRetired(job=JOB, acceptance="0.1"))]
    assert world.tell(ended(OTHER, "0.2"), sender=SHARD) == [Say(SHARD, jobs.JobRetired(job=OTHER, acceptance="0.2"))]
    assert list(world.state.live) == [JOB]


@pytest.mark.parametrize("stands", ["clean", "accepted", None])
def test_etcd_is_asked_about_a_job_that_runs_and_is_not_known_here(stands: str | None) -> None:
    """It may have ended before so many others that the state has forgotten it."""
    world = settled()
    assert world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD) == [
        Do(f"jobs/{JOB}", effects.FindJob(job=JOB))
    ]
    assert world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING"), sender=SHARD) == []
    said = world.tell(effects.JobFound(job=JOB, stands=stored(state=stands) if stands else None))
    told = [each.body for each in said if isinstance(each, Say)]
    assert [type(each) for each in told] == {"clean": [jobs.JobRetired], "accepted": [jobs.StartJob], None: [jobs.CancelStartedJob]}[stands]
    assert all(each.acceptance == "0.9" for each in told if stands)
    assert not (world.state.unverified_reports or world.state.lookups)


def test_a_job_that_is_in_no_store_is_canceled_and_forgotten() -> None:
    """Somebody deleted its key, and the log that was told of it is lost: no client could end its attempts, which may go on for ever."""
    world, shard = settled(), Shard()
    shard.start(ONE, JOB)
    shard.offer("a1", job=JOB)
    for body in (jobs.JobMasterStarted(job=JOB, status="RUNNING"), jobs.JobStatusChanged(job=JOB, status="RUNNING")):
        world.tell(body, sender=SHARD)
    [cancel] = world.tell(effects.JobFound(job=JOB, stands=None))
    assert cancel == Say(SHARD, jobs.CancelStartedJob(job=JOB))
    assert slots.CancelTasks in [type(each.body) for each in shard(cancel.body) if isinstance(each, Say)]
    done = shard(slots.TaskStateChanged(allocation="a1", attempt=f"{JOB}/0-q/0/1.1", state="CANCELED"), TM)
    [said] = [each.body for each in done if isinstance(each, Say) and isinstance(each.body, jobs.JobEnded)]
    [retired] = world.tell(said, sender=SHARD)
    assert retired == Say(SHARD, jobs.JobRetired(job=JOB, acceptance=f"acc-{JOB}"))
    shard(retired.body)
    assert not shard.state.jobs and not world.state.unverified_reports


def test_a_job_whose_key_cannot_be_read_or_is_put_now_is_not_canceled() -> None:
    world = settled()
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    said = world.tell(effects.JobFound(job=JOB, stands=None, unreadable="it is no JSON"))
    assert not any(isinstance(each, Say) for each in said)
    world = settled()
    world.submit()
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    said = world.tell(effects.JobGraphStored(job=JOB, stands=None))
    assert not any(isinstance(each, Say) for each in said), "the put was refused, and nobody has looked at what was there"


def test_only_so_many_ended_jobs_are_remembered() -> None:
    world = settled(retained_jobs=2)
    for number in range(4):
        world.accept(f"job-{number}")
        world.finish(f"job-{number}")
    assert list(world.state.ended) == ["job-2", "job-3"]
    assert world.state.ended_counts == {"FINISHED": 4}
    world.tell(Configured({"retained_jobs": 1}))
    assert list(world.state.ended) == ["job-3"]


# a new life of a shard


def test_a_reborn_shard_is_told_of_its_live_jobs_with_what_was_asked_of_them() -> None:
    world = settled()
    mine, ending, canceled = of_shard(3)
    for job in (mine, ending, canceled):
        world.accept(job)
    world.request(asks(client.CancelJob, canceled))
    world.end(ending)
    said = world.tell(PeerBorn(SHARD, 2), sender=SHARD)
    assert [(each.to, type(each.body), each.body.job, each.body.cancel) for each in said] == [
        (SHARD, jobs.StartJob, mine, False),
        (SHARD, jobs.StartJob, canceled, True),
    ]
    assert world.state.starts_to_send == {}


def test_many_jobs_are_told_over_several_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "STARTS_A_TICK", 2)
    world = settled()
    names = of_shard(5)
    for job in names:
        world.accept(job)
    first = bodies(world.tell(PeerBorn(SHARD, 2), sender=SHARD))
    world.finish(names[3])
    second, third, fourth = (bodies(world.tell(Ticked())) for _ in range(3))
    told = [[each.job for each in some] for some in (first, second, third, fourth)]
    assert told == [names[:2], [names[2]], [names[4]], []]


# a new generation


def reborn(**settings: int) -> World:
    world = World()
    world.tell(Configured(settings))
    [recover] = world.tell(Born())
    assert recover == Do("jobs", effects.RecoverJobs(retained=settings.get("retained_jobs", 10_000)))
    return world


def test_recovery_starts_accepted_jobs_cleans_up_ended_ones_and_knows_the_rest() -> None:
    world = reborn()
    world.hear_all()
    page = {"a": stored("a"), "b": stored("b", "dirty", staging=["/x"]), "c": stored("c", "clean", digest="e")}
    outputs = world.tell(effects.JobsRecovered(jobs=page))
    shard = f"job-master/{TOPOLOGY.shard_of('a')}"
    assert outputs[1] == Say(
        shard, jobs.StartJob(job="a", acceptance="0.9", graph=GRAPH, accepted_ms=5), after="job.events"
    )
    assert [type(body) for body in bodies(outputs)] == [
        events.JobAccepted, jobs.StartJob, events.JobFinished, jobs.JobRetired, effects.CleanJob,
    ]  # fmt: skip
    tombstone = stored("b", "clean")
    assert bodies(outputs)[-1] == effects.CleanJob(
        job="b", tombstone=tombstone, exchange="exchange/0.9", staging=["/x"]
    )
    assert (list(world.state.live), sorted(world.state.ended), world.state.recovery) == (
        ["a"],
        ["b", "c"],
        Recovery.DONE,
    )


def test_recovery_goes_on_page_by_page() -> None:
    world = reborn(retained_jobs=2)
    [more] = world.tell(effects.JobsRecovered(jobs={"b": stored("b", "clean", ended_ms=9)}, through="b"))
    assert more == Do("jobs", effects.RecoverJobs(after="b", retained=2))
    world.tell(effects.JobsRecovered(jobs={"c": stored("c", "clean", ended_ms=3)}, through="c"))
    assert world.tell(effects.JobsRecovered(jobs={"d": stored("d", "clean", ended_ms=5)})) == []
    assert list(world.state.ended) == ["d", "b"], "those that ended last, in that order"


def test_recovery_passes_over_what_is_known_or_under_way() -> None:
    world = reborn()
    world.accept(JOB)
    world.submit(OTHER)
    before = world.state.live[JOB].acceptance
    assert world.tell(effects.JobsRecovered(jobs={JOB: stored(), OTHER: stored(OTHER)})) == []
    assert (list(world.state.live), world.state.live[JOB].acceptance) == ([JOB], before)


def test_during_recovery_an_unknown_end_waits_for_the_start_that_follows() -> None:
    world = reborn()
    world.tell(PeerBorn(SHARD, 1), sender=SHARD)
    assert world.tell(ended(JOB, "0.9"), sender=SHARD) == []
    assert world.tell(effects.JobsRecovered(jobs={JOB: stored()}))[0].body.job == JOB
    [do] = world.tell(ended(JOB, "0.9"), sender=SHARD)
    assert do.effect.ending.acceptance == "0.9"


def test_an_end_that_comes_while_etcd_is_asked_about_the_job_waits_for_the_start_that_follows() -> None:
    """A new generation reads old submissions again: that of a job which has ended meanwhile goes to etcd once more, and the
    recovery passes the job over. To retire it at its JobMaster now would lose its result, and run it a second time."""
    world = reborn()
    world.submit()
    world.tell(effects.JobsRecovered(jobs={JOB: stored()}))
    assert world.tell(ended(JOB, "0.9"), sender=SHARD) == []
    told = bodies(world.tell(effects.JobGraphStored(job=JOB, stands=stored())))
    assert [each.acceptance for each in told if isinstance(each, jobs.StartJob)] == ["0.9"]
    [end] = world.tell(ended(JOB, "0.9"), sender=SHARD)
    assert end.effect.ending.status == "FINISHED"


def test_an_end_that_was_told_before_its_job_was_found_clean_is_forgotten_by_its_job_master() -> None:
    """1. A new life of the Dispatcher finds the ending in etcd and cleans up before it has heard the shard, to which it says nothing;
    2. its log is lost; 3. the shard tells the end to the next life, which asks etcd at that moment. Nobody else will say JobRetired."""
    retired = [Say(SHARD, jobs.JobRetired(job=JOB, acceptance="0.9"))]
    recovered = reborn()
    recovered.tell(PeerBorn(SHARD, 1), sender=SHARD)
    assert recovered.tell(ended(JOB, "0.9"), sender=SHARD) == []
    assert recovered.tell(effects.JobsRecovered(jobs={JOB: stored(state="clean")})) == retired
    put = reborn()
    put.submit()
    assert put.tell(ended(JOB, "0.9"), sender=SHARD) == []
    assert put.tell(effects.JobsRecovered(jobs={JOB: stored(state="clean")})) == []
    assert put.tell(effects.JobGraphStored(job=JOB, stands=stored(state="clean")))[1:] == retired
    sought = reborn()
    sought.request(asks(client.DescribeJob))
    assert sought.tell(ended(JOB, "0.9"), sender=SHARD) == []
    assert sought.tell(effects.JobFound(job=JOB, stands=None))[0] == retired[0]


def test_a_job_that_goes_on_though_it_was_found_clean_is_forgotten_by_its_job_master() -> None:
    """1. The Dispatcher's log is cut behind the job's end, and it starts the job again in the shard's new life; 2. it finds that its log
    was cut, and its next life the ending, and cleans up before it has heard the shard; 3. its log is lost again, and the shard
    says that the job runs while the next life asks etcd. The job may be a stream: it would go on for ever."""
    retired = [Say(SHARD, jobs.JobRetired(job=JOB, acceptance="0.9"))]
    goes_on = (jobs.JobMasterStarted(job=JOB, status="RUNNING"), jobs.JobStatusChanged(job=JOB, status="RUNNING"))
    recovered, sought, put = worlds = reborn(), reborn(), reborn()
    sought.request(asks(client.DescribeJob))
    put.submit()
    for world in worlds:
        world.tell(PeerBorn(SHARD, 1), sender=SHARD)
        assert [world.tell(body, sender=SHARD) for body in goes_on] == [[], []]
    assert recovered.tell(effects.JobsRecovered(jobs={JOB: stored(state="clean")})) == retired
    assert sought.tell(effects.JobFound(job=JOB, stands=stored(state="clean")))[0] == retired[0]
    assert retired[0] in put.tell(effects.JobGraphStored(job=JOB, stands=stored(state="clean")))
    old = reborn()  # it ended before so many others that the recovery leaves it out
    old.tell(PeerBorn(SHARD, 1), sender=SHARD)
    old.tell(goes_on[0], sender=SHARD)
    assert old.tell(effects.JobsRecovered(jobs={})) == [Do(f"jobs/{JOB}", effects.FindJob(job=JOB))]
    assert old.tell(effects.JobFound(job=JOB, stands=stored(state="clean"))) == retired
    assert not old.state.unverified_reports


def test_an_end_counts_though_its_job_master_said_before_that_the_job_runs() -> None:
    world = reborn()
    world.tell(PeerBorn(SHARD, 1), sender=SHARD)
    world.tell(jobs.JobMasterStarted(job=JOB, status="RUNNING"), sender=SHARD)
    world.tell(ended(JOB, "0.7"), sender=SHARD)
    world.tell(jobs.JobStatusChanged(job=JOB, status="RUNNING"), sender=SHARD)
    assert world.tell(effects.JobsRecovered(jobs={})) == [Say(SHARD, jobs.JobRetired(job=JOB, acceptance="0.7"))]


def test_an_end_that_was_told_before_its_job_was_found_dirty_is_answered_once() -> None:
    world = reborn()
    world.tell(PeerBorn(SHARD, 1), sender=SHARD)
    assert world.tell(ended(JOB, "0.9"), sender=SHARD) == []
    told = bodies(world.tell(effects.JobsRecovered(jobs={JOB: stored(state="dirty")})))
    assert [each.acceptance for each in told if isinstance(each, jobs.JobRetired)] == ["0.9"]


def test_a_stored_graph_that_this_build_cannot_read_stops_nobody() -> None:
    world = reborn()
    told, start = bodies(world.tell(effects.JobsRecovered(jobs={JOB: stored(graph={"name": 7})})))
    assert start.graph == {"name": 7}
    assert told.tasks == []


# totality


def test_every_message_that_may_come_has_a_handler() -> None:
    handled = set(HANDLERS)
    assert {body for (_, receiver), some in LINKS.items() if receiver == DISPATCHER for body in some} <= handled
    assert {effects.JobGraphStored, effects.JobFound, effects.JobResultStored, effects.JobCleaned} <= handled


@pytest.mark.parametrize("where", ["unknown", "putting", "live", "canceling", "ending", "ended", "recovering"])
@pytest.mark.parametrize("kind", ["SubmitJob", "CancelJob", "DescribeJob", "AwaitJobResult", "GetJobStatus"])
@pytest.mark.parametrize("then", ["JobMasterStarted", "JobStatusChanged", "JobEnded", "PeerBorn", "Ticked"])
def test_every_request_has_a_defined_answer_in_every_state(where: str, kind: str, then: str) -> None:
    """No order of a request and a message breaks an invariant, and every request is answered in the end, once."""
    world = reborn() if where == "recovering" else settled()
    if where == "putting":
        world.submit()
    if where in ("live", "canceling", "ending", "ended"):
        world.accept()
    if where == "canceling":
        world.request(client.CancelJob(job=JOB))
    if where == "ending":
        world.end()
    if where == "ended":
        world.finish()
    request = CONTRACTS[kind, 1].body
    outputs = world.submit() if kind == "SubmitJob" else world.request(asks(request, correlation="1"))
    acceptance = world.state.live[JOB].acceptance if JOB in world.state.live else "0.9"
    message = {
        "JobMasterStarted": jobs.JobMasterStarted(job=JOB, status="RUNNING"),
        "JobStatusChanged": jobs.JobStatusChanged(job=JOB, status="RUNNING"),
        "JobEnded": ended(JOB, acceptance),
        "PeerBorn": PeerBorn(SHARD, 2),
        "Ticked": Ticked(),
    }[then]
    outputs += world.tell(message, sender=SHARD)
    outputs += carry_out(world, outputs)
    if JOB in world.state.live:
        outputs += (last := world.tell(ended(JOB, world.state.live[JOB].acceptance, "CANCELED"), sender=SHARD))
        outputs += carry_out(world, last)
    answers = [
        o for o in outputs if isinstance(o, Publish) and o.topic == "client.replies" and o.body.correlation == "1"
    ]
    asked = [o for o in outputs if isinstance(o, Say) and isinstance(o.body, jobs.DescribeStartedJob)]
    if then == "PeerBorn" and where != "putting":  # what the life before was asked is answered here
        asked = []
    expected = 2 if where == "putting" and kind == "SubmitJob" else 1 + (where == "putting")
    assert len(answers) + len(asked) == expected
    assert world.state.waiting == world.state.putting == 0


def carry_out(world: World, outputs: list) -> list:
    """Performs effects as etcd would, and theirs, until none is left."""
    etcd = {job: stored(job, acceptance=live.acceptance) for job, live in world.state.live.items()}
    done, left = [], [output for output in outputs if isinstance(output, Do)]
    if not left:  # an effect of an earlier record may be all that is under way
        left = [Do(f"jobs/{JOB}", world_effect) for world_effect in pending(world)]
    while left:
        effect = left.pop(0).effect
        outcome = None
        if isinstance(effect, effects.PutJobGraph):
            outcome = effects.JobGraphStored(job=effect.job, stands=etcd.setdefault(effect.job, effect.stored))
        elif isinstance(effect, effects.FindJob):
            outcome = effects.JobFound(job=effect.job, stands=etcd.get(effect.job))
        elif isinstance(effect, effects.EndJob):
            outcome = effects.JobResultStored(job=effect.job, stands=effect.ending)
        elif isinstance(effect, effects.CleanJob):
            outcome = effects.JobCleaned(job=effect.job)
        if outcome is not None:
            told = world.tell(outcome)
            done += told
            left += [output for output in told if isinstance(output, Do)]
    return done


def pending(world: World) -> list[effects.Body]:
    live = world.state.live.get(JOB)
    if JOB in world.state.lookups:
        lookup = world.state.lookups[JOB]
        return [effects.PutJobGraph(job=JOB, stored=stored(acceptance=lookup.acceptance))]
    if live is not None and live.ending is not None:
        ending = stored(state="dirty", acceptance=live.acceptance)
        return [end_effect(JOB, ending)]
    return []


def test_recovery_transitions_are_those_of_the_table() -> None:
    world = World()
    seen = [world.state.recovery]
    world.tell(Born())
    seen.append(world.state.recovery)
    world.tell(effects.JobsRecovered(jobs={}, through="a"))
    seen.append(world.state.recovery)
    world.tell(effects.JobsRecovered(jobs={}))
    seen.append(world.state.recovery)
    assert seen == [Recovery.NONE, Recovery.RUNNING, Recovery.RUNNING, Recovery.DONE]
    assert all(after in RECOVERY_TRANSITIONS[before] for before, after in zip(seen, seen[1:], strict=False))
