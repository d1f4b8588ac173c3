"""What attempts hand to each other and to the world: hash, broadcast and forward outputs, and staged sinks.

An exchange folder belongs to one output of one attempt and holds Parquet. Share i of a hash output is `<folder>/__share=i`;
an empty share has no folder. Nobody reads a folder before the attempt's report was folded, so files are written in place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..attempt_wire import AttemptSpec, InputSpec, OutputSpec, SinkSpec
from . import carried, frames
from .carried import SHARE
from .errors import AttemptError
from .exchange_files import Files, Folder

LOST_CHARS = 8_000  # of the folders that are named as lost
# Safe because the folder is the attempt's own: nothing has to be renamed at the end, and nobody looks for a marker.
_IN_PLACE = {
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
# Rows that are read once or twice, soon, and by a plan that filters no more: what is cheap to write and small, not what can be searched.
_LIGHT = {"compression": "lz4_raw", "parquet.enable.dictionary": "false", "parquet.writer.version": "v2"}
_SITE = "callSite.long"
"""Local property of a thread of the JVM: what Spark notes as the details of the executions that it begins."""
_EXECUTIONS_MAX = 1000  # looked through for the own one; Spark keeps so many
_METRIC = re.compile(r"^SQLPlanMetric\((.*),(\d+),\w+\)$", re.MULTILINE)
_COLLATED = re.compile(r"\bcollate (?!UTF8_BINARY\b)", re.IGNORECASE)


def read(session: Any, edge: InputSpec) -> Any:
    """The DataFrame of an input that other attempts published. Raises AttemptError EXCHANGE_LOST."""
    schema = edge["schema"]
    assert schema is not None, "only a chained input comes without"
    folders = _whole(session, edge)
    if not folders:
        return frames.empty(session, schema)
    carries = carried.readable(session, schema)
    reader = session._jsparkSession.read().schema(frames.java_schema(session, carried.only(schema, carries)))
    reader = reader.option("recursiveFileLookup", "true")  # no look for partition columns: these are just files
    # A job may pass over bad files of its sources; of its exchange each row counts.
    reader = reader.option("ignoreCorruptFiles", "false").option("ignoreMissingFiles", "false")
    df = frames.frame(reader.parquet(frames.sequence(session, [frames.literal(each) for each in folders])), session)
    return df if all(carries) else _with_nulls(df, schema, carries)


def _whole(session: Any, edge: InputSpec) -> list[str]:
    """The folders of an input that have files. Raises AttemptError EXCHANGE_LOST if a published folder is gone, or a file of it: no other
    attempt would find it. Who wrote it is run again."""
    folders: list[str] = []
    gone: dict[str, str] = {}
    share, number = (f"{SHARE}={edge['share']}", edge["share"]) if edge["edge"] == "hash" else ("", 0)
    for folder in folders_of(edge):
        place = Folder(session, folder)
        noted, found = place.noted(number), place.files(share)
        if noted is None:
            # Whoever wrote it was of a build before, which noted nothing; or the note went with the rest.
            problem = "does not exist any more" if edge.get("listed") or not place.exists() else ""
        elif found.number < noted.number:
            problem = f"has {found.number} of {noted.number} files" + (f" in share {number}" if share else "")
        else:
            problem = "" if found == noted else f"has files of {found.size} bytes, and {noted.size} were written"
        if problem:
            gone[folder] = problem
        elif found.number:
            folders.append(f"{folder.rstrip('/')}/{share}" if share else folder)
    if gone:
        raise _lost(gone)
    return folders


@contextmanager
def missed(session: Any, spec: AttemptSpec) -> Iterator[None]:
    """While inside, an attempt that fails is said to miss rows, if rows that it reads were deleted meanwhile: else the job would fail for a
    path that is none of its own. Raises AttemptError EXCHANGE_LOST in place of what it failed with."""
    try:
        yield
    except AttemptError:
        raise
    except Exception as failure:
        lost = _lost_of(session, spec)
        if lost is None:
            raise
        raise lost from failure


def _lost_of(session: Any, spec: AttemptSpec) -> AttemptError | None:
    try:
        for vertex in spec["vertices"]:
            for edge in vertex["inputs"].values():
                _whole(session, edge)
    except AttemptError as lost:
        return lost
    except Exception:  # the JVM or the storage does not answer: what the attempt failed with tells more
        return None
    return None


def _lost(gone: dict[str, str]) -> AttemptError:
    """gone: folder -> what is wrong with it."""
    first, problem = next(iter(gone.items()))
    more = f", and {len(gone) - 1} more like it" if len(gone) > 1 else ""
    return AttemptError(
        "EXCHANGE_LOST",
        f"Rows that a finished task handed on are gone: {first} {problem}{more}. Whoever wrote them runs again, up to"
        " `moves_most` times in a job; see what deletes files below the cluster's storage",
        kind="infrastructure",
        lost=_listed(list(gone)),
    )


def _with_nulls(df: Any, schema: str, carries: Sequence[bool]) -> Any:
    """What was handed on, with NULL for what was not because it could not be: nobody reads it, but queries count on the names."""
    from pyspark.sql import Column

    jschema, jvm = frames.java_schema(df.sparkSession, schema), df.sparkSession._jvm
    literal = getattr(jvm, "org.apache.spark.sql.catalyst.expressions.Literal")
    column = getattr(jvm, "org.apache.spark.sql.classic.ExpressionUtils").column
    columns = []
    for place, name in enumerate(jschema.fieldNames()):
        null = None if carries[place] else column(literal(None, jschema.apply(place).dataType()))
        columns.append(df[frames.quoted(name)] if null is None else Column(null).alias(name))
    return df.select(*columns)


def folders_of(edge: InputSpec) -> list[str]:
    """Of each subtask that this input reads the folder with its output."""
    its = edge.get("published")
    if its is None:
        return edge.get("folders", [])
    attempts = [attempt for number, attempt in its["runs"] for _ in range(number)]
    return [f"{its['base']}/{subtask}/{attempt}/{its['place']}" for subtask, attempt in enumerate(attempts)]


def _listed(gone: Sequence[str]) -> str:
    """As many as fit: what is not among them is found missing by the next attempt."""
    kept: list[str] = []
    left = LOST_CHARS
    for folder in gone:
        left -= len(folder) + 1
        if kept and left < 0:
            break
        kept.append(folder)
    return "\n".join(kept)


def bytes_in(session: Any, folders: list[str]) -> int:
    """The length of all files below these folders."""
    total = 0
    for folder in folders:
        path, fs = frames.path_and_fs(session, folder)
        if fs.exists(path):
            total += fs.getContentSummary(path).getLength()
    return total


@contextmanager
def _writing(session: Any, folder: str) -> Iterator[None]:
    """What this thread writes meanwhile is found by `written`, whatever threads of the user's code write beside it."""
    context = session.sparkContext._jsc
    context.setLocalProperty(_SITE, _site(folder))
    try:
        yield
    finally:
        context.setLocalProperty(_SITE, None)


def _site(folder: str) -> str:
    return f"Millrace writes to {folder}"


def written(session: Any, folder: str) -> tuple[int | None, int | None]:
    """Rows and files that our last write to this folder committed, as Spark counted them (about 4 ms); None if it did not say."""
    from py4j.protocol import Py4JJavaError

    # Counts arrive through Spark's listener bus, after the write has returned.
    try:
        session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    except Py4JJavaError:  # a listener of the user's own is slow: what is written stands, uncounted
        return None, None
    store = session._jsparkSession.sharedState().statusStore()
    execution = _newest(store, _site(folder))
    if execution is None:
        return None, None
    ids = {(name, int(number)) for name, number in _METRIC.findall(execution.metrics().mkString("\n"))}
    # Adaptive execution plans anew as it goes on, and each plan has numbers of its own: the highest are of the one that has written.
    first = max((number for name, number in ids if name == "number of written files"), default=None)
    # The scan counts rows, too; those of the write were numbered right after its files.
    rows = [n for name, n in ids if name == "number of output rows" and first is not None and first < n < first + 6]
    if first is None or len(rows) != 1:
        return None, None
    values = store.executionMetrics(execution.executionId())
    found = [values.get(number) for number in (rows[0], first)]
    counts = [int(value.get().replace(",", "")) if value.isDefined() else None for value in found]
    return counts[0], counts[1]


def _newest(store: Any, site: str) -> Any:
    """The last execution that was begun there; None: Spark has forgotten it. As a rule it is the last one of all."""
    count = store.executionsCount()
    for first in (max(0, count - 1), max(0, count - _EXECUTIONS_MAX)):
        found = store.executionsList(first, _EXECUTIONS_MAX)
        for at in range(found.size() - 1, -1, -1):
            execution = found.apply(at)
            if execution.details() == site:
                return execution
    return None


def write(df: Any, output: OutputSpec, bare: Any) -> None:
    """Writes a hash, broadcast or forward output into its folder. The columns are those of `df`. bare: a session with the job's own
    settings. User code may have set another time zone in that of `df`, and equal keys of another task would be in other shares."""
    folder = output["folder"]
    own = frames.clone(df.sparkSession)
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # a job may want its sinks coarser
    df = frames.in_session(df, own)
    writer = df.write
    if output["edge"] == "hash" and output["shares"] == 1:
        key_types(df, output["keys"], output["vertex"])  # what is wrong with two shares is wrong with one
        folder = f"{folder.rstrip('/')}/{SHARE}=0"
    elif output["edge"] == "hash":
        # One open file a share instead of a sort by share, as long as that fits in memory.
        if output["shares"] <= 16:
            df.sparkSession.conf.set("spark.sql.maxConcurrentOutputFileWriters", output["shares"])
        df = frames.in_session(df, bare)
        df = frames.in_session(df.selectExpr("*", f"{share_of_row(df, output, output['vertex'])} AS {SHARE}"), own)
        writer = df.write.partitionBy(SHARE)
    for key, value in {**_IN_PLACE, **_LIGHT}.items():
        writer = writer.option(key, value)
    # A retry of a lost commit in the same process may find its own files; nobody else writes here.
    with _writing(own, output["folder"]):
        writer.mode("overwrite").parquet(folder)
    path, fs = frames.path_and_fs(df.sparkSession, output["folder"])
    fs.mkdirs(path)  # an output without rows is there, too


def note_files(session: Any, output: OutputSpec, files: int | None) -> list[Files]:
    """Notes which files were written, and gives them by share: whoever reads them misses one that is gone. files: as Spark counted them.
    Raises AttemptError EXCHANGE_NOT_WRITTEN if one is gone already: Spark commits what it finds."""
    shares = [f"{SHARE}={number}" for number in range(output["shares"])] if output["edge"] == "hash" else [""]
    noted = Folder(session, output["folder"]).note(shares)
    _check_whole(output, sum(its.number for its in noted), files, "EXCHANGE_NOT_WRITTEN")
    return noted


def note_staged(session: Any, output: OutputSpec, files: int | None) -> None:
    """As `note_files`, of a sink: it is published hours later, maybe. Raises AttemptError SINK_NOT_WRITTEN."""
    _check_whole(output, Folder(session, output["folder"]).note_staged().number, files, "SINK_NOT_WRITTEN")


def _check_whole(output: OutputSpec, found: int, files: int | None, condition: str) -> None:
    if files is not None and found < files:
        where = "there" if output["edge"] == "sink" else "below the cluster's storage"
        raise AttemptError(
            condition,
            f"{output['folder']} has {found} of the {files} files that were just written to it: see what deletes files {where}",
            kind="infrastructure",
        )


def share_of_row(df: Any, edge: InputSpec | OutputSpec, producer: str) -> str:
    """The SQL of a row's share: 0 .. shares-1, the same for all keys that Spark's "=" calls equal. edge: by hash, of the vertex `producer`.

    Keys are cast to `key_types`, the types that "=" would compare as; without them their own are meant. Not Spark's `hash`:
    its own shuffle uses those bits, and half of the consumer's partitions would stay empty. Raises AttemptError.
    """
    own = key_types(df, edge["keys"], producer)
    types: Sequence[str | None] = edge.get("key_types") or [None] * len(own)
    # A value that does not fit the type equals nothing; any share will do, and the consumer's own "=" says what is wrong.
    cast = "TRY_CAST" if df.sparkSession.conf.get("spark.sql.ansi.enabled") == "true" else "CAST"
    terms = []
    for key, own_type, common in zip(edge["keys"], own, types, strict=True):
        check_key(producer, key, common or own_type)
        terms.append(f"{cast}({frames.quoted(key)} AS {common})" if common else frames.quoted(key))
    return f"CAST(pmod(xxhash64({', '.join(terms)}), {int(edge['shares'])}) AS INT)"


def is_of_share(df: Any, edge: InputSpec, producer: str) -> str:
    """The SQL of whether a row is of the share that an edge reads; see `share_of_row`.

    The number of the share is in a list, which Spark hands to the code that it generates. As a bare number it would be a part of that code,
    and the slot that ran share 0 of a job would compile all of it anew for share 1 of the next.
    """
    wanted = ", ".join("true" if share == edge["share"] else "false" for share in range(edge["shares"]))
    return f"get(array({wanted}), {share_of_row(df, edge, producer)})"


def key_types(df: Any, keys: list[str], producer: str) -> list[str]:
    """The SQL types of hash keys. Raises AttemptError HASH_KEY_NOT_FOUND."""
    columns = df.columns
    known = {name.lower() for name in columns}
    for key in keys:
        if key.lower() not in known:
            raise AttemptError(
                "HASH_KEY_NOT_FOUND", f"{producer!r} has no column {key!r} to hash by; it has: {', '.join(columns)}"
            )
        if columns.count(key) > 1:
            message = f"{producer!r} has {columns.count(key)} columns {key!r}, and is hashed by it; give each a name of its own"
            raise AttemptError("HASH_KEY_AMBIGUOUS", message, vertex=producer)
    schema = df.select(*(frames.quoted(key) for key in keys))._jdf.schema()
    return [str(schema.apply(position).dataType().sql()) for position in range(len(keys))]


def check_key(vertex: str, key: str, key_type: str) -> None:
    """Raises AttemptError if equal values of this type can have different bytes."""
    if _COLLATED.search(key_type):
        raise AttemptError(
            "COLLATED_KEY",
            f"The hash key {key!r} of {vertex!r} is a {key_type}: collated strings cannot be hash keys;"
            f" hash by collation_key({key}) or by a column without collation",
            vertex=vertex,
        )


def check_sinks(session: Any, spec: AttemptSpec) -> None:
    """Raises AttemptError PATH_ALREADY_EXISTS for a sink of mode error whose path holds files of others: hours before its publication
    would find them. Those that an earlier life of the same job published there are its own."""
    sinks = sinks_of(spec)
    for output in spec["outputs"]:
        if output["edge"] != "sink" or sinks[output["vertex"]].get("mode") != "error":
            continue
        path, fs = frames.path_and_fs(session, sinks[output["vertex"]]["path"])
        if not fs.exists(path):
            continue
        files = fs.listFiles(path, True)
        while files.hasNext():
            if not files.next().getPath().getName().startswith(f"{output['name']}-"):
                message = f"{sinks[output['vertex']]['path']} is there already (mode: error); use mode overwrite or append, or another path"
                raise AttemptError("PATH_ALREADY_EXISTS", message, vertex=output["vertex"])


def sinks_of(spec: AttemptSpec) -> dict[str, SinkSpec]:
    """The sinks by their vertices."""
    return {vertex["id"]: sink for vertex in spec["vertices"] if (sink := vertex.get("sink"))}


def write_sink(df: Any, sink: SinkSpec, folder: str) -> None:
    """Writes a sink's rows in its format into the attempt's own staging folder."""
    writer = df.write.format(sink["format"]).mode("overwrite")
    for key, value in {**_IN_PLACE, **(sink.get("options") or {})}.items():
        writer = writer.option(key, value)
    with _writing(df.sparkSession, folder):
        writer.save(folder)
