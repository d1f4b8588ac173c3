"""The TaskManager's machine: time-outs, cancels, freed slots, new lives of peers, its own end; no state without an answer."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core import states
from millrace.core.machine import Born, Configured, Do, PeerBorn, Say, Ticked
from millrace.core.messages import effects
from millrace.core.messages.effects import AttemptKillSent, AttemptLaunched, EndProcess
from millrace.core.messages.links import LINKS
from millrace.core.messages.records import encode
from millrace.core.messages.slots import (
    LOCAL_FACTS,
    WARM_MOST,
    AllocateSlot,
    AttemptEnded,
    AttemptRunning,
    CancelTasks,
    CaughtUp,
    DeployTask,
    DeployTasks,
    DisconnectTaskManager,
    DrainAnswered,
    DrainTaskManager,
    FailSlot,
    FellBehind,
    FreeSlots,
    FreeUnused,
    OfferedAttempt,
    OfferSlots,
    ReleaseTaskManager,
    SlotBroken,
    SlotReady,
    SlotReplacing,
    StopAsked,
    Unheard,
)
from millrace.core.topics import OUTPUT_BYTES_MAX
from services.task_manager.core.machine import HANDLERS
from tests.core.of_attempts import spec_of
from tests.core.of_task_manager import (
    INCARNATION,
    JM0,
    JM1,
    LOST,
    RM,
    Driver,
    changed,
    freed,
    kill,
    launch,
    offer,
)

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
    assert driver.tick(1_000) == []  # it may have begun just before this tick
    message = "the attempt ran longer than 1000 ms (timeouts.run_ms)"
    assert driver.tick(100) == [kill(message)]
    error = {"kind": "timeout", "retryable": True, "message": message}
    assert driver.end("failed", error={"kind": "exit", "message": "no"}) == [changed("FAILED", error=error)]


# cancel


def test_a_canceled_attempt_ends_canceled():
    driver = Driver().run()
    cancel = CancelTasks(attempts=["j/t/0/1"], reason="the job is canceled", within_ms=2_000)
    assert driver.say(JM0, cancel) == [kill("the job is canceled", within_ms=2_000)]
    assert driver.say(JM0, cancel) == []
    error = {"kind": "killed", "retryable": False, "message": "the job is canceled"}
    assert driver.end("killed", error={"kind": "killed", "message": "no"}) == [changed("CANCELED", error=error)]
    assert driver.say(JM0, cancel) == []  # its ending was said


def test_a_cancel_that_gives_no_time_kills_at_once_also_what_was_asked_before():
    restart = CancelTasks(attempts=["j/t/0/1"], reason="it is to run again")
    assert b"within_ms" not in encode(restart), "as the JobMasters of 0.1.0 write it, and its TaskManagers read it"
    assert Driver().run().say(JM0, restart) == [kill("it is to run again")]
    driver = Driver().run()
    driver.say(JM0, CancelTasks(attempts=["j/t/0/1"], reason="the job is canceled", within_ms=2_000))
    assert driver.say(JM0, restart) == [kill("it is to run again")]


@pytest.mark.parametrize("hurry", [FreeSlots(allocations=["al"]), StopAsked()])
def test_an_attempt_that_was_asked_to_end_is_killed_at_once_where_others_must_not_wait(hurry: Any):
    driver = Driver().run()
    driver.say(JM0, CancelTasks(attempts=["j/t/0/1"], reason="the job is canceled", within_ms=2_000))
    for killed in ([kill("its job gave the slot back" if isinstance(hurry, FreeSlots) else "its TaskManager was stopped")], []):
        said = driver.say(JM0, hurry) if isinstance(hurry, FreeSlots) else driver.local(hurry)
        assert [each for each in said if isinstance(each, Do)] == killed


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


def test_a_slot_whose_job_master_is_away_for_too_long_is_freed_but_not_one_in_which_an_attempt_lives():
    driver = Driver().run()
    assert driver.say(RM, FreeUnused(allocations=["al", "unknown"])) == [] and driver.slot() == "ACTIVE"
    driver.end()
    driver.local(SlotReady(slot=0))
    reason = "its JobMaster was silent for too long"
    said = [Say(JM0, FailSlot(allocation="al", job="j", reason=reason)), freed(warm=1)]
    assert driver.say(RM, FreeUnused(allocations=["al"])) == said and driver.slot() == "FREE"


def test_a_slot_is_free_when_its_reset_is_done():
    driver = Driver().run()
    driver.end()
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == []
    assert driver.slot() == "RELEASING"
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == []
    assert driver.local(SlotReady(slot=0)) == [freed(warm=1)]


@pytest.mark.parametrize(("status", "replaced", "warm"), [
    ("finished", False, 2), ("failed", False, 0), ("killed", False, 0), ("finished", True, 0),
])  # fmt: skip
def test_a_slot_is_warm_after_an_attempt_that_finished_in_the_jvm_that_it_still_has(status: str, replaced: bool, warm: int) -> None:
    driver = Driver().run()
    driver.end()
    driver.local(SlotReady(slot=0))
    driver.deploy("j/t/0/2")
    driver.end(status, "j/t/0/2")
    if replaced:
        driver.local(SlotReplacing(slot=0, reason="it is not quiet"))
    driver.local(SlotReady(slot=0))
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == [freed(warm=warm)]
    driver.allocate(allocation="next")
    assert driver.say(JM0, FreeSlots(allocations=["next"])) == [freed(allocation="next", warm=warm)], "nothing ran in it since"


def test_how_warm_a_slot_is_has_a_bound() -> None:
    driver = Driver().run()
    driver.state.slots[0].warm = WARM_MOST
    driver.end()
    driver.local(SlotReady(slot=0))
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == [freed(warm=WARM_MOST)]


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
    assert driver.local(SlotReady(slot=0)) == [freed(warm=1)]


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
            OfferedAttempt(allocation="al", attempt="j/t/0/1", state="FINISHED", report={"outputs": {}}),
            OfferedAttempt(allocation="deploying", attempt="j/v/0/1", state="DEPLOYING"),
        ],
    ))]  # fmt: skip
    assert driver.say(JM1, PeerBorn(JM1, 9)) == [Say(JM1, OfferSlots(offers=[offer(1, "other-shard")]))]


def test_what_is_declared_fits_into_records():
    driver = Driver(4)
    for number in range(4):
        driver.allocate(number, f"al{number}")
        driver.deploy(f"j/t/{number}/1", f"al{number}")
        driver.local(AttemptEnded(
            slot=number, attempt=f"j/t/{number}/1", status="finished", report={"outputs": {"v": {"schema": "x" * 200_000}}}
        ))  # fmt: skip
    said = driver.say(JM0, PeerBorn(JM0, 9))
    assert [[each.allocation for each in one.body.offers] for one in said] == [["al0", "al1"], ["al2", "al3"]]
    assert [[each.allocation for each in one.body.attempts] for one in said] == [["al0", "al1"], ["al2", "al3"]]


def test_what_a_new_life_is_told_fits_into_a_message_in_any_script():
    driver = Driver(4)
    for slot in range(4):
        allocation, attempt = f"al{slot}", f"j/t/{slot}/1"
        driver.allocate(slot, allocation)
        driver.deploy(attempt, allocation)
        driver.local(AttemptRunning(slot=slot, attempt=attempt))
        report = {"outputs": {"v": {"schema": "\u8868" * 110_000}}}
        driver.local(AttemptEnded(slot=slot, attempt=attempt, status="finished", report=report))
    said = driver.say(JM0, PeerBorn(JM0, 9))
    assert [len(each.body.offers) for each in said] == [1, 1, 1, 1]
    assert max(len(encode(each.body)) for each in said) < OUTPUT_BYTES_MAX


def test_a_shard_without_slots_here_is_told_nothing():
    assert Driver().say(JM1, PeerBorn(JM1, 9)) == []


# the end


def test_a_task_manager_that_was_declared_lost_ends():
    driver = Driver().run()
    release = ReleaseTaskManager(incarnation=INCARNATION, reason="silent")
    assert driver.say(RM, ReleaseTaskManager(incarnation=INCARNATION - 1, reason="silent")) == []
    assert driver.say(RM, release) == [LOST]
    assert driver.end() == [] and driver.tick() == [] and driver.say(RM, release) == []


def test_one_that_is_asked_whether_it_may_be_stopped_agrees_if_nobody_holds_a_slot_of_it():
    driver = Driver(2)
    asked = DrainTaskManager(incarnation=INCARNATION)
    assert driver.say(RM, asked) == [Say(RM, DrainAnswered())]
    assert driver.say(RM, DrainTaskManager(incarnation=INCARNATION - 1)) == []
    driver.allocate()
    assert driver.say(RM, asked) == [Say(RM, DrainAnswered(refused="slot 0 is j's"))]
    driver.deploy()
    driver.allocate(1, "other", job="k")
    assert driver.say(RM, asked) == [Say(RM, DrainAnswered(refused="slot 0 is j's, slot 1 is k's"))]
    assert driver.slot() == "ACTIVE", "the question changes nothing"


def test_a_slot_that_is_being_cleaned_is_not_idle():
    driver = Driver().run()
    driver.say(JM0, FreeSlots(allocations=["al"]))
    assert driver.say(RM, DrainTaskManager(incarnation=INCARNATION)) == [Say(RM, DrainAnswered(refused="slot 0 is j's"))]


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


# while it may have been declared lost


def behind() -> Driver:
    """A task was deployed on its slot, which is ready, and it has yet to read what became of it."""
    driver = Driver()
    driver.allocate()
    assert driver.local(FellBehind()) == [] and driver.deploy() == []
    return driver


def test_nothing_is_launched_before_the_inbox_is_read():
    driver = behind()
    assert driver.local(SlotReady(slot=0)) == []
    assert driver.local(CaughtUp()) == [launch()]
    assert driver.local(CaughtUp()) == []


def test_what_is_cancelled_or_freed_meanwhile_is_never_launched():
    driver = behind()
    error = {"kind": "killed", "retryable": False, "message": "no"}
    assert driver.say(JM0, CancelTasks(attempts=["j/t/0/1"], reason="no")) == [changed("CANCELED", error=error)]
    assert driver.local(CaughtUp()) == []
    driver = behind()
    assert driver.say(JM0, FreeSlots(allocations=["al"])) == [freed()]
    assert driver.local(CaughtUp()) == []


@pytest.mark.parametrize("late", (True, False), ids=("its inbox", "its slot"))
def test_what_waits_is_not_launched_for_a_new_life_of_its_shard(late: bool):
    """It may have been deployed by a record that is lost, and its job may have ended elsewhere since."""
    driver = behind()
    if not late:
        driver.local(SlotReplacing(slot=0, reason="old"))
        driver.local(CaughtUp())
    assert driver.local(PeerBorn(JM1, 2)) == []
    error = {"kind": "infrastructure", "retryable": True, "message": "its JobMaster was born anew before it was launched"}
    ended = OfferedAttempt(allocation="al", attempt="j/t/0/1", state="FAILED", error=error)
    assert driver.local(PeerBorn(JM0, 2)) == [Say(JM0, OfferSlots(offers=[offer()], attempts=[ended]))]
    assert driver.local(CaughtUp() if late else SlotReady(slot=0)) == []
    assert driver.deploy("j/t/0/2") == [launch("j/t/0/2")]


# totality


def test_every_record_that_may_come_has_a_handler_and_nothing_else():
    links = {body for (_, receiver), bodies in LINKS.items() if receiver == "task-manager" for body in bodies}
    outcomes = {AttemptLaunched, AttemptKillSent, effects.AttemptOrderSent, effects.AnswerSought}
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
    elif state == "ACTIVE, behind":
        driver.allocate()
        driver.local(FellBehind())
        driver.deploy()
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
    "STARTING", "FREE", "ALLOCATED", "ALLOCATED, ended", "ACTIVE, waiting", "ACTIVE, behind", "ACTIVE, launched", "ACTIVE",
    "ACTIVE, killed", "RELEASING", "RELEASING, ended", "BROKEN",
)  # fmt: skip
BODIES: dict[str, tuple[str, Any]] = {
    "allocate": (RM, AllocateSlot(slot=0, allocation="new", job="k", shard=1)),
    "deploy": (JM0, DeployTasks(tasks=[DeployTask(
        allocation="al", attempt="j/w/0/1", acceptance="ac", spec=spec_of(), start_timeout_ms=1, run_timeout_ms=1
    )])),
    "cancel": (JM0, CancelTasks(attempts=["j/t/0/1"], reason="no", within_ms=2_000)),
    "restart": (JM0, CancelTasks(attempts=["j/t/0/1"], reason="no")),
    "free": (JM0, FreeSlots(allocations=["al"])),
    "ready": ("", SlotReady(slot=0)),
    "replacing": ("", SlotReplacing(slot=0, reason="old")),
    "broken": ("", SlotBroken(slot=0, reason="no disk")),
    "running": ("", AttemptRunning(slot=0, attempt="j/t/0/1")),
    "finished": ("", AttemptEnded(slot=0, attempt="j/t/0/1", status="finished", report={})),
    "failed": ("", AttemptEnded(slot=0, attempt="j/t/0/1", status="failed", error={"kind": "user", "message": "no"})),
    "another's end": ("", AttemptEnded(slot=0, attempt="j/t/9/9", status="failed", error={"kind": "user", "message": "no"})),
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
    assert set(states.SLOT_TRANSITIONS) == set(states.SlotState) - {states.SlotState.PENDING}
    assert set(states.ATTEMPT_TRANSITIONS) == set(states.AttemptState)
