"""What a running attempt is asked, and what it reports of itself.

`services/task_manager/slot/wire.py` has the same shapes, and a test holds them equal.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Part, unless_set

Count = Annotated[int, Field(ge=0, le=(1 << 53) - 1)]
Later = Annotated[Count | None, Field(exclude_if=unless_set)]
Text = Annotated[str, Field(max_length=160)]

STAGES_MAX = 10
STACK_MAX = 40


class AttemptProgress(Part):
    """How far an attempt is, by the Spark jobs that it has begun. Jobs that are still to come are not known, so totals grow."""

    stages_done: Count
    stages_active: Count
    stages_total: Count
    tasks_done: Count
    tasks_failed: Count
    tasks_total: Count
    rows_read: Count
    """From sources, and from what other tasks handed on; counted when a Spark task ends."""
    rows_written: Count
    rows_per_s: Count
    """Over the last few seconds, of those read or those written, whichever are more."""
    bytes_read: Count | None = None
    """As `rows_read`, by Spark's count. Null, as the two below: of a build that does not report it."""
    bytes_written: Count | None = None
    bytes_shuffled: Count | None = None
    """Written between Spark's stages."""
    rows_shuffled: Later = None
    """This one and the next ones, by Spark's counts: null of a build that does not report it."""
    bytes_shuffle_read: Later = None
    """Read between Spark's stages."""
    rows_shuffle_read: Later = None
    bytes_spilled_memory: Later = None
    """Of rows for which a task had no room in memory: as large as they were there, and as they were written to disk."""
    bytes_spilled_disk: Later = None
    run_ms: Later = None
    """That tasks ran, added up over all of them."""
    cpu_ms: Later = None
    """Processor time of the tasks in the JVM. What their Python workers take is not in it."""
    gc_ms: Later = None
    """That the JVM collected garbage while they ran. Where tasks run side by side, each counts the same collection."""
    bytes_memory_peak: Later = None
    """Of the stage that needed the most: what each of its tasks held at most to sort, join and aggregate, added up over all of them."""


class StageStatus(Part):
    """A Spark stage that runs."""

    stage: Count
    name: Text
    """The job's description if it has one, else what asked for the stage and where."""
    tasks_done: Count
    tasks_total: Count


class AttemptStatus(Part):
    """What an attempt is doing at this moment."""

    elapsed_ms: Count
    progress: AttemptProgress
    stages: Annotated[list[StageStatus], Field(max_length=STAGES_MAX)]
    """Those that run, at most ten."""
    stack: Annotated[list[Text], Field(max_length=STACK_MAX)]
    """Where its main Python thread is, `file:line function`, the innermost frame last; at most forty, without values."""


class ReportOrder(Part):
    """An order to a running attempt: answer with your status, at once."""

    do: Literal["report"] = "report"


Order = ReportOrder
"""What a running attempt can be ordered to do: of several orders, their union."""
