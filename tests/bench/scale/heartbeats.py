"""What a ResourceManager costs with many TaskManagers: heartbeats, greetings, ticks and snapshots."""

from __future__ import annotations

from typing import Any

from millrace.core.election import QUIET_TICK_MS
from millrace.core.fold import HELLO_TICKS, TICK_MS
from millrace.core.messages.base import Body
from millrace.core.messages.jobs import JobMasterDeclared, RequestSlots, SlotSpec
from millrace.core.messages.records import Hello
from millrace.core.messages.slots import RegisterTaskManager, ReportedSlot, TaskManagerHeartbeat
from millrace.core.timing import QUIET_BEATS
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, TASK_MANAGER, shard_scope, task_manager_scope
from services.resource_manager.core.machine import ResourceManager
from services.resource_manager.metrics import COUNTS
from services.task_manager.core.life import FULL_REPORT_BEATS

from ..figures import Row, Run, p50
from .in_memory import House, Peer, body_of, cpu_of, house

TASK_MANAGERS, SLOTS = 1_000, 4
CORE_MOST_PERCENT = 50.0
STEP_MS = 10


class TaskManagers:
    """Scripted ones, whose slots are all free, or all allocated."""

    def __init__(self, house: House, number: int) -> None:
        self._house, self._states = house, dict[str, list[ReportedSlot]]()
        self.interval_ms, self.busy = 0, False
        names = [f"tm-{each}" for each in range(number)]
        self._peers = {name: Peer(house, task_manager_scope(name), 10 + each, RESOURCE_MANAGER) for each, name in enumerate(names)}
        for number, (name, peer) in enumerate(self._peers.items()):
            self._states[name] = [ReportedSlot(slot=slot, state="FREE") for slot in range(SLOTS)]
            specs = [SlotSpec(slot=slot, memory_mb=4096) for slot in range(SLOTS)]
            register = RegisterTaskManager(host=f"host-{number}", slots=specs, states=self._states[name], build="bench")
            peer.say(RESOURCE_MANAGER, register)

    def take(self, scope: str, body: Any) -> None:
        name = scope.partition("/")[2]
        if body.type == "TaskManagerRegistered":
            self.interval_ms = body.heartbeat_interval_ms
        elif body.type in ("AllocateSlot", "AllocateSlots"):
            self.busy = True
            for each in [body] if body.type == "AllocateSlot" else body.slots:
                self._states[name][each.slot] = ReportedSlot(slot=each.slot, state="ALLOCATED", allocation=each.allocation, job=body.job)

    def run(self, seconds: int) -> None:
        """As they do while nothing changes. Each begins at another moment."""
        tick_ms = TICK_MS if self.busy else max(TICK_MS, min(QUIET_BEATS * self.interval_ms, QUIET_TICK_MS))
        beat_ms = self.interval_ms * (1 if self.busy else QUIET_BEATS)
        hello_ms = HELLO_TICKS * tick_ms
        peers = list(self._peers.items())
        for now_ms in range(0, seconds * 1000, STEP_MS):
            for number, (name, peer) in enumerate(peers):
                at_ms = now_ms + number * 7919 % hello_ms // STEP_MS * STEP_MS
                if at_ms % hello_ms == 0:
                    peer.say(RESOURCE_MANAGER, Hello())
                if at_ms % beat_ms == 0:
                    full = at_ms // beat_ms % FULL_REPORT_BEATS == 0
                    peer.say(RESOURCE_MANAGER, TaskManagerHeartbeat(states=self._states[name] if full else None))
            self._house.advance(STEP_MS)


def measure(run: Run) -> None:
    number, seconds, n = run.count(TASK_MANAGERS, 50), run.count(20, 2), run.count(3, 1)
    task_managers: list[TaskManagers] = []

    def take(topic: str, key: str, value: bytes) -> None:
        if key.startswith(TASK_MANAGER) and task_managers:
            task_managers[0].take(key, body_of(value))

    def answer(effect: dict[str, Any]) -> Body:
        raise AssertionError(effect)

    with house(take, answer) as around:
        leader = around.lead(ResourceManager(around.topology.shards), counts=COUNTS)
        around.begin()
        shard = Peer(around, shard_scope(0), 1, RESOURCE_MANAGER)
        Peer(around, DISPATCHER, 1, RESOURCE_MANAGER)
        shard.say(RESOURCE_MANAGER, JobMasterDeclared())
        task_managers.append(TaskManagers(around, number))
        around.advance(STEP_MS)
        for what, jobs in (("all slots free", 0), ("all slots allocated", number)):
            for job in range(jobs):
                shard.say(RESOURCE_MANAGER, RequestSlots(job=f"job-{job}", slots=SLOTS, priority=0, since_ms=0))
            around.advance(STEP_MS)
            assert bool(jobs) == task_managers[0].busy and len(leader.state.task_managers) == number
            task_managers[0].run(2)
            before = leader.folded.next_offset
            percents = [100 * cpu_of(leader, lambda: task_managers[0].run(seconds)) / seconds for _ in range(n)]
            assert len(leader.state.task_managers) == number, "some were declared lost"
            records = (leader.folded.next_offset - before) / seconds / n
            run.samples[what.replace(" ", "_")] = {"percent": percents, "records_a_second": records}
            interval = task_managers[0].interval_ms * (1 if jobs else QUIET_BEATS)
            run.rows.append(Row(
                f"ResourceManager with {number:,} TaskManagers of {SLOTS} slots, {what}: % of a core", n, f"{p50(percents):.0f} %",
                f"max {max(percents):.0f} %", f"a heartbeat each {interval} ms, {records:,.0f} records a second", "",
                f"{CORE_MOST_PERCENT:.0f} %", max(percents) <= CORE_MOST_PERCENT,
            ))  # fmt: skip
