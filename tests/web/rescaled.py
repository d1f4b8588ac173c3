"""What of the client library is about a job's parallelism, over plain values: a job whose vertices a and b may have several subtasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.client import Invalid, NotFound, Refused
from millrace.core.messages.client import Problem
from millrace.core.messages.requirements import RequirementsUpdated, VertexRequirement

WHY = "a spark_app has parallelism 1, not 2"


def vertices(a: int = 2, b: int = 1) -> list[VertexRequirement]:
    return [
        VertexRequirement(vertex="a", parallelism=a, most=128, group="a"),
        VertexRequirement(vertex="b", parallelism=b, most=128, group="b"),
        VertexRequirement(vertex="c", parallelism=b, most=128, group="b"),
        VertexRequirement(vertex="app", parallelism=1, most=1, group="app", why=WHY),
    ]


class Rescaling:
    """Of a client."""

    def __init__(self) -> None:
        self.rescaled: list[tuple[Any, ...]] = []

    def requirements(self, job: str) -> list[VertexRequirement]:
        if job in ("unknown", "x"):
            raise NotFound(f"there is no job {job}")
        if job == "done":
            raise Refused(f"job {job} has ended already: it is FINISHED")
        return vertices()

    def rescale(self, job: str, parallelism: int | None = None, vertices: Mapping[str, int] | None = None) -> RequirementsUpdated:
        before = self.requirements(job)
        if (vertices or {}).get("app", 1) > 1:
            raise Invalid(f"app: stays at 1, not 2: {WHY}", [Problem(place=["vertices", "app"], message=f"stays at 1, not 2: {WHY}")])
        self.rescaled.append((job, parallelism, dict(vertices or {})))
        changed = {"a": parallelism or 2} if (parallelism or 2) != 2 else {}
        return RequirementsUpdated(correlation="1", job=job, changed=changed, vertices=before)
