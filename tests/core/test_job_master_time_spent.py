"""Where a job's time went: each moment belongs to one phase, and the sum is exact."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millrace.core.machine import Publish, Say, Ticked
from millrace.core.messages import jobs, slots
from millrace.core.messages.attempts import AttemptReport
from millrace.core.messages.client import JobDescribed
from services.job_master.core.state import check
from tests.core.of_job_master import ONE, PLANNED, REPORT, SINK, TM, TWO, USER, Shard

PHASES = ("queue", "start", "plan", "compute", "exchange", "publish")
PINNED = {"pinned": {"s": {"schema": "{}", "files": [["/data", 1, 1]], "split_bytes": 1, "splits": 2}}, "schemas": {"s": "{}"}}


def own(start: Any = 0, plan: Any = 0, compute: Any = 0, exchange: Any = 0) -> dict[str, Any]:
    return {"start_ms": start, "plan_ms": plan, "compute_ms": compute, "exchange_ms": exchange}


def parts(**known: int) -> dict[str, int]:
    return {f"{phase}_ms": known.get(phase, 0) for phase in PHASES}


def shown(shard: Shard) -> Any:
    """As `show` of the live job, or its archive, has it."""
    said = shard(jobs.DescribeStartedJob(job="j", reply_to="c", correlation="1"))
    [reply] = [each.body for each in said if isinstance(each, Publish)]
    assert isinstance(reply, JobDescribed) and reply.detail is not None
    return None if reply.detail.spent is None else reply.detail.spent.json_value()


def ended(said: list[Any]) -> Any:
    [body] = [each.body for each in said if isinstance(each, Say) and isinstance(each.body, jobs.JobEnded)]
    return body.archive.spent.json_value()


def at(shard: Shard, now: int) -> Shard:
    shard.now = now
    return shard


def running(graph: dict[str, Any] = ONE) -> Shard:
    """Accepted at 500, started at 1000, given its slot at 1100, RUNNING at 1150."""
    shard = Shard()
    shard.start(graph)
    at(shard, 1100).offer("a1")
    at(shard, 1150).told("a1", "RUNNING")
    return shard


def test_a_job_of_one_attempt_has_exact_parts() -> None:
    shard = running()
    assert shown(at(shard, 1200)) == parts(queue=600, start=50, compute=50), "while it runs, the time is computed until more is known"
    report = {**REPORT, "spent": own(start=30, plan=100, compute=600, exchange=20)}
    assert ended(at(shard, 2000).told("a1", "FINISHED", report=report)) == parts(
        queue=600, start=50 + 30, plan=100, compute=600, exchange=20, publish=100
    )


def test_the_time_of_a_planning_attempt_is_planning_whatever_it_reports() -> None:
    shard = running(PLANNED)
    at(shard, 1950).told("a1", "FINISHED", report={**PINNED, "spent": own(compute=800)})
    assert shown(shard) == parts(queue=600, start=50, plan=800)
    assert shown(at(shard, 1960)) == parts(queue=610, start=50, plan=800), "one subtask is in the slot, the other waits for one"


def test_overlapping_attempts_divide_the_time_in_which_any_ran() -> None:
    shard = running(TWO)
    at(shard, 1250).told("a1", "FINISHED", report={"outputs": {"a": {"schema": "{}", "rows": 1, "bytes": 9}}, "spent": own(compute=100)})
    at(shard, 1250).offer("a2")
    at(shard, 1300).told("a1", "RUNNING")
    at(shard, 1400).told("a2", "RUNNING")
    done = {"outputs": {"b": {"schema": "{}", "rows": 1, "bytes": 9}}}
    at(shard, 1700).told("a1", "FINISHED", report={**done, "spent": own(plan=40, exchange=60, compute=300)})
    # Any ran for 100 + 500 ms. Of the attempts' 100 + 400 + 400 ms, 40 were planning and 210 edges.
    assert ended(at(shard, 1800).told("a2", "FINISHED", report={**done, "spent": own(exchange=150, compute=250)})) == parts(
        queue=600, start=50 + 50, plan=600 * 40 // 900, exchange=600 * 210 // 900, compute=600 - 26 - 140
    )


def test_commits_of_sinks_are_publishing() -> None:
    from millrace.core.messages.effects import SinkPublished

    shard = running(SINK)
    report = {"outputs": {name: {"schema": "{}", "rows": 1, "bytes": 9} for name in ("q", "out")}, "spent": own(compute=850)}
    at(shard, 2000).told("a1", "FINISHED", report=report)
    assert ended(at(shard, 2300)(SinkPublished(job="j", vertex="out"), "")) == parts(queue=600, start=50, compute=850, publish=300)


def test_a_retry_waits_in_the_queue_and_a_failed_attempt_has_computed() -> None:
    shard = running({**ONE, "restart": {"attempts": 2, "delay_ms": 100}})
    at(shard, 1250).told("a1", "FAILED", error=USER)
    assert shown(at(shard, 1300)) == parts(queue=650, start=50, compute=100)


def test_what_an_attempt_does_once_it_is_canceled_is_what_it_did_before() -> None:
    """It may have two seconds to leave things in order: that was shown as the publication of a job that publishes nothing."""
    shard = running()
    at(shard, 1500)(jobs.CancelStartedJob(job="j"))
    assert shown(at(shard, 1600)) == parts(queue=600, start=50, compute=450)
    assert ended(at(shard, 3500).told("a1", "CANCELED")) == parts(queue=600, start=50, compute=2350)


def test_an_attempt_that_is_canceled_while_it_starts_has_started() -> None:
    shard = Shard()
    shard.start(ONE)
    at(shard, 1100).offer("a1")
    at(shard, 1150)(jobs.CancelStartedJob(job="j"))
    assert ended(at(shard, 1200).told("a1", "CANCELED")) == parts(queue=600, start=100)


def test_what_is_canceled_to_run_again_runs_until_it_has_ended() -> None:
    shard = running()
    at(shard, 1500)(jobs.SuspendJobs())
    at(shard, 1700).told("a1", "CANCELED")
    assert shown(at(shard, 1800)) == parts(queue=700, start=50, compute=550)


def test_the_canceled_planning_of_a_job_is_planning() -> None:
    shard = running(PLANNED)
    at(shard, 1500)(jobs.CancelStartedJob(job="j"))
    assert ended(at(shard, 1700).told("a1", "CANCELED")) == parts(queue=600, start=50, plan=550)


@pytest.mark.parametrize(
    "wrong", [own(compute=1 << 60), own(start=-5, plan=-1), own(start="x", compute=None), own(plan=900, exchange=900), {}]
)
def test_what_an_attempt_says_of_itself_is_never_more_than_was_seen_of_it(wrong: dict[str, Any]) -> None:
    spent = ended(at(running(), 2000).told("a1", "FINISHED", report={**REPORT, "spent": wrong}))
    assert sum(spent.values()) == 1500 and min(spent.values()) >= 0
    assert (spent["queue_ms"], spent["start_ms"]) == (600, 50)


def test_an_attempt_of_another_build_reports_no_time_and_has_computed() -> None:
    assert ended(at(running(), 2000).told("a1", "FINISHED", report=REPORT)) == parts(queue=600, start=50, compute=850)


def test_a_job_of_an_earlier_snapshot_shows_nothing_rather_than_zeros() -> None:
    shard = running()
    shard.job.spent = None
    assert shown(shard) is None
    said = at(shard, 2000).told("a1", "FINISHED", report={**REPORT, "spent": own(compute=1)})
    [body] = [each.body for each in said if isinstance(each, Say) and isinstance(each.body, jobs.JobEnded)]
    assert body.archive.spent is None


def test_a_clock_that_jumps_back_takes_back_what_it_gave() -> None:
    shard = running()
    assert shown(at(shard, 1120)) == parts(queue=600, start=20)
    assert shown(at(shard, 400)) == parts(), "before it was accepted"
    assert ended(at(shard, 700).told("a1", "FINISHED", report={**REPORT, "spent": own(compute=9)})) == parts(compute=200)


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_is_the_whole_whatever_happens(seed: int) -> None:
    """`check` compares them after each record."""
    chance = random.Random(seed)
    shard = Shard()
    shard.start({**TWO, "restart": {"attempts": 5, "delay_ms": 10}})
    for step in range(60):
        shard.now += chance.randint(-200, 400)
        held = list(shard.job.slots)
        what = chance.choice(("offer", "RUNNING", "FINISHED", "FAILED", "tick", "describe", "lost"))
        if what == "offer":
            shard.offer(f"s{step}", tm=chance.choice((TM, "task-manager/t2")))
        elif what == "tick":
            shard(Ticked(), "")
        elif what == "describe":
            assert sum(shown(shard).values()) == max(shard.now if not shard.job.ended_ms else shard.job.ended_ms, 500) - 500
        elif what == "lost" and held:
            shard(slots.FailSlot(allocation=chance.choice(held), job="j", reason="r"), TM)
        elif held:
            spent = own(*(chance.randint(-50, 500) for _ in range(4)))
            ended_well = {"outputs": {name: {"schema": "{}", "rows": 1, "bytes": 9} for name in ("a", "b")}, "spent": spent}
            more = {"FINISHED": {"report": ended_well}, "FAILED": {"error": USER}}.get(what, {})
            shard.told(chance.choice(held), what, **more)
        check(shard.state)


def test_a_report_keeps_fields_of_another_build() -> None:
    spent = {**own(compute=1), "shuffle_ms": 2}
    assert AttemptReport.model_validate({"spent": spent}).json_value() == {"spent": spent}
