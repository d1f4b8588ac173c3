"""The plan attempt: what must be the same for all attempts of a job, found once, before any data is read.

Sources are listed and their schemas inferred; every other vertex is analysed over inputs without rows.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from ..attempt_wire import AttemptReport, AttemptSpec, PinnedSource, VertexSpec
from . import carried, exchange, frames, shares, vertices, writable
from .errors import PROGRESS, AttemptError
from .findings import Findings, Query
from .needs import Needs

TIME_ZONE = "spark.sql.session.timeZone"


def plan(spec: AttemptSpec, session: Any, modules: str, findings: Findings) -> AttemptReport:
    """Plans the job whose vertices are all in `spec`, producers first; each has its "parallelism"."""
    chain = vertices.Chain({**spec, "outputs": [], "pinned": {}}, session, modules, findings)
    pinned: dict[str, PinnedSource] = {}
    schemas: dict[str, str] = {}
    key_types: dict[str, list[str]] = {}
    needs = Needs(spec)
    for vertex in spec["vertices"]:
        name = vertex["id"]
        with PROGRESS.at(name):
            given = {alias: schemas[alias] for alias in vertex["inputs"]}
            found = _found(chain, vertex, given, needs, pinned)
            if found["schema"] is not None:
                schemas[name] = found["schema"]
            if found["key_types"] is not None:
                key_types[name] = found["key_types"]
            needs.note(vertex, given, found["taken"], chain.findings.of_known_settings)
    leaving = carried.certain(spec)
    for vertex in spec["vertices"]:
        name = vertex["id"]
        columns, needed = needs.columns(name), needs.filter(name)
        if name in leaving and name in schemas:
            carried.check(session, name, schemas[name], columns)
        if (sink := vertex.get("sink")) and name in schemas:
            writable.check(session, name, sink, schemas[name])
        if columns is not None or needed is not None or name in pinned:
            pinned[name] = {**pinned.get(name, {}), "columns": columns, "filter": needed}
    return {"pinned": pinned, "schemas": schemas, "key_types": key_types, "time_zone": chain.bare.conf.get(TIME_ZONE)}


def _found(
    chain: vertices.Chain, vertex: VertexSpec, schemas: dict[str, str], needs: Needs, pinned: dict[str, PinnedSource]
) -> Query:
    """What there is to know of a vertex over inputs of these schemas; of SQL that was planned before, without asking Spark."""
    place = chain.findings.place_of_query(chain.session, vertex, schemas)
    if place is not None and (known := chain.findings.query(chain.session, place)) is not None:
        return known
    inputs = {alias: frames.empty(chain.session, schema) for alias, schema in schemas.items()}
    df = _analyse(chain, vertex, inputs, pinned)
    found: Query = {
        "schema": None if df is None else frames.schema_json(df),
        "key_types": _key_types(chain.session, vertex, inputs),
        "taken": needs.taken(vertex, inputs, df),
    }
    if place is not None:
        chain.findings.keep_query(place, found, df)
    return found


def _analyse(chain: vertices.Chain, vertex: VertexSpec, inputs: dict[str, Any], pinned: dict[str, PinnedSource]) -> Any:
    """The DataFrame of a vertex without rows; of a source, what all attempts must take as it is now goes to `pinned`."""
    name = vertex["id"]
    if source := vertices.source_of(vertex):
        df = chain.findings.open_source(chain.session, source)
        parallelism = vertex.get("parallelism", 1)
        alone: PinnedSource = {"schema": frames.schema_json(df)}  # inferring it again would cost another second
        several = parallelism > 1 or vertex.get("copied")
        pinned[name] = shares.pin(chain.session, name, source, df, parallelism) if several else alone
        return df
    if sql := vertex.get("sql"):
        return chain.sql(sql, inputs)
    if python := vertex.get("python"):
        return _python(chain, vertex, python, inputs)
    if vertex.get("sink"):
        return vertices.only_input(vertex, inputs)
    return None  # a spark_app has no inputs and no rows


def _python(chain: vertices.Chain, vertex: VertexSpec, python: str, inputs: dict[str, Any]) -> Any:
    """Its declared schema; else what the function makes of no rows."""
    chain.findings.of_known_settings = False
    if declared := vertex.get("schema"):
        vertices.load(python)
        return frames.empty(chain.session, frames.ddl_json(chain.session, declared))
    try:
        return vertices.call(vertex["id"], python, inputs, chain.session, chain.spec["parameters"])
    except AttemptError:
        raise
    except Exception as error:
        advice = f'If it needs rows, declare its columns: schema: "column TYPE, ..." at vertex {vertex["id"]!r}'
        if isinstance(error, ModuleNotFoundError):
            advice = "If it is a file of yours, list that under modules:; other packages must be installed where TaskManagers run"
        raise AttemptError(
            "SCHEMA_NOT_KNOWN",
            f"To plan the job, {python} was called with inputs without rows and raised {type(error).__name__}:"
            f" {str(error).strip().splitlines()[0] if str(error).strip() else ''}. {advice}",
            kind="user",
        ) from error


def _key_types(session: Any, vertex: VertexSpec, inputs: dict[str, Any]) -> list[str] | None:
    """The types as which rows of several hash inputs meet; None if there is only one such input."""
    hashed = {alias: keys for alias, edge in vertex["inputs"].items() if (keys := edge.get("keys"))}
    sharing = vertex.get("parallelism", 1) > 1
    columns: dict[str, list[tuple[str, str]]] = {}
    for alias, keys in hashed.items():
        columns[alias] = list(zip(keys, exchange.key_types(inputs[alias], keys, alias), strict=True))
        for key, kind in columns[alias]:
            if sharing:
                exchange.check_key(alias, key, kind)
    if len(hashed) < 2:
        return None
    if len({len(keys) for keys in hashed.values()}) > 1:
        counts = ", ".join(f"{alias} by {len(keys)}" for alias, keys in hashed.items())
        raise AttemptError(
            "KEYS_DIFFER_IN_NUMBER",
            f"The inputs of {vertex['id']!r} are hashed by key lists of different length: {counts}",
        )
    return [
        _common_type(session, vertex["id"], {alias: columns[alias][position] for alias in hashed})
        for position in range(len(next(iter(hashed.values()))))
    ]


def _common_type(session: Any, vertex: str, keys: dict[str, tuple[str, str]]) -> str:
    """The type as which Spark's "=" compares these keys (input -> (column, type))."""
    kinds = [kind for _, kind in keys.values()]
    common: str | None = kinds[0]
    for kind in kinds[1:]:
        common = None if common is None else equality_type(session, common, kind)
    # Rows that two inputs call equal must be equal as the type of all inputs: true if that is the pair's own type, and
    # where no value changes on the way to the pair's own.
    pairs = [(a, b, equality_type(session, a, b)) for a, b in itertools.combinations(kinds, 2)]
    if common is None or any(t != common and a != b and not (_exact(a, t) and _exact(b, t)) for a, b, t in pairs):
        listed = ", ".join(f"{alias}.{key} is {kind}" for alias, (key, kind) in keys.items())
        raise AttemptError(
            "NO_COMMON_KEY_TYPE",
            f"The hash keys of {vertex!r} have no common type: {listed}; cast one of them",
            vertex=vertex,
        )
    return common


def equality_type(session: Any, left: str, right: str) -> str | None:
    """The SQL name of the type as which Spark's "=" compares values of two types; None if it does not."""
    from pyspark.errors import AnalysisException

    try:
        df = session.sql(f"SELECT l = r FROM (SELECT CAST(NULL AS {left}) AS l, CAST(NULL AS {right}) AS r)")
    except AnalysisException:
        return None
    equal = df._jdf.queryExecution().analyzed().projectList().head().child()
    return str(equal.left().dataType().sql())


def _exact(kind: str, common: str | None) -> bool:
    """Whether each number of a type is the same number as another, to which "=" casts it; false for what is no number. One with more digits
    behind the point is rounded, and so is a large one to FLOAT. DOUBLE, which rounds as well, is then the type of all inputs, too."""
    number = re.match(r"(?:TINYINT|SMALLINT|INT|BIGINT|FLOAT|DOUBLE|DECIMAL\(\d+,(\d+)\))$", kind)
    if number is None or common is None:
        return False
    if common == "FLOAT":
        return kind in ("TINYINT", "SMALLINT", "FLOAT")
    decimal = re.match(r"DECIMAL\(\d+,(\d+)\)$", common)
    return decimal is None or int(number[1] or 0) <= int(decimal[1])
