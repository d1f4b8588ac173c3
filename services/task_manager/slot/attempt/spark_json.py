"""The process of one attempt: Spark's status store, each of its objects in one call, as the JSON that Spark's own REST API has.

A call into the JVM takes a fifth of a millisecond or so, and one for each figure of each stage would make a look at Spark dear. An answer
of more than 8 KB takes 40: the JVM sends it in two pieces, and the second waits for a delayed acknowledgement of the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

_AT_ONCE = 4  # jobs in an answer: one takes less than a KB, unless its description is long
Found = dict[str, Any]
"""A job or a stage, with the names of https://spark.apache.org/docs/latest/monitoring.html#rest-api; times are Unix time in ms."""


class SparkJson:
    """Asks the JVM where the figures are, once; a process that waits for its attempt does so before. Methods raise what Py4J does."""

    def __init__(self, jsc: Any) -> None:
        context = jsc.sc()
        self._context = context
        self._store, self._bus, self._mapper = context.statusStore(), context.listenerBus(), mapper(jsc)

    def wait_for_ends(self, ms: int) -> None:
        """Until Spark has noted what has ended; raises Py4JJavaError if that takes longer."""
        self._bus.waitUntilEmpty(ms)

    def jobs(self, most: int) -> Iterator[Found]:
        """The newest first, as far as they are looked at."""
        jobs = self._store.jobsList(None)
        for first in range(0, most, _AT_ONCE):
            found: list[Found] = json.loads(self._mapper.writeValueAsString(jobs.slice(first, min(first + _AT_ONCE, most))))
            yield from found
            if len(found) < _AT_ONCE:
                return

    def cancel(self, before_ms: int, most: int) -> None:
        """Cancels the jobs that began before this time; those that begin later go on."""
        for job in self.jobs(most):
            if job["status"] == "RUNNING" and (job.get("submissionTime") or 0) < before_ms:
                self._context.cancelJob(job["jobId"])

    def stage(self, number: int) -> Found | None:
        """Its last try; None if Spark does not know it yet, or has forgotten it."""
        from py4j.protocol import Py4JJavaError

        try:
            stage = self._store.lastStageAttempt(number)
        except Py4JJavaError:
            return None
        found: Found = json.loads(self._mapper.writeValueAsString(stage))
        return found


def mapper(jsc: Any) -> Any:
    """The one that Spark writes its event log with. It is the JVM's: what it has learned of Spark's classes no attempt learns again."""
    from py4j.java_gateway import JavaClass

    # Its packages are not looked up one after the other, each by a call, as `jvm.org.apache...` would.
    protocol = JavaClass("org.apache.spark.util.JsonProtocol$", jsc._gateway_client)
    return getattr(protocol, "MODULE$").mapper()
