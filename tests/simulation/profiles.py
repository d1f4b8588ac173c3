"""TaskManagers whose slots differ, and jobs that ask for what some of them have: no attempt runs in a slot that does not satisfy [R35]."""

from __future__ import annotations

from functools import partial
from typing import Any

from millrace.core.topics import RESOURCE_MANAGER
from tests.simulation import workload

GPU = {"extras": {"gpu": 1}}
LARGE = {"memory_mb": 4096, "cores": 2}


def asking(kind: Any, name: str, vertices: dict[str, dict[str, Any]], **fields: Any) -> workload.Graph:
    """A graph of which some vertices ask for resources of their own."""
    graph: workload.Graph = kind(name, **fields)
    its = {vertex: {**part, "resources": vertices[vertex]} if vertex in vertices else part for vertex, part in graph["vertices"].items()}
    return {**graph, "vertices": its}


PROFILED: dict[str, Any] = {
    "task_managers": 3,
    "slots": 2,
    "deciding": {
        RESOURCE_MANAGER: {"not_enough_resources_ms": 4_000},
        "task-manager/1": {"slot_cores": 1},
        "task-manager/2": {"slot_cores": 1, "slot_extras": {"gpu": 1}},
        "task-manager/3": {"slot_cores": 4, "slots_memory_mb": [4096, 8192], "slot_extras": {"gpu": 2, "ssd": 1}},
    },
    "graphs": (
        workload.single,
        workload.roots,
        partial(workload.wide, resources=GPU),
        partial(workload.single, resources=LARGE),
        partial(workload.single, resources={"extras": {"gpu": 3}}),  # nobody has so many: it fails
        partial(workload.roots, resources={"memory_mb": 4096}, together=True),
        partial(asking, workload.roots, vertices={"a": GPU, "b": LARGE, "c": {"cores": 4, "extras": {"ssd": 1}}}),
        partial(asking, workload.diamond, vertices={"left": GPU, "right": LARGE}),
        partial(asking, workload.wide, vertices={"sums": {"extras": {"gpu": 2}}}),
    ),
}
"""The shape of a trial of such clusters and jobs."""
