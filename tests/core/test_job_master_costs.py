"""What a job costs its JobMaster: memory by what it has begun, work by what an event changes. Counted, not timed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.core.clocks import NowMs
from millrace.core.jobgraph.compile import PLAN_TASK, compile_graph, producers
from millrace.core.jobgraph.model import JobGraph
from millrace.core.machine import Envelope, stored_fields
from millrace.core.messages import slots
from millrace.core.messages.attempts import ResultRows
from millrace.core.messages.execution import ResultParts
from millrace.core.states import ExecutionState
from millrace.core.topics import Scope
from services.job_master.core import failover, publication
from services.job_master.core.execution_graph import begin, describe, mark_published
from services.job_master.core.state import Failure, Job, State
from tests.core.of_costs import lines
from tests.core.of_job_master import ONE, TM, USER, Shard, kinds

STEP: dict[str, Any] = {"sql": "SELECT 1", "parallelism": 128, "inputs": {"s": "hash(x)"}}
WIDE: dict[str, Any] = {
    "name": "wide",
    "vertices": {"s": {"sql": "SELECT 1 AS x", "parallelism": 128}, **{f"v{n}": STEP for n in range(198)}},
}
CHAIN: dict[str, Any] = {  # one subtask may run at first
    "name": "chain",
    "vertices": {
        "s": {"sql": "SELECT 1 AS x"},
        **{f"v{n}": {**STEP, "inputs": {f"v{n - 1}" if n else "s": "hash(x)"}} for n in range(198)},
    },
}


def written(state: State) -> int:
    """The bytes of the state in a snapshot."""
    return len(TypeAdapter(State).dump_json(state, include={*stored_fields(State)}))


def report(vertex: str, schema: str = "{}") -> dict[str, Any]:
    return {"outputs": {vertex: {"schema": schema, "rows": 1, "bytes": 9}}}


def finish(shard: Shard, graph: dict[str, Any], vertex: str, index: int, allocation: str, **told: Any) -> list[Any]:
    """The subtask in this slot has finished."""
    number = list(graph["vertices"]).index(vertex)
    attempt = f"j/{number}-{vertex}/{index}/1.1"
    told = {"report": report(vertex), **told}
    return shard(slots.TaskStateChanged(allocation=allocation, attempt=attempt, state="FINISHED", **told), TM)


def test_twenty_small_submissions_of_25_000_subtasks_each_take_no_memory_before_they_run() -> None:
    shard = Shard()
    for number in range(20):
        shard.start(CHAIN, job=f"j{number}")
    assert written(shard.state) < 20 * (len(json.dumps(CHAIN)) + 199 * 130 + 2_000)


def test_subtasks_of_a_task_have_one_schema_and_not_a_copy_each() -> None:
    shard = Shard()
    shard.start(WIDE)
    shard.offer(*(f"a{n}" for n in range(128)))
    before = written(shard.state)
    schema = json.dumps({"fields": [{"name": f"column_{n}", "type": "long"} for n in range(1_000)]})
    for n in range(100):
        finish(shard, WIDE, "s", n, f"a{n}", report=report("s", schema))
    assert written(shard.state) - before < 2 * len(schema)


def test_what_the_attempts_of_a_job_tell_is_bounded_by_bytes() -> None:
    shard = Shard()
    shard.start(CHAIN)
    shard.offer("a1")
    huge = json.dumps({"fields": [{"name": "x" * publication.REPORTS_BYTES_MAX, "type": "long"}]})
    said = finish(shard, CHAIN, "s", 0, "a1", report=report("s", huge))
    assert kinds(said)[-1] == "dispatcher JobEnded FAILED"
    assert shard.job.cause.condition == "REPORTS_TOO_LARGE"
    assert written(shard.state) < 100_000


def test_the_failures_that_a_job_keeps_are_bounded_in_number_and_bytes() -> None:
    """User code can write its error, too: all that it may hold is in it."""
    shard = Shard()
    shard.start({**ONE, "restart": {"attempts": 1000, "delay_ms": 0}})
    error = {**USER, "message": "m" * 100_000, **{f"field{n}": "x" * 10_000 for n in range(100)}, "deep": "y" * 100_000}
    shard.offer("a")
    for _ in range(10):
        shard.told("a", "FAILED", error=error)
    assert [failure.attempt for failure in shard.job.failures] == [8, 9, 10]
    assert written(shard.state) < 3 * failover.FAULT_BYTES_MAX + 5_000
    for number in range(2 * failover.KEPT_FAILURES_JOB):
        failover.keep_failure(shard.job, Failure("q", number, 1, 0, TM, {}))
    assert len(shard.job.failures) == failover.KEPT_FAILURES_JOB


def test_a_word_about_one_of_128_producers_costs_the_same_however_many_subtasks_wait_for_it() -> None:
    """The finding's graph: 99 consumers by hash, 12,672 subtasks, each looked at 128 producers at each record about the job."""
    wide = {**WIDE, "vertices": dict(list(WIDE["vertices"].items())[:100])}
    shard = Shard()
    shard.start(wide)
    shard.offer(*(f"a{n}" for n in range(128)))
    finish(shard, wide, "s", 0, "a0")
    assert lines(lambda: finish(shard, wide, "s", 1, "a1")) < 20_000


def test_what_a_reader_by_hash_is_sent_takes_few_steps_for_each_subtask_that_it_reads() -> None:
    """A thousand readers of a thousand subtasks are a million of these steps."""

    def lines_of(width: int) -> int:
        shard = Shard()
        step = {**STEP, "parallelism": width}
        wide = {"name": "w", "vertices": {"s": {"sql": "SELECT 1 AS x", "parallelism": width}, "v": step}}
        shard.start(wide)
        shard.offer(*(f"a{n}" for n in range(width)))
        for n in range(width):
            finish(shard, wide, "s", n, f"a{n}")
        offer = slots.OfferSlots(offers=[slots.SlotOffer(slot=0, allocation="b0", job="j", memory_mb=512)])
        envelope = Envelope(Scope(TM), 1, NowMs(1000), "1.9999", offer)
        count = lines(lambda: list(shard.machine.handle(shard.state, envelope)))
        assert shard.job.slots["b0"].task == "v"
        return count

    assert (lines_of(128) - lines_of(28)) / 100 < 6


def drawn(draw: random.Random) -> JobGraph:
    """A graph whose vertices read earlier ones by any edge; some have the same parallelism, so that forward edges are possible."""
    vertices: dict[str, Any] = {}
    for number in range(draw.randrange(2, 9)):
        width = draw.choice((1, 3, 3))
        inputs = {}
        for other, vertex in vertices.items():
            if draw.random() < 0.4:
                edges = ["hash(x)", "broadcast", *["forward"] * 3 * (vertex["parallelism"] == width)]
                inputs[other] = draw.choice(edges)
        vertices[f"v{number}"] = {"sql": "SELECT 1 AS x", "parallelism": width, "inputs": inputs}
    return JobGraph.model_validate({"name": "drawn", "vertices": vertices})


@pytest.mark.parametrize("seed", range(200))
def test_what_is_counted_lets_run_just_what_has_all_its_producers(seed: int) -> None:
    draw = random.Random(seed)
    plan = compile_graph(drawn(draw))
    job = Job(id="j", acceptance="1.1", life="1", graph={}, accepted_ms=0)
    begin(plan, job)
    if plan.needs_planning:
        job.tasks[PLAN_TASK].rows[0].state = ExecutionState.FINISHED
        mark_published(plan, job, PLAN_TASK, 0)
    everything = {(name, index) for name, task in plan.tasks.items() for index in range(task.parallelism)}
    done: set[tuple[str, int]] = set()
    while done != everything:
        made = {(name, index) for name in plan.tasks for index in job.tasks[name].rows}
        assert made == {one for one in everything if done.issuperset(producers(plan, *one))}
        name, index = draw.choice(sorted(made - done))
        job.tasks[name].rows[index].state = ExecutionState.FINISHED
        mark_published(plan, job, name, index)
        done.add((name, index))


def test_of_the_files_that_an_attempt_left_numbers_alone_are_kept() -> None:
    shard = Shard()
    shard.start({"name": "s", "vertices": {"s": {"sql": "SELECT 1"}}})
    shard.offer("a1")
    left = {"kept": 2, "bytes": 9, "left_out": 1, "names": "x" * 10_000}
    shard.told("a1", "FINISHED", report={"outputs": {"s": {"schema": "{s}"}}, "files": left})
    assert shard.job.tasks["s"].rows[0].files == (2, 9, 1)
    (subtask,) = describe(None, shard.job).json_value()["tasks"][0]["subtasks"]
    assert subtask["files"] == {"kept": 2, "bytes": 9, "left_out": 1}


def test_a_result_of_many_parts_is_bounded() -> None:
    shard = Shard()
    shard.start()
    part = ResultRows(columns=["x"], types=["string"], rows=[["y" * 15_000]], truncated=False)
    shard.job.results = {n: part for n in range(127)} | {
        127: ResultRows(path="results/x", columns=["x"], types=["string"])
    }
    found = publication.result(shard.job)
    assert isinstance(found, ResultParts) and found.json_bytes() < 300_000
    assert found.parts[-1].truncated and found.parts[-1].rows


def test_a_result_is_its_parts_in_order_and_a_part_by_path_is_only_named() -> None:
    shard = Shard()
    shard.start()
    one, two = (ResultRows(columns=["x"], types=["int"], rows=[[n]], truncated=False) for n in (1, 2))
    shard.job.results = {1: two, 0: one}
    assert publication.result(shard.job) == ResultRows(columns=["x"], types=["int"], rows=[[1], [2]], truncated=False)
    shard.job.results[2] = ResultRows(path="results/x", columns=["x"], types=["int"])
    assert publication.result(shard.job) == ResultParts(parts=[one, two, ResultRows(path="results/x")])
    shard.job.results = {}
    assert publication.result(shard.job) is None
