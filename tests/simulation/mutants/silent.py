"""Mutants of what stays away [R31], and of lists that are too long for a record [R15]."""

from __future__ import annotations

import services.dispatcher.core.answers as answers
from millrace.core.messages.jobs import DeclareAgain, JobMasterHeartbeat
from millrace.core.messages.slots import SlotUnused
from services.dispatcher.core import listing, questions
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from services.resource_manager.core import asking, births, shards
from services.resource_manager.core.machine import HANDLERS as RESOURCE_MANAGER
from services.resource_manager.core.state import State
from tests.simulation.mutants.registry import mutant


@mutant(15, "core/bounded.py:fitting", "a list of long names is a record that Kafka refuses, and its sender ends")
def lists_are_sent_whole() -> None:
    answers.fitting = lambda parts: list(parts)


@mutant(15, "dispatcher/core/listing.py:list_job_details", "who reads all jobs page by page has those alone that the Dispatcher remembers")
def a_list_ends_with_what_is_remembered() -> None:
    listing._may_be_older = lambda state, request: False


@mutant(31, "resource_manager/core/shards.py:on_slot_unused", "a shard that is down is given each slot that becomes free, again and again")
def what_is_not_used_is_granted_again() -> None:
    RESOURCE_MANAGER[SlotUnused] = lambda state, body, envelope: iter(())


@mutant(31, "resource_manager/core/shards.py:exclude_silent", "a job of a dead shard is first in the queue until a slot was wasted on it")
def nobody_misses_a_shard() -> None:
    shards.exclude_silent = lambda state, now_ms: iter(())


@mutant(31, "resource_manager/core/shards.py:give_up", "slots are held for ever by a shard that never comes back")
def nobody_gives_a_shard_up() -> None:
    shards.give_up = lambda state, now_ms: iter(())


@mutant(31, "resource_manager/core/reconciling.py:on_job_master_heartbeat", "an attempt is waited for that nobody runs any more")
def what_is_held_is_not_compared() -> None:
    """What else goes by that guard, and is told at once besides, is a mutant of both: a broken slot, slots of a reborn shard."""
    RESOURCE_MANAGER[JobMasterHeartbeat] = lambda state, body, envelope: iter(())


@mutant(31, "resource_manager/core/state.py:DECLARE_MS", "a reborn ResourceManager waits for a shard that never comes back")
def a_silent_shard_is_waited_for() -> None:
    births.DECLARE_MS = 1 << 40


@mutant(31, "resource_manager/core/state.py:State.queues_for", "a shard that is passed over is granted slots all the same")
def who_is_passed_over_is_granted_slots() -> None:
    State.queues_for = lambda self, job: job.waits


@mutant(31, "dispatcher/core/questions.py:answer_overdue", "who asks about a job of a dead JobMaster is never answered")
def who_is_silent_is_waited_for() -> None:
    questions.answer_overdue = lambda state, envelope: iter(())


@mutant(31, "resource_manager/core/asking.py:answer_overdue", "a TaskManager whose disk hangs is not named as the one that is silent")
def a_silent_task_manager_is_waited_for() -> None:
    asking.answer_overdue = lambda state, now_ms: iter(())


@mutant(31, "job_master/core/births.py:on_declare_again", "a shard that is back is never granted anything again")
def who_is_back_does_not_declare_itself() -> None:
    JOB_MASTER[DeclareAgain] = lambda state, body, envelope: iter(())
