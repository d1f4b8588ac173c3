"""A repair in a redacted export keeps what it kept: digests of what is redacted would be others, and the job would run all again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest
from pydantic import TypeAdapter

from millrace.core.messages import jobs, slots
from millrace.core.messages.kept import Kept
from services.job_master.core.execution_graph import attempt_name, task_folder
from services.job_master.core.plans import running_plan
from services.job_master.core.state import State, check
from services.replay.core.redaction import masked, tokens, walk
from tests.core.of_job_master import TM, Shard
from tests.core.test_job_master_keeping import (
    PINNED,
    PLANNED,
    THREE,
    changed,
    failed,
    failed_after_planning,
    of,
    planned,
    told,
)
from tests.core.test_job_master_rescaling import ask

TOKEN = tokens(b"key")


def start(graph: dict[str, Any], kept: Kept, **more: Any) -> dict[str, Any]:
    wanted = {**graph, "origin": {"job": "j", "repair": True, **more.pop("origin", {})}}
    body = jobs.StartJob(job="r", acceptance="acc-r", graph=wanted, accepted_ms=600, kept=kept, **more)
    value: dict[str, Any] = json.loads(body.model_dump_json())
    return value


def folded(body: dict[str, Any]) -> tuple[Shard, list[Any]]:
    shard = Shard()
    said = shard(jobs.StartJob.model_validate_json(json.dumps(body)))
    check(shard.state)
    return shard, said


def same(body: dict[str, Any]) -> list[str]:
    """The tasks that are kept, of the record and of the redacted one."""
    (before, whole), (after, redacted) = folded(body), folded(walk(body, TOKEN))
    assert of(before) == of(after) and told(whole) == told(redacted)
    assert [masked(output.body.model_dump_json().encode()) for output in whole] == [
        masked(output.body.model_dump_json().encode()) for output in redacted
    ]
    return [task for task, _, _ in told(redacted)]


@pytest.mark.parametrize(("graph", "kept_tasks"), [
    (THREE, ["a", "b"]),
    (changed(first="3" * 64), ["a"]),
    ({**THREE, "vertices": {**THREE["vertices"], "a": {"sql": "SELECT 2 AS x", "parallelism": 2}}}, []),
    ({**THREE, "parameters": {"day": "1"}}, ["a"]),
    ({**THREE, "env": {"DAY": "1"}}, ["a"]),
])  # fmt: skip
def test_a_redacted_repair_keeps_the_same(graph: dict[str, Any], kept_tasks: list[str]) -> None:
    _, kept = failed()
    assert same(start(graph, kept)) == kept_tasks


def test_so_it_does_whatever_files_have_changed() -> None:
    _, kept = failed()
    assert same(start(changed(first="3" * 64), kept, origin={"keep_changed": True})) == ["a", "b"]


def test_so_it_does_with_another_parallelism() -> None:
    _, kept = failed()
    body = start(THREE, kept, rescale={"parallelism": {"c": 3}, "log": "l", "offset": 3})
    assert same(body) == ["a"], "of b others take their shares now"


def test_nothing_of_it_is_in_plain_words() -> None:
    _, kept = failed()
    text = json.dumps(walk(start(THREE, kept), TOKEN))
    assert "SELECT" not in text and "first" not in text
    assert not any(digest in text for digest in [task.definition for task in kept.tasks.values()])


def test_a_plan_that_is_kept_holds_in_the_redacted_repair_too() -> None:
    _, kept = failed_after_planning()
    assert kept.planned is not None and same(start(PLANNED, kept)) == ["@plan", "s"]


@pytest.mark.parametrize("changed_ms", [7, 8])
def test_so_does_what_is_planned_anew_where_it_is_planned_alike(changed_ms: int) -> None:
    _, kept = failed_after_planning()
    graph = {**PLANNED, "modules": [{"name": "last.py", "sha256": "3" * 64}]}
    pinned = {**PINNED, "pinned": {"s": {**PINNED["pinned"]["s"], "files": [["/data/x.csv", 9, changed_ms]]}}}
    body = start(graph, kept)
    (before, whole), (after, redacted) = folded(body), folded(walk(body, TOKEN))
    assert told(whole) == told(redacted) == []
    is_kept = [("s", [0, 1], "j")] if changed_ms == 7 else []
    assert told(planned(before, "r", pinned)) == is_kept == told(planned(after, "r", walk(pinned, TOKEN)))
    assert of(before) == of(after)


def test_a_graph_that_cannot_be_compiled_is_redacted_as_ever() -> None:
    _, kept = failed()
    body = {**start(THREE, kept), "graph": {"vertices": {"a": 5}}}
    assert walk(body, TOKEN)["kept"]["tasks"]["a"]["definition"] == TOKEN(kept.tasks["a"].definition)


def test_places_of_what_is_kept_stay_in_a_state() -> None:
    _, kept = failed()
    shard, _ = folded(start(THREE, kept))
    job = asdict(shard.state.jobs["r"])
    found = walk({"tasks": {"a": {"rows": job["tasks"]["a"]["rows"]}}, "kept_of": job["kept_of"]}, TOKEN)
    assert found["kept_of"] == {"acc-j": "j"}


def word(shard: Shard, allocation: str, state: str, report: Any = None) -> list[Any]:
    """Of the attempt that is in this slot now."""
    job = shard.job
    held = job.slots[allocation]
    outputs = {vertex: {"schema": "{}", "rows": 1, "bytes": 9} for vertex in held.task.split("+")}
    folder = task_folder(running_plan(shard.state, job), held.task)
    attempt = attempt_name(job, folder, held.subtask, job.tasks[held.task].rows[held.subtask].attempt)
    report = {"report": report or {"outputs": outputs}} if state == "FINISHED" else {}
    return shard(slots.TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **report), TM)


def rescaled() -> Shard:
    """A job that is planned anew: of `s`, which stays the same, both subtasks had finished."""
    d = {"sql": "SELECT x FROM p", "parallelism": 2, "inputs": {"p": "hash(x)"}}
    vertices = {**PLANNED["vertices"], "p": {"sql": "SELECT 1 AS x"}, "d": d}
    shard = Shard()
    shard.start({**PLANNED, "vertices": vertices})
    planned(shard, "j")
    shard.offer("j1", "j2")
    for allocation in list(shard.job.slots):
        word(shard, allocation, "FINISHED")
    ask(shard, d=3)
    for allocation in list(shard.job.slots):
        word(shard, allocation, "CANCELED")
    shard.offer("j9")
    assert shard.job.planned is None and [*shard.job.rescaled.defined] == ["s", "p"]
    return shard


def of_snapshot(state: State, token: Any = None) -> Shard:
    """A shard that goes on from a snapshot, or from a redacted one."""
    shard, value = Shard(), json.loads(TypeAdapter(State).dump_json(state))
    shard.state = TypeAdapter(State).validate_json(json.dumps(walk(value, token) if token else value))
    shard.offset, shard.now = 100, shard.now + 1
    shard.state.plans, shard.state.wholes, shard.state.patterns = {}, {}, {}
    check(shard.state)
    return shard


@pytest.mark.parametrize("changed_ms", [7, 8])
def test_a_redacted_snapshot_of_a_rescaled_job_that_is_planned_anew_folds_alike(changed_ms: int) -> None:
    whole = rescaled().state
    pinned = {**PINNED, "pinned": {"s": {**PINNED["pinned"]["s"], "files": [["/data/x.csv", 9, changed_ms]]}}}
    before, after = of_snapshot(whole), of_snapshot(whole, TOKEN)
    [allocation] = before.job.slots
    said = [word(before, allocation, "FINISHED", pinned), word(after, allocation, "FINISHED", walk(pinned, TOKEN))]
    assert [masked(each.body.model_dump_json().encode()) for each in said[0]] == [
        masked(each.body.model_dump_json().encode()) for each in said[1]
    ]
    kept = [("s", [0, 1], "j")] if changed_ms == 7 else []
    assert [each for each in told(said[1]) if each[0] == "s"] == kept and of(before, "j") == of(after, "j")
    assert after.job.rescaled.planned is None
