"""The restart strategies: what follows each failure, to the millisecond, and the same whoever folds it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.core.clocks import NowMs
from millrace.core.jobgraph.model import Restart
from millrace.core.machine import Ticked, stored_fields
from millrace.core.messages import jobs, slots
from millrace.core.states import JobStatus
from services.job_master.core import restarts
from services.job_master.core.machine import JobMaster
from services.job_master.core.restarts import STRATEGIES
from services.job_master.core.state import Job, State
from tests.core.of_job_master import ONE, RM, TM, USER, Shard, kinds

HOUR_MS = 3_600_000
FOUR: dict[str, Any] = {"name": "four", "vertices": {each: {"sql": "SELECT 1"} for each in "abcd"}}


def job_of(acceptance: str = "1.1") -> Job:
    return Job("j", acceptance, "1", {}, 0)


def follows(restart: Restart, job: Job, at_ms: int) -> tuple[int | None, str]:
    return STRATEGIES[restart.strategy](restart, job, NowMs(at_ms))


def delays(restart: Restart, count: int, acceptance: str = "1.1") -> list[int | None]:
    """The delays of so many failures, each a millisecond after the restart that it waited for."""
    job, now, found = job_of(acceptance), 1000, []
    for _ in range(count):
        found.append(follows(restart, job, now)[0])
        now += (found[-1] or 0) + 1
    return found


def test_the_defaults_are_flinks_but_for_the_strategy_and_its_attempts() -> None:
    """Flink without checkpoints has none, and fixed-delay tries once there; three attempts are what graphs of 0.1.0 rely on."""
    assert Restart().model_dump() == {
        "strategy": "fixed-delay", "scope": "region", "attempts": 3, "delay_ms": 1000,
        "max_failures_per_interval": 1, "failure_rate_interval_ms": 60_000,
        "initial_backoff_ms": 1000, "max_backoff_ms": 60_000, "backoff_multiplier": 1.5, "jitter_factor": 0.1,
        "reset_backoff_threshold_ms": HOUR_MS, "attempts_before_reset_backoff": None,
        "out_of_memory_attempts": 3,
    }  # fmt: skip


def test_none_fails_at_once() -> None:
    assert follows(Restart(strategy="none"), job_of(), 0) == (None, "none: nothing is tried again")


def test_fixed_delay_restarts_so_often_and_no_more() -> None:
    restart, job = Restart(attempts=2, delay_ms=700), job_of()
    assert [follows(restart, job, at_ms) for at_ms in (0, 0, HOUR_MS)] == [
        (700, "fixed-delay: restart 1 of 2"),
        (700, "fixed-delay: restart 2 of 2"),
        (None, "fixed-delay: 2 of 2 restarts used"),
    ]
    assert job.restarts == 2


def test_failure_rate_allows_exactly_so_many_failures_within_an_interval() -> None:
    restart = Restart(strategy="failure-rate", max_failures_per_interval=2, failure_rate_interval_ms=1000, delay_ms=10)
    job = job_of()
    assert [follows(restart, job, at_ms) for at_ms in (0, 500, 1001, 1501, 1501)] == [
        (10, "failure-rate: failure 1 of 2 within 1000 ms"),
        (10, "failure-rate: failure 2 of 2 within 1000 ms"),
        (10, "failure-rate: failure 2 of 2 within 1000 ms"),
        (10, "failure-rate: failure 2 of 2 within 1000 ms"),
        (None, "failure-rate: 3 failures within 1000 ms, and 2 may be"),
    ]
    assert job.restarts == 4


def test_what_failure_rate_remembers_is_bounded() -> None:
    restart, job = Restart(strategy="failure-rate", max_failures_per_interval=3, failure_rate_interval_ms=1), job_of()
    for number in range(100):
        assert follows(restart, job, 10 * number)[0] == 1000
    assert job.backoff is not None and job.backoff.failed_ms == [960, 970, 980, 990]


def test_exponential_delay_grows_up_to_the_longest_delay() -> None:
    assert delays(Restart(strategy="exponential-delay", jitter_factor=0), 13) == [
        1000, 1500, 2250, 3375, 5062, 7593, 11390, 17085, 25628, 38443, 57665, 60_000, 60_000,
    ]  # fmt: skip


def test_a_delay_that_has_grown_for_years_does_not_overflow() -> None:
    job = job_of()
    follows(Restart(strategy="exponential-delay"), job, 0)
    assert job.backoff is not None
    job.backoff.attempts = 10**9
    assert follows(Restart(strategy="exponential-delay", jitter_factor=0), job, HOUR_MS)[0] == 60_000


def test_jitter_stays_within_the_first_and_the_longest_delay() -> None:
    restart = Restart(strategy="exponential-delay", initial_backoff_ms=1000, max_backoff_ms=4000, backoff_multiplier=2, jitter_factor=0.5)
    drawn = [delays(restart, 4, f"1.{n}") for n in range(300)]
    for place, (least, most) in enumerate(((1000, 1500), (1000, 3000), (2000, 4000), (2000, 4000))):
        values = [each[place] or 0 for each in drawn]
        assert least <= min(values) < least + 30 and most - 30 < max(values) <= most
    assert drawn[1] != drawn[2] and drawn[1] == delays(restart, 4, "1.1")


def test_jitter_is_drawn_evenly_from_what_the_state_holds() -> None:
    job, counts = job_of(), dict.fromkeys(range(-2, 3), 0)
    for number in range(1000):
        job.restarts = number
        counts[restarts._jitter_ms(job, 2)] += 1
    assert sum(counts.values()) == 1000 and min(counts.values()) > 150
    assert restarts._jitter_ms(job, 0) == 0


def test_failures_while_a_restart_waits_are_merged_into_it() -> None:
    restart, job = Restart(strategy="exponential-delay", jitter_factor=0, attempts_before_reset_backoff=2), job_of()
    assert [follows(restart, job, at_ms) for at_ms in (0, 400, 1000, 1001, 2501, 2502)] == [
        (1000, "exponential-delay: restart 1 of 2"),
        (600, "exponential-delay: with restart 1, which is due"),
        (0, "exponential-delay: with restart 1, which is due"),
        (1500, "exponential-delay: restart 2 of 2"),
        (0, "exponential-delay: with restart 2, which is due"),
        (None, "exponential-delay: 2 of 2 restarts used"),
    ]
    assert job.restarts == 2


def test_a_quiet_time_begins_the_delays_anew() -> None:
    restart, job = Restart(strategy="exponential-delay", jitter_factor=0, attempts_before_reset_backoff=2), job_of()
    assert [follows(restart, job, at_ms)[0] for at_ms in (0, 1001)] == [1000, 1500]
    assert follows(restart, job, 2501 + HOUR_MS) == (1000, "exponential-delay: restart 1 of 2")
    assert follows(restart, job, 3501 + 2 * HOUR_MS - 1)[0] == 1500, "not quite an hour after the restart"
    assert job.restarts == 4


# in the machine


def begin_four(restart: dict[str, Any]) -> Shard:
    shard = Shard()
    shard.start({**FOUR, "restart": restart})
    shard.offer("a0", "a1", "a2", "a3")
    return shard


def fail(shard: Shard, number: int) -> list[str]:
    """The attempt in this slot fails."""
    held = shard.job.slots[f"a{number}"]
    attempt = f"j/{'abcd'.index(held.task)}-{held.task}/0/1.{shard.job.tasks[held.task].rows[0].attempt}"
    return kinds(shard(slots.TaskStateChanged(allocation=f"a{number}", attempt=attempt, state="FAILED", error=USER), TM))


def test_a_job_is_restarting_while_one_subtask_waits_and_merged_failures_return_together() -> None:
    shard = begin_four({"strategy": "exponential-delay", "jitter_factor": 0})
    assert fail(shard, 0)[-2:] == ["dispatcher JobStatusChanged RESTARTING", "event JobStateChanged RESTARTING"]
    shard.now += 300
    assert fail(shard, 1) == ["event AttemptStateChanged FAILED", "task-manager FreeSlots", "resource-manager RequestSlots 2"]
    assert (shard.job.restarts, shard.job.status, shard.state.due) == (1, JobStatus.RESTARTING, {"j": 2000})
    shard.now += 700
    assert kinds(shard(Ticked(), "")) == [
        "resource-manager RequestSlots 4",
        "dispatcher JobStatusChanged RUNNING",
        "event JobStateChanged RUNNING",
    ]


def test_the_failure_that_is_too_many_fails_the_job() -> None:
    shard = begin_four({"strategy": "failure-rate", "max_failures_per_interval": 2, "delay_ms": 0})
    for number in (0, 1):
        assert fail(shard, number)[1:] == ["task-manager DeployTasks", "event AttemptStateChanged DEPLOYING"]
    assert fail(shard, 2)[:2] == ["event AttemptStateChanged FAILED", "task-manager CancelTasks"]
    assert shard.job.status is JobStatus.FAILING
    decided = {"number": 3, "then": "fail", "why": "failure-rate: 3 failures within 60000 ms, and 2 may be"}
    assert shard.job.cause.json_value() == {**USER, "decided": decided, "task": "c", "subtask": 0, "attempt": 1}


def test_a_lost_task_manager_spends_nothing_of_a_strategys_budget() -> None:
    shard = begin_four({"strategy": "failure-rate"})
    shard(jobs.TaskManagerLost(task_manager="t1", incarnation=1, reason="no heartbeat for 600 ms"), RM)
    assert (shard.job.restarts, shard.job.backoff, shard.job.status) == (0, None, JobStatus.RUNNING)


@pytest.mark.parametrize("strategy", ["failure-rate", "exponential-delay"])
def test_what_a_strategy_remembers_survives_a_snapshot(strategy: str) -> None:
    shard = begin_four({"strategy": strategy})
    fail(shard, 0)
    kind = TypeAdapter(State)
    stored = kind.dump_json(shard.state, include={*stored_fields(State)})
    back = kind.validate_json(stored)
    assert back.jobs["j"].backoff == shard.job.backoff is not None
    assert kind.dump_json(back, include={*stored_fields(State)}) == stored


def test_a_job_of_an_earlier_build_has_remembered_nothing() -> None:
    shard = Shard()
    shard.start()
    kind = TypeAdapter(Job)
    stored = kind.dump_python(shard.job, mode="json")
    del stored["backoff"]
    assert JobMaster(0).of_earlier("jobs", {"j": stored}) == {"j": stored}
    assert kind.validate_python(stored).backoff is None
    assert ONE["name"] == stored["graph"]["name"]
