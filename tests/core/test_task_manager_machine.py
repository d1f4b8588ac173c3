"""The TaskManager's handlers: a state, one message, the exact list of what is said and done."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.core.machine import Born, Configured, Do, Envelope, PeerBorn, Say, Ticked
from millrace.core.messages import LINKS, effects
from millrace.core.messages.effects import AttemptKillSent, AttemptLaunched, EndProcess, KillAttempt, LaunchAttempt
from millrace.core.messages.jobs import SlotSpec
from millrace.core.messages.slots import (
    LOCAL_FACTS,
    AllocateSlot,
    AttemptEnded,
    AttemptReport,
    AttemptRunning,
    CancelTasks,
    DeployTask,
    DeployTasks,
    DisconnectTaskManager,
    FailSlot,
    FreeSlots,
    OfferSlots,
    RegisterTaskManager,
    ReleaseTaskManager,
    SlotBroken,
    SlotFreed,
    SlotOffer,
    SlotReady,
    SlotReplacing,
    SlotReport,
    SlotState,
    StopAsked,
    TaskManagerHeartbeat,
    TaskManagerRegistered,
    TaskStateChanged,
    Unheard,
)
from services.task_manager.core import slot_table
from services.task_manager.core import state as states
from services.task_manager.core.machine import HANDLERS, TaskManager
from services.task_manager.core.state import State, check

RM, JM0, JM1 = "resource-manager", "job-master/0", "job-master/1"
SNAPSHOT: TypeAdapter[State] = TypeAdapter(State)
INCARNATION = 7


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
            "spec": {"task": "t"},
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


def freed(state: Any = "FREE", slot: int = 0, allocation: str = "al") -> Say:
    return Say(RM, SlotFreed(slot=slot, allocation=allocation, state=state))


def report(slot: int, state: Any, **more: Any) -> Say:
    return Say(RM, SlotReport(states=[SlotState(slot=slot, state=state, **more)]))


def offer(slot: int = 0, allocation: str = "al", job: str = "j") -> SlotOffer:
    return SlotOffer(slot=slot, allocation=allocation, job=job, memory_mb=1024)


def launch(attempt: str = "j/t/0/1") -> Do:
    spec = {"task": "t"}
    return Do("slot/0", LaunchAttempt(slot=0, attempt=attempt, acceptance="ac", folder=f"ac/{attempt}", spec=spec))


def kill(why: str, attempt: str = "j/t/0/1") -> Do:
    return Do("kill/0", KillAttempt(slot=0, attempt=attempt, why=why))


def changed(state: Any, attempt: str = "j/t/0/1", allocation: str = "al", **more: Any) -> Say:
    return Say(JM0, TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more))


def infrastructure(message: str) -> dict[str, Any]:
    return {"kind": "infrastructure", "retryable": True, "message": message}


LOST = Do("process", EndProcess(reason="the ResourceManager declared this TaskManager lost: silent", again=True))


# registration and heartbeats


def test_registers_with_each_life_of_the_resource_manager_as_it_is():
    driver = Driver(2, ready=False)
    driver.local(SlotReady(slot=1))
    driver.allocate(1)
    assert driver.say(RM, PeerBorn(RM, 3)) == [Say(RM, RegisterTaskManager(
        host="host-a",
        slots=[SlotSpec(slot=0, memory_mb=1024), SlotSpec(slot=1, memory_mb=1024)],
        states=[
            SlotState(slot=0, state="STARTING"), SlotState(slot=1, state="ALLOCATED", allocation="al", job="j")
        ],
    ))]  # fmt: skip


def test_heartbeats_carry_the_slots_when_they_changed_and_now_and_then():
    driver = Driver()
    driver.say(RM, PeerBorn(RM, 3))
    free = [SlotState(slot=0, state="FREE")]

    def beats(count: int) -> list[Any]:
        said = []
        for _ in range(count):
            driver.now_ms += 100
            said += driver.local(Ticked())
        assert all(each.to == RM for each in said)
        return [each.body.states for each in said]

    assert beats(12) == [free, None]  # slowly, while nothing of it is given away
    driver.allocate()
    held = [SlotState(slot=0, state="ALLOCATED", allocation="al", job="j")]
    assert beats(10) == [held, *[None] * 7, held, None]
    assert driver.say(RM, TaskManagerRegistered(heartbeat_interval_ms=200, lost_after_ms=800)) == []
    assert beats(4) == [None, None]


def test_a_tick_that_comes_a_little_early_still_beats():
    driver = Driver()
    driver.say(RM, PeerBorn(RM, 3))
    driver.allocate()
    driver.now_ms += 97
    assert driver.local(Ticked()) != []


# the slot's own events


def test_a_slot_is_reported_when_it_becomes_free():
    driver = Driver(ready=False)
    assert driver.local(SlotReady(slot=0)) == [report(0, "FREE")]
    assert driver.local(SlotReady(slot=0)) == []


def test_a_free_slot_whose_jvm_is_replaced_is_free_no_more():
    driver = Driver()
    assert driver.local(SlotReplacing(slot=0, reason="old")) == [report(0, "STARTING")]
    assert driver.local(SlotReplacing(slot=0, reason="old")) == []
    assert driver.local(SlotReady(slot=0)) == [report(0, "FREE")]


def test_a_broken_slot_is_reported_and_may_heal():
    driver = Driver()
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [report(0, "BROKEN")]
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == []
    assert driver.local(SlotReady(slot=0)) == [report(0, "FREE")]


def test_a_slot_that_breaks_fails_its_attempt_and_its_allocation():
    driver = Driver().run()
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [
        changed("FAILED", error=infrastructure("the slot broke: no disk")),
        Say(JM0, FailSlot(allocation="al", job="j", reason="no disk")),
        freed("BROKEN"),
    ]
    assert driver.end("killed") == []


def test_a_slot_that_breaks_with_an_idle_allocation():
    driver = Driver()
    driver.allocate()
    failed = Say(JM0, FailSlot(allocation="al", job="j", reason="no disk"))
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [failed, freed("BROKEN")]


def test_a_slot_that_breaks_while_it_is_given_back():
    driver = Driver().run()
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.local(SlotBroken(slot=0, reason="no disk")) == [freed("BROKEN")]


def test_a_slot_that_is_given_back_counts_as_used_while_an_attempt_lives_in_it():
    """Its JobMaster may have lost its log and want a slot for the same subtask."""
    driver = Driver().run()
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.slot() == "RELEASING"
    assert slot_table.reported(0, driver.state.slots[0]).state == "ACTIVE"
    driver.state.changed = False
    driver.local(AttemptEnded(slot=0, attempt="j/t/0/1", status="killed"))
    assert slot_table.reported(0, driver.state.slots[0]).state == "RELEASING"
    assert driver.state.changed, "the next heartbeat tells it"


# allocation


def test_an_allocated_slot_is_offered_to_its_shard_at_once():
    driver = Driver()
    assert driver.allocate(shard=1) == [Say(JM1, OfferSlots(offers=[offer()]))]
    assert driver.slot() == "ALLOCATED"


def test_a_slot_that_was_free_a_moment_ago_is_taken_too():
    driver = Driver()
    driver.local(SlotReplacing(slot=0, reason="old"))
    assert driver.allocate() == [Say(JM0, OfferSlots(offers=[offer()]))]
    assert driver.deploy() == []
    assert driver.local(SlotReady(slot=0)) == [launch()]


def test_slots_that_cannot_be_given_go_back_as_what_they_are():
    driver = Driver(2)
    driver.local(SlotBroken(slot=0, reason="no disk"))
    assert driver.allocate(0) == [freed("BROKEN")]
    assert driver.allocate(9) == [freed("BROKEN", 9)]
    driver.allocate(1)
    actual = report(1, "ALLOCATED", allocation="al", job="j")
    assert driver.allocate(1, "other") == [freed("STARTING", 1, "other"), actual]


def test_an_allocation_that_nobody_uses_is_given_back():
    driver = Driver()
    driver.allocate()
    assert driver.tick(9_900) == []
    reason = "no task was deployed on it for 10000 ms"
    assert driver.tick(100) == [Say(JM0, FailSlot(allocation="al", job="j", reason=reason)), freed()]
    assert driver.slot() == "FREE"


def test_an_allocation_that_was_used_once_stays_for_its_ending_is_kept():
    driver = Driver().run()
    driver.end()
    driver.local(SlotReady(slot=0))
    assert driver.tick(60_000) == []
    assert driver.slot() == "ALLOCATED"


# deployment


def test_an_attempt_is_launched_runs_and_finishes():
    driver = Driver()
    driver.allocate()
    assert driver.deploy() == [launch()]
    assert driver.local(AttemptLaunched(attempt="j/t/0/1")) == []
    assert driver.local(AttemptRunning(slot=0, attempt="j/t/0/1")) == [changed("RUNNING")]
    assert driver.local(AttemptRunning(slot=0, attempt="j/t/0/1")) == []
    assert driver.end(report={"outputs": {}}) == [changed("FINISHED", report={"outputs": {}})]
    assert driver.end() == []
    assert driver.slot() == "ALLOCATED"


def test_the_next_task_of_the_allocation_waits_for_the_reset():
    driver = Driver().run()
    driver.end()
    assert driver.deploy("j/u/0/1") == []
    assert driver.local(SlotReady(slot=0)) == [launch("j/u/0/1")]


def test_a_failed_attempt_says_why():
    driver = Driver().run()
    error = {"kind": "user", "retryable": False, "message": "no"}
    assert driver.end("failed", error=error) == [changed("FAILED", error=error)]
    driver = Driver().run()
    assert driver.end("killed") == [changed("FAILED", error=infrastructure("the attempt ended without a reason"))]


def test_a_deployment_that_cannot_be_fails_and_may_run_elsewhere():
    driver = Driver().run()
    assert driver.deploy() == []  # the same again
    busy = infrastructure("its slot is busy with j/t/0/1")
    assert driver.deploy("j/u/0/1") == [changed("FAILED", "j/u/0/1", error=busy)]
    gone = infrastructure("its slot is no longer the job's")
    assert driver.deploy("j/u/0/1", "unknown") == [changed("FAILED", "j/u/0/1", "unknown", error=gone)]
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.deploy("j/u/0/1") == [changed("FAILED", "j/u/0/1", error=gone)]


def test_an_attempt_whose_folder_is_not_named_has_one_of_its_own():
    driver = Driver()
    driver.allocate()
    (launched,) = driver.deploy(folder="")
    assert launched.effect.folder == "ac/j/t/0/1"


# time-outs


def test_an_attempt_that_does_not_start_in_time_is_killed():
    driver = Driver()
    driver.allocate()
    driver.deploy(start_timeout_ms=500, run_timeout_ms=1)
    assert driver.tick(400) == []
    message = "the attempt did not start within its time-out (timeouts.start_ms)"
    assert driver.tick(100) == [kill(message)]
    assert driver.tick(60_000) == []
    error = {"kind": "timeout", "retryable": True, "message": message}
    assert driver.end("killed") == [changed("FAILED", error=error)]


def test_an_attempt_that_waits_for_its_slot_too_long_is_failed_there():
    driver = Driver().run()
    driver.end()
    driver.deploy("j/u/0/1", start_timeout_ms=500)
    message = "the attempt did not start within its time-out (timeouts.start_ms)"
    error = {"kind": "timeout", "retryable": True, "message": message}
    assert driver.tick(500) == [changed("FAILED", "j/u/0/1", error=error)]
    assert driver.local(SlotReady(slot=0)) == []


def test_an_attempt_that_runs_too_long_is_killed():
    driver = Driver().run(start_timeout_ms=100, run_timeout_ms=1_000)
    assert driver.tick(900) == []
    message = "the attempt ran longer than 1000 ms (timeouts.run_ms)"
    assert driver.tick(100) == [kill(message)]
    error = {"kind": "timeout", "retryable": True, "message": message}
    assert driver.end("failed", error={"kind": "exit"}) == [changed("FAILED", error=error)]


# cancel


def test_a_canceled_attempt_ends_canceled():
    driver = Driver().run()
    cancel = CancelTasks(attempts=["j/t/0/1"], reason="the job is canceled")
    assert driver.say(JM0, cancel) == [kill("the job is canceled")]
    assert driver.say(JM0, cancel) == []
    error = {"kind": "killed", "retryable": False, "message": "the job is canceled"}
    assert driver.end("killed", error={"kind": "killed"}) == [changed("CANCELED", error=error)]
    assert driver.say(JM0, cancel) == []  # its ending was said


def test_an_attempt_that_finishes_before_it_is_killed_has_finished():
    driver = Driver().run()
    driver.say(JM0, CancelTasks(attempts=["j/t/0/1"], reason="no"))
    assert driver.end(report={"outputs": {}}) == [changed("FINISHED", report={"outputs": {}})]


def test_a_waiting_attempt_is_canceled_at_once():
    driver = Driver().run()
    driver.end()
    driver.deploy("j/u/0/1")
    error = {"kind": "killed", "retryable": False, "message": "no"}
    cancel = CancelTasks(attempts=["j/u/0/1"], reason="no")
    assert driver.say(JM0, cancel) == [changed("CANCELED", "j/u/0/1", error=error)]
    assert driver.local(SlotReady(slot=0)) == []


def test_an_attempt_that_is_killed_before_it_runs_is_not_said_to_run():
    driver = Driver()
    driver.allocate()
    driver.deploy(run_timeout_ms=10)
    driver.say(JM0, CancelTasks(attempts=["j/t/0/1"], reason="no"))
    assert driver.local(AttemptRunning(slot=0, attempt="j/t/0/1")) == []
    assert driver.tick(1_000) == []


def test_an_unknown_attempt_is_over():
    driver = Driver()
    cancel = CancelTasks(attempts=["j/t/0/1"], reason="no")
    assert driver.say(JM0, cancel) == [changed("CANCELED", allocation="")]


# freeing


def test_an_idle_slot_is_free_at_once():
    driver = Driver()
    driver.allocate()
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == [freed()]
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == []
    assert driver.slot() == "FREE"


def test_a_slot_is_free_when_its_reset_is_done():
    driver = Driver().run()
    driver.end()
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == []
    assert driver.slot() == "RELEASING"
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == []
    assert driver.local(SlotReady(slot=0)) == [freed()]


def test_an_attempt_in_a_freed_slot_is_killed_and_nobody_is_told():
    driver = Driver().run()
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == [kill("its job gave the slot back")]
    assert driver.tick(60_000) == []
    assert driver.end("killed") == []
    assert driver.local(SlotReady(slot=0)) == [freed()]


def test_a_freed_slot_with_a_waiting_attempt_forgets_it():
    driver = Driver().run()
    driver.end()
    driver.deploy("j/u/0/1")
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == []
    assert driver.local(SlotReady(slot=0)) == [freed()]


def test_a_jvm_that_goes_with_its_attempt_is_replaced_within_the_allocation():
    driver = Driver().run()
    error = {"kind": "jvm", "retryable": True, "message": "out of memory"}
    assert driver.end("failed", error=error) == [changed("FAILED", error=error)]
    assert driver.local(SlotReplacing(slot=0, reason="the JVM ended")) == []
    assert driver.deploy("j/t/0/2") == []
    assert driver.local(SlotReady(slot=0)) == [launch("j/t/0/2")]
    # The JVM can also go between the order and its execution: then it runs on the next one.
    assert driver.local(SlotReplacing(slot=0, reason="the JVM ended")) == []
    assert driver.local(SlotReady(slot=0)) == []
    assert driver.local(AttemptRunning(slot=0, attempt="j/t/0/2")) == [changed("RUNNING", "j/t/0/2")]


# peers in a new life


def test_a_reborn_shard_is_told_all_that_is_its_own():
    driver = Driver(4).run()
    driver.end(report={"outputs": {}})
    driver.allocate(1, "other-shard", 1)
    driver.allocate(2, "idle")
    driver.allocate(3, "deploying")
    driver.deploy("j/v/0/1", "deploying")
    assert driver.say(JM0, PeerBorn(JM0, 9)) == [Say(JM0, OfferSlots(
        offers=[offer(), offer(2, "idle"), offer(3, "deploying")],
        attempts=[
            AttemptReport(allocation="al", attempt="j/t/0/1", state="FINISHED", report={"outputs": {}}),
            AttemptReport(allocation="deploying", attempt="j/v/0/1", state="DEPLOYING"),
        ],
    ))]  # fmt: skip
    assert driver.say(JM1, PeerBorn(JM1, 9)) == [Say(JM1, OfferSlots(offers=[offer(1, "other-shard")]))]


def test_what_is_declared_fits_into_records():
    driver = Driver(4)
    for number in range(4):
        driver.allocate(number, f"al{number}")
        driver.deploy(f"j/t/{number}/1", f"al{number}")
        driver.local(AttemptEnded(
            slot=number, attempt=f"j/t/{number}/1", status="finished", report={"outputs": "x" * 200_000}
        ))  # fmt: skip
    said = driver.say(JM0, PeerBorn(JM0, 9))
    assert [[each.allocation for each in one.body.offers] for one in said] == [["al0", "al1"], ["al2", "al3"]]
    assert [[each.allocation for each in one.body.attempts] for one in said] == [["al0", "al1"], ["al2", "al3"]]


def test_a_shard_without_slots_here_is_told_nothing():
    assert Driver().say(JM1, PeerBorn(JM1, 9)) == []


# the end


def test_a_task_manager_that_was_declared_lost_ends():
    driver = Driver().run()
    release = ReleaseTaskManager(incarnation=INCARNATION, reason="silent")
    assert driver.say(RM, ReleaseTaskManager(incarnation=INCARNATION - 1, reason="silent")) == []
    assert driver.say(RM, release) == [LOST]
    assert driver.end() == [] and driver.tick() == [] and driver.say(RM, release) == []


def test_a_task_manager_that_hears_nothing_ends():
    reason = "neither Kafka nor etcd has answered for 460 ms: others must count this TaskManager as lost"
    assert Driver().run().local(Unheard(silent_ms=460)) == [Do("process", EndProcess(reason=reason, again=True))]


STOPPED = [
    Say(RM, DisconnectTaskManager(reason="it was stopped")),
    Do("process", EndProcess(reason="it was stopped", again=False)),
]


def test_an_idle_task_manager_stops_at_once():
    driver = Driver()
    driver.allocate()
    assert driver.local(StopAsked()) == STOPPED


def test_attempts_end_before_the_task_manager_says_that_it_goes():
    driver = Driver(2).run()
    assert driver.local(StopAsked()) == [kill("its TaskManager was stopped")]
    assert driver.local(StopAsked()) == []
    assert driver.allocate(1, "late") == [freed("BROKEN", 1, "late")]  # a slot that looked free would be given away again
    assert driver.end("killed") == STOPPED


def test_an_attempt_that_finishes_while_the_task_manager_stops_counts():
    driver = Driver().run()
    driver.local(StopAsked())
    assert driver.end(report={"outputs": {}}) == [changed("FINISHED", report={"outputs": {}}), *STOPPED]


def test_attempts_that_do_not_end_do_not_hold_it_up():
    driver = Driver().run()
    driver.local(StopAsked())
    assert driver.tick(2_400) == []
    assert driver.tick(100) == STOPPED


# totality


def test_every_record_that_may_come_has_a_handler_and_nothing_else():
    links = {body for (_, receiver), bodies in LINKS.items() if receiver == "task-manager" for body in bodies}
    outcomes = {AttemptLaunched, AttemptKillSent}
    assert outcomes <= set(effects.OUTCOMES)
    assert set(HANDLERS) == links | outcomes | set(LOCAL_FACTS) | {Born, Configured, Ticked, PeerBorn}


def _to(state: str) -> Driver:
    """A TaskManager whose slot 0 is in this state, by the usual steps."""
    driver = Driver(ready=state != "STARTING")
    if state == "BROKEN":
        driver.local(SlotBroken(slot=0, reason="no disk"))
    elif state == "ALLOCATED":
        driver.allocate()
    elif state == "ALLOCATED, ended":
        driver.run().end()
    elif state == "ACTIVE, waiting":
        driver.run().end()
        driver.deploy("j/t/0/1")
    elif state == "ACTIVE, launched":
        driver.allocate()
        driver.deploy()
    elif state == "ACTIVE":
        driver.run()
    elif state == "ACTIVE, killed":
        driver.run().say(JM0, CancelTasks(attempts=["j/t/0/1"], reason="no"))
    elif state == "RELEASING":
        driver.run().say(JM0, FreeSlots(allocations=["al"]))
    elif state == "RELEASING, ended":
        driver.run().end()
        driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.slot() == state.partition(",")[0]
    return driver


SLOT_STATES = (
    "STARTING", "FREE", "ALLOCATED", "ALLOCATED, ended", "ACTIVE, waiting", "ACTIVE, launched", "ACTIVE", "ACTIVE, killed",
    "RELEASING", "RELEASING, ended", "BROKEN",
)  # fmt: skip
BODIES: dict[str, tuple[str, Any]] = {
    "allocate": (RM, AllocateSlot(slot=0, allocation="new", job="k", shard=1)),
    "deploy": (JM0, DeployTasks(tasks=[DeployTask(
        allocation="al", attempt="j/w/0/1", acceptance="ac", spec={}, start_timeout_ms=1, run_timeout_ms=1
    )])),
    "cancel": (JM0, CancelTasks(attempts=["j/t/0/1"], reason="no")),
    "free": (JM0, FreeSlots(allocations=["al"])),
    "ready": ("", SlotReady(slot=0)),
    "replacing": ("", SlotReplacing(slot=0, reason="old")),
    "broken": ("", SlotBroken(slot=0, reason="no disk")),
    "running": ("", AttemptRunning(slot=0, attempt="j/t/0/1")),
    "finished": ("", AttemptEnded(slot=0, attempt="j/t/0/1", status="finished", report={})),
    "failed": ("", AttemptEnded(slot=0, attempt="j/t/0/1", status="failed", error={"kind": "user"})),
    "another's end": ("", AttemptEnded(slot=0, attempt="j/t/9/9", status="failed", error={"kind": "user"})),
    "a minute": ("", Ticked()),
    "stop": ("", StopAsked()),
}  # fmt: skip


@pytest.mark.parametrize("state", SLOT_STATES)
@pytest.mark.parametrize("first", BODIES)
def test_any_two_records_in_any_state_leave_a_sound_state_and_no_allocation_without_an_answer(state: str, first: str):
    for second in BODIES:
        driver = _to(state)
        said: list[Any] = []
        for name in (first, second):
            if name == "a minute":
                driver.now_ms += 60_000
            said += driver.say(*BODIES[name])
        # Whatever came, the slot can still be given back and becomes free, or the process leaves.
        if driver.state.slots[0].allocation is not None:
            driver.say(JM0, FreeSlots(allocations=[driver.state.slots[0].allocation]))
        attempt = driver.state.slots[0].attempt
        if attempt is not None:
            driver.local(AttemptEnded(slot=0, attempt=attempt.id, status="killed"))
        driver.local(SlotReady(slot=0))
        assert driver.slot() == "FREE" or driver.state.ending


def test_the_tables_of_transitions_name_every_state():
    assert set(states.SLOT_TRANSITIONS) == set(states.SlotState)
    assert set(states.ATTEMPT_TRANSITIONS) == set(states.AttemptState)
