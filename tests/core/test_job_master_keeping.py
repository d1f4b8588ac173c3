"""What a job that fails leaves for one that repairs it, and what that one begins with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.core.jobgraph.compile import PLAN_TASK, compile_graph
from millrace.core.jobgraph.definitions import definitions
from millrace.core.jobgraph.model import JobGraph
from millrace.core.machine import Publish, Say
from millrace.core.messages import effects, jobs, slots
from millrace.core.messages.events import SubtasksKept
from millrace.core.messages.execution import Archive, JobOrigin
from millrace.core.messages.kept import Kept
from millrace.core.states import JobStatus
from services.job_master.core.execution_graph import describe
from services.job_master.core.plans import running_plan
from tests.core.of_job_master import TM, Shard, kinds, undeclared
from tests.core.test_job_master_resetting import lost, specs, states

THREE: dict[str, Any] = {
    "name": "three",
    "modules": [{"name": "first.py", "sha256": "1" * 64}, {"name": "last.py", "sha256": "2" * 64}],
    "vertices": {
        "a": {"sql": "SELECT 1 AS x", "parallelism": 2},
        "b": {"python": "first:f", "schema": "x INT", "parallelism": 2, "inputs": {"a": "hash(x)"}},
        "c": {"python": "last:f", "schema": "x INT", "parallelism": 2, "inputs": {"b": "hash(x)"}},
    },
}
ANALYSIS = {"kind": "user", "retryable": False, "message": "KeyError: 'id'"}


def tell(shard: Shard, allocation: str, state: str, job: str = "j", **more: Any) -> list[Any]:
    of = shard.state.jobs[job]
    held = of.slots[allocation]
    row = of.tasks[held.task].rows[held.subtask]
    if state == "FINISHED":
        more.setdefault("report", {"outputs": {held.task: {"schema": "{}", "rows": 3, "bytes": 9, "listed": True}}})
    folder = {"a": "0-a", "b": "1-b", "c": "2-c", PLAN_TASK: "plan", "s": "0-s", "t": "1-t"}[held.task]
    attempt = f"{job}/{folder}/{held.subtask}/{of.life}.{row.attempt}"
    return shard(slots.TaskStateChanged(allocation=allocation, attempt=attempt, state=state, **more), TM)


def ended(said: list[Any]) -> jobs.JobEnded:
    [body] = [each.body for each in said if isinstance(each, Say) and isinstance(each.body, jobs.JobEnded)]
    return body


def failed(graph: dict[str, Any] = THREE) -> tuple[Shard, Kept]:
    """a and b have finished; a subtask of c fails for good while the other one runs."""
    shard = Shard()
    shard.start(graph)
    shard.offer("a1", "a2")
    for other, more in (("a1", "b1"), ("b1", "c1")):  # a slot that has nothing to run is given back
        tell(shard, other, "FINISHED")
        tell(shard, "a2", "FINISHED")
        shard.offer(more)
    assert states(shard)["c"] == ["DEPLOYING 1", "DEPLOYING 1"]
    tell(shard, "c1", "FAILED", error=ANALYSIS)
    said = tell(shard, "a2", "CANCELED")
    assert shard.job.status is JobStatus.FAILED
    kept = ended(said).kept
    assert kept is not None and not kept.why
    return shard, Kept.model_validate_json(kept.model_dump_json())


def repaired(shard: Shard, kept: Kept, graph: dict[str, Any] = THREE, job: str = "r", of: str = "j", **origin: Any) -> list[Any]:
    wanted = {**graph, "origin": {"job": of, "repair": True, **origin}}
    return shard(jobs.StartJob(job=job, acceptance=f"acc-{job}", graph=wanted, accepted_ms=600, kept=kept))


def of(shard: Shard, job: str = "r") -> dict[str, list[str]]:
    return {
        name: [f"{row.state.value} {row.attempt}" for _, row in sorted(task.rows.items())]
        for name, task in shard.state.jobs[job].tasks.items()
    }


def told(said: list[Any]) -> list[tuple[str, list[int], str]]:
    bodies = [each.body for each in said if isinstance(each, Publish) and isinstance(each.body, SubtasksKept)]
    return [(body.task, body.subtasks, body.kept_from) for body in bodies]


def changed(**modules: str) -> dict[str, Any]:
    return {**THREE, "modules": [{**each, "sha256": modules.get(each["name"][:-3], each["sha256"])} for each in THREE["modules"]]}


def test_a_failed_job_names_what_its_counted_attempts_left() -> None:
    _, kept = failed()
    assert list(kept.tasks) == ["a", "b"], "c has not finished"
    assert (kept.jobs, kept.bytes, kept.planned) == ({"acc-j": "j"}, 36, None)
    b = kept.tasks["b"]
    assert (b.places, b.schemas) == (["acc-j/1/1-b"], {"b": "{}"})
    assert [(each.subtask, each.place, each.attempt) for each in b.subtasks] == [(0, 0, 1), (1, 0, 1)]
    assert [each.outputs["b"].json_value() for each in b.subtasks] == [{"rows": 3, "bytes": 9, "listed": True}] * 2


def test_a_client_reads_it_in_an_archive() -> None:
    _, kept = failed()
    archive = Archive(job="j", name="n", status="FAILED", accepted_ms=1, ended_ms=2, kept=kept)
    assert Archive.model_validate(json.loads(archive.model_dump_json())) == archive


def test_a_repairing_job_begins_behind_it() -> None:
    shard, kept = failed()
    said = repaired(shard, kept, changed(last="3" * 64))
    assert kinds(said) == [
        "event SubtasksKept", "event SubtasksKept", "resource-manager RequestSlots 2", "dispatcher JobMasterStarted RUNNING",
        "event JobStateChanged RUNNING",
    ]  # fmt: skip
    assert told(said) == [("a", [0, 1], "j"), ("b", [0, 1], "j")]
    assert of(shard) == {"a": ["FINISHED 0", "FINISHED 0"], "b": ["FINISHED 0", "FINISHED 0"], "c": ["SCHEDULED 0", "SCHEDULED 0"]}
    said = shard.offer("r1", "r2", job="r")
    folders = [each["vertices"][0]["inputs"]["b"]["folders"] for each in specs(said)]
    assert folders == [["/x/acc-j/1/1-b/0/1/0-b", "/x/acc-j/1/1-b/1/1/0-b"]] * 2, "they are read where they lie"
    assert [each["vertices"][0]["inputs"]["b"]["listed"] for each in specs(said)] == [True, True], "a single file that is gone is missed"
    detail = describe(running_plan(shard.state, shard.state.jobs["r"]), shard.state.jobs["r"])
    assert detail.origin == JobOrigin(job="j", repair=True)
    assert [each.kept_from for task in detail.tasks for each in task.subtasks] == ["j"] * 4 + [None, None]
    assert not [*undeclared(detail)]
    tell(shard, "r1", "FINISHED", "r")
    assert ended(tell(shard, "r2", "FINISHED", "r")).status == "FINISHED"
    assert ended_kept(shard) is None, "a FINISHED job needs no repair"


def ended_kept(shard: Shard) -> Kept | None:
    from services.job_master.core.reporting import job_ended

    job = shard.state.jobs["r"]
    body: Any = job_ended(job, running_plan(shard.state, job)).body
    return body.kept


@pytest.mark.parametrize(
    ("graph", "kept_tasks"),
    [
        (THREE, ["a", "b"]),
        (changed(first="3" * 64), ["a"]),
        ({**THREE, "modules": [*THREE["modules"], {"name": "helper.py", "sha256": "4" * 64}]}, ["a"]),
        ({**THREE, "vertices": {**THREE["vertices"], "a": {"sql": "SELECT 2 AS x", "parallelism": 2}}}, []),
        ({**THREE, "conf": {"spark.sql.ansi.enabled": "false"}}, []),
        ({**THREE, "priority": 5, "restart": {"strategy": "none"}, "name": "other"}, ["a", "b"]),
        ({**THREE, "parameters": {"day": "1"}}, ["a"]),
        ({**THREE, "vertices": {**THREE["vertices"], "c": {**THREE["vertices"]["c"], "parallelism": 3}}}, ["a"]),
    ],
)
def test_what_is_the_same_is_kept(graph: dict[str, Any], kept_tasks: list[str]) -> None:
    shard, kept = failed()
    said = repaired(shard, kept, graph)
    assert [task for task, _, _ in told(said)] == kept_tasks
    ready = [name for name, task in shard.state.jobs["r"].tasks.items() if task.ready]
    assert ready == [next(name for name in THREE["vertices"] if name not in kept_tasks)], "what follows runs"


def test_with_keep_changed_other_files_do_not_matter_but_definitions_do() -> None:
    shard, kept = failed()
    said = repaired(shard, kept, changed(first="3" * 64, last="4" * 64), keep_changed=True)
    assert [task for task, _, _ in told(said)] == ["a", "b"]
    other = {**THREE, "vertices": {**THREE["vertices"], "b": {**THREE["vertices"]["b"], "python": "first:g"}}}
    assert [task for task, _, _ in told(repaired(shard, kept, other, job="s", keep_changed=True))] == ["a"]


def test_kept_rows_that_turn_out_to_be_gone_are_made_anew() -> None:
    shard, kept = failed()
    repaired(shard, kept)
    shard.offer("r1", "r2", job="r")
    gone = lost()
    gone["lost"] = "/x/acc-j/1/1-b/0/1/0-b"
    said = tell(shard, "r1", "FAILED", "r", error=gone)
    assert of(shard)["b"] == ["DEPLOYING 1", "FINISHED 0"] and specs(said)[0]["task"] == "b"
    assert specs(said)[0]["vertices"][0]["inputs"]["a"]["folders"] == ["/x/acc-j/1/0-a/0/1/0-a", "/x/acc-j/1/0-a/1/1/0-a"]
    assert specs(said)[0]["outputs"][0]["folder"] == "/x/acc-r/1/1-b/0/1/0-b", "into a folder of its own"
    tell(shard, "r2", "CANCELED", "r")
    said = tell(shard, "r1", "FINISHED", "r")
    assert [each["vertices"][0]["inputs"]["b"]["folders"] for each in specs(said)] == [
        ["/x/acc-r/1/1-b/0/1/0-b", "/x/acc-j/1/1-b/1/1/0-b"]
    ]


def test_a_repair_that_fails_can_be_repaired() -> None:
    shard, kept = failed()
    repaired(shard, kept)
    shard.offer("r1", "r2", job="r")
    tell(shard, "r1", "FAILED", "r", error=ANALYSIS)
    again = ended(tell(shard, "r2", "CANCELED", "r")).kept
    assert again is not None and again.jobs == {"acc-j": "j"}
    assert again.model_copy(update={"bytes": kept.bytes}) == kept, "what it was given, it hands on"
    assert told(repaired(shard, again, job="s", of="r")) == [("a", [0, 1], "j"), ("b", [0, 1], "j")]


def test_one_whose_rows_were_made_anew_hands_on_rows_of_both() -> None:
    shard, kept = failed()
    repaired(shard, kept)
    shard.offer("r1", "r2", job="r")
    gone = lost()
    gone["lost"] = "/x/acc-j/1/1-b/0/1/0-b"
    tell(shard, "r1", "FAILED", "r", error=gone)
    tell(shard, "r2", "CANCELED", "r")
    tell(shard, "r1", "FINISHED", "r")
    again = ended(tell(shard, "r1", "FAILED", "r", error=ANALYSIS)).kept
    assert again is not None and again.jobs == {"acc-j": "j", "acc-r": "r"}
    assert again.tasks["b"].places == ["acc-r/1/1-b", "acc-j/1/1-b"]
    assert told(repaired(shard, again, job="s", of="r"))[1:] == [("b", [0], "r"), ("b", [1], "j")]


def test_a_canceled_job_is_kept_and_a_finished_part_of_a_task() -> None:
    shard = Shard()
    shard.start(THREE)
    shard.offer("a1", "a2")
    tell(shard, "a1", "FINISHED")
    shard(jobs.CancelStartedJob(job="j"))
    kept = ended(tell(shard, "a2", "CANCELED")).kept
    assert kept is not None and [each.subtask for each in kept.tasks["a"].subtasks] == [0]
    repaired(shard, kept)
    assert of(shard) == {"a": ["FINISHED 0", "SCHEDULED 0"], "b": [], "c": []}


def test_what_had_not_finished_anything_leaves_nothing() -> None:
    shard = Shard()
    shard.start(THREE)
    shard.offer("a1", "a2")
    tell(shard, "a1", "FAILED", error=ANALYSIS)
    assert ended(tell(shard, "a2", "CANCELED")).kept is None


def test_what_writes_a_sink_or_gives_the_result_runs_again_and_what_reads_of_it() -> None:
    sink = {"sink": {"format": "parquet", "path": "/data/out"}, "inputs": {"a": "forward"}, "parallelism": 2}
    graph = {**THREE, "result": "b", "vertices": {**THREE["vertices"], "out": sink}}
    plan = compile_graph(JobGraph.model_validate(graph))
    assert next([output.edge for output in task.outputs] for task in plan.tasks.values()) == ["hash", "sink"]
    shard = Shard()
    shard.start(graph)
    shard.offer("a1", "a2")
    for allocation in ("a1", "a2"):
        held = shard.job.slots[allocation]
        shard(
            slots.TaskStateChanged(
                allocation=allocation, attempt=f"j/0-out/{held.subtask}/1.1", state="FINISHED",
                report={"outputs": {"a": {"schema": "{}"}}},
            ), TM,
        )  # fmt: skip
    assert states(shard)["a+out"] == ["FINISHED 1", "FINISHED 1"]
    shard(jobs.CancelStartedJob(job="j"))
    for allocation in list(shard.job.slots):
        tell(shard, allocation, "CANCELED")
    assert shard.job.status is JobStatus.CANCELED and ended_of(shard, "j").kept is None


def ended_of(shard: Shard, job: str) -> jobs.JobEnded:
    from services.job_master.core.reporting import job_ended

    body = job_ended(shard.state.jobs[job], running_plan(shard.state, shard.state.jobs[job])).body
    assert isinstance(body, jobs.JobEnded)
    return body


SINKS: dict[str, Any] = {
    "name": "sinks",
    "vertices": {
        "a": {"sql": "SELECT 1 AS x", "parallelism": 2},
        "b": {"sql": "SELECT x FROM a", "inputs": {"a": "hash(x)"}},
        "one": {"sink": {"format": "parquet", "path": "/data/one"}, "inputs": {"b": "forward"}},
        "two": {"sink": {"format": "parquet", "path": "/data/two"}, "inputs": {"b": "forward"}},
    },
}


@pytest.mark.parametrize("one", [None, "the path is there already"])
def test_a_sink_that_is_published_is_never_written_by_a_repair(one: str | None) -> None:
    shard = Shard()
    shard.start(SINKS)
    shard.offer("a1", "a2")
    tell(shard, "a1", "FINISHED")
    tell(shard, "a2", "FINISHED")
    [allocation] = shard.job.slots
    report = {"outputs": {"b": {"schema": "{}"}}}
    folder = "1-two"
    shard(slots.TaskStateChanged(allocation=allocation, attempt=f"j/{folder}/0/1.1", state="FINISHED", report=report), TM)
    assert shard.job.sinks == {"one": False, "two": False}
    shard(effects.SinkPublished(job="j", vertex="one", problem=one))
    shard(effects.SinkPublished(job="j", vertex="two", problem="the path is there already"))
    kept = ended_of(shard, "j").kept
    assert kept is not None
    if one is None:
        assert not kept.tasks and kept.why == "its sink one is published already, and would be written twice"
    else:
        assert not kept.why and list(kept.tasks) == ["a"], "nothing is seen at any path"


PLANNED: dict[str, Any] = {
    "name": "planned",
    "modules": [{"name": "last.py", "sha256": "2" * 64}],
    "vertices": {
        "s": {"source": {"format": "csv", "path": "/data/x.csv"}, "parallelism": 2},
        "t": {"python": "last:f", "parallelism": 2, "inputs": {"s": "hash(x)"}},
    },
}
PINNED = {"pinned": {"s": {"schema": "{}", "files": [["/data/x.csv", 9, 7]], "splits": 2, "split_bytes": 5}}, "time_zone": "UTC"}


def planned(shard: Shard, job: str, pinned: dict[str, Any] = PINNED) -> list[Any]:
    shard.offer(f"{job}0", job=job)
    return tell(shard, f"{job}0", "FINISHED", job, report=pinned)


def failed_after_planning() -> tuple[Shard, Kept]:
    shard = Shard()
    shard.start(PLANNED)
    planned(shard, "j")
    shard.offer("j1")
    tell(shard, "j1", "FINISHED")
    tell(shard, "j0", "FINISHED")
    shard.offer("j2")
    tell(shard, "j0", "FAILED", error=ANALYSIS)
    kept = ended(tell(shard, "j2", "CANCELED")).kept
    assert kept is not None
    return shard, kept


def test_the_same_graph_is_not_planned_again() -> None:
    shard, kept = failed_after_planning()
    assert told(repaired(shard, kept, PLANNED)) == [(PLAN_TASK, [0], "j"), ("s", [0, 1], "j")]
    assert of(shard) == {PLAN_TASK: ["FINISHED 0"], "s": ["FINISHED 0"] * 2, "t": ["SCHEDULED 0"] * 2}


@pytest.mark.parametrize(
    ("pinned", "is_kept"),
    [
        (PINNED, True),
        ({**PINNED, "pinned": {"s": {**PINNED["pinned"]["s"], "files": [["/data/x.csv", 9, 8]]}}}, False),
        ({**PINNED, "pinned": {"s": {**PINNED["pinned"]["s"], "columns": ["x"]}}}, False),
        ({**PINNED, "time_zone": "Europe/Berlin"}, False),
    ],
)
def test_another_file_is_planned_anew_and_what_is_planned_alike_is_kept(pinned: dict[str, Any], is_kept: bool) -> None:
    shard, kept = failed_after_planning()
    graph = {**PLANNED, "modules": [{"name": "last.py", "sha256": "3" * 64}]}
    assert told(repaired(shard, kept, graph)) == []
    assert of(shard) == {PLAN_TASK: ["SCHEDULED 0"], "s": [], "t": []}
    said = planned(shard, "r", pinned)
    assert told(said) == ([("s", [0, 1], "j")] if is_kept else [])
    ready = {name: task.parallelism - task.finished for name, task in shard.state.jobs["r"].tasks.items() if task.ready or task.rows}
    assert ready == ({PLAN_TASK: 0, "s": 0, "t": 2} if is_kept else {PLAN_TASK: 0, "s": 2})


def test_a_repair_of_a_shard_that_is_born_anew_begins_with_the_same() -> None:
    _, kept = failed()
    shard = Shard(generation=2)
    repaired(shard, kept)
    assert of(shard)["b"] == ["FINISHED 0"] * 2
    shard.offer("r1", "r2", job="r")
    assert {each.life for each in shard.state.jobs.values()} == {"2"}


def test_a_list_that_is_too_long_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.job_master.core.keeping.KEPT_BYTES_MOST", 100)
    shard = Shard()
    shard.start(THREE)
    shard.offer("a1", "a2")
    tell(shard, "a1", "FINISHED")
    shard(jobs.CancelStartedJob(job="j"))
    kept = ended(tell(shard, "a2", "CANCELED")).kept
    assert kept is not None and not kept.tasks and "more than can be handed on" in kept.why


def test_the_definition_of_a_task_follows_from_all_that_it_reads() -> None:
    one = definitions(compile_graph(JobGraph.model_validate(THREE)), None)
    other = {**THREE, "vertices": {**THREE["vertices"], "a": {"sql": "SELECT 2 AS x", "parallelism": 2}}}
    two = definitions(compile_graph(JobGraph.model_validate(other)), None)
    assert all(one[task].what != two[task].what for task in one)
    assert one["c"].files == two["c"].files
