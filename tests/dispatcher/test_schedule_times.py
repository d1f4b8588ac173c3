"""The times of a schedule, in their zones, and which of them is run next."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from typing import Any

import pytest

from millrace.core.messages.schedules import PendingRun, ScheduleProgress, StoredSchedule
from services.dispatcher.schedules import deciding, times

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def ms(text: str) -> int:
    """Of a moment in UTC."""
    return round(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("0 3 * * *", "UTC", "2026-01-31T02:59:59", ["2026-01-31T03:00:00+00:00", "2026-02-01T03:00:00+00:00"]),
        ("0 3 * * *", "UTC", "2026-01-31T03:00:00", ["2026-02-01T03:00:00+00:00", "2026-02-02T03:00:00+00:00"]),
        ("0 3 * * *", "Europe/Berlin", "2026-01-30T12:00:00", ["2026-01-31T03:00:00+01:00", "2026-02-01T03:00:00+01:00"]),
        # the hour from 2 to 3 is left out on 29 March: what is meant for it comes at once after it
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        # and comes twice on 25 October: what is meant for it comes once, the first time
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        # by the hour it is real time: none is left out, none comes twice
        ("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00", ["2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"]),
        ("0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00", ["2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"]),
        ("0 9 * * *", "Asia/Kathmandu", "2026-01-01T00:00:00", ["2026-01-01T09:00:00+05:45", "2026-01-02T09:00:00+05:45"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00", ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
        ("0 0 * * 1-5", "UTC", "2026-01-02T12:00:00", ["2026-01-05T00:00:00+00:00", "2026-01-06T00:00:00+00:00"]),
        ("0 0 13 * 5", "UTC", "2026-02-01T00:00:00", ["2026-02-06T00:00:00+00:00", "2026-02-13T00:00:00+00:00"]),
        ("@daily", "America/New_York", "2026-01-01T06:00:00", ["2026-01-02T00:00:00-05:00", "2026-01-03T00:00:00-05:00"]),
        ("0 0 L * *", "UTC", "2026-02-01T00:00:00", ["2026-02-28T00:00:00+00:00", "2026-03-31T00:00:00+00:00"]),
    ],
)
def test_times_follow(cron: str, zone: str, after: str, expected: list[str]) -> None:
    assert [times.text(each, zone) for each in itertools.islice(times.after(cron, zone, ms(after)), 2)] == expected


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Africa/Casablanca", "America/Sao_Paulo", "Asia/Kathmandu"])
@pytest.mark.parametrize("cron", ["0 3 * * *", "30 2 * * *", "0 * * * *", "15 1-3 * * *", "0 0 1 * *", "*/30 2 * * *", "0 2 * * SUN"])
def test_a_year_backwards_is_the_year(cron: str, zone: str) -> None:
    begin, end = ms("2026-01-01T00:00:00"), ms("2027-01-01T00:00:00")
    there = list(itertools.takewhile(lambda at: at <= end, times.after(cron, zone, begin)))
    assert there == times.between(cron, zone, begin, end, 100_000) and there == sorted(set(there))
    assert len({times.job_id("s", at) for at in there}) == len(there), "each time has an id of its own"


@pytest.mark.parametrize(
    ("cron", "zone", "place", "words"),
    [
        ("0 3 * *", "UTC", "cron", "it has 4 fields, not 5"),
        ("0 0 3 * * *", "UTC", "cron", "it has 6 fields, not 5"),
        ("", "UTC", "cron", "it has 0 fields"),
        ("61 * * * *", "UTC", "cron", "bad minute"),
        ("*/0 * * * *", "UTC", "cron", "bad minute"),
        ("@never", "UTC", "cron", "it has 1 fields"),
        ("0 0 30 2 *", "UTC", "cron", "bad day-of-month"),
        ("0 0 * 2 MON#5", "UTC", None, ""),
        ("0 0 * 4 *", "Europe/Belin", "time_zone", "'Europe/Belin' is no time zone"),
        ("0 0 * 4 *", "Europe", "time_zone", "is no time zone"),
        ("0 0 * 4 *", "../../etc/passwd", "time_zone", "is no time zone"),
        ("0 0 * 4 *", "localtime", "time_zone", "is no time zone"),
        ("0 0 * 4 *", "", "time_zone", "is no time zone"),
    ],
)
def test_what_is_no_cron_and_no_zone(cron: str, zone: str, place: str | None, words: str) -> None:
    found = times.problems(cron, zone, ms("2026-01-01T00:00:00"))
    assert [each.place for each in found] == ([(place,)] if place else [])
    assert all(words in each.message and each.hint for each in found)


def test_a_zone_that_is_nearly_one_is_hinted_at() -> None:
    [problem] = times.problems("@daily", "Europe/Belin", 0)
    assert problem.hint == "did you mean Europe/Berlin?"


def test_a_graph_has_the_times_that_it_declares_and_that_are_not_given() -> None:
    due = ms("2026-03-29T01:00:00")
    graph = {"parameters": {"scheduled_time": "x", "scheduled_date": "x", "previous_date": "x", "other": "x"}}
    assert times.parameters(graph, {"previous_date": "mine"}, "30 2 * * *", "Europe/Berlin", due) == {
        "scheduled_time": "2026-03-29T03:00:00+02:00", "scheduled_date": "2026-03-29", "previous_date": "mine",
    }  # fmt: skip
    graph = {"parameters": {"previous_time": "x", "previous_date": "x"}}
    assert times.parameters(graph, {}, "30 2 * * *", "Europe/Berlin", due) == {
        "previous_time": "2026-03-28T02:30:00+01:00", "previous_date": "2026-03-28",
    }  # fmt: skip
    assert times.parameters({"parameters": None}, {"a": "b"}, "@daily", "UTC", due) == {"a": "b"}


# Which time is run

NOON = ms("2026-06-01T12:00:00")


def stored(cron: str = "0 * * * *", **fields: Any) -> StoredSchedule:
    known = {"revision": "1.1", "time_zone": "UTC", "missed": "latest", "overlap": "skip", "since_ms": NOON - 100 * HOUR_MS, "set_ms": 1}
    return StoredSchedule(**{**known, "cron": cron, **fields})


def run_all(schedule: StoredSchedule, progress: ScheduleProgress, now_ms: int, lives: bool = False) -> tuple[list[int], ScheduleProgress]:
    """The hours before noon at which runs are for, where each is accepted as soon as it is pending."""
    hours = []
    for _ in range(2_000):
        found = deciding.decided("s", schedule, progress, now_ms, lives)
        if found == progress:
            break
        if found.pending is not None:
            hours.append((found.pending.due_ms - NOON) // HOUR_MS)
            found = deciding.accepted(found)
        progress = found
    return hours, progress


def through(hours: int, **fields: Any) -> ScheduleProgress:
    return ScheduleProgress(through_ms=NOON + hours * HOUR_MS, **fields)


@pytest.mark.parametrize(
    ("missed", "late_minutes", "expected", "left_out"),
    [
        ("skip", 0, [0], [(-1, 3)]),
        ("skip", 5, [0], [(-1, 3)]),
        ("skip", 6, [], [(0, 4)]),
        ("latest", 0, [0], [(-1, 3)]),
        ("latest", 59, [0], [(-1, 3)]),
        ("all", 0, [-3, -2, -1, 0], []),
        ("all", 59, [-3, -2, -1, 0], []),
    ],
)
def test_missed_times(missed: str, late_minutes: int, expected: list[int], left_out: list[tuple[int, int]]) -> None:
    hours, after = run_all(stored(missed=missed), through(-4), NOON + late_minutes * MINUTE_MS)
    assert hours == expected
    assert [((each.due_ms - NOON) // HOUR_MS, each.times) for each in after.left_out] == left_out
    assert after.through_ms == NOON


def test_a_time_comes_at_its_second_and_once() -> None:
    schedule = stored()
    assert run_all(schedule, through(-1), NOON - 1)[0] == []
    hours, after = run_all(schedule, through(-1), NOON)
    assert hours == [0] and run_all(schedule, after, NOON + HOUR_MS - 1)[0] == []


def test_times_before_it_was_set_do_not_count() -> None:
    assert run_all(stored(since_ms=NOON, missed="all"), ScheduleProgress(), NOON + 30 * MINUTE_MS)[0] == []
    assert run_all(stored(since_ms=NOON, missed="all"), through(-50), NOON + 30 * MINUTE_MS)[0] == []
    assert run_all(stored(since_ms=NOON - 1, missed="all"), ScheduleProgress(), NOON)[0] == [0]
    assert run_all(stored(since_ms=NOON + HOUR_MS), ScheduleProgress(), NOON + HOUR_MS)[0] == []


def test_of_too_many_missed_times_the_newest_are_run() -> None:
    schedule = stored("* * * * *", missed="all", since_ms=NOON - 10 * 24 * HOUR_MS)
    hours, after = run_all(schedule, ScheduleProgress(), NOON)
    assert len(hours) == deciding.MISSED_MOST == 1_000 and after.through_ms == NOON
    [gone] = after.left_out
    assert gone.due_ms == NOON - 1_000 * MINUTE_MS and gone.why == "it was missed, as those before it: 1,000 newer ones are run"


def test_what_is_left_out_is_bounded() -> None:
    progress = ScheduleProgress()
    for number in range(30):
        progress = deciding.left_out(progress, number, "why")
    assert [each.due_ms for each in progress.left_out] == list(range(20, 30))


def test_a_run_before_that_goes_on() -> None:
    progress = deciding.decided("s", stored(), through(-1), NOON, True)
    assert progress.pending is None and [each.why for each in progress.left_out] == [deciding.OVERLAP] and progress.through_ms == NOON
    waits = deciding.decided("s", stored(overlap="wait"), through(-1), NOON, True)
    assert waits.pending == PendingRun(job="s-20260601T1200Z", due_ms=NOON, since_ms=NOON)
    assert deciding.decided("s", stored(overlap="wait"), waits, NOON + HOUR_MS, True) == waits, "the next one comes after it"
    made_up = deciding.decided("s", stored(missed="all"), through(-3), NOON, True)
    assert made_up.pending is not None, "else of all that were missed only the first would be run"


def test_a_paused_schedule_decides_nothing() -> None:
    assert deciding.decided("s", stored(paused=True), through(-5), NOON, False) == through(-5)


def test_a_clock_that_was_ahead_stops_nothing() -> None:
    """What ran meanwhile has its job, so that its id is no second run."""
    progress = through(24 * 365)
    back = deciding.decided("s", stored(), progress, NOON + 1, False)
    assert back.through_ms == NOON + 1
    assert run_all(stored(), back, NOON + HOUR_MS)[0] == [1]
    near = ScheduleProgress(through_ms=NOON + deciding.BACK_MS)
    assert deciding.decided("s", stored(), near, NOON, False) == near, "clocks differ a little"


@pytest.mark.parametrize(("cron", "hours"), [("0 * * * *", 1), ("0 12 * * *", 24), ("0 12 1 * *", 24), ("* * * * *", 1 / 6)])
def test_a_job_that_is_refused_is_tried_until_the_next_time(cron: str, hours: float) -> None:
    run = PendingRun(job="s", due_ms=NOON, since_ms=NOON)
    assert deciding.tried_until_ms(stored(cron), run, NOON) == NOON + hours * HOUR_MS
    late_ms = NOON + 40 * 24 * HOUR_MS
    assert deciding.tried_until_ms(stored(cron), run, late_ms) == late_ms + deciding.TRIED_MS, "it waited for long, and is tried now"


def test_a_zone_that_is_gone_is_said() -> None:
    with pytest.raises(times.NoTimes, match="is no time zone"):
        deciding.decided("s", stored(time_zone="Mars/Olympus"), through(-1), NOON, False)
