"""Who counts as alive: heartbeats against ticks. Pure policies.

Both heartbeats and ticks are records of one log, so a broker that pauses ages nobody, and every replica decides alike.
"""

from __future__ import annotations

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import TICK_MS
from millrace.core.timing import QUIET_BEATS, registration_ms

from .state import AWAY_MS, QUIET_STEP_MAX_MS, RETURN_MS, STEP_MAX_MS, Limits, State, TaskManager, is_quiet


def interval_ms(limits: Limits, task_managers: int, now_ms: int) -> int:
    """The interval of heartbeats for so many TaskManagers, where `now_ms` is the one in use.

    Doubled until all together stay below `beats_per_s_max`; halved again only well below it, so that one TaskManager
    that comes and goes does not change it each time.
    """
    interval = limits.heartbeat_interval_ms
    while task_managers * 1000 > limits.beats_per_s_max * interval:
        interval *= 2
    if interval < now_ms and task_managers * 1000 * 4 > limits.beats_per_s_max * now_ms:
        return now_ms
    return interval


def tick(state: State, now_ms: int, stamp_ms: int) -> None:
    """Time has gone on for the detector.

    The broker's clock may advance between two ticks where machine time does not. Then the broker was away, or the leader, and no heartbeat
    could be received. Ticks may be back in the log long before the heartbeats of a process that finds its way to the broker later.
    A heartbeat that was on its way before the pause proves nothing. So everybody has as long to come back, RETURN_MS at most, and
    then the whole time again. An idle leader ticks every QUIET_TICK_MS, so machine time may advance by twice that at once. A broker
    can restart within it, just when a first slot was given away and silence is tolerated for a short time only. So at most
    QUIET_TICK_MS of it count; the rest is outage, not silence.
    """
    away_ms = (stamp_ms - state.stamp_ms) - min(now_ms - state.ticked_ms, QUIET_TICK_MS)
    most_ms = QUIET_STEP_MAX_MS if all(map(is_quiet, state.task_managers.values())) else STEP_MAX_MS
    state.clock_ms += min(max(now_ms - state.ticked_ms, 0), most_ms)
    if away_ms > AWAY_MS:
        return_ms = min(away_ms, RETURN_MS)
        for each in state.task_managers.values():
            each.heard_ms = max(each.heard_ms, state.clock_ms + return_ms)
        for expected in state.expected.values():
            expected.due_ms = max(expected.due_ms, now_ms + return_ms + registration_ms(state.lost_after_ms))
    state.ticked_ms, state.stamp_ms = now_ms, stamp_ms


def heard(state: State, task_manager: TaskManager, stamp_ms: int) -> None:
    """It speaks, or a first slot of it is given away: it then beats faster from when it hears of that. `stamp_ms`: when, by the broker's
    clock; the detector's stands between two ticks."""
    behind_ms = min(max(stamp_ms - state.stamp_ms, 0), STEP_MAX_MS)
    task_manager.heard_ms = max(task_manager.heard_ms, state.clock_ms + behind_ms)


def retuned(state: State, before_ms: int) -> None:
    """Silence is borne for less long than `before_ms`, which was promised: a TaskManager beats faster when it hears of that, so until then
    the promise holds, for RETURN_MS more than is promised now at most."""
    more_ms = min(before_ms - state.lost_after_ms, RETURN_MS)
    if more_ms > 0:
        for each in state.task_managers.values():
            each.heard_ms = max(each.heard_ms, state.clock_ms + more_ms)


def silent(state: State) -> list[str]:
    """The TaskManagers without a heartbeat for so long that a tick later it would be too long."""
    return [
        name
        for name, each in state.task_managers.items()
        if state.clock_ms - each.heard_ms > state.lost_after_ms * (QUIET_BEATS if is_quiet(each) else 1) - TICK_MS
    ]


def missing(state: State, now_ms: int) -> list[str]:
    """The TaskManagers that a shard knows and that have not registered in time."""
    return [name for name, each in state.expected.items() if now_ms >= each.due_ms]
