"""The folders of an exchange in short: what readers of a whole task are told, and what they make of it."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.core.jobgraph.specs import Whole, whole
from millrace.core.machine import Configured
from millrace.core.messages.attempts import AttemptReport, AttemptSpec, Fault, FolderRuns, OwnTime
from millrace.core.messages.progress import AttemptProgress
from services.job_master.core.state import ExecutionState, Subtask, Task
from services.task_manager.slot.attempt.exchange import folders_of
from tests.core.of_job_master import TWO, Shard
from tests.core.test_job_master_resetting import CHAIN, lost, specs, states, word


class Short(Shard):
    takes_runs = True


def begun(graph: dict[str, Any] = TWO, kind: type[Shard] = Short) -> tuple[Shard, list[Any]]:
    shard = kind()
    shard.start(graph)
    shard.offer("a1")
    said = word(shard, "a1", "FINISHED")
    return shard, [*specs(said), *specs(shard.offer("a2"))]


def inputs(given: list[Any], name: str = "a") -> list[Any]:
    return [each["vertices"][0]["inputs"][name] for each in given]


def test_readers_of_a_whole_task_are_told_of_it_in_short() -> None:
    _, given = begun()
    its = {"base": "/x/acc-j/1/0-a", "place": "0-a", "runs": [[1, 1]]}
    assert [each["published"] for each in inputs(given)] == [its, its]
    assert not any("folders" in each for each in inputs(given))


def test_in_short_they_are_told_the_same() -> None:
    _, short = begun()
    _, long = begun(kind=Shard)
    assert [folders_of(each) for each in inputs(short)] == [each["folders"] for each in inputs(long)]
    for mine, others in zip(inputs(short), inputs(long), strict=True):
        del mine["published"], others["folders"]
    assert short == long


def test_a_task_manager_that_does_not_understand_it_is_told_each_folder() -> None:
    shard, _ = begun(CHAIN)
    word(shard, "a1", "FINISHED")
    shard.job.slots["a2"].takes_runs = False
    [last] = specs(word(shard, "a2", "FINISHED"))
    [told] = inputs([last], "b")
    assert told["folders"] == ["/x/acc-j/1/1-b/0/1/0-b", "/x/acc-j/1/1-b/1/1/0-b"] and "published" not in told


def test_what_runs_again_is_told_with_its_new_attempt() -> None:
    shard, _ = begun(CHAIN)
    word(shard, "a1", "FINISHED")
    [before] = specs(word(shard, "a2", "FINISHED"))
    assert inputs([before], "b")[0]["published"]["runs"] == [[2, 1]]
    [allocation] = shard.job.slots
    word(shard, allocation, "FAILED", error=lost("1-b/1/1/0-b"))
    assert not shard.state.wholes.get(("acc-j", "b"))
    [again] = specs(word(shard, allocation, "FINISHED"))
    assert states(shard)["b"] == ["FINISHED 1", "FINISHED 2"]
    assert inputs([again], "b")[0]["published"]["runs"] == [[1, 1], [1, 2]]
    assert folders_of(inputs([again], "b")[0]) == ["/x/acc-j/1/1-b/0/1/0-b", "/x/acc-j/1/1-b/1/2/0-b"]


def test_a_new_leader_with_another_place_for_the_exchange_tells_of_that() -> None:
    shard, _ = begun(CHAIN)
    shard(Configured({"exchange_url": "/y"}), "")
    word(shard, "a1", "FINISHED")
    [last] = specs(word(shard, "a2", "FINISHED"))
    assert inputs([last], "b")[0]["published"]["base"] == "/y/acc-j/1/1-b"


def task(*rows: Subtask) -> Task:
    return Task(len(rows), finished=len(rows), rows=dict(enumerate(rows)))


def published(attempt: int, listed: tuple[str, ...] = ("v",), kept: str | None = None) -> Subtask:
    return Subtask(ExecutionState.FINISHED, attempt, listed=listed, kept=kept)


def test_runs_are_of_subtasks_in_a_row() -> None:
    assert whole(task(*[published(each) for each in (1, 1, 3, 1, 1, 1)])) == Whole([[2, 1], [1, 3], [3, 1]], ("v",))
    assert whole(task(published(1, ("v", "w")), published(2, ("w",)))) == Whole([[1, 1], [1, 2]], ("w",))
    assert whole(task(published(1), published(0, kept="acc-i/1/0-a/1/1"))) is None, "that lies elsewhere"


def test_their_rows_may_stand_in_any_order() -> None:
    its = task(published(1), published(2), published(2))
    its.rows = dict(reversed(its.rows.items()))
    assert whole(its) == Whole([[1, 1], [2, 2]], ("v",))


def test_a_thousand_folders_are_told_in_a_hundred_bytes() -> None:
    edge: Any = {"edge": "hash", "published": {"base": "/x/acc/1/0-map", "place": "0-map", "runs": [[1000, 1]]}}
    assert len(str(edge)) < 110
    assert (folders_of(edge)[0], folders_of(edge)[-1], len(folders_of(edge))) == (
        "/x/acc/1/0-map/0/1/0-map", "/x/acc/1/0-map/999/1/0-map", 1000,
    )  # fmt: skip


def test_an_input_of_the_same_attempt_has_none() -> None:
    assert folders_of({"edge": "chained"}) == []


SPEC = {
    "job": "j", "task": "t", "subtask": 1, "parallelism": 2, "attempt": 1, "kind": "run", "conf": {}, "modules": [], "parameters": {},
    "vertices": [
        {"id": "a", "sql": "x", "schema": None, "parallelism": 3, "inputs": {"m": {"edge": "hash", "later": [1], "schema": "{}"}}}
    ],
    "outputs": [{"vertex": "a", "edge": "result", "rows": 3}], "pinned": {"m": {"schema": "", "files": [["a", 1, 2]]}}, "unknown": {"x": 1},
}  # fmt: skip
DONE = {**dict.fromkeys(AttemptProgress.model_fields, 0), "rows_read": 3}
REPORT = {"outputs": {"a": {"schema": "S", "listed": True, "later": 2}}, "progress": DONE}


@pytest.mark.parametrize(("kind", "value"), [(AttemptSpec, SPEC), (AttemptReport, REPORT), (Fault, {"kind": "user"}), (OwnTime, {})])
def test_what_is_open_is_written_as_it_was_given_and_so_are_its_parts(kind: Any, value: dict[str, Any]) -> None:
    read = kind.model_validate_json(kind.model_validate(value).model_dump_json())
    assert read.json_value() == read.model_dump() == value
    assert kind.model_validate(value) == read


def test_of_what_is_open_parts_may_be_left_out_as_of_any_model() -> None:
    read = AttemptSpec.model_validate(SPEC)
    assert "schema" not in read.model_dump(exclude_none=True)["vertices"][0]
    assert "job" not in read.model_dump(exclude={"job"})


def test_runs_are_parts_like_others() -> None:
    assert FolderRuns(base="/x", place="0-a", runs=[[1, 1]]).json_value() == {"base": "/x", "place": "0-a", "runs": [[1, 1]]}
