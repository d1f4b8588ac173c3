"""Builders for tests of the TaskManager's machine: a state, one message, the exact outputs."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from millrace.core.machine import Born, Configured, Do, Envelope, Say, Ticked
from millrace.core.messages.effects import EndProcess, KillAttempt, LaunchAttempt
from millrace.core.messages.slots import (
    AllocateSlot,
    AttemptEnded,
    AttemptRunning,
    DeployTask,
    DeployTasks,
    ReportedSlot,
    SlotFreed,
    SlotOffer,
    SlotReady,
    SlotReport,
    TaskManagerHeartbeat,
    TaskStateChanged,
)
from services.task_manager.core.machine import TaskManager
from services.task_manager.core.state import State, check
from tests.core.of_attempts import spec_of

RM, JM0, JM1 = "resource-manager", "job-master/0", "job-master/1"
SNAPSHOT: TypeAdapter[State] = TypeAdapter(State)
INCARNATION = 7
SLOTS_MANY = 100  # of so many a snapshot takes long: one in so many records is followed by one


class Driver:
    """A machine with its state: gives it one body at a time and checks the state after each."""

    def __init__(self, slots: int = 1, *, ready: bool = True) -> None:
        self.machine = TaskManager("a", shards=2)
        self.state: State = self.machine.blank()
        self.now_ms, self.record = 1_000_000, 0
        settings = {
            "incarnation": INCARNATION,
            "host": "host-a",
            "allocation_timeout_ms": 10_000,
            "slots_memory_mb": [1024] * slots,
        }
        assert self.local(Configured(settings)) == [] and self.local(Born()) == []
        if ready:
            for number in range(slots):
                self.local(SlotReady(slot=number))

    def say(self, sender: str, body: Any) -> list[Any]:
        self.record += 1
        envelope = Envelope(sender, 3, self.now_ms, f"{INCARNATION}.{self.record}", body)
        outputs = list(self.machine.handle(self.state, envelope))
        check(self.state)
        if len(self.state.slots) < SLOTS_MANY or self.record % SLOTS_MANY == 0:
            assert SNAPSHOT.validate_json(SNAPSHOT.dump_json(self.state)) == self.state, "a snapshot is the state"
        return outputs

    def local(self, body: Any) -> list[Any]:
        return self.say("", body)

    def tick(self, ms: int = 100) -> list[Any]:
        """What is said at a tick but the heartbeat."""
        self.now_ms += ms
        return [
            each for each in self.local(Ticked()) if not isinstance(getattr(each, "body", None), TaskManagerHeartbeat)
        ]

    def slot(self, number: int = 0) -> str:
        return self.state.slots[number].state.value

    # the usual steps

    def allocate(self, slot: int = 0, allocation: str = "al", shard: int = 0, job: str = "j") -> list[Any]:
        return self.say(RM, AllocateSlot(slot=slot, allocation=allocation, job=job, shard=shard))

    def deploy(self, attempt: str = "j/t/0/1", allocation: str = "al", **more: Any) -> list[Any]:
        task = {
            "start_timeout_ms": None,
            "run_timeout_ms": None,
            "spec": spec_of(),
            "folder": f"ac/{attempt}",
            **more,
        }
        return self.say(
            JM0, DeployTasks(tasks=[DeployTask(allocation=allocation, attempt=attempt, acceptance="ac", **task)])
        )

    def run(self, **more: Any) -> Driver:
        self.allocate()
        self.deploy(**more)
        self.local(AttemptRunning(slot=0, attempt="j/t/0/1"))
        return self

    def end(self, status: Any = "finished", attempt: str = "j/t/0/1", **more: Any) -> list[Any]:
        return self.local(AttemptEnded(slot=0, attempt=attempt, status=status, **more))


def freed(state: Any = "FREE", slot: int = 0, allocation: str = "al", warm: int = 0) -> Say:
    return Say(RM, SlotFreed(slot=slot, allocation=allocation, state=state, warm=warm))


def report(slot: int, state: Any, **more: Any) -> Say:
    return Say(RM, SlotReport(states=[ReportedSlot(slot=slot, state=state, **more)]))


def offer(slot: int = 0, allocation: str = "al", job: str = "j") -> SlotOffer:
    return SlotOffer(slot=slot, allocation=allocation, job=job, memory_mb=1024, takes_runs=True)


def launch(attempt: str = "j/t/0/1") -> Do:
    launched = LaunchAttempt(slot=0, attempt=attempt, acceptance="ac", folder=f"ac/{attempt}", spec=spec_of())
    return Do("slot/0", launched)


def kill(why: str, attempt: str = "j/t/0/1", within_ms: int = 0) -> Do:
    return Do("kill/0", KillAttempt(slot=0, attempt=attempt, why=why, within_ms=within_ms))


def changed(state: Any, attempt: str = "j/t/0/1", allocation: str = "al", **more: Any) -> Say:
    return Say(JM0, TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more))


def infrastructure(message: str) -> dict[str, Any]:
    return {"kind": "infrastructure", "retryable": True, "message": message}


LOST = Do("process", EndProcess(reason="the ResourceManager has released this TaskManager: silent", again=True))
