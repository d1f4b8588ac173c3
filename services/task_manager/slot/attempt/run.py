"""One attempt, from its spec to its report."""

from __future__ import annotations

import collections
import json
from typing import Any

from ..attempt_wire import AttemptReport, AttemptSpec, OutputReport, OutputSpec, ResultRows, VertexSpec
from ..common.attach import ADAPTIVE, PARTITIONS
from ..common.conf import classify_conf, is_remote
from ..common.config import Dirs
from ..common.left import REPORT_FILE_BYTES_MAX
from . import (
    carried,
    exchange,
    frames,
    hashed_rows,
    modules,
    planning,
    result,
    shared_storage,
    shares,
    udfs,
    vertices,
    writable,
)
from .errors import PROGRESS, AttemptError, silence_context_loggers
from .findings import Findings
from .own_time import SPENT

SMALL_BYTES = 8 << 20
BYTES_PER_PARTITION = 16 << 20
MAX_PARTITIONS = 2000
PRUNED = "spark.sql.inMemoryColumnarStorage.partitionPruning"
"""Spark leaves out batches of rows in memory by their least and greatest value, to which NaN does not count: rows that are NaN are lost."""
PROGRESS_BYTES_MAX = 1 << 10  # of what its Spark has done, which is added at its end


def run(spec: AttemptSpec, session: Any, dirs: Dirs) -> AttemptReport:
    """Runs an attempt in the attempt's own process and gives its report.

    session: the attempt's own SparkSession, the one that `getOrCreate()` gives. dirs: `.work`, the attempt's working folder;
    `.blobs`, the uploaded modules by SHA-256; `.findings`, what attempts before it found out. Any exception is the attempt's failure:
    `errors.describe` makes it readable.
    """
    report: AttemptReport = {**_run(spec, session, dirs), "spent": SPENT.report()}
    size = len(json.dumps(report))
    if size > REPORT_FILE_BYTES_MAX - PROGRESS_BYTES_MAX:
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
    findings = Findings(dirs.findings, spec)
    if spec["kind"] == "plan":
        with SPENT.at("plan"):
            return planning.plan(spec, session, folder, findings)
    with exchange.missed(session, spec):
        with SPENT.at("plan"):
            chain, kept = _analysed(spec, session, folder, findings)
        with SPENT.at("compute"):
            report = _produce(spec, chain)
            for df in kept:
                df.unpersist()
    return report


def _analysed(spec: AttemptSpec, session: Any, folder: str, findings: Findings) -> tuple[vertices.Chain, list[Any]]:
    """The plan of all vertices, and what is kept in memory because several outputs ask for it."""
    exchange.check_sinks(session, spec)
    shared_storage.check(session, spec)
    known = _published_bytes(spec, session)
    twice = _read_twice(spec)
    if twice and PRUNED not in spec["conf"]:
        session.conf.set(PRUNED, "false")
    # What a source holds is known once it is opened; a python vertex before that may read as much as it likes.
    opened = _opened(spec)
    first = _apply(_sizing(session, None if opened else known), spec, [session])
    chain = vertices.Chain(spec, session, folder, findings)
    leaving, sinks = carried.leaving(spec["outputs"]), exchange.sinks_of(spec)
    for vertex in spec["vertices"]:
        df = chain.add(vertex)
        if df is not None and vertex["id"] in sinks:
            writable.check(df.sparkSession, vertex["id"], sinks[vertex["id"]], frames.schema_json(df))
        if df is not None and vertex["id"] in leaving:
            carried.check(df.sparkSession, vertex["id"], frames.schema_json(df), chain.columns(vertex["id"]))
        if vertex["id"] in opened:
            length = shares.source_bytes(df)
            known = None if known is None or length is None else known + length
    if opened and (sizing := _sizing(session, known)) != first:
        _apply(sizing, spec, chain.sessions)
    # Only now: what is kept is planned at once, with the settings of this moment.
    return chain, [chain.frames[name].persist() for name in twice]


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
    keep all cores busy with pieces of 16 MiB, which adaptive execution joins again where they turn out small. Executors may be
    yet to come: where nothing is known of the size either, Spark's own number stands.
    """
    if input_bytes is None and is_remote(session.sparkContext.master):
        return {ADAPTIVE: "true"}
    cores = max(1, session.sparkContext.defaultParallelism)
    small = input_bytes is not None and input_bytes <= SMALL_BYTES
    if small:
        partitions = 1 if input_bytes else cores
    else:
        partitions = min(max(2 * cores, -(-(input_bytes or 0) // BYTES_PER_PARTITION)), MAX_PARTITIONS)
    return {PARTITIONS: str(partitions), ADAPTIVE: "false" if small else "true"}


def _apply(sizing: dict[str, str], spec: AttemptSpec, sessions: list[Any]) -> dict[str, str]:
    """Sets them where neither the job says anything nor the settings of the slot; returns them."""
    given = sessions[0].sparkContext._conf  # what PySpark gives to everybody is a copy of each of them, by calls to the JVM
    for key, value in sizing.items():
        if key not in spec["conf"] and not given.contains(key):
            for session in sessions:
                session.conf.set(key, value)
    return sizing


def _opened(spec: AttemptSpec) -> set[str]:
    """The sources that are opened as they stand, not as they were pinned."""
    return {v["id"] for v in spec["vertices"] if v.get("source") and "files" not in spec["pinned"].get(v["id"], {})}


def _published_bytes(spec: AttemptSpec, session: Any) -> int | None:
    """The size of what is read from other attempts and from pinned sources; None if a script reads what it likes."""
    if any(vertex.get("spark_app") for vertex in spec["vertices"]):
        return None
    edges = [edge for vertex in spec["vertices"] for edge in vertex["inputs"].values()]
    folders = []
    for edge in edges:
        suffix = f"/{carried.SHARE}={edge['share']}" if edge["edge"] == "hash" else ""
        folders += [folder.rstrip("/") + suffix for folder in exchange.folders_of(edge)]
    files = {v["id"]: spec["pinned"].get(v["id"], {}).get("files", ()) for v in spec["vertices"]}
    read: int = sum(sum(length for _, length, _ in files[v["id"]]) // v["parallelism"] for v in spec["vertices"])
    return exchange.bytes_in(session, folders) + read


def _read_twice(spec: AttemptSpec) -> list[str]:
    """The vertices to keep in memory: several outputs or chained vertices ask for their rows, and each is computed once.

    Not a source of columnar files: each reader takes the columns and row groups that it needs from those, which is less work than keeping
    whole rows. Not what only leads to vertices that nobody asks for.
    """
    asked = collections.Counter(output["vertex"] for output in spec["outputs"])
    for vertex in reversed(spec["vertices"]):
        if asked[vertex["id"]]:
            asked.update(alias for alias, edge in vertex["inputs"].items() if edge["edge"] == "chained")
    return [v["id"] for v in spec["vertices"] if asked[v["id"]] > 1 and not v.get("sink") and not _columnar(v)]


def _columnar(vertex: VertexSpec) -> bool:
    source = vertex.get("source")
    return source is not None and source["format"].lower() in ("parquet", "orc")


def _produce(spec: AttemptSpec, chain: vertices.Chain) -> AttemptReport:
    """Runs the outputs, those to storage first: they compute all rows, the result then takes its few of what was kept."""
    reports: dict[str, OutputReport] = {}
    rows: ResultRows | None = None
    sinks = exchange.sinks_of(spec)
    vertices_by_id = {vertex["id"]: vertex for vertex in spec["vertices"]}
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
                exchange.note_staged(chain.session, output, _count(entry, output, chain.session))
                continue
            with SPENT.handing_on(chain.session):
                exchange.write(chain.handed_on(vertices_by_id[name]), output, chain.bare)
                files = exchange.note_files(chain.session, output, _count(entry, output, chain.session))
                entry["listed"] = True
                if (hashed := hashed_rows.report(chain.bare, output, entry["rows"], files)) is not None:
                    entry.setdefault("hashed", []).append(hashed)
    return {"outputs": reports, "result": rows}


def _count(entry: OutputReport, output: OutputSpec, session: Any) -> int | None:
    """Notes what the last write has written. The files of it, as Spark counted them."""
    entry["rows"], files = exchange.written(session, output["folder"])
    shared_storage.check_written(session, output["folder"], files)
    entry["bytes"] = (entry["bytes"] or 0) + exchange.bytes_in(session, [output["folder"]])
    return files
