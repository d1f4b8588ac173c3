"""The table of spans: what services trace. docs/traces.md shows it.

A span is made where something is over, of facts that are there anyway, and never in a core. Its identifiers follow from names
(`core/trace_context.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from millrace.core.messages.attempts import Fault
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER
from millrace.core.trace_context import TraceContext

MESSAGE_MOST = 500
ERROR = "error.type"
Value = str | int

TABLE: list[SpanKind] = []
"""All of them, in the order in which they are shown."""


class Span(NamedTuple):
    """Something that is over. context: its own identifiers; parent: a span's id, empty where it has none. Times: Unix time, ms."""

    name: str
    context: TraceContext
    parent: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Value]
    failed: str | None = None
    """Why, if it failed."""


class SpanKind:
    """One row of the table. about: what stands behind its name, one of few words; parent: whose part it is; begins, ends: at what."""

    def __init__(
        self, name: str, service: str, parent: str, begins: str, ends: str, attributes: Mapping[str, str], about: str = ""
    ) -> None:
        """attributes: name -> meaning."""
        self.name, self.service, self.parent, self.begins, self.ends, self.about = name, service, parent, begins, ends, about
        self.attributes = {**OF_ALL, **attributes}
        TABLE.append(self)

    def span(
        self, context: TraceContext, parent: str, start_ms: int, end_ms: int, attributes: Mapping[str, Value | None],
        about: str = "", failed: str | None = None,
    ) -> Span:  # fmt: skip
        """An attribute that is None is left out. Clocks of two machines may differ: what ends before it begins takes no time."""
        assert attributes.keys() <= self.attributes.keys(), f"{self.name} has attributes that are not in the table: {list(attributes)}"
        name = f"{self.name} {about}" if about else self.name
        known = {name: value for name, value in attributes.items() if value is not None}
        return Span(name, context, parent, start_ms, max(start_ms, end_ms), known, failed)


ID = "millrace.job.id"
OF_ALL = {ID: "the job"}
SPENT = ("queue", "start", "plan", "compute", "exchange", "publish")

JOB = SpanKind(
    "job", DISPATCHER, "the publisher's span, if it has one", "its submission is taken in", "its ending is stored",
    {
        "millrace.job.name": "its name", "millrace.job.status": "FINISHED, FAILED or CANCELED",
        "millrace.job.acceptance": "names this acceptance in storage and logs", ERROR: "kind of its cause",
        **{f"millrace.job.spent.{phase}_ms": "as `spent` of `millrace show`" for phase in SPENT},
    },
    about="NAME",
)  # fmt: skip
STORE = SpanKind("store", DISPATCHER, "job", "its submission is taken in", "etcd has its graph: it is accepted", {})
QUEUE = SpanKind(
    "queue", JOB_MASTER, "job", "it is accepted",
    "it has its first slot, granted by the ResourceManager and offered by a TaskManager; or it ends without any", {},
)  # fmt: skip
SLOT = SpanKind(
    "slot", RESOURCE_MANAGER, "job", "the ResourceManager has that the job wants more slots than it holds; or that it has lost one",
    "it grants it one", {"millrace.task_manager": "whose slot it is", "millrace.slot": "its number there"},
)  # fmt: skip
ATTEMPT = SpanKind(
    "attempt", JOB_MASTER, "job", "it is sent to its TaskManager", "the JobMaster has its end",
    {
        "millrace.task": "the task; @plan: what is fixed before all others", "millrace.subtask": "from 0",
        "millrace.attempt": "its number, from 1", "millrace.task_manager": "where it ran",
        "millrace.outcome": "FINISHED, FAILED or CANCELED", ERROR: "kind of its fault",
    },
    about="TASK",
)  # fmt: skip
START = SpanKind("start", JOB_MASTER, "attempt", "it is sent to its TaskManager", "the JobMaster has that its process runs", {})
SPARK_JOB = SpanKind(
    "spark job", TASK_MANAGER, "attempt", "it is submitted to Spark", "it is complete",
    {"spark.job.id": "its number in its JVM", "spark.job.name": "its description, or what asked for it and where"},
)  # fmt: skip
SPARK_STAGE = SpanKind(
    "spark stage", TASK_MANAGER, "the first spark job that needed it", "it is submitted", "it is complete",
    {
        "spark.stage.id": "its number in its JVM", "spark.stage.attempt": "from 0", "spark.stage.name": "as a job's",
        "spark.stage.tasks": "its tasks", "spark.stage.tasks_failed": "attempts of these that failed",
        "spark.stage.rows_read": "from sources and exchanges", "spark.stage.rows_written": "to files",
        "spark.stage.bytes_read": "as rows_read", "spark.stage.bytes_written": "as rows_written",
        "spark.stage.bytes_shuffled": "written for other stages",
    },
)  # fmt: skip
PUBLISH = SpanKind(
    "publish", JOB_MASTER, "job", "its last attempt finishes", "all sinks are at their paths",
    {"millrace.sinks": "how many"},
)  # fmt: skip
FINISH = SpanKind("finish", DISPATCHER, "job", "its JobMaster ends it", "storage has its archive, and etcd its ending", {})


def failed(fault: Fault | None) -> str:
    """What a span that failed says of why."""
    return fault.message[:MESSAGE_MOST] if fault is not None else ""
