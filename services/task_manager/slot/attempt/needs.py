"""What the readers of a vertex need of it: columns and rows that Spark's optimizer leaves out of their plans are not handed over.

Of a reader's optimized plan each leaf that is the vertex is looked at. Its columns are those that anything above refers to. Its rows are
those that the filter right above it keeps. The filter goes to the attempts as SQL, and only if Spark makes the same of that SQL.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ..attempt_wire import AttemptSpec, VertexSpec
from . import frames
from .findings import Taken

FILTER_CHARS_MAX = 4000


@dataclass
class _Readers:
    """What is known of a vertex's readers. `filters`: of each leaf; None: one of them takes all rows."""

    order: list[str]
    columns: set[str] = field(default_factory=set)
    filters: list[str] | None = field(default_factory=list)


class Needs:
    """Note each vertex, producers first."""

    def __init__(self, spec: AttemptSpec) -> None:
        self._vertices = {v["id"]: v for v in spec["vertices"]}
        self._readers: dict[str, _Readers] = {}
        self._whole: set[str] = set()
        self._certain: set[str] = set()
        """The vertices whose columns cannot be others than planned: what user code returns may follow from its rows."""

    def taken(self, vertex: VertexSpec, inputs: dict[str, Any], df: Any) -> dict[str, Taken]:
        """What `df`, the DataFrame of a vertex over `inputs` without rows, takes of each that is certain; of other than SQL nothing."""
        known = [alias for alias in vertex["inputs"] if alias in self._certain] if vertex.get("sql") else []
        return {alias: _taken(df._jdf, inputs[alias]) for alias in known}

    def note(self, vertex: VertexSpec, schemas: dict[str, str], taken: dict[str, Taken], known_settings: bool) -> None:
        """schemas: of its inputs. taken: of what it takes of them. known_settings: no user code has run, which may set another time zone:
        an attempt would then read a filter's SQL in another way."""
        if vertex.get("schema") or (not vertex.get("python") and self._certain.issuperset(vertex["inputs"])):
            self._certain.add(vertex["id"])
        for alias, edge in vertex["inputs"].items():
            if alias not in self._readers:
                self._readers[alias] = _Readers([field["name"] for field in json.loads(schemas[alias])["fields"]])
            readers = self._readers[alias]
            if alias not in taken:
                self._whole.add(alias)
                continue
            readers.columns |= {*taken[alias]["columns"], *(edge.get("keys") or ())}
            filters = taken[alias]["filters"]
            if readers.filters is not None:
                readers.filters = None if filters is None or not known_settings else readers.filters + filters

    def columns(self, vertex: str) -> list[str] | None:
        """In the order of the schema; None: all."""
        readers = self._narrowed(vertex)
        if readers is None:
            return None
        used = {name.lower() for name in readers.columns}
        chosen = [name for name in readers.order if name.lower() in used]
        return None if len(chosen) == len(readers.order) else chosen

    def filter(self, vertex: str) -> str | None:
        """SQL that is true for each row that anybody takes; None: all are taken."""
        readers = self._narrowed(vertex)
        if readers is None or not readers.filters:
            return None
        text = " OR ".join(f"({each})" for each in dict.fromkeys(readers.filters))
        return text if len(text) <= FILTER_CHARS_MAX else None

    def _narrowed(self, vertex: str) -> _Readers | None:
        readers = self._readers.get(vertex)
        given = self._vertices[vertex].get("source")
        options = {name.lower(): value for name, value in (given.get("options") or {}).items()} if given else {}
        # What a reader calls corrupt depends on the columns that it reads.
        corrupt = options.get("columnnameofcorruptrecord", "_corrupt_record")
        return None if readers is None or vertex in self._whole or corrupt in readers.order else readers


def _taken(jdf: Any, read: Any) -> Taken:
    """What the optimized plan of `jdf` takes of `read`, a DataFrame over one RDD of its own: columns, and the filter above each leaf that
    is this RDD. None: a leaf has none. Whatever else is in it, the rows of `jdf` are the same."""
    names = read.columns
    patterns = read.sparkSession._jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    if jdf.queryExecution().analyzed().containsPattern(patterns.CURRENT_LIKE()):
        return {"columns": names, "filters": None}  # the optimizer decides by the time of planning; the attempts run later
    rdd = read._jdf.queryExecution().analyzed().rdd()
    whole = jdf.queryExecution().optimizedPlan()
    plans = [(whole, None), *((each, None) for each in frames.items(whole.subqueriesAll()))]
    used = {each for plan, _ in plans for each in _ids(plan.output())}
    leaves: list[tuple[Any, Any]] = []
    while plans:
        plan, above = plans.pop()
        children = frames.items(plan.children())
        if children:
            used.update(_ids(plan.references()))
            if len(children) > 1 and plan.getClass().getSimpleName() != "Join":
                used.update(each for child in children for each in _ids(child.output()))  # a union goes by position
            plans += [(child, plan) for child in children]
        elif plan.getClass().getSimpleName() == "LogicalRDD" and plan.rdd() == rdd:
            leaves.append((plan, above))
    columns = {
        name
        for leaf, _ in leaves
        for name, attribute in zip(names, frames.items(leaf.output()), strict=True)
        if str(attribute.exprId().id()) in used
    }
    filters = [_filter(read.sparkSession, leaf, above) for leaf, above in leaves]
    return {"columns": sorted(columns), "filters": None if None in filters else [each for each in filters if each]}


def _filter(session: Any, leaf: Any, above: Any) -> str | None:
    """As SQL over the leaf's columns: the conditions of the filter above it, up to the first that cannot be one. The later ones may rely
    on those before them."""
    if above is None or above.getClass().getSimpleName() != "Filter":
        return None
    conditions = _conjuncts(above.condition())
    over = frames.frame(session._jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, leaf), session)
    kept: list[str] = []
    for condition in conditions:
        text = _sql(condition)
        if text is None or not _is_implied(over, text, conditions):
            break
        kept.append(text)
    return " AND ".join(kept) or None


def _sql(condition: Any) -> str | None:
    """Its SQL, with columns by their bare names; None: it has none that means the same in another session."""
    if not condition.deterministic():
        return None
    text = str(condition.sql())
    for attribute in frames.items(condition.references().toSeq()):
        text = text.replace(str(attribute.sql()), frames.quoted(attribute.name()))
    return f"({text})"


def _is_implied(over: Any, text: str, conditions: list[Any]) -> bool:
    """Whether Spark understands `text` as conditions that are all among these: true for each row for which those are."""
    from pyspark.errors import PySparkException

    try:
        plan = over.filter(text)._jdf.queryExecution().optimizedPlan()
    except PySparkException:
        return False
    if plan.getClass().getSimpleName() != "Filter" or frames.items(plan.child().children()):
        return False
    return all(any(found.semanticEquals(each) for each in conditions) for found in _conjuncts(plan.condition()))


def _conjuncts(condition: Any) -> list[Any]:
    """In the order in which Spark tries them."""
    if condition.getClass().getSimpleName() != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _ids(attributes: Any) -> list[str]:
    """The expression ids in the text of a list or set of attributes; a name that looks like one only adds to them."""
    return re.findall(r"#(\d+)", attributes.toString())
