"""Mutants of the blocklist [R37]."""

from __future__ import annotations

from typing import Any

from services.dispatcher.core import unsent
from services.job_master.core import scheduling
from services.resource_manager import ports
from services.resource_manager.core import blocklist
from services.resource_manager.core.state import State
from tests.simulation.mutants.registry import around, mutant


@mutant(37, "resource_manager/core/state.py:State.is_blocked", "what becomes free on a blocked host goes to the next job")
def a_freed_slot_of_a_blocked_host_is_free() -> None:
    State.is_blocked = lambda self, task_manager: False
    blocklist.slot_manager.exclude = lambda state, name: None
    blocklist.slot_manager.include = lambda state, name: None


@mutant(37, "resource_manager/core/blocklist.py:read", "a new life knows of no blocked host, and grants their slots")
def a_new_life_does_not_ask_who_is_blocked() -> None:
    blocklist.read = lambda state: iter(())


@mutant(37, "resource_manager/ports.py:blocklist_ports", "a host is blocked, and etcd has nothing of it: the next life grants its slots")
def a_blocked_host_is_not_written_down() -> None:
    def wrapped(original: Any, store: Any) -> Any:
        def store_blocks(effects: Any, fence: Any) -> Any:
            return [blocklist.BlockStored(number=each.number) for each in effects]

        return {**original(store), blocklist.StoreBlock: store_blocks}

    around(ports, "blocklist_ports", wrapped)


@mutant(37, "job_master/core/scheduling.py:_usable", "a job goes on in its slot on a blocked host, attempt after attempt")
def an_idle_slot_on_a_blocked_host_is_used_again() -> None:
    scheduling._usable = lambda state, job, idle: idle


@mutant(37, "dispatcher/core/unsent.py:keep", "a change that wants no answer comes too early, and nobody hears of it")
def what_comes_before_the_resource_manager_is_heard_is_dropped() -> None:
    unsent.keep = lambda state, what, change: None


@mutant(37, "resource_manager/core/blocklist.py:_keep", "a change that wants no answer comes while a new life reads etcd, and is dropped")
def what_comes_while_the_blocklist_is_read_is_dropped() -> None:
    blocklist._keep = lambda known, body: None
