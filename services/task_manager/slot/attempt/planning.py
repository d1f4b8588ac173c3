"""The plan attempt: what must be the same for all attempts of a job, found once, before any data is read.

Sources are listed and their schemas inferred; every other vertex is analysed over inputs without rows.
"""

from __future__ import annotations

import itertools
from typing import Any

from ..attempt_wire import AttemptReport, AttemptSpec, PinnedSource, VertexSpec
from . import exchange, frames, shares, vertices
from .errors import PROGRESS, AttemptError


def plan(spec: AttemptSpec, session: Any, modules: str) -> AttemptReport:
    """Plans the job whose vertices are all in `spec`, producers first; each has its "parallelism"."""
    chain = vertices.Chain({**spec, "outputs": [], "pinned": {}}, session, modules)
    pinned: dict[str, PinnedSource] = {}
    schemas: dict[str, str] = {}
    key_types: dict[str, list[str]] = {}
    needs = _Needs(spec)
    for vertex in spec["vertices"]:
        name = vertex["id"]
        with PROGRESS.at(name):
            inputs = {alias: frames.empty(session, schemas[alias]) for alias in vertex["inputs"]}
            df = _analyse(chain, vertex, inputs, pinned)
            if df is not None:
                schemas[name] = frames.schema_json(df)
            types = _key_types(session, vertex, inputs)
            if types is not None:
                key_types[name] = types
            needs.note(vertex, inputs, df)
    for source, each in pinned.items():
        each["columns"] = needs.columns(source)
    return {"pinned": pinned, "schemas": schemas, "key_types": key_types}


def _analyse(chain: vertices.Chain, vertex: VertexSpec, inputs: dict[str, Any], pinned: dict[str, PinnedSource]) -> Any:
    """The DataFrame of a vertex without rows; of a source, what all attempts must take as it is now goes to `pinned`."""
    name = vertex["id"]
    if source := vertices.source_of(vertex):
        if vertex.get("parallelism", 1) == 1:
            df = shares.open_source(chain.session, source)
            pinned[name] = {"schema": frames.schema_json(df)}  # inferring it again would cost another second
            return df
        df, pinned[name] = shares.pin(chain.session, name, source, vertex["parallelism"])
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
    # where no value changes its kind on the way.
    pairs = [(a, b, equality_type(session, a, b)) for a, b in itertools.combinations(kinds, 2)]
    if common is None or any(t != common and a != b and not (_numeric(a) and _numeric(b)) for a, b, t in pairs):
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


def _numeric(kind: str) -> bool:
    return kind.startswith(
        ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
    ) and not kind.startswith("INTERVAL")


class _Needs:
    """Which columns of each source its readers use."""

    def __init__(self, spec: AttemptSpec) -> None:
        self._vertices = {v["id"]: v for v in spec["vertices"]}
        self._order: dict[str, list[str]] = {}
        self._used: dict[str, set[str]] = {}
        self._all: set[str] = set()

    def note(self, vertex: VertexSpec, inputs: dict[str, Any], df: Any) -> None:
        for alias, edge in vertex["inputs"].items():
            producer = self._vertices[alias]
            if not producer.get("source"):
                continue
            names = self._order.setdefault(alias, inputs[alias].columns)
            if vertex.get("sql"):
                self._used.setdefault(alias, set()).update(edge.get("keys") or ())
                self._used[alias] |= shares.needed_columns(df._jdf, inputs[alias], names)
            else:
                self._all.add(alias)

    def columns(self, source: str) -> list[str] | None:
        """In the order of the schema; None: all."""
        names = self._order.get(source, [])
        given = self._vertices[source].get("source")
        options = {name.lower(): value for name, value in (given.get("options") or {}).items()} if given else {}
        # What a reader calls corrupt depends on the columns that it reads.
        corrupt = options.get("columnnameofcorruptrecord", "_corrupt_record")
        if source in self._all or source not in self._used or corrupt in names:
            return None
        used = {name.lower() for name in self._used[source]}
        chosen = [name for name in names if name.lower() in used]
        return None if len(chosen) == len(names) else chosen
