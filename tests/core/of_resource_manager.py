"""Builders for tests of the ResourceManager's machine: a state, one message, the exact outputs."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from millrace.core.machine import Born, Configured, Do, Envelope, Publish, Say, Ticked
from millrace.core.messages.blocklist import BlockedHost, BlocklistRead, ReadBlocklist
from millrace.core.messages.events import BlocklistChanged
from millrace.core.messages.jobs import JobMasterDeclared, JobQueued, RequestSlots, SlotSpec, TaskManagerLost
from millrace.core.messages.slots import (
    AllocateSlot,
    RegisterTaskManager,
    ReportedSlot,
    SlotFreed,
    TaskManagerRegistered,
)
from services.resource_manager.core.machine import ResourceManager
from services.resource_manager.core.state import State, check

JM0, JM1, TM_A, TM_B = "job-master/0", "job-master/1", "task-manager/a", "task-manager/b"
SNAPSHOT: TypeAdapter[State] = TypeAdapter(State)


class Driver:
    """A machine with its state: gives it one body at a time and checks the state after each (`checks`)."""

    def __init__(self, shards: int = 1, generation: int = 1) -> None:
        self.machine = ResourceManager(shards)
        self.state: State = self.machine.blank()
        self.now_ms, self.record, self.generation = 1_000_000, 0, generation
        self.checks = True
        self.away_ms = 0  # by which machine time lags behind the broker's clock
        self.lives: dict[str, int] = {}
        assert self.core(Configured({})) == []
        if generation == 1:
            assert self.core(Born()) == []
            return
        assert self.core(Born()) == [Do("blocklist", ReadBlocklist())], "an earlier life may have blocked hosts"
        assert self.core(BlocklistRead(hosts=[])) == [blocklist_changed(self.now_ms)]

    def say(self, sender: str, body: Any, life: int | None = None) -> list[Any]:
        self.record += 1
        life = self.lives.setdefault(sender, 7 if sender.startswith("task-manager/") else 1) if life is None else life
        self.lives[sender] = life
        envelope = Envelope(sender, life, self.now_ms, f"{self.generation}.{self.record}", body, self.now_ms + self.away_ms)
        outputs = list(self.machine.handle(self.state, envelope))
        if self.checks:
            self.check()
        return outputs

    def check(self) -> None:
        check(self.state)
        assert SNAPSHOT.validate_json(SNAPSHOT.dump_json(self.state)) == self.state, "a snapshot is the state"

    def core(self, body: Any) -> list[Any]:
        return self.say("", body, 0)

    def tick(self, ms: int = 100, away_ms: int = 0) -> list[Any]:
        self.now_ms, self.away_ms = self.now_ms + ms, self.away_ms + away_ms
        return self.core(Ticked())

    def declared(self, *shards: str) -> Driver:
        for shard in shards or (JM0,):
            self.say(shard, JobMasterDeclared())
        return self

    def register(
        self, scope: str = TM_A, life: int = 7, memory_mb: tuple[int, ...] = (1024,), build: str = "", **states: Any
    ) -> list[Any]:
        name = scope.partition("/")[2]
        slots = [SlotSpec(slot=n, memory_mb=m) for n, m in enumerate(memory_mb)]
        given = states.get("states") or [ReportedSlot(slot=n, state="FREE") for n in range(len(memory_mb))]
        return self.say(scope, RegisterTaskManager(host=f"host-{name}", slots=slots, states=given, build=build), life)

    def ask(
        self, job: str, slots: int = 1, *, shard: str = JM0, priority: int = 0, since_ms: int = 0, memory_mb: Any = None, **more: Any
    ):
        return self.say(
            shard, RequestSlots(job=job, slots=slots, priority=priority, since_ms=since_ms, memory_mb=memory_mb, **more)
        )

    def allocation(self, scope: str = TM_A, slot: int = 0) -> str:
        found = self.state.task_managers[scope.partition("/")[2]].slots[slot].allocation
        assert found is not None
        return found

    def free(self, scope: str = TM_A, slot: int = 0, state: Any = "FREE", warm: int = 0) -> list[Any]:
        return self.say(scope, SlotFreed(slot=slot, allocation=self.allocation(scope, slot), state=state, warm=warm))


def queued(job: str, reason: str | None, position: int | None, shard: str = JM0) -> Say:
    return Say(shard, JobQueued(job=job, reason=reason, position=position))


def granted(job: str, allocation: str, slot: int = 0, scope: str = TM_A, shard: int = 0) -> Say:
    return Say(scope, AllocateSlot(slot=slot, allocation=allocation, job=job, shard=shard), after="TaskManagerLost")


def lost(name: str, incarnation: int, reason: str, shard: str = JM0) -> Say:
    return Say(shard, TaskManagerLost(task_manager=name, incarnation=incarnation, reason=reason))


def blocklist_changed(at_ms: int, *hosts: BlockedHost, count: int = 1) -> Publish:
    return Publish("cluster.events", "blocklist", BlocklistChanged(hosts=list(hosts), at_ms=at_ms, count=count))


REGISTERED = TaskManagerRegistered(heartbeat_interval_ms=100, lost_after_ms=600)
