"""Disjoint shares of a source: n subtasks read together exactly the whole input, each row once.

The plan attempt pins file list, schema and split size. In an attempt every split is one of Spark's own input partitions, in
an order that follows from the pinned list alone; share i of n takes the partitions p with p mod n = i. Spark sorts them by
length, so shares are of about equal size; with fewer splits than shares some are empty.

The share reaches the plan as an RDD: `_metadata` is not there. Columns and rows that no reader of the source needs (the plan attempt
knows, see `needs.py`) are not read; such columns are NULL, and not written to the exchange.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any

from ..attempt_wire import PinnedSource, SourceSpec
from . import frames
from .errors import AttemptError

MAX_SPLIT_BYTES = 128 << 20
WORTHWHILE_SPLIT_BYTES = 8 << 20  # a share is split among the cores of a slot only into pieces of at least this size
_STATUS = re.compile(
    r"^\w*FileStatus\{path=(.*); isDirectory=false; length=(\d+);.*? modification_time=(\d+);", re.MULTILINE
)


def open_source(session: Any, source: SourceSpec, schema: str | None = None, paths: list[str] | None = None) -> Any:
    """The DataFrame of a source as it stands; `schema` (Spark's JSON) goes before the source's own DDL, `paths` before its path."""
    reader = session._jsparkSession.read().format(source["format"])
    if schema is not None:
        reader = reader.schema(frames.java_schema(session, schema))
    elif source.get("schema"):
        reader = reader.schema(source["schema"])
    for key, value in (source.get("options") or {}).items():
        reader = reader.option(key, _text(value))
    if paths is None:
        path = source.get("path")
        if path is None:
            return frames.frame(reader.load(), session)
        paths = [path]
    return frames.frame(reader.load(frames.sequence(session, paths)), session)


def open_planned(session: Any, source: SourceSpec, schema: str, paths: list[str] | None = None) -> Any:
    """The DataFrame of a source with the columns that were planned, in their order. Given a schema, Spark puts partition
    columns last. Where it infers one, those that the files hold as well stay where the files have them."""
    return _in_order(open_source(session, source, schema, paths), schema)


def _in_order(df: Any, schema: str) -> Any:
    names = _names(schema)
    return df if df.columns == names else df.select(*map(frames.quoted, names))


def source_bytes(df: Any) -> int | None:
    """The length of the files of an opened source; None if it has none."""
    relation = file_relation(df)
    return None if relation is None else int(relation.location().sizeInBytes())


def pin(session: Any, vertex: str, source: SourceSpec, df: Any, parallelism: int) -> PinnedSource:
    """What is pinned of the opened source `df` that n subtasks will share, or that several will read whole (parallelism 1). Raises
    AttemptError if it cannot be shared."""
    relation = file_relation(df)
    if relation is None:
        raise AttemptError(
            "SOURCE_NOT_SHAREABLE",
            f"Source {vertex!r} of format {source['format']} is not made of files, so it cannot be read by several"
            " subtasks: use parallelism 1 for it and for what reads it",
            vertex=vertex,
        )
    if parallelism == 1:
        return {"schema": frames.schema_json(df), "digest": _digest(relation)}
    files = listing(relation)
    pinned: PinnedSource = {"schema": frames.schema_json(df), "files": files, "base": _base(relation, vertex, source)}
    total = sum(length for _, length, _ in files)
    share = math.ceil(total / parallelism)
    cores = max(1, session.sparkContext.defaultParallelism)
    pinned["split_bytes"] = max(
        1, min(max(math.ceil(share / cores), min(share, WORTHWHILE_SPLIT_BYTES)), MAX_SPLIT_BYTES)
    )
    pinned["splits"] = _scan(session, source, pinned)[1].getNumPartitions() if files else 0
    return pinned


def read_whole(session: Any, vertex: str, source: SourceSpec, pinned: PinnedSource) -> Any:
    """The DataFrame of a source that several subtasks read whole. Raises AttemptError SOURCE_CHANGED."""
    df = open_source(session, source, pinned["schema"])
    if _digest(file_relation(df)) != pinned["digest"]:  # of the list that will be read
        raise AttemptError(
            "SOURCE_CHANGED",
            f"The files of source {vertex!r} are not those that the job was planned with. Several subtasks read it whole,"
            " each by itself, and must meet the same rows: submit the job again once its files stay the same",
            kind="user",
            vertex=vertex,
        )
    return _in_order(df, pinned["schema"])


def read_share(
    session: Any,
    vertex: str,
    source: SourceSpec,
    pinned: PinnedSource,
    share: int,
    shares: int,
    columns: list[str] | None,
    needed: str | None,
) -> Any:
    """The DataFrame of one share. `columns`: those that are needed (None: all); the others are NULL, of their type. `needed`: SQL that is
    true for the rows that are needed.

    Raises AttemptError SOURCE_CHANGED if the files are not those that were pinned.
    """
    _check_unchanged(session, vertex, source, pinned)
    if not pinned["files"]:
        return frames.empty(session, pinned["schema"])
    # Spark would leave out files by their partition columns, and the splits would have other numbers.
    inside = needed if pinned["base"] is None else None
    df, rdd = _scan(session, source, pinned, columns, inside)
    if inside and rdd.getNumPartitions() != pinned["splits"]:
        inside = None  # it found that no row is needed
        df, rdd = _scan(session, source, pinned, columns)
    found = rdd.getNumPartitions()
    if found != pinned["splits"]:
        raise AttemptError(
            "SOURCE_SPLIT_DIFFERENTLY",
            f"Source {vertex!r} was planned as {pinned['splits']} splits and is {found} here: do the TaskManagers run"
            " different versions of Spark?",
            kind="infrastructure",
            vertex=vertex,
        )
    mine = [p for p in range(found) if p % shares == share]
    jvm = session._jvm
    keep = frames.sequence(session, mine).toSet()  # a Scala Set[Int] is a function Int => Boolean
    pruned = jvm.org.apache.spark.rdd.PartitionPruningRDD.create(rdd, keep)
    narrow = frames.from_rdd(session, pruned, df._jdf.schema())
    if needed and not inside:
        narrow = narrow.filter(needed)
    if columns is None:
        return narrow
    from pyspark.sql import functions

    return narrow.select(
        *(
            functions.col(frames.quoted(field.name))
            if field.name in columns
            else functions.lit(None).cast(field.dataType).alias(field.name)
            for field in frames.python_schema(pinned["schema"]).fields
        )
    )


def _scan(
    session: Any, source: SourceSpec, pinned: PinnedSource, columns: list[str] | None = None, needed: str | None = None
) -> tuple[Any, Any]:
    """The pinned files as Spark's rows, one partition a split, in an order that depends on the pinned list alone."""
    own = frames.clone(session)
    split = str(pinned["split_bytes"])
    for key, value in {
        "spark.sql.files.maxPartitionBytes": split,
        "spark.sql.files.openCostInBytes": split,  # no two splits in one partition, whatever the order of listing
        "spark.sql.files.minPartitionNum": "1",
        "spark.sql.files.maxPartitionNum": "2147483647",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
        "spark.sql.sources.bucketing.enabled": "false",
    }.items():
        own.conf.set(key, value)
    df = _open_pinned(own, source, pinned)
    if needed is not None:
        df = df.filter(needed)
    if columns is not None:
        df = df.selectExpr(*(frames.quoted(name) for name in _names(pinned["schema"]) if name in columns))
    return df, df._jdf.queryExecution().toRdd()


def _open_pinned(session: Any, source: SourceSpec, pinned: PinnedSource) -> Any:
    """The pinned files and no others."""
    options = {key: value for key, value in (source.get("options") or {}).items() if key.lower() != "basepath"}
    if pinned["base"] is not None:
        options["basePath"] = pinned["base"]
    files = [frames.literal(path) for path, _, _ in pinned["files"]]
    return open_planned(session, {**source, "options": options}, pinned["schema"], files)


def _check_unchanged(session: Any, vertex: str, source: SourceSpec, pinned: PinnedSource) -> None:
    relation = file_relation(open_source(session, source, pinned["schema"]))
    now = {path: (length, mtime) for path, length, mtime in listing(relation)}
    then = {path: (length, mtime) for path, length, mtime in pinned["files"]}
    if now == then:
        return
    changes = []
    for word, paths in (
        ("changed", [path for path in then if path in now and now[path] != then[path]]),
        ("gone", [path for path in then if path not in now]),
        ("new", [path for path in now if path not in then]),
    ):
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            changes.append(f"{word}: {paths[0]}{more}")
    raise AttemptError(
        "SOURCE_CHANGED",
        f"The files of source {vertex!r} are not those that the job was planned with ({'; '.join(changes)}):"
        " submit the job again once they stay the same",
        kind="user",
        vertex=vertex,
    )


def file_relation(df: Any) -> Any:
    """Spark's HadoopFsRelation of an opened source, or None."""
    plan = df._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return None
    relation = plan.relation()
    return relation if relation.getClass().getSimpleName() == "HadoopFsRelation" else None


def listing(relation: Any) -> list[list[Any]]:
    """[path, length, mtime_ms] of each file, sorted; in one call to the JVM, however many files there are."""
    statuses = relation.location().allFiles()
    files = [[path, int(length), int(mtime)] for path, length, mtime in _STATUS.findall(statuses.mkString("\n"))]
    if len(files) != statuses.size():
        raise AttemptError("UNREADABLE_FILE_NAME", "A file of the source has a line break in its name")
    return sorted(files)


def _digest(relation: Any) -> str:
    return hashlib.sha256(json.dumps(listing(relation)).encode()).hexdigest()


def _base(relation: Any, vertex: str, source: SourceSpec) -> str | None:
    if relation.partitionSchema().isEmpty():
        return None
    given = {key.lower(): value for key, value in (source.get("options") or {}).items()}.get("basepath")  # as Spark takes options
    roots = frames.items(relation.location().rootPaths())
    if given is None and len(roots) != 1:
        raise AttemptError(
            "SOURCE_NOT_SHAREABLE",
            f"Source {vertex!r} has partition columns below {len(roots)} folders: name the one above them all as path, or"
            " as option basePath",
            vertex=vertex,
        )
    return str(given or roots[0].toString())


def _names(schema: str) -> list[str]:
    return [field.name for field in frames.python_schema(schema).fields]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
