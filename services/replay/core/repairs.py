"""What a repairing job begins with, and what a rescaled one had finished, redacted so that it keeps the same: a JobMaster compares digests
of graphs, and a redacted graph has other ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.core.jobgraph.compile import PLANNER, Plan, compile_graph
from millrace.core.jobgraph.definitions import definitions, planning
from millrace.core.jobgraph.model import JobGraph
from millrace.core.jobgraph.rescale import with_parallelism
from millrace.core.messages.attempts import AttemptReport
from millrace.core.messages.kept import Kept

Value = Mapping[str, Any]


def has_kept(value: Value) -> bool:
    """Whether it has a graph, and what is kept for that: StartJob, and a job in a JobMaster's state."""
    return isinstance(value.get("graph"), dict) and isinstance(value.get("kept"), dict) and isinstance(value["kept"].get("tasks"), dict)


def kept_alike(before: Value, after: dict[str, Any]) -> dict[str, Any]:
    """`after`, which is `before` redacted, with digests that are of its own graph where those of `before` are of that one's.

    A digest is of a part of the graph, and of what was planned for that. Where the plan is made anew, what this build compares with is
    not known here. But a digest that is of the graph with the plan as it was kept stays that: so it is met by the same plans as before.
    """
    try:
        old, new = Kept.model_validate(before["kept"]), Kept.model_validate(after["kept"])
        its, others = _plan(before), _plan(after)
        was, now = definitions(its, old.planned), definitions(others, new.planned)
    except (ValueError, KeyError, TypeError):
        return after  # a graph that this build does not compile keeps nothing
    kept = dict(after["kept"])
    if old.planning and old.planning == planning(its):
        kept["planning"] = planning(others)
    for name, task in old.tasks.items():
        if name in was and name in now:
            same = {"definition": now[name].what} if task.definition == was[name].what else {}
            same |= {"files": now[name].files} if task.files == was[name].files else {}
            kept["tasks"] = {**kept["tasks"], name: {**kept["tasks"][name], **same}}
    return {**after, "kept": kept}


def has_carried(value: Value) -> bool:
    """Whether it is a job in a JobMaster's state that was rescaled, and is planned anew: it has what it had finished, with digests."""
    rescaled = value.get("rescaled")
    return isinstance(value.get("graph"), dict) and isinstance(rescaled, dict) and bool(rescaled.get("defined"))


def carried_alike(before: Value, after: dict[str, Any]) -> dict[str, Any]:
    """As `kept_alike`, of a rescaled job. Its digests are of the plan before. A task whose digest that plan still gives with the graph of
    now is met by the next plan if that is alike; so it must be in redacted words."""
    old, new = before["rescaled"], after["rescaled"]
    try:
        was = definitions(_plan(before), AttemptReport.model_validate(old["planned"]))
        now = definitions(_plan(after), AttemptReport.model_validate(new["planned"]))
    except (ValueError, KeyError, TypeError):
        return after  # of a build that kept no such plan
    same = {name: "/".join(now[name]) for name, text in old["defined"].items() if name in was and text == "/".join(was[name])}
    return {**after, "rescaled": {**new, "defined": {**new["defined"], **same}}}


def _plan(value: Value) -> Plan:
    graph, asked = value["graph"], value.get("rescale")
    if isinstance(asked, dict):
        graph = with_parallelism(graph, asked["parallelism"])
    return compile_graph(JobGraph.model_validate(graph), value.get("planner", PLANNER))
