"""Which TaskManagers count as alive: heartbeats against ticks.

Heartbeats and ticks are records of one log. So a pause of the broker ages no TaskManager, and every replica decides alike.
"""

from __future__ import annotations

from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import TICK_MS
from millrace.core.timing import BROKER_RETURN_MS, QUIET_BEATS, registration_ms

from .state import AWAY_MS, QUIET_STEP_MAX_MS, TICK_STEP_MAX_MS, Settings, State, TaskManager, is_quiet


def interval_ms(limits: Settings, task_managers: int, used_ms: int) -> int:
    """The interval of heartbeats for so many TaskManagers, where `used_ms` is the one in use.

    Doubled until all together stay below `beats_per_s_max`. Halved again only well below it, so that one TaskManager
    that comes and goes does not change it each time.
    """
    interval = limits.heartbeat_interval_ms
    while task_managers * 1000 > limits.beats_per_s_max * interval:
        interval *= 2
    if interval < used_ms and task_managers * 1000 * 4 > limits.beats_per_s_max * used_ms:
        return used_ms
    return interval


def advance_clock(state: State, now_ms: NowMs, at_ms: AtMs) -> None:
    """A tick: the detector's clock goes on.

    Where the broker's clock went on further than machine time, the broker or the leader was away: no heartbeat could arrive. Ticks may
    be back in the log long before the heartbeats of a process that finds the broker later. A heartbeat that was on its way before
    proves nothing. So all TaskManagers have as long to come back, BROKER_RETURN_MS at most, and then the whole time again.

    Machine time may go on by two promised intervals at once. An idle leader ticks every QUIET_TICK_MS, and a broker can end and start
    again within two of these. A first slot may have been granted just then, which shortens the allowed silence. So what
    goes beyond one QUIET_TICK_MS counts as time away, too.
    """
    away_ms = (at_ms - state.stamp_ms) - min(now_ms - state.ticked_ms, QUIET_TICK_MS)
    most_ms = TICK_STEP_MAX_MS if state.waiting.allocated else QUIET_STEP_MAX_MS
    state.clock_ms += min(max(now_ms - state.ticked_ms, 0), most_ms)
    if away_ms > AWAY_MS:
        return_ms = min(away_ms, BROKER_RETURN_MS)
        for each in state.task_managers.values():
            each.silent_from_ms = max(each.silent_from_ms, state.clock_ms + return_ms)
        for expected in state.expected.values():
            expected.due_ms = max(expected.due_ms, after(now_ms, return_ms + registration_ms(state.lost_after_ms)))
    state.ticked_ms, state.stamp_ms = now_ms, at_ms


def note_heartbeat(state: State, task_manager: TaskManager, at_ms: AtMs) -> None:
    """It has sent a heartbeat. Also when a first slot of it is granted: it sends them faster from when it receives that.

    The detector's clock does not go on between two ticks, so the time since the last one is taken from the broker's."""
    since_tick_ms = min(max(at_ms - state.stamp_ms, 0), TICK_STEP_MAX_MS)
    task_manager.silent_from_ms = max(task_manager.silent_from_ms, state.clock_ms + since_tick_ms)


def keep_promise(state: State, before_ms: int) -> None:
    """The allowed silence has become shorter than `before_ms`, which was promised. A TaskManager sends heartbeats faster from when it
    receives that. Until then the promise holds, for BROKER_RETURN_MS longer than the new one at most."""
    more_ms = min(before_ms - state.lost_after_ms, BROKER_RETURN_MS)
    if more_ms > 0:
        for each in state.task_managers.values():
            each.silent_from_ms = max(each.silent_from_ms, state.clock_ms + more_ms)


def silent(state: State) -> list[str]:
    """The TaskManagers without a heartbeat for so long that a tick later it would be too long."""
    most_ms = state.lost_after_ms
    late = [(name, each) for name, each in state.task_managers.items() if state.clock_ms - each.silent_from_ms > most_ms - TICK_MS]
    return [
        name
        for name, each in late
        if not is_quiet(each) or state.clock_ms - each.silent_from_ms > most_ms * QUIET_BEATS - TICK_MS
    ]


def unregistered(state: State, now_ms: NowMs) -> list[str]:
    """The TaskManagers on which a shard holds slots and that have not registered in time."""
    return [name for name, each in state.expected.items() if now_ms >= each.due_ms]
