"""Requests about schedules, as the Dispatcher's machine answers them."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Do, Output, PassedOver, Publish, Ticked
from millrace.core.messages import base, client, effects, schedule_effects
from millrace.core.messages.schedules import (
    DescribeSchedule,
    ListSchedules,
    PauseSchedule,
    RemoveSchedule,
    RunSchedule,
    Scheduled,
    ScheduleDescribed,
    ScheduleGraph,
    ScheduleRemoved,
    ScheduleRun,
    SchedulesListed,
    ScheduleSummary,
    SetSchedule,
)
from millrace.core.timing import FORWARDED_ANSWER_MS
from services.dispatcher.core import schedules
from tests.core.of_dispatcher import JOB, OTHER, bodies, settled

RAW = {"name": "nightly", "vertices": {"v": {"sql": "SELECT 1"}}, "modules": [{"name": "a.py", "sha256": "5" * 64, "kind": "py"}] * 2}
ASKED = {"reply_to": "c", "correlation": "2"}


def set_(**fields: Any) -> SetSchedule:
    return SetSchedule(**{"schedule": "s", "graph": RAW, "cron": "0 3 * * *", "time_zone": "Europe/Berlin", **ASKED, **fields})


def summary(**fields: Any) -> ScheduleSummary:
    known = {"schedule": "s", "name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "missed": "latest", "overlap": "skip"}
    return ScheduleSummary(**{**known, "paused": False, "set_ms": 1, "next": [], **fields})


def asked(kind: type[base.Request], **fields: Any) -> base.Request:
    return kind(**{"schedule": "s", **ASKED, **fields})


def refusal(outputs: list[Output]) -> tuple[str, str]:
    [refused] = bodies(outputs)
    assert isinstance(refused, client.RequestRefused) and refused.correlation == "2"
    return refused.kind, refused.reason


def test_a_schedule_is_stored_and_then_answered() -> None:
    world = settled()
    [put] = world.request(set_(parameters={"a": "b"}))
    assert isinstance(put, Do) and put.key == "schedules/s"
    assert put.effect.graph == ScheduleGraph(graph=RAW, parameters={"a": "b"})
    stored = put.effect.stored
    assert (stored.since_ms, stored.set_ms, stored.modules, stored.name) == (1_000_000, 1_000_000, ["5" * 64], "nightly")
    assert stored.revision.endswith(f".1.{world.offset}") or stored.revision == f"1.{world.offset}", "the record names it for ever"
    [described] = bodies(world.tell(schedule_effects.ScheduleStored(number=1, summary=summary())))
    assert described == ScheduleDescribed(correlation="2", schedule=summary())
    assert world.state.schedule_requests == {}


def test_a_schedule_may_count_from_an_earlier_time_on() -> None:
    [put] = settled().request(set_(since_ms=7))
    assert put.effect.stored.since_ms == 7


def test_what_the_client_port_found_wrong_is_refused_and_nothing_is_stored() -> None:
    world = settled()
    problems = [client.Problem(place=["cron"], message="it is no cron expression", hint="give five fields")]
    [refused] = bodies(world.request(set_(), problems=problems))
    assert (refused.kind, refused.reason, refused.problems) == ("invalid", "it is no cron expression", problems)
    [refused] = bodies(world.request(set_(), problems=problems * 2))
    assert refused.reason == "2 things are wrong" and world.state.schedules_asked == 0


def test_what_etcd_has_no_room_for_is_refused() -> None:
    world = settled()
    world.request(set_())
    outputs = world.tell(schedule_effects.ScheduleStored(number=1, problem="there are 1000 schedules already: remove some"))
    assert refusal(outputs) == ("conflict", "there are 1000 schedules already: remove some")


def test_a_schedule_is_paused_resumed_and_removed() -> None:
    world = settled()
    for number, (request, change) in enumerate(
        [
            (asked(PauseSchedule), "pause"),
            (asked(PauseSchedule, undo=True), "resume"),
            (asked(RemoveSchedule), "remove"),
        ],
        1,
    ):
        [do] = world.request(request)
        assert do == Do("schedules/s", schedule_effects.ChangeSchedule(number=number, schedule="s", change=change, at_ms=1_000_000))
    paused = summary(paused=True)
    [described] = bodies(world.tell(schedule_effects.ScheduleChanged(number=1, found=True, summary=paused)))
    assert described.schedule == paused
    assert refusal(world.tell(schedule_effects.ScheduleChanged(number=2, found=False))) == ("not_found", "there is no schedule s")
    [removed] = bodies(world.tell(schedule_effects.ScheduleChanged(number=3, found=True)))
    assert removed == ScheduleRemoved(correlation="2", schedule="s")
    world.request(asked(PauseSchedule))
    assert refusal(world.tell(schedule_effects.ScheduleChanged(number=4, found=True, problem="it cannot be read")))[0] == "internal"


def test_a_run_by_hand_is_submitted_in_the_clients_place() -> None:
    world = settled()
    [find] = world.request(asked(RunSchedule, job=JOB, accept_before_ms=77))
    assert find.effect == schedule_effects.FindSchedules(number=1, schedule="s", run_at_ms=1_000_000)
    graph = ScheduleGraph(graph=RAW, parameters={"scheduled_date": "2026-01-31"})
    [sent] = world.tell(schedule_effects.SchedulesFound(number=1, schedules=[summary()], graph=graph))
    expected = client.SubmitJob(
        job=JOB, graph=RAW, parameters=graph.parameters, accept_before_ms=77, scheduled=Scheduled(schedule="s", time_zone="Europe/Berlin"),
        **ASKED,
    )  # fmt: skip
    assert sent == Publish("client.commands", JOB, expected)


def test_of_what_is_not_there_and_what_cannot_be_read_a_run_is_refused() -> None:
    world = settled()
    world.request(asked(RunSchedule, job=JOB))
    assert refusal(world.tell(schedule_effects.SchedulesFound(number=1, schedules=[]))) == ("not_found", "there is no schedule s")
    world.request(asked(RunSchedule, job=JOB))
    damaged = schedule_effects.SchedulesFound(number=2, schedules=[], problem="it is damaged")
    assert refusal(world.tell(damaged)) == ("internal", "it is damaged")


def test_a_schedule_is_shown_with_its_runs_newest_first() -> None:
    world = settled()
    due = Scheduled(schedule="s", due="2026-01-31T03:00:00+01:00", time_zone="Europe/Berlin")
    for job, scheduled in ((JOB, due), (OTHER, Scheduled(schedule="s")), ("else", Scheduled(schedule="t")), ("none", None)):
        world.now_ms += 1
        [put] = world.submit(job, scheduled=scheduled)
        world.tell(effects.JobGraphStored(job=job, stands=put.effect.stored))
    world.finish(JOB)
    world.request(asked(DescribeSchedule))
    gone = ScheduleRun(due="2026-01-30T03:00:00+01:00", left_out="it was missed", times=3)
    [described] = bodies(world.tell(schedule_effects.SchedulesFound(number=1, schedules=[summary()], left_out=[gone])))
    assert described.runs == [
        ScheduleRun(due=None, job=OTHER, state="INITIALIZING", accepted_ms=1_000_002),
        ScheduleRun(due=due.due, job=JOB, state="FINISHED", accepted_ms=1_000_001),
        gone,
    ]
    [status] = bodies(world.request(client.GetJobStatus(job=JOB, **ASKED)))
    assert status.summary.scheduled == due


def test_a_job_says_which_run_it_is_from_its_acceptance_to_its_tombstone() -> None:
    world = settled()
    due = Scheduled(schedule="s", due="2026-01-31T03:00:00+01:00", time_zone="Europe/Berlin")
    [put] = world.submit(scheduled=due)
    [accepted, *_] = bodies(world.tell(effects.JobGraphStored(job=JOB, stands=put.effect.stored)))
    assert accepted.scheduled == due and put.effect.stored.scheduled == due
    assert world.finish().scheduled == due and world.state.ended[JOB].scheduled == due


def test_schedules_are_listed_a_page_at_a_time() -> None:
    world = settled()
    request = ListSchedules(limit=7, after="r", **ASKED)
    assert world.request(request) == [Do("schedules/", schedule_effects.FindSchedules(number=1, after="r", limit=7))]
    [listed] = bodies(world.tell(schedule_effects.SchedulesFound(number=1, schedules=[summary()], next="s")))
    assert listed == SchedulesListed(correlation="2", schedules=[summary()], next="s")


def test_only_so_many_requests_are_under_way() -> None:
    world = settled()
    for _ in range(schedules.MOST):
        world.request(set_())
    assert refusal(world.request(set_()))[0] == "busy" and len(world.state.schedule_requests) == schedules.MOST
    world.tell(schedule_effects.ScheduleStored(number=1, summary=summary()))
    assert len(world.request(set_())) == 1


def test_while_etcd_is_silent_each_is_answered_in_time_and_keeps_its_place() -> None:
    world = settled()
    world.request(asked(DescribeSchedule))
    world.request(asked(RunSchedule, job=JOB))
    world.request(set_())
    world.now_ms += FORWARDED_ANSWER_MS
    refused = bodies(world.tell(Ticked()))
    assert [(each.kind, each.silent) for each in refused] == [("busy", "etcd")] * 3
    assert ["it is kept, and carried out when" in each.reason for each in refused] == [False, False, True]
    assert world.tell(Ticked()) == [] and len(world.state.schedule_requests) == 3
    graph = ScheduleGraph(graph=RAW, parameters={})
    assert world.tell(schedule_effects.SchedulesFound(number=2, schedules=[summary()], graph=graph)) == [], "its client has given up"
    assert world.tell(schedule_effects.SchedulesFound(number=1, schedules=[summary()])) == []
    assert world.tell(schedule_effects.ScheduleStored(number=3, summary=summary())) == [], "once"


def test_what_a_dispatcher_without_its_log_reads_again_changes_nothing() -> None:
    """A schedule that was removed since would come back, and a run by hand would be one more."""
    world = settled()
    for request in (set_(), asked(RemoveSchedule), asked(PauseSchedule), asked(RunSchedule, job=JOB)):
        assert refusal(world.request(request, decided=True)) == ("busy", schedules.DECIDED)
    assert world.state.schedules_asked == 0


def test_an_outcome_that_ended_processes_is_passed_over_and_its_request_refused() -> None:
    world = settled()
    world.request(set_())
    body = schedule_effects.ScheduleStored(number=1, summary=summary())
    assert refusal(world.tell(PassedOver(body, "KeyError")))[0] == "internal" and world.state.schedule_requests == {}
    assert world.tell(PassedOver(body, "KeyError")) == []


def test_who_wants_no_answer_has_it_done_all_the_same() -> None:
    world = settled()
    quiet = {"reply_to": "", "correlation": ""}
    assert len(world.request(set_(**quiet))) == 1 and world.request(asked(DescribeSchedule, **quiet)) == []
    assert world.tell(schedule_effects.ScheduleStored(number=1, summary=summary())) == []


def test_a_submission_of_a_schedule_is_the_same_job_again() -> None:
    world = settled()
    world.accept(JOB)
    due = Scheduled(schedule="s", due="2026-01-31T03:00:00+01:00")
    [accepted] = bodies(world.submit(JOB, scheduled=due))
    assert isinstance(accepted, client.JobAcceptedReply)

