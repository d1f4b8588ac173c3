"""One attempt, from its spec to its report."""

from __future__ import annotations

import json
from typing import Any

from ..attempt_wire import AttemptReport, AttemptSpec, OutputReport, ResultRows
from ..common.conf import classify_conf
from ..common.config import Dirs
from . import exchange, frames, modules, planning, result, shares, udfs, vertices
from .errors import PROGRESS, AttemptError, silence_context_loggers

SMALL_BYTES = 8 << 20
BYTES_PER_PARTITION = 16 << 20
MAX_PARTITIONS = 2000
REPORT_BYTES_MAX = 8 << 20  # the TaskManager says no heartbeat while it reads one; it tells where less than this is too much


def run(spec: AttemptSpec, session: Any, dirs: Dirs) -> AttemptReport:
    """Runs an attempt in the attempt's own process and gives its report.

    session: the attempt's own SparkSession, the one that `getOrCreate()` gives. dirs: `.work`, the attempt's working folder;
    `.blobs`, the uploaded modules by SHA-256. Any exception is the attempt's failure: `errors.describe` makes it readable.
    """
    report = _run(spec, session, dirs)
    size = len(json.dumps(report))
    if size > REPORT_BYTES_MAX:
        what = f"The attempt's schemas and lists of files take {size} bytes"
        message = f"{what}, more than can be passed on; read fewer files, or with parallelism 1"
        raise AttemptError("REPORT_TOO_LARGE", message, kind="user")
    return report


def _run(spec: AttemptSpec, session: Any, dirs: Dirs) -> AttemptReport:
    PROGRESS.vertex, PROGRESS.work = None, dirs.work
    udfs.remember(lambda: PROGRESS.vertex)
    silence_context_loggers()
    configure(session, spec["conf"])
    folder = modules.install(spec, session, dirs)
    if spec["kind"] == "plan":
        return planning.plan(spec, session, folder)
    exchange.check_sinks(session, spec)
    known = _published_bytes(spec, session)
    # What a source holds is known once it is opened; a python vertex before that may read as much as it likes.
    first = _apply(_sizing(session, None if _opened(spec) else known), spec, [session])
    chain = vertices.Chain(spec, session, folder)
    for vertex in spec["vertices"]:
        df = chain.add(vertex)
        if vertex["id"] in _opened(spec):
            length = shares.source_bytes(df)
            known = None if known is None or length is None else known + length
    sizing = _sizing(session, known)
    if sizing != first:
        _apply(sizing, spec, chain.sessions)
    # Only now: what is kept is planned at once, with the settings of this moment.
    kept = [chain.frames[name].persist() for name in _shared(spec)]
    report = _produce(spec, chain)
    for df in kept:
        df.unpersist()
    return report


def configure(session: Any, conf: dict[str, str]) -> None:
    """Sets the job's runtime settings; its static ones are the JVM's, which was started with them.

    Raises AttemptError CONF_REFUSED for a key that cannot be honoured.
    """
    runtime, _, refused = classify_conf(conf)
    if refused:
        key, why = next(iter(refused.items()))
        raise AttemptError("CONF_REFUSED", f"Spark setting {key} is not the job's to make: {why}", kind="user")
    for key, value in runtime.items():
        session.conf.set(key, value)


def _sizing(session: Any, input_bytes: int | None) -> dict[str, str]:
    """Shuffle partitions and adaptive execution by the size of the input (None: not known).

    Little data: one partition and no adaptive execution, which costs 10 to 20 ms a stage. Else as many partitions as
    keep all cores busy with pieces of 16 MiB, which adaptive execution joins again where they turn out small.
    """
    cores = max(1, session.sparkContext.defaultParallelism)
    small = input_bytes is not None and input_bytes <= SMALL_BYTES
    if small:
        partitions = 1 if input_bytes else cores
    else:
        partitions = min(max(2 * cores, -(-(input_bytes or 0) // BYTES_PER_PARTITION)), MAX_PARTITIONS)
    return {"spark.sql.shuffle.partitions": str(partitions), "spark.sql.adaptive.enabled": "false" if small else "true"}


def _apply(sizing: dict[str, str], spec: AttemptSpec, sessions: list[Any]) -> dict[str, str]:
    """Sets them where the job says nothing itself; returns them."""
    for session in sessions:
        for key, value in sizing.items():
            if key not in spec["conf"]:
                session.conf.set(key, value)
    return sizing


def _opened(spec: AttemptSpec) -> set[str]:
    """The sources that are opened as they stand, not as a pinned share."""
    return {v["id"] for v in spec["vertices"] if v.get("source")} if spec["parallelism"] == 1 else set()


def _published_bytes(spec: AttemptSpec, session: Any) -> int | None:
    """The size of what is read from other attempts and from pinned sources; None if a script reads what it likes."""
    if any(vertex.get("spark_app") for vertex in spec["vertices"]):
        return None
    edges = [edge for vertex in spec["vertices"] for edge in vertex["inputs"].values()]
    folders = []
    for edge in edges:
        suffix = f"/{exchange.SHARE}={edge['share']}" if edge["edge"] == "hash" else ""
        folders += [folder.rstrip("/") + suffix for folder in edge.get("folders") or ()]
    whole: int = sum(length for each in spec["pinned"].values() for _, length, _ in each.get("files", ()))
    return exchange.bytes_in(session, folders) + whole // spec["parallelism"]


def _uses(spec: AttemptSpec) -> dict[str, list[set[int]]]:
    """Vertex -> for each direct use (an output of its own, a chained consumer) the outputs that it leads to."""
    uses: dict[str, list[set[int]]] = {vertex["id"]: [] for vertex in spec["vertices"]}
    for number, output in enumerate(spec["outputs"]):
        uses[output["vertex"]].append({number})
    for vertex in reversed(spec["vertices"]):
        reached: set[int] = set().union(*uses[vertex["id"]])
        for alias, edge in vertex["inputs"].items():
            if edge["edge"] == "chained" and reached:
                uses[alias].append(reached)
    return uses


def _shared(spec: AttemptSpec) -> list[str]:
    """The vertices to keep in memory: several outputs ask for their rows, on different ways."""
    uses = _uses(spec)
    return [
        vertex["id"]
        for vertex in spec["vertices"]
        if len(uses[vertex["id"]]) > 1 and len(set().union(*uses[vertex["id"]])) > 1 and not vertex.get("sink")
    ]


def _produce(spec: AttemptSpec, chain: vertices.Chain) -> AttemptReport:
    """Runs the outputs, those to storage first: they compute all rows, the result then takes its few of what was kept."""
    reports: dict[str, OutputReport] = {}
    rows: ResultRows | None = None
    sinks = exchange.sinks_of(spec)
    for output in sorted(spec["outputs"], key=lambda each: each["edge"] == "result"):
        name = output["vertex"]
        df = chain.frames[name]
        if df is None:
            continue  # a spark_app has no rows
        with PROGRESS.at(name):
            entry = reports.setdefault(name, {"schema": frames.schema_json(df), "rows": None, "bytes": None})
            if output["edge"] == "result":
                rows = result.take(df, output["rows"])
                if entry["rows"] is None and not rows["truncated"]:
                    entry["rows"] = len(rows["rows"] or ())
                continue
            if output["edge"] == "sink":
                exchange.write_sink(df, sinks[name], output["folder"])
            else:
                columns = chain.columns(name)
                # At least one: Parquet has no files without columns.
                narrow = df if columns is None else df.select(*map(frames.quoted, columns or df.columns[:1]))
                exchange.write(narrow, output)
            entry["rows"] = exchange.rows_written(chain.session)
            entry["bytes"] = (entry["bytes"] or 0) + exchange.bytes_in(chain.session, [output["folder"]])
    return {"outputs": reports, "result": rows}
