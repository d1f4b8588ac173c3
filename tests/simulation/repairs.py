"""I16: what counts was made of what counts. I17: what a repairing job has of others had finished there, and is what it would make."""

from __future__ import annotations

import json
from typing import Any

from millrace.core.jobgraph.compile import Plan, compile_graph
from millrace.core.jobgraph.model import JobGraph
from tests.simulation.cluster import Cluster


def assert_kept(cluster: Cluster, job: str, archive: dict[str, Any]) -> set[str]:
    """The subtasks that a job has of others, as their attempts are called: the job, the task's folder, the subtask."""
    plan = _plan(archive)
    kept: set[str] = set()
    for task in archive["detail"]["tasks"]:
        for each in task["subtasks"]:
            of = each.get("kept_from")
            if of is None or task["task"] not in plan.tasks:
                continue
            before = _archive(cluster, of)
            where = f"{task['task']}[{each['subtask']}]"
            assert where in _finished(before), f"I17: {job} has {where} of {of}, which had not finished it"
            for vertex in _above(plan, task["task"]):
                one, other = (found["graph"]["vertices"].get(vertex) for found in (archive, before))
                assert one == other, f"I17: {job} has {where} of {of}, where {vertex} is another: {other}"
            kept.add(f"{of}/{_folder(before, task['task'])}/{each['subtask']}")
    return kept


def assert_read(cluster: Cluster, job: str, archive: dict[str, Any]) -> None:
    """I16: what counts was made of nothing but what counts, though subtasks have run again after others had read of them."""
    subtasks = [each for task in archive["detail"]["tasks"] for each in task["subtasks"]]
    kept = assert_kept(cluster, job, archive)
    counted = {log["path"].rpartition("/")[2] for each in subtasks for log in each["logs"] if log["attempt"] == each["attempt"]}
    for attempt, folders in cluster.world.book.read.items():
        if attempt.startswith(f"{job}/") and _short(attempt) in counted:
            written = {folder: cluster.world.book.written[folder] for folder in folders}
            old = [folder for folder, by in written.items() if by.rpartition("/")[0] not in kept and _short(by) not in counted]
            assert not old, f"I16: {attempt} counts and has read {old}, which does not"


def assert_exchange(cluster: Cluster) -> None:
    """Nothing is left there but what is kept."""
    stored = [each for job in cluster.statuses() if (each := cluster.stored(job)) is not None]
    kept = {each.acceptance for each in stored if each.kept_until_ms is not None}
    lying = {entry.path.split("/")[1] for entry in cluster.world.storage.list("exchange")}
    assert lying <= kept, f"I17: in the exchange is left what nobody keeps: {lying - kept}"


def _plan(archive: dict[str, Any]) -> Plan:
    return compile_graph(JobGraph.model_validate(archive["graph"]))


def _archive(cluster: Cluster, job: str) -> dict[str, Any]:
    stored = cluster.stored(job)
    assert stored is not None and stored.archive is not None, f"I17: {job} has no archive"
    found: dict[str, Any] = json.loads(cluster.world.storage.get(stored.archive))
    return found


def _finished(archive: dict[str, Any]) -> set[str]:
    """The subtasks that a job had FINISHED at its end, by attempts of its own."""
    return {
        f"{task['task']}[{each['subtask']}]"
        for task in archive["detail"]["tasks"] for each in task["subtasks"] if each["state"] == "FINISHED" and each["attempt"]
    }  # fmt: skip


def _folder(archive: dict[str, Any], task: str) -> str:
    """Of a task that has run: the one in the names of its attempts. Of a job that was rescaled its number is no place in the plan."""
    found = next(each for each in archive["detail"]["tasks"] if each["task"] == task)
    logs = [log["path"] for each in found["subtasks"] for log in each["logs"]]
    return str(logs[0].rpartition("/")[2].partition(".")[0])


def _above(plan: Plan, task: str) -> set[str]:
    """The vertices of a task, and of all that it reads."""
    found = set(plan.tasks[task].vertices)
    for other in plan.tasks[task].upstream:
        found |= _above(plan, other)
    return found


def _short(attempt: str) -> str:
    """As its log's folder is called."""
    return attempt.partition("/")[2].replace("/", ".")
