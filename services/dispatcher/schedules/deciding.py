"""Which time of a schedule is run next: a pure function of what stands in etcd and of the time."""

from __future__ import annotations

from millrace.core.messages.schedules import LeftOut, PendingRun, ScheduleProgress, StoredSchedule

from . import times

LATE_MS = 300_000
"""A time that came no longer ago was not missed: a takeover, or an etcd that is away for a while, leaves no run out."""
BACK_MS = 300_000
"""Clocks that are apart no more than this are taken as they are."""
MISSED_MOST = 1_000
LEFT_OUT_MOST = 10
TRIED_MS = 600_000
TRIED_MOST_MS = 24 * 3_600_000
TOO_MANY = "it was missed, as those before it:"
MISSED, OVERLAP, PAUSED = "it was missed", "the run before still went on", "the schedule was paused"
REFUSED = "its job was not accepted: millrace dlq list says why"


def decided(  # [R36]
    name: str, schedule: StoredSchedule, progress: ScheduleProgress, wall_ms: int, before_lives: bool
) -> ScheduleProgress:
    """What is known of its times after a look at them: perhaps one more is pending, or some are left out. `before_lives`: whether the job
    that was accepted last goes on. Raises NoTimes."""
    if progress.through_ms > wall_ms + BACK_MS:  # the clock was ahead, and was put back: what ran has its job, and is not run again
        return progress.model_copy(update={"through_ms": wall_ms})
    after_ms = max(progress.through_ms, schedule.since_ms)
    if schedule.paused or progress.pending is not None or after_ms >= wall_ms:
        return progress
    found = times.between(schedule.cron, schedule.time_zone, after_ms, wall_ms, MISSED_MOST)
    if not found:
        return progress
    chosen = _chosen(schedule, found, wall_ms)
    if chosen is None:
        return left_out(progress, found[-1], MISSED, len(found))
    before = found[: found.index(chosen)]
    if len(found) == MISSED_MOST and chosen == found[0]:
        older = next(times.until(schedule.cron, schedule.time_zone, chosen - 1000), 0)
        if older > after_ms:
            progress = left_out(progress, older, f"{TOO_MANY} {MISSED_MOST:,} newer ones are run")
    elif before:
        progress = left_out(progress, before[-1], MISSED, len(before))
    if before_lives and schedule.overlap == "skip" and wall_ms - chosen <= LATE_MS:  # else all but one of those that are made up for
        return left_out(progress, chosen, OVERLAP)
    pending = PendingRun(job=times.job_id(name, chosen), due_ms=chosen, since_ms=wall_ms)
    return progress.model_copy(update={"through_ms": chosen, "pending": pending})


def _chosen(schedule: StoredSchedule, found: list[int], wall_ms: int) -> int | None:
    """The one that is run; None: all were missed."""
    if schedule.missed == "all":
        return found[0]
    return found[-1] if schedule.missed == "latest" or wall_ms - found[-1] <= LATE_MS else None


def left_out(progress: ScheduleProgress, ms: int, why: str, count: int = 1) -> ScheduleProgress:
    """Times up to this one have no job."""
    kept = [*progress.left_out, LeftOut(due_ms=ms, why=why, times=count)]
    return progress.model_copy(update={"through_ms": max(ms, progress.through_ms), "left_out": kept[-LEFT_OUT_MOST:]})


def accepted(progress: ScheduleProgress) -> ScheduleProgress:
    """The pending run has its job."""
    run = progress.pending
    assert run is not None, "a run was pending"
    return progress.model_copy(update={"pending": None, "last_job": run.job, "last_ms": run.due_ms})


def given_up(progress: ScheduleProgress, why: str) -> ScheduleProgress:
    """The pending run gets no job."""
    run = progress.pending
    assert run is not None, "a run was pending"
    return left_out(progress.model_copy(update={"pending": None}), run.due_ms, why)


def tried_until_ms(schedule: StoredSchedule, run: PendingRun, first_ms: int) -> int:
    """Until when a job is submitted again that is not accepted: until the next time, a day at most, but for ten minutes at least.
    `first_ms`: when it was submitted first. It may have waited for long before that."""
    following = next(times.after(schedule.cron, schedule.time_zone, run.due_ms), run.due_ms)
    return max(min(following, run.since_ms + TRIED_MOST_MS), first_ms + TRIED_MS)
