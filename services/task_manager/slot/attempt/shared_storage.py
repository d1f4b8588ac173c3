"""Executors of a Spark cluster, and the folders that an attempt writes to: all of them must see the same.

A folder of one machine is no error for Spark: each executor makes it on its own machine, writes there, and the job ends well without
its rows.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from ..attempt_wire import AttemptSpec
from . import frames
from .errors import AttemptError

WRITTEN = "part-"  # how the names of Spark's own files begin


def check(session: Any, spec: AttemptSpec) -> None:
    """Asks executors, before anything is computed, whether they see what the driver makes in the attempt's folders."""
    if session.sparkContext._jsc.sc().isLocal():
        return
    # One of each kind: exchange data lie side by side, and so do the staging folders of a sink.
    for folder in {output["edge"]: output["folder"] for output in spec["outputs"] if output["edge"] != "result"}.values():
        path, fs = frames.path_and_fs(session, folder)
        if fs.getScheme() == "file":
            _ask(session, fs, path)


def _ask(session: Any, fs: Any, folder: Any) -> None:
    context, number = session.sparkContext, uuid.uuid4().hex
    mark = session._jvm.org.apache.hadoop.fs.Path(folder.getParent(), f".millrace-{number}")
    fs.create(mark).close()
    try:
        tasks = 2 * context.defaultParallelism
        # A function of Python's own: executors have no module of ours.
        seen = context.parallelize([str(mark.toUri().getPath())] * tasks, tasks).map(os.path.exists).collect()
    finally:
        fs.delete(mark, False)
    if not all(seen):
        raise not_shared(str(folder))


def check_written(session: Any, folder: str, written: int | None) -> None:
    """Counts what a write left: an executor that came later may run on a machine that has no such folder. `written`: files, as the
    executors counted them."""
    if not written or session.sparkContext._jsc.sc().isLocal():
        return
    path, fs = frames.path_and_fs(session, folder)
    found = 0
    files = fs.listFiles(path, True)
    while files.hasNext():
        found += files.next().getPath().getName().startswith(WRITTEN)
    if found < written:
        raise not_shared(folder)


def not_shared(folder: str) -> AttemptError:
    return AttemptError(
        "STORAGE_NOT_SHARED",
        f"Executors of the job's master do not see {folder} as this machine does: what they write there is lost. The cluster's storage"
        " and the job's data must be URLs that all machines reach (s3a://, hdfs://), or a volume that all mount at one path",
        kind="user",
    )
