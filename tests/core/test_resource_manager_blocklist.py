"""Blocked hosts: no slot of theirs is granted, by whatever way it became free. Exact outputs."""

from __future__ import annotations

from typing import Any

from millrace.core.machine import Born, Do, PassedOver, PeerBorn, Publish, Say
from millrace.core.messages.blocklist import (
    BLOCKED_MOST,
    UNANSWERED_MOST,
    AskBlocklist,
    BlockedHost,
    BlockedHostInfo,
    BlockedHostsListed,
    BlockedTaskManagers,
    BlocklistRead,
    BlockStored,
    HostBlocked,
    HostUnblocked,
    ReadBlocklist,
    StoreBlock,
    TaskManagersBlocked,
)
from millrace.core.messages.client import RequestRefused
from millrace.core.messages.jobs import Query, QuestionAnswered, SlotSpec
from millrace.core.messages.slots import (
    DisconnectTaskManager,
    DrainAnswered,
    DrainTaskManager,
    RegisterTaskManager,
    ReportedSlot,
    SlotReport,
)
from millrace.core.messages.worker_effects import StartWorker, WorkersListed, WorkerStarted
from millrace.core.timing import INSPECTION_ANSWER_MS
from millrace.core.topics import DISPATCHER
from services.resource_manager.core.blocklist import ANSWERS_MOST
from services.resource_manager.core.machine import ResourceManager
from tests.core.of_resource_manager import JM0, JM1, TM_A, TM_B, Driver, blocklist_changed, granted, queued
from tests.core.of_workers import W1, Provided, grants

HOUR = 3_600_000
A = "host-a"


def here(*task_managers: str, shards: int = 1) -> Driver:
    driver = Driver(shards).declared(*[JM0, JM1][:shards])
    for each in task_managers:
        driver.register(each, memory_mb=(1024, 1024))
    return driver


def ask(driver: Driver, what: Any, host: str = A, number: int = 0, **more: Any) -> list[Any]:
    return driver.say(DISPATCHER, AskBlocklist(what=what, host=host, reply_to="c", correlation="1", number=number, **more))


def silently(driver: Driver, what: Any, host: str = A) -> list[Any]:
    """For one who wants no answer."""
    return driver.say(DISPATCHER, AskBlocklist(what=what, host=host, reply_to="", correlation=""))


def blocked(driver: Driver, host: str = A, for_ms: int | None = None, **more: Any) -> BlockedHost:
    """As it is since now."""
    at_ms = driver.now_ms + driver.away_ms
    return BlockedHost(host=host, since_ms=at_ms, until_ms=None if for_ms is None else at_ms + for_ms, **more)


def stores(number: int, host: str, stored: BlockedHost | None) -> Do:
    return Do(f"blocklist/{host}", StoreBlock(number=number, host=host, blocked=stored))


def sent(*hosts: BlockedTaskManagers, shard: str = JM0) -> Say:
    return Say(shard, TaskManagersBlocked(hosts=list(hosts)))


def refused(kind: Any, reason: str) -> Publish:
    return Publish("client.replies", "c", RequestRefused(correlation="1", kind=kind, reason=reason))


def test_a_host_is_blocked_at_once_and_its_client_is_answered_when_etcd_has_it() -> None:
    driver = here(TM_A, TM_B, shards=2)
    driver.ask("j", shard=JM0)
    its = blocked(driver, for_ms=2 * HOUR, by="ada", reason="a disk fails")
    of = BlockedTaskManagers(host=A, reason="a disk fails", task_managers=["a"])
    assert ask(driver, "block", number=4, for_ms=2 * HOUR, by="ada", reason="a disk fails") == [
        stores(1, A, its), blocklist_changed(driver.now_ms, its), sent(of), sent(of, shard=JM1),
    ]  # fmt: skip
    info = BlockedHostInfo(**its.model_dump(), task_managers=1, slots=2, busy=1)
    assert driver.core(BlockStored(number=1)) == [
        Publish("client.replies", "c", HostBlocked(correlation="1", blocked=info)), Say(DISPATCHER, QuestionAnswered(number=4)),
    ]  # fmt: skip
    assert driver.core(BlockStored(number=1)) == [], "it is answered once"
    assert grants(driver.ask("k", 4)) == [("k", "b"), ("k", "b")], "what runs goes on, and nothing comes to it"
    assert ask(driver, "list", number=5) == [
        Publish("client.replies", "c", BlockedHostsListed(correlation="1", hosts=[info])), Say(DISPATCHER, QuestionAnswered(number=5)),
    ]  # fmt: skip
    [listed] = driver.say(DISPATCHER, Query(what="task_managers", reply_to="c", correlation="2"))
    assert [each.blocked for each in listed.body.task_managers] == [its, None]
    [overview] = driver.say(DISPATCHER, Query(what="overview", reply_to="c", correlation="2"))
    assert (overview.body.slots, overview.body.free_slots) == (4, 0), "one that is not granted is not free"


def test_a_slot_that_becomes_free_on_a_blocked_host_is_not_granted_until_it_is_unblocked() -> None:
    driver = here(TM_A)
    driver.ask("j", 2)
    first = driver.allocation(slot=0)
    ask(driver, "block")
    assert grants(driver.ask("k", 1, since_ms=1)) == []
    driver.ask("j", 1)
    assert driver.free(slot=0) == [] and first != driver.state.task_managers["a"].slots[0].allocation
    assert driver.tick()[-1:] == [queued("k", "the 1 slot of 1 TaskManager is busy; 1 free slot is on a blocked host (host-a)", 1)]
    assert ask(driver, "unblock", number=6) == [
        stores(2, A, None), blocklist_changed(driver.now_ms, count=2), sent(), granted("k", driver.allocation()), queued("k", None, None),
    ]  # fmt: skip
    assert driver.core(BlockStored(number=2)) == [
        Publish("client.replies", "c", HostUnblocked(correlation="1", host=A)), Say(DISPATCHER, QuestionAnswered(number=6)),
    ]  # fmt: skip


def test_one_that_registers_on_a_blocked_host_is_listed_and_its_shards_are_sent_that() -> None:
    driver = here()
    driver.ask("j")
    ask(driver, "block", evacuate=True, reason="kernel")
    of = BlockedTaskManagers(host=A, reason="kernel", evacuate=True, task_managers=["a"])
    assert sent(of) in driver.register(TM_A)
    assert driver.say(TM_A, SlotReport(states=[ReportedSlot(slot=0, state="FREE")])) == []
    assert driver.tick()[-1:] == [queued("j", "1 free slot is on a blocked host (host-a)", 1)]
    [listed] = driver.say(DISPATCHER, Query(what="task_managers", reply_to="c", correlation="2"))
    assert [(each.task_manager, each.blocked.reason) for each in listed.body.task_managers] == [("a", "kernel")]
    assert driver.say(JM0, PeerBorn(JM0, 2), life=2) == [sent(of)], "a new life of a shard does not know it"
    assert sent() in driver.say(TM_A, DisconnectTaskManager(reason="it is stopped"))


def test_the_reason_names_the_first_hosts() -> None:
    driver = here()
    for name in "abcde":
        driver.register(f"task-manager/{name}")
        ask(driver, "block", f"host-{name}")
    driver.ask("j")
    assert driver.tick()[-1:] == [queued("j", "5 free slots are on blocked hosts (host-a, host-b, host-c and 2 more)", 1)]


def test_a_limit_counts_by_machine_time() -> None:
    driver = here(TM_A)
    driver.tick(100)
    ask(driver, "block", for_ms=10_000)
    driver.ask("j")
    driver.tick(100, away_ms=HOUR)
    assert A in driver.state.blocklist.hosts, "the broker's clock has jumped, or the broker was away"
    driver.state.limits.lost_after_ms = 1 << 40  # its silence is not looked at here
    driver.tick(9_899)
    assert A in driver.state.blocklist.hosts
    at_ms = driver.now_ms + 1 + HOUR
    said = driver.tick(1)
    assert said[:3] == [stores(2, A, None), blocklist_changed(at_ms, count=2), sent()]
    assert grants(said) == [("j", "a")]
    assert driver.core(BlockStored(number=2)) == [], "nobody has asked"


def test_blocked_again_it_is_blocked_as_was_said_last() -> None:
    driver = here(TM_A)
    ask(driver, "block", for_ms=HOUR)
    its = blocked(driver, evacuate=True)
    assert driver.core(BlockStored(number=1))[0].body.blocked.until_ms == driver.now_ms + HOUR
    of = BlockedTaskManagers(host=A, evacuate=True, task_managers=["a"])
    assert ask(driver, "block", evacuate=True) == [stores(2, A, its), blocklist_changed(driver.now_ms, its, count=2), sent(of)]
    assert driver.state.blocklist.hosts[A].due_ms is None


def test_who_wants_no_answer_gets_none() -> None:
    driver = here(TM_A)
    driver.say(DISPATCHER, AskBlocklist(what="block", host=A, reply_to="", correlation=""))
    assert driver.core(BlockStored(number=1)) == [] and A in driver.state.blocklist.hosts


def test_what_cannot_be_done_is_refused() -> None:
    driver = here(TM_A)
    assert ask(driver, "unblock") == [Publish("client.replies", "c", HostUnblocked(correlation="1", host=A, was_blocked=False))]
    for number in range(1, BLOCKED_MOST + 1):
        ask(driver, "block", f"h{number}")
        driver.core(BlockStored(number=number))
    reason = f"{BLOCKED_MOST} hosts are blocked, and more may not be: unblock one (`millrace blocked`)"
    assert ask(driver, "block") == [refused("conflict", reason)]
    assert len(ask(driver, "block", "h1")) == 2, "one that is blocked is no other one"
    for number in range(1, ANSWERS_MOST):
        ask(driver, "unblock", f"h{number}")
    assert ask(driver, "unblock", "h50") == [refused("busy", f"{ANSWERS_MOST} changes of the blocklist wait for etcd already; try again")]
    assert "h50" in driver.state.blocklist.hosts
    assert driver.core(BlockStored(number=BLOCKED_MOST + 1)) == [refused("conflict", "host h1 was unblocked meanwhile")]


def test_a_new_life_grants_nothing_before_it_has_read_who_is_blocked() -> None:
    driver = Driver.__new__(Driver)
    driver.machine = ResourceManager(1)
    driver.state, driver.now_ms, driver.record, driver.generation = driver.machine.blank(), 1_000_000, 0, 2
    driver.checks, driver.away_ms, driver.lives = True, 0, {}
    assert driver.core(Born()) == [Do("blocklist", ReadBlocklist())]
    assert not driver.machine.is_idle(driver.state)
    driver.declared()
    driver.register(TM_A)
    driver.register(TM_B)
    driver.ask("j", 2)
    driver.state.limits.lost_after_ms = 1 << 40
    driver.state.open_ms = driver.now_ms  # both shards and TaskManagers have had their time
    [waits] = [each.body.reason for each in driver.tick() if isinstance(each, Say)]
    assert waits.endswith("the ResourceManager has just started and reads from etcd which hosts are blocked")
    assert ask(driver, "list") == [
        refused("busy", "the ResourceManager has just started, and reads which hosts are blocked; try again")
    ]  # fmt: skip
    left = BlockedHost(host=A, since_ms=1, until_ms=driver.now_ms + 500)
    over = BlockedHost(host="host-b", since_ms=1, until_ms=driver.now_ms)
    of = BlockedTaskManagers(host=A, task_managers=["a"])
    said = driver.core(BlocklistRead(hosts=[left, over]))
    assert said[:3] == [stores(1, "host-b", None), blocklist_changed(driver.now_ms, left), sent(of)]
    assert grants(said) == [("j", "b")]
    assert grants(driver.tick(499)) == [] and grants(driver.tick(1)) == [("j", "a")]


def test_a_change_that_wants_no_answer_waits_until_it_is_read_which_hosts_are_blocked() -> None:
    """It was dropped, and nobody was told. The newest of each host counts, over what etcd has."""
    driver = here(TM_A)
    driver.state.blocklist.reading = True
    assert silently(driver, "block") == silently(driver, "unblock", "host-b") == silently(driver, "unblock") == []
    for number in range(UNANSWERED_MOST):
        assert silently(driver, "block", f"other-{number}") == []
    assert len(driver.state.blocklist.unread) == UNANSWERED_MOST
    own = BlockedHost(host=A, since_ms=1, until_ms=None)
    driver.core(BlocklistRead(hosts=[own]))
    assert A not in driver.state.blocklist.hosts and "other-0" in driver.state.blocklist.hosts
    assert not driver.state.blocklist.unread


def test_while_etcd_is_silent_who_blocks_a_host_is_told_that_and_it_is_not_the_resource_manager() -> None:
    """Nobody was answered, so the Dispatcher took the ResourceManager for silent, and told nobody any more of its TaskManagers."""
    driver = here(TM_A)
    ask(driver, "block", number=4)
    silently(driver, "block", "host-b")
    assert not driver.machine.is_idle(driver.state)
    answers = [each for each in ticked(driver, INSPECTION_ANSWER_MS - 100) if each.to == DISPATCHER]
    assert answers == []
    told, said = [each for each in driver.tick() if getattr(each, "to", DISPATCHER) == DISPATCHER]
    assert (told.key, told.body.kind, told.body.silent) == ("c", "busy", "etcd") and told.body.reason.startswith("it is done, but etcd")
    assert said == Say(DISPATCHER, QuestionAnswered(number=4))
    assert [each for each in ticked(driver, INSPECTION_ANSWER_MS) if each.to == DISPATCHER] == [], "once"
    assert driver.core(BlockStored(number=1)) == driver.core(BlockStored(number=2)) == []
    assert not driver.state.blocklist.answers and driver.machine.is_idle(driver.state)


def ticked(driver: Driver, ms: int) -> list[Say]:
    return [each for _ in range(ms // 100) for each in driver.tick() if isinstance(each, Say)]


def test_more_changes_that_want_no_answer_may_wait_for_etcd_than_others() -> None:
    """They were dropped beyond twenty, while clients who wait are told to try again."""
    driver = here(TM_A)
    for number in range(UNANSWERED_MOST):
        silently(driver, "block", f"other-{number}")
    assert len(driver.state.blocklist.hosts) == UNANSWERED_MOST
    assert silently(driver, "unblock", "other-1") == []
    assert ask(driver, "block") == [refused("busy", f"{ANSWERS_MOST} changes of the blocklist wait for etcd already; try again")]


def test_records_that_ended_processes_keep_nobody_waiting() -> None:
    driver = here(TM_A)
    body = AskBlocklist(what="block", host=A, reply_to="c", correlation="1")
    why = "a fault of Millrace in handling this request: boom"
    assert driver.say(DISPATCHER, PassedOver(body, "boom")) == [refused("internal", why)]
    ask(driver, "block")
    assert driver.core(PassedOver(BlockStored(number=1), "boom")) == [refused("internal", why)]
    assert driver.core(PassedOver(BlockStored(number=1), "boom")) == []
    driver.state.blocklist.hosts.clear()
    driver.state.blocklist.reading, driver.checks = True, False
    driver.core(PassedOver(BlocklistRead(hosts=[blocked(driver)]), "boom"))
    assert not driver.state.blocklist.reading and not driver.state.blocklist.hosts


def test_free_slots_are_not_kept_for_a_gang_that_lacks_blocked_ones() -> None:
    driver = here(TM_A, TM_B)
    ask(driver, "block")
    driver.ask("gang", 4, together=True)
    for number in range(30):
        assert grants(driver.ask(f"j{number}", since_ms=1)) == [(f"j{number}", "b")]
        driver.ask(f"j{number}", 0)
        slot = next(n for n, each in driver.state.task_managers["b"].slots.items() if each.allocation is not None)
        driver.free(TM_B, slot)
    assert "gang" in driver.state.waiting.places, "once the host is back it may have them"


# workers


def on(driver: Provided, worker: str, host: str) -> list[Any]:
    """A worker registers on this host."""
    driver.started(worker)
    slots = [SlotSpec(slot=n, memory_mb=1024) for n in (0, 1)]
    states = [ReportedSlot(slot=n, state="FREE") for n in (0, 1)]
    return driver.say(f"task-manager/{worker}", RegisterTaskManager(host=host, slots=slots, states=states), 7)


def starts(said: list[Any]) -> list[StartWorker]:
    return [each.effect for each in said if isinstance(each, Do) and isinstance(each.effect, StartWorker)]


def test_a_provider_is_asked_to_avoid_blocked_hosts_and_what_is_idle_there_makes_room() -> None:
    driver = Provided(task_managers_max=1)
    driver.ask("j")
    driver.tick()
    on(driver, W1, A)
    ask(driver, "block")
    driver.ask("k", 2, since_ms=1)
    asks = Say(f"task-manager/{W1}", DrainTaskManager(incarnation=7))
    assert asks not in driver.wait(500), "what runs goes on"
    driver.ask("j", 0)
    driver.free(f"task-manager/{W1}")
    assert asks in driver.tick(), "at once, though a job waits: it cannot have these"
    assert driver.say(f"task-manager/{W1}", DrainAnswered())[0].body.reason == f"its host {A} is blocked"
    driver.stopped()
    assert starts(driver.wait(1_000)) == [StartWorker(worker=W1, avoid=[A])]


def test_where_all_hosts_of_the_provider_are_blocked_none_is_started_and_what_is_warm_stays() -> None:
    driver = Provided({}, task_managers_max=2)
    driver.core(WorkersListed(number=1, hosts=[A]))
    driver.ask("j")
    driver.tick()
    on(driver, W1, A)
    ask(driver, "block")
    driver.ask("k", 3, since_ms=1)
    said = driver.wait(1_000)
    assert starts(said) == []
    assert not [each for each in said if isinstance(each, Say) and isinstance(each.body, DrainTaskManager)]
    [waits] = [each.body.reason for each in said if isinstance(each, Say) and getattr(each.body, "job", "") == "k"][-1:]
    assert waits == (
        "0 of 3 slots: the 1 slot of 1 TaskManager is busy; 1 free slot is on a blocked host (host-a); "
        "no more are started: all hosts of their provider are blocked (host-a)"
    )


def test_where_all_hosts_are_blocked_no_job_hears_that_what_failed_is_started_again() -> None:
    driver = Provided({}, task_managers_max=1)
    driver.core(WorkersListed(number=1, hosts=[A]))
    driver.ask("j")
    driver.tick()
    driver.core(WorkerStarted(worker=W1, problem="there is no Java"))
    driver.stopped(W1)
    ask(driver, "block")
    said = driver.wait(2_000)
    assert starts(said) == []
    [waits] = [each.body.reason for each in said if isinstance(each, Say) and getattr(each.body, "job", "") == "j"][-1:]
    why = f"{W1}: there is no Java"
    assert waits == f"no TaskManager is registered; no more are started: all hosts of their provider are blocked (host-a) ({why})"
