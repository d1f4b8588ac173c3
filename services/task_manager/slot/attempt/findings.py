"""What attempts found out and the next ones need not find again, each finding named after all that it follows from.

**Schemas** that Spark inferred from files: to infer that of CSV or JSON it reads all of it, which often takes as long as the query. To
read that of Parquet or ORC it runs a job. They follow from list, length and time of the files, format, options, settings. **Queries**, as
the plan attempt analysed them: they follow from the SQL, the columns of its inputs, settings. A finding that cannot be read or stored is
not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from typing import Any, TypedDict

from ..attempt_wire import AttemptSpec, SourceSpec, VertexSpec
from . import frames, shares

INFERRED = ("csv", "json", "parquet", "orc")
KEPT = 1000
BYTES_MAX = 64 << 10
SETTLED_MS = 5000
"""A file as new as this may be written again within the same tick of its file system's clock."""
QUERIES = 2
"""Another number for each change in what is found out about a query: findings of earlier builds are then not there."""
_OF_ONE_JVM = ("spark.sql.warehouse.dir=",)
_TIME_ZONE = "spark.sql.session.timeZone"
_MORE_THAN_SPARK = ("spark.sql.catalog", "spark.sql.defaultCatalog", "spark.sql.extensions", "spark.jars", "spark.driver.extraClassPath")
"""Settings that bring tables, views and functions from elsewhere, which change without any of ours."""
_OWN_LEAVES = frozenset(("LogicalRDD", "OneRowRelation", "LocalRelation", "Range", "CTERelationRef"))


class Taken(TypedDict):
    """What a query takes of one input. filters: the conditions of each place that reads it; None: one place takes all rows."""

    columns: list[str]
    filters: list[str] | None


class Query(TypedDict):
    """What the plan attempt finds out about a vertex. `taken`: by input, of SQL."""

    schema: str | None
    key_types: list[str] | None
    taken: dict[str, Taken]


class Findings:
    """The findings of a TaskManager, in its `folder`: a file each. `spec`: of the attempt that looks."""

    def __init__(self, folder: str, spec: AttemptSpec) -> None:
        self._folder = folder
        self._conf = spec["conf"]
        self._jars = any(module["kind"] == "jar" for module in spec["modules"])
        self._static: list[str] | None = None
        self.of_known_settings = True
        """Until user code ran in the session: it may have changed any setting."""

    def open_source(self, session: Any, source: SourceSpec) -> Any:
        """As `shares.open_source` opens it; its schema is not inferred where that is known."""
        if not self.of_known_settings or source.get("schema") or source["format"].lower() not in INFERRED:
            return shares.open_source(session, source)
        files = _files(session, source)
        if files is None:
            return shares.open_source(session, source)
        options = sorted((source.get("options") or {}).items())
        place = self._place(session, source["format"].lower(), source.get("path"), options, files)
        if (schema := _schema(session, place)) is not None:
            return shares.open_source(session, source, schema)
        df = shares.open_source(session, source)
        if max((mtime for _, _, mtime in files), default=0) < time.time() * 1000 - SETTLED_MS:
            self._write(place, frames.schema_json(df))
        return df

    def place_of_query(self, session: Any, vertex: VertexSpec, schemas: dict[str, str]) -> str | None:
        """Where what is found out about a vertex of SQL over inputs of these schemas is kept; None: it may follow from more."""
        if not vertex.get("sql") or not self.of_known_settings or not self._is_plain(session):
            return None
        inputs = [[alias, schemas[alias], edge.get("keys")] for alias, edge in vertex["inputs"].items()]
        return self._place(session, QUERIES, vertex["sql"], inputs, vertex["parallelism"])

    def query(self, session: Any, place: str) -> Query | None:
        text = _read(place)
        try:
            found: Any = json.loads(text) if text is not None else None
        except ValueError:
            return None
        return found if _is_query(found) and _is_schema(session, found["schema"]) else None

    def keep_query(self, place: str, found: Query, df: Any) -> None:
        """Unless the DataFrame `df` of the query reads anything but its inputs: a table of a catalog may change."""
        plan = df._jdf.queryExecution().analyzed()
        plans = [plan, *frames.items(plan.subqueriesAll())]
        leaves = [leaf.getClass().getSimpleName() for each in plans for leaf in frames.items(each.collectLeaves())]
        if plan.children().size() and _OWN_LEAVES.issuperset(leaves):
            self._write(place, json.dumps(found))

    def _place(self, session: Any, *given: Any) -> str:
        """The file of a finding that follows from what is given, this Spark and the settings."""
        static = self._jvm_settings(session)
        settings = [line for line in static if line.startswith("spark.sql.") and not line.startswith(_OF_ONE_JVM)]
        # The time zone is the machine's where nobody sets it, and times are planned as text.
        whole = [session.version, session.conf.get(_TIME_ZONE), settings, sorted(self._conf.items()), *given]
        return os.path.join(self._folder, hashlib.sha256(json.dumps(whole).encode()).hexdigest() + ".json")

    def _is_plain(self, session: Any) -> bool:
        """Whether all that SQL may name is Spark's own or an input."""
        given = [*self._jvm_settings(session), *(f"{key}={value}" for key, value in self._conf.items())]
        return not self._jars and not any(
            line.startswith(_MORE_THAN_SPARK) and line != "spark.sql.catalogImplementation=in-memory" for line in given
        )

    def _jvm_settings(self, session: Any) -> list[str]:
        """The settings of the JVM, as lines; they stay as they are while it lives."""
        if self._static is None:
            self._static = str(session.sparkContext._jsc.sc().conf().toDebugString()).splitlines()
        return self._static

    def _write(self, place: str, text: str) -> None:
        """Whole or not at all."""
        if len(text) > BYTES_MAX:
            return
        part = f"{place}.{os.getpid()}.part"
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(part, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(part, place)
            with os.scandir(self._folder) as entries:
                found = sorted((entry.stat().st_mtime_ns, entry.path) for entry in entries)
            for _, path in found[:-KEPT]:
                os.unlink(path)
        except OSError:
            pass


def _files(session: Any, source: SourceSpec) -> list[list[Any]] | None:
    """The listing of the source. None: folders give columns, too, or it has no files, or Spark does not open it with any other schema.
    Whoever opens it as it is will meet what is wrong with it."""
    from pyspark.errors import PySparkException

    try:
        relation = shares.file_relation(shares.open_source(session, {**source, "schema": "value STRING"}))
    except PySparkException:
        return None
    if relation is None or not relation.partitionSchema().isEmpty():
        return None
    return shares.listing(relation) or None


def _schema(session: Any, place: str) -> str | None:
    """The finding, if it is a schema (Spark's JSON)."""
    schema = _read(place)
    return schema if schema is not None and _is_schema(session, schema) else None


def _is_schema(session: Any, text: str) -> bool:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        frames.java_schema(session, text)
    except (Py4JJavaError, PySparkException):
        return False
    return True


def _is_query(found: Any) -> bool:
    """Whether a finding is a `Query` of SQL; anybody who may run code here could have written it."""
    if not isinstance(found, dict) or found.keys() != Query.__annotations__.keys() or not isinstance(found["schema"], str):
        return False
    taken = found["taken"]
    if not _are_texts(found["key_types"] or []) or not isinstance(taken, dict):
        return False
    return all(
        isinstance(each, dict)
        and each.keys() == Taken.__annotations__.keys()
        and _are_texts(each["columns"])
        and _are_texts(each["filters"] or [])
        for each in taken.values()
    )


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(each, str) for each in found)


def _read(place: str) -> str | None:
    try:
        with open(place, encoding="utf-8") as file:
            text = file.read(BYTES_MAX + 1)
        os.utime(place)
    except (OSError, ValueError):
        return None
    return text
