"""A job that wants its slots together gets all of them at once, or none [R35]."""

from __future__ import annotations

from millrace.core.machine import Configured
from millrace.core.messages.slots import TaskManagerHeartbeat
from millrace.core.profile import Profile
from services.resource_manager.core.waiting import Wanted
from tests.core.of_resource_manager import TM_A, TM_B, Driver, granted, lost, queued
from tests.core.test_resource_manager_tenants import driver, holders


def test_nothing_is_granted_until_all_is_free() -> None:
    cluster = driver(1024, 1024, 1024)
    cluster.ask("single")
    assert cluster.ask("gang", 3, together=True, since_ms=1) == []
    assert cluster.tick() == [queued("gang", "0 of 3 slots at once: of 3 slots of 1 TaskManager 1 is busy, 2 are free", 1)]
    cluster.ask("single", 0)
    assert cluster.free()[:3] == [granted("gang", "1.10.1", 1), granted("gang", "1.10.2", 2), granted("gang", "1.10.3", 0)]


def test_a_gang_that_lost_a_slot_waits_for_as_many_as_it_lacks() -> None:
    cluster = driver(1024, 1024)
    cluster.register(TM_B, memory_mb=(1024,))
    assert len(cluster.ask("gang", 3, together=True)) == 3
    cluster.free(TM_B, state="BROKEN")
    assert (cluster.state.jobs["gang"].held, list(cluster.state.lacks("gang"))) == (2, [Wanted(Profile(), 1)])


def test_one_that_wants_more_than_there_can_be_has_no_place_and_is_in_nobodys_way() -> None:
    cluster = driver(1024, 1024)
    cluster.ask("gang", 3, together=True)
    assert cluster.ask("single", since_ms=1) == [granted("single", "1.7.0")]
    assert cluster.tick() == [queued("gang", "0 of 3 slots at once: needs 3 slots at once, and there are 2 at most", None)]


def test_one_that_wants_more_than_its_tenant_may_have_is_told_so() -> None:
    cluster = driver(1024, 1024, 1024, x={"slots": 2})
    cluster.ask("gang", 3, together=True, tenant="x")
    reason = "0 of 3 slots at once: needs 3 slots at once, and its tenant x may have 2 slots at most"
    assert cluster.tick() == [queued("gang", reason, None)]


def test_the_quota_counts_the_whole_gang() -> None:
    cluster = driver(*(1024,) * 4, x={"slots": 3})
    cluster.ask("one", 2, tenant="x")
    assert cluster.ask("gang", 2, together=True, tenant="x", since_ms=1) == []
    cluster.ask("one", 1, tenant="x")
    assert len(cluster.free()) == 2
    assert holders(cluster) == [None, "one", "gang", "gang"]


def stream(cluster: Driver, count: int) -> list[str | None]:
    """Slots are freed one by one while more single jobs wait than there are slots: who got each."""
    got: list[str | None] = []
    for number in range(count):
        cluster.ask(f"s{number}", since_ms=100 + number)
    for _ in range(count):
        slots = cluster.state.task_managers["a"].slots
        busy = [at for at, slot in slots.items() if slot.job and slot.job.startswith("s")]
        if not busy:
            break
        job = slots[busy[0]].job
        assert job is not None
        cluster.ask(job, 0)
        cluster.free(TM_A, busy[0])
        got.append(slots[busy[0]].job)
    return got


def test_after_nine_slots_that_went_past_it_slots_are_kept_for_a_gang() -> None:
    """Else a stream of small jobs would take each slot as it is freed."""
    cluster = driver(1024, 1024)
    cluster.ask("s-a")
    cluster.ask("s-b", since_ms=1)
    cluster.ask("gang", 2, together=True, since_ms=2)
    assert stream(cluster, 20) == [*(f"s{number}" for number in range(9)), None, "gang"]
    assert holders(cluster) == ["gang", "gang"]
    assert cluster.state.turns == {}


def test_what_waits_meanwhile_is_told_for_whom_slots_are_kept() -> None:
    cluster = driver(1024, 1024)
    cluster.ask("s-a")
    cluster.ask("s-b", since_ms=1)
    cluster.ask("gang", 2, together=True, since_ms=2)
    stream(cluster, 10)
    cluster.ask("later", since_ms=9_000)
    assert cluster.tick() == [], "slots are freed so often that nobody needs a place"
    sent = [each for _ in range(11) if not cluster.say(TM_A, TaskManagerHeartbeat()) for each in cluster.tick()]
    reasons = {each.body.job: each.body.reason for each in sent}
    assert reasons["later"] == "of 2 slots of 1 TaskManager 1 is busy, 1 is kept for gang"


def test_slots_are_not_kept_for_longer_than_ageing_ms() -> None:
    """What runs in the others may never end."""
    cluster = driver(1024, 1024)
    cluster.core(Configured({"ageing_ms": 300}))
    cluster.ask("s-a")
    cluster.ask("s-b", since_ms=1)
    cluster.ask("gang", 2, together=True, since_ms=2)
    stream(cluster, 10)
    cluster.ask("later", since_ms=9_000)
    said = [cluster.tick() for _ in range(3)]
    assert [granted("s9", f"1.{cluster.record}.11", 0) in each for each in said] == [False, False, True]


def test_two_gangs_of_which_each_could_have_half_get_all_one_after_the_other() -> None:
    cluster = driver(1024, 1024)
    cluster.register(TM_B, memory_mb=(1024, 1024))
    for number in range(4):
        cluster.ask(f"s{number}", since_ms=number)
    cluster.ask("first", 4, together=True, since_ms=10)
    cluster.ask("second", 4, together=True, since_ms=11)
    for number, (scope, slot) in enumerate(((TM_A, 0), (TM_A, 1), (TM_B, 0), (TM_B, 1))):
        cluster.ask(f"s{number}", 0)
        cluster.free(scope, slot)
    assert {slot.job for each in cluster.state.task_managers.values() for slot in each.slots.values()} == {"first"}
    cluster.ask("first", 0)
    for scope, slot in ((TM_A, 0), (TM_A, 1), (TM_B, 0), (TM_B, 1)):
        cluster.free(scope, slot)
    assert {slot.job for each in cluster.state.task_managers.values() for slot in each.slots.values()} == {"second"}


def test_task_managers_are_started_for_what_a_gang_lacks_beside_what_is_free() -> None:
    made = Driver()
    made.core(Configured({"provider": "p", "task_managers_max": 9, "worker_slots": 1, "worker_memory_mb": 1024}))
    made.declared()
    made.state.workers.listed, made.state.workers.expected = True, None
    made.register(memory_mb=(1024, 1024))
    made.ask("gang", 3, together=True)
    said = [made.tick() for _ in range(4)]
    assert list(made.state.workers.known) == ["task-manager-1"], said
    assert not [each for each in said if lost in each]


def test_slots_are_kept_for_longer_each_time_that_it_was_in_vain() -> None:
    """Attempts that take longer than ageing_ms would keep a gang from its slots for ever."""
    cluster = driver(1024, 1024)
    cluster.core(Configured({"ageing_ms": 300}))
    cluster.ask("s-a")
    cluster.ask("s-b", since_ms=1)
    cluster.ask("gang", 2, together=True, since_ms=2)
    stream(cluster, 10)
    cluster.ask("later", since_ms=9_000)
    [turn] = cluster.state.turns.values()
    for _ in range(3):
        cluster.tick()
    assert (turn.vain, turn.kept_ms) == (1, None)


def test_a_gang_gets_nothing_while_slots_that_it_gave_back_are_not_over() -> None:
    """Else it would get them back one by one, as they are over, and hold them while it waits for the rest."""
    cluster = driver(1024, 1024, 1024)
    cluster.ask("gang", 3, together=True)
    given_back = [slot.allocation for slot in cluster.state.task_managers["a"].slots.values()]
    cluster.ask("gang", 2, together=True, given_back=given_back[:1])
    cluster.ask("gang", 3, together=True, given_back=given_back[1:])
    assert cluster.free(slot=0) == [] and cluster.free(slot=1) == []
    assert len(cluster.state.jobs["gang"].ending) == 1
    assert [each.body.job for each in cluster.free(slot=2)[:3]] == ["gang"] * 3
    assert cluster.state.jobs["gang"].held == 3


def test_what_is_over_already_is_not_waited_for() -> None:
    cluster = driver(1024, 1024)
    cluster.ask("gang", 2, together=True)
    over = cluster.allocation()
    cluster.ask("gang", 1, together=True)
    cluster.free()
    assert cluster.ask("gang", 2, together=True, given_back=[over]) == [granted("gang", "1.9.2")]
    assert cluster.state.jobs["gang"].ending == {}
