"""Mutants of the Dispatcher's and the JobMaster's decisions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import services.job_master.core.scheduling as scheduling
from millrace.core.machine import Publish, Ticked
from millrace.core.messages import events, jobs, slots
from millrace.core.states import ENDED_JOB
from services.dispatcher.core import admission, answers, ending, lookups, submission
from services.dispatcher.core.machine import HANDLERS as DISPATCHER
from services.job_master.core import (
    attempts,
    deployment,
    execution_graph,
    failover,
    lifecycle,
    publication,
    resetting,
    restarts,
)
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from tests.simulation.mutants.registry import around, around_handler, mutant


@mutant(16, "dispatcher/core/ending.py:on_job_ended", "an ending is announced before it is stored in etcd")
def an_ending_is_announced_before_it_is_stored() -> None:
    def job_ended(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        live = state.live.get(body.job)
        if live is not None and live.acceptance == body.acceptance:
            kind = {"FINISHED": events.JobFinished, "FAILED": events.JobFailed, "CANCELED": events.JobCanceled}
            told = {"job": body.job, "at_ms": envelope.at_ms, "archive": None, "cause": {"kind": "user"}}
            event = kind[body.status]
            wanted = {name: told[name] for name in told if name in event.model_fields}
            yield Publish("job.events", body.job, event(**wanted))
        yield from original(state, body, envelope)

    around_handler(DISPATCHER, jobs.JobEnded, job_ended)


@mutant(18, "dispatcher/core/ending.py:on_job_ended", "an end that is announced again is stored again")
def an_ending_is_stored_each_time_it_is_announced() -> None:
    def job_ended(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        live = state.live.get(body.job)
        if live is not None:
            live.ending = None
        return original(state, body, envelope)

    around_handler(DISPATCHER, jobs.JobEnded, job_ended)


@mutant(21, "dispatcher/core/submission.py:store_submission", "a submission is acknowledged before its graph is stored")
def a_submission_is_acknowledged_before_it_is_stored() -> None:
    def store(original: Any, state: Any, request: Any, envelope: Any) -> Any:
        yield from original(state, request, envelope)
        partition = state.topology.events_partition(request.job)
        yield from answers.accepted(request, "INITIALIZING", partition)

    def accepted(original: Any, request: Any, status: str, partition: int) -> Any:
        return iter(()) if status == "INITIALIZING" and request.submitted is None else original(request, status, partition)

    around(submission, "store_submission", store)
    around(answers, "accepted", accepted)


@mutant(21, "job_master/core/scheduling.py:end", "a JobMaster forgets a job when it has announced its end")
def an_ended_job_is_forgotten_before_it_is_retired() -> None:
    def forget(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        yield from original(state, body, envelope)
        for job in [job for job in state.jobs.values() if job.status in ENDED_JOB]:
            del state.jobs[job.id]
            state.plans.pop(job.acceptance, None)

    around_handler(JOB_MASTER, Ticked, forget)


@mutant(21, "job_master/core/lifecycle.py:on_start_job", "a job that is known already is started anew")
def a_known_job_is_started_again() -> None:
    def start(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        known = state.jobs.get(body.job)
        if known is not None:
            yield from lifecycle._forget_job(state, known)
        yield from original(state, body, envelope)

    around_handler(JOB_MASTER, jobs.StartJob, start)


@mutant(21, "job_master/core/lifecycle.py:on_start_job", "a reborn Dispatcher that asks about an ended job gets no answer")
def a_known_job_is_not_answered_for() -> None:
    def start(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        return iter(()) if body.job in state.jobs else original(state, body, envelope)

    around_handler(JOB_MASTER, jobs.StartJob, start)


@mutant(21, "job_master/core/lifecycle.py:on_job_retired", "an ended job is kept for ever")
def a_retired_job_is_kept() -> None:
    JOB_MASTER[jobs.JobRetired] = lambda state, body, envelope: iter(())


@mutant(21, "dispatcher/core/ending.py:announce_ended", "nobody notifies the JobMaster that the end is stored")
def a_job_is_never_retired() -> None:
    def announce(original: Any, *given: Any) -> Any:
        for output in original(*given):
            if not isinstance(getattr(output, "body", None), jobs.JobRetired):
                yield output

    around(ending, "announce_ended", announce)


@mutant(20, "job_master/core/execution_graph.py:attempt_name", "attempts of two lives of a job have one name")
def attempts_are_named_without_their_life() -> None:
    def name(job: Any, task_folder: str, subtask: int, attempt: int) -> str:
        return f"{job.id}/{task_folder}/{subtask}/{attempt}"

    for module in (attempts, deployment, scheduling):
        module.attempt_name = name


@mutant(20, "job_master/core/deployment.py:run_folder", "attempts of two lives of a job write to one folder")
def exchange_folders_are_named_without_their_life() -> None:
    deployment.run_folder = lambda job: job.acceptance


@mutant(20, "job_master/core/scheduling.py:_fill", "a retry has the name of the attempt that failed")
def attempt_numbers_are_not_counted() -> None:
    def schedule_due(original: Any, job: Any, now_ms: int, at_ms: int) -> None:
        for task in job.tasks.values():
            for index, due in task.retry.items():
                task.rows[index].attempt -= due <= now_ms
        original(job, now_ms, at_ms)

    around(scheduling, "schedule_due", schedule_due)


@mutant(28, "job_master/core/holding.py:on_task_manager_lost", "tasks of a dead TaskManager are waited for, for ever")
def nobody_minds_a_lost_task_manager() -> None:
    JOB_MASTER[jobs.TaskManagerLost] = lambda state, body, envelope: iter(())


@mutant(28, "job_master/core/failover.py:is_move", "a lost TaskManager counts as a failure of the job's own")
def a_move_counts_as_a_failure() -> None:
    failover.is_move = lambda error: False


@mutant(28, "job_master/core/restarts.py:_fixed_delay", "a job is restarted more often than its strategy allows")
def a_restart_is_not_counted() -> None:
    def fixed_delay(original: Any, restart: Any, job: Any, now_ms: int) -> Any:
        decided = original(restart, job, now_ms)
        job.restarts = 0
        return decided

    around_strategy("fixed-delay", fixed_delay)


@mutant(28, "job_master/core/restarts.py:_failure_rate", "the failures within an interval are not remembered")
def a_failure_within_the_interval_is_forgotten() -> None:
    def failure_rate(original: Any, restart: Any, job: Any, now_ms: int) -> Any:
        job.backoff = None
        return original(restart, job, now_ms)

    around_strategy("failure-rate", failure_rate)


@mutant(1, "job_master/core/restarts.py:_jitter_ms", "each replica draws another delay")
def jitter_is_drawn() -> None:
    drawn = itertools.count()
    restarts._jitter_ms = lambda job, most_ms: next(drawn) % (most_ms + 1)


@mutant(28, "job_master/core/resetting.py:readers_of", "who has read rows that are made anew goes on with the old ones")
def readers_of_what_is_made_anew_go_on() -> None:
    resetting.readers_of = lambda job, plan, places: places


def around_strategy(name: str, wrapper: Callable[..., Any]) -> None:
    original = restarts.STRATEGIES[name]
    restarts.STRATEGIES[name] = lambda *given: wrapper(original, *given)


@mutant(28, "job_master/core/resetting.py:reset", "who reads of a subtask that ran again is told of the attempt before")
def readers_are_told_of_what_counts_no_more() -> None:
    def reset(original: Any, state: Any, *given: Any) -> None:
        before = dict(state.wholes)
        original(state, *given)
        state.wholes.update(before)

    around(resetting, "reset", reset)


@mutant(5, "job_master/core/scheduling.py:_useless", "a slot that is not wanted any more is taken all the same")
def an_unwanted_slot_is_kept() -> None:
    scheduling._useless = lambda job, idle: []


@mutant(5, "job_master/core/holding.py:on_offer_slots", "an offer for a job that has ended is not answered")
def an_offer_to_an_ended_job_is_passed_over() -> None:
    def offered(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        return (o for o in original(state, body, envelope) if getattr(o, "body", None).__class__.__name__ != "FreeSlots")

    around_handler(JOB_MASTER, slots.OfferSlots, offered)


@mutant(16, "job_master/core/publication.py:all_published", "a job ends before its sinks are published")
def a_job_ends_before_its_sinks_are_published() -> None:
    publication.all_published = lambda job: True


@mutant(20, "job_master/core/execution_graph.py:mark_published", "a task reads what its producers have not published")
def tasks_do_not_wait_for_their_producers() -> None:
    def begin_all(plan: Any, job: Any, at_ms: int) -> None:
        for name in plan.tasks:
            for index in range(job.tasks[name].parallelism):
                execution_graph.schedule(job.tasks[name], index)

    execution_graph._begin_sources = begin_all


@mutant(21, "dispatcher/core/submission.py:_same_or_conflict", "the same submission again is another job")
def the_same_submission_is_another_job() -> None:
    def same_or_conflict(original: Any, state: Any, request: Any, *rest: Any) -> Any:
        if request.job in state.live:
            return iter(())
        request.submitted.digest = "another"
        return original(state, request, *rest)

    around(submission, "_same_or_conflict", same_or_conflict)



@mutant(30, "dispatcher/core/admission.py:no_room", "live jobs are bounded by their text, however many subtasks they have")
def subtasks_take_no_room() -> None:
    around(admission, "no_room", lambda original, **told: original(**{**told, "live_subtasks": 0, "subtasks": 0}))


@mutant(30, "dispatcher/core/waiting.py:end_lookup", "the room of what was being stored is never given back")
def room_is_not_given_back() -> None:
    def end_lookup(original: Any, state: Any, job: str) -> Any:
        subtasks = state.lookups[job].subtasks
        lookup = original(state, job)
        state.live_subtasks += subtasks
        return lookup

    around(lookups, "end_lookup", end_lookup)
