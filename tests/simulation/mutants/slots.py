"""Mutants of the TaskManager's and the ResourceManager's decisions."""

from __future__ import annotations

from typing import Any

import services.task_manager.core.machine as task_manager
from millrace.core.machine import Say
from millrace.core.messages import jobs, slots
from millrace.core.messages.records import Elected
from millrace.core.states import SlotState
from services.resource_manager.core import liveness, registration, requests, slot_manager
from services.resource_manager.core.machine import HANDLERS as RESOURCE_MANAGER
from services.resource_manager.core.state import Job, State
from services.task_manager import shell
from services.task_manager.core import fencing, presence, slot_table
from tests.simulation.mutants.registry import around, mutant
from tests.simulation.mutants.silent import what_is_held_is_not_compared


@mutant(11, "resource_manager/core/state.py:State.open", "slots are granted before all shards have sent their requests")
def slots_are_granted_before_all_shards_have_declared() -> None:
    State.open = True


@mutant(11, "resource_manager/core/state.py:Job.waits", "a job is given slots while attempts of a life before live in its others")
def what_a_life_before_holds_is_not_waited_for() -> None:
    Job.waits = property(lambda self: self.held < self.wanted)


@mutant(28, "resource_manager/core/liveness.py:silent", "a dead TaskManager is never declared lost")
def nobody_is_declared_lost() -> None:
    liveness.silent = lambda state: []


@mutant(28, "resource_manager/core/liveness.py:unregistered", "what a shard knows of and nobody registers is waited for, for ever")
def nobody_is_missed() -> None:
    liveness.unregistered = lambda state, now_ms: []


@mutant(28, "task_manager/core/leaving.py:on_release_task_manager", "who was declared lost goes on beside who has its tasks now")
def who_is_declared_lost_goes_on() -> None:
    task_manager.HANDLERS[slots.ReleaseTaskManager] = lambda state, body, envelope: iter(())


@mutant(28, "task_manager/core/fencing.py:patience_ms", "who is cut off goes on beside who has its tasks now")
def who_is_cut_off_goes_on() -> None:
    fencing.patience_ms = lambda lost_after_ms: 1 << 40


@mutant(28, "task_manager/core/fencing.py:patience_ms", "who is cut off ends later than its tasks run elsewhere")
def who_is_cut_off_is_patient() -> None:
    fencing.patience_ms = lambda lost_after_ms: 4 * lost_after_ms


@mutant(28, "task_manager/shell.py:Shell.begin", "a new process reads messages to the one before")
def a_task_manager_reads_its_inbox_from_the_start() -> None:
    def begin(original: Any, self: Any) -> None:
        original(self)
        topic, partition = self.topology.inbox(self.machine.scope)
        self.inbox.reader.close()
        self.inbox.reader = self.bus.reader(topic, partition, 0)

    def message(original: Any, self: Any, folded: Any, offset: int, record: Any) -> Any:
        if record.to == self.machine.scope and self.machine.scope.startswith("task-manager/"):
            record = record.model_copy(update={"to_life": folded.generation})
        return original(self, folded, offset, record)

    around(shell.Shell, "begin", begin)
    around(shell.Fold, "_message", message)


@mutant(28, "task_manager/shell.py:Shell.begin", "two processes of one TaskManager are one to all others")
def an_incarnation_is_used_again() -> None:
    incarnations: dict[str, int] = {}

    def blank(original: Any, self: Any, generation: int, offset: int) -> Any:
        if self.machine.scope.startswith("task-manager/"):
            generation = incarnations.setdefault(self.machine.scope, generation)
        return original(self, generation, offset)

    def fold(original: Any, self: Any, record: Any, text: Any = None) -> None:
        self.incarnation = self.folded.generation
        if isinstance(record, Elected):
            record = record.model_copy(update={"settings": {**record.settings, "incarnation": self.incarnation}})
        original(self, record, text)

    around(shell.Fold, "blank", blank)
    around(shell.Shell, "_fold", fold)


@mutant(28, "task_manager/core/presence.py:was_absent", "who wakes launches what it read before, beside who has it now")
def who_wakes_launches_at_once() -> None:
    presence.TRANSITIONS = tuple(row for row in presence.TRANSITIONS if row.conditions != (presence.was_absent,))


@mutant(5, "task_manager/core/slot_table.py:allocate", "a slot that cannot be given is not given back")
def a_refused_slot_is_not_given_back() -> None:
    def allocate(original: Any, *given: Any) -> Any:
        return (o for o in original(*given) if not isinstance(o.body, slots.SlotFreed))

    around(slot_table, "allocate", allocate)


@mutant(10, "task_manager/core/slot_table.py:allocate", "of the slots that are given to a job at once the first alone is offered")
def the_first_of_several_slots_is_offered() -> None:
    around(slot_table, "allocate", lambda original, state, job, shard, given, now_ms: original(state, job, shard, given[:1], now_ms))


@mutant(28, "task_manager/core/slot_table.py:free", "a slot that is given back goes on with its attempt")
def a_slot_is_freed_with_its_attempt() -> None:
    def free(original: Any, state: Any, allocation: str, why: str) -> Any:
        number, slot = slot_table._of_allocation(state, allocation)
        if slot is not None and slot.state is slot_table.SlotState.ACTIVE and not slot.ready:
            slot.attempt, slot.ready = None, True
        return original(state, allocation, why)

    around(slot_table, "free", free)


@mutant(5, "task_manager/core/slot_table.py:overdue", "an attempt that hangs holds its slot for ever")
def time_outs_do_not_end_attempts() -> None:
    slot_table.overdue = lambda state, now_ms: iter(())


@mutant(5, "task_manager/core/slot_table.py:broken", "a broken slot's job is not notified")
def a_broken_slot_is_not_reported() -> None:
    def broken(original: Any, state: Any, number: int, reason: str) -> Any:
        return (o for o in original(state, number, reason) if not isinstance(o.body, (slots.FailSlot, slots.TaskStateChanged)))

    around(slot_table, "broken", broken)
    what_is_held_is_not_compared()  # which finds it later


@mutant(5, "resource_manager/core/slot_manager.py:report", "a report that was sent before a grant arrived counts against it")
def an_old_report_takes_a_grant_back() -> None:
    def report(original: Any, state: Any, name: str, states: Any, at_ms: int) -> Any:
        for slot in state.task_managers[name].slots.values():
            if slot.state is SlotState.PENDING:
                slot.state = SlotState.ALLOCATED
        return original(state, name, states, at_ms)

    around(slot_manager, "report", report)


@mutant(10, "resource_manager/core/registration.py:_report_loss", "one shard alone is notified of a lost TaskManager")
def one_shard_alone_is_notified_of_a_loss() -> None:
    def lost(original: Any, state: Any, name: str, incarnation: int, reason: str) -> Any:
        yield Say("job-master/0", jobs.TaskManagerLost(task_manager=name, incarnation=incarnation, reason=reason))

    around(registration, "_report_loss", lost)
    what_is_held_is_not_compared()  # which finds it later


@mutant(10, "resource_manager/core/requests.py:forget_requests_of", "what a reborn shard does not want any more is granted to it")
def wants_of_a_life_before_stay() -> None:
    requests.forget_requests_of = lambda state, shard: None


@mutant(10, "resource_manager/core/slot_manager.py:unregister", "slots of a lost TaskManager stay held")
def slots_of_the_lost_stay_held() -> None:
    def unregister(state: Any, name: str) -> Any:
        for slot in state.task_managers[name].slots.values():
            if slot.state is SlotState.FREE:
                yield from ()
        del state.task_managers[name]

    slot_manager.unregister = unregister


@mutant(5, "task_manager/core/slot_table.py:cancel", "a task that is canceled before its start is never reported as canceled")
def a_cancel_before_the_start_is_not_reported() -> None:
    def cancel(original: Any, *given: Any) -> Any:
        return (o for o in original(*given) if not isinstance(getattr(o, "body", None), slots.TaskStateChanged))

    around(slot_table, "cancel", cancel)


@mutant(5, "task_manager/core/slot_table.py:reported", "a slot that is given back is nobody's while its attempt still lives")
def a_slot_that_is_given_back_is_free_at_once() -> None:
    slot_table.reported = lambda number, slot: slots.ReportedSlot(
        slot=number, state=slot.state.value, allocation=slot.allocation, job=slot.job
    )


@mutant(5, "resource_manager/core/slot_manager.py:on_slot_freed", "a slot that its job gave back is never free again")
def what_is_freed_is_not_looked_at() -> None:
    RESOURCE_MANAGER[slots.SlotFreed] = lambda state, body, envelope: iter(())
