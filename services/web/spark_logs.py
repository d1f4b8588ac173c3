"""Spark's event logs among the files that attempts left: whose they are, and where a Spark history server shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from millrace.client.files import KeptFile

FOLDER = "spark-events"
_NAME = re.compile(rf"{FOLDER}/(?P<top>(?:eventlog_v2_(?P<rolled>[^/]+)/[^/]+)|(?P<single>(?!eventlog_v2_|\.)[^/]+))")
"""A file that begins with a point is none to a Spark history server."""
_SUFFIX = re.compile(r"(\.(zstd|lz4|lzf|snappy))?(\.inprogress)?$")
"""What Spark adds to the application's id in the name of a single file."""


@dataclass(frozen=True)
class SparkLog:
    """The event log of one attempt's Spark application."""

    task: str
    subtask: int
    attempt: int
    application: str
    files: tuple[KeptFile, ...]

    def shown_at(self, history: str) -> str | None:
        """Its page on the Spark history server of this address; None: there is none."""
        return f"{history.rstrip('/')}/history/{quote(self.application, safe='')}/" if history else None


def logs_in(kept: Iterable[KeptFile]) -> list[SparkLog]:
    """Those among the files of a job."""
    found: dict[tuple[str, int, int, str], list[KeptFile]] = {}
    for each in kept:
        name = _NAME.fullmatch(each.name)
        if name is not None:
            application = name["rolled"] or _SUFFIX.sub("", name["single"])
            found.setdefault((each.task, each.subtask, each.attempt, application), []).append(each)
    return [SparkLog(*key, tuple(files)) for key, files in found.items()]
