"""What is drawn of a graph: its vertices so far, the edges between them, and the parts of which their queries are made."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slot.whole_graphs import PlainChain

NUMBERS = ("smallint", "int", "bigint", "float", "double", "decimal")
FLOATING = ("float", "double")
ORDERED = ("string", "date", "timestamp", "timestamp_ntz", "boolean")


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def hash_of(names: Iterable[str]) -> str:
    return f"hash({', '.join(map(quoted, names))})"


def hashed_by(edge: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("`") for part in edge[5:-1].split(","))


@dataclass
class Node:
    """A vertex that has rows. met: the columns by which all rows of a value are in one subtask; None: no such."""

    name: str
    columns: dict[str, str]  # its name -> Spark's simple name of its type
    parallelism: int
    met: tuple[str, ...] | None = None


def is_number(kind: str) -> bool:
    return kind.startswith(NUMBERS) and not kind.startswith("interval")


def can_be_key(kind: str) -> bool:
    return "map<" not in kind and kind != "void" and "variant" not in kind


class Parts:
    """`document` is the graph, `chain` its vertices in a plain session, and `sinks` by name have their formats."""

    def __init__(self, seed: int, spark: Any, folder: Path, confs: Sequence[dict[str, str]], module: str) -> None:
        self.r, self.folder = random.Random(seed), folder
        self.conf = dict(self.r.choice(confs))
        (folder / "modules").mkdir(parents=True)
        (folder / "modules" / "drawn_functions.py").write_text(module)
        self.chain = PlainChain(spark, self.conf, folder / "modules")
        self.vertices: dict[str, Any] = {}
        self.nodes: list[Node] = []
        self.sinks: dict[str, str] = {}
        self._names = 0

    @property
    def document(self) -> dict[str, Any]:
        return {"name": "drawn", "vertices": self.vertices, "conf": self.conf}

    def _name(self, first: str) -> str:
        self._names += 1
        return f"{first}{self._names}"

    def _add(self, vertex: dict[str, Any], met: tuple[str, ...] | None) -> None:
        name = self._name("q" if "sql" in vertex else "p" if "python" in vertex else "s")
        df = self.chain.add(name, vertex)
        self.vertices[name] = vertex
        columns = dict(df.dtypes)
        self.nodes.append(Node(name, columns, vertex.get("parallelism", 1), met if met and {*met} <= {*columns} else None))

    def _rowwise(self, node: Node, text: str) -> None:
        self._unary(node, {"sql": text}, (), met=node.met)

    def _filter(self) -> None:
        node = self.r.choice(self.nodes)
        self._rowwise(node, f"SELECT {self._some(node)} FROM {node.name} WHERE {self._condition(node)}")

    def _unary(self, node: Node, vertex: dict[str, Any], keys: tuple[str, ...], met: tuple[str, ...] | None = None) -> None:
        n = self.r.choice((1, 2, 3, node.parallelism))
        edge = self._edge(node, n, keys)
        if edge is None:
            n, edge = 1, "broadcast"
        if edge.startswith("hash"):
            met = hashed_by(edge)
        vertex.update(parallelism=n, inputs={node.name: edge})
        self._add(vertex, met)

    def _edge(self, node: Node, n: int, keys: tuple[str, ...]) -> str | None:
        """One that brings each row once; with `keys` equal ones of these together. None: there is none such."""
        r = self.r
        among = [key for key in keys or node.columns if can_be_key(node.columns[key])]
        some = r.sample(among, r.randint(1, min(2, len(among)))) if among else []
        ways = [hash_of(some)] if some else []
        if node.parallelism == n and (n == 1 or not keys or (node.met and {*node.met} <= {*keys})):
            ways.append("forward")
        if n == 1:
            ways.append("broadcast")
        return r.choice(ways) if ways else None

    def _mixed(self, inputs: dict[str, str | None]) -> bool:
        """Hashed by keys of types that do not compare."""
        hashed = [(name, edge) for name, edge in inputs.items() if edge and edge.startswith("hash")]
        if len(hashed) < 2:
            return False
        kinds = [[self._node(name).columns[key] for key in hashed_by(edge)] for name, edge in hashed]
        return len({tuple(each) for each in kinds}) > 1

    def _node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def _keys(self, node: Node) -> tuple[str, ...]:
        among = [name for name, kind in node.columns.items() if can_be_key(kind)]
        return tuple(self.r.sample(among, min(len(among), self.r.choice((1, 1, 2)))))

    def _comparable(self, left: str, right: str) -> bool:
        if not (can_be_key(left) and can_be_key(right)):
            return False
        loose = "ansi" in "".join(self.conf) and {left, right} <= {"string", "int", "bigint", "double", "decimal(10,2)"}
        return left == right or (is_number(left) and is_number(right)) or {left, right} == {"date", "timestamp"} or loose

    def _some(self, node: Node) -> str:
        names = [*node.columns]
        return "*" if self.r.random() < 0.3 else ", ".join(map(quoted, self.r.sample(names, self.r.randint(1, len(names)))))

    def _condition(self, node: Node) -> str:
        r = self.r
        name = r.choice([*node.columns])
        c, kind = quoted(name), node.columns[name]
        ways = [f"{c} IS NOT NULL", f"{c} IS NULL"]
        if is_number(kind):
            ways += [f"{c} > 1", f"{c} <= 2", f"{c} IN (0, 1, 10)", f"{c} <> 1", f"coalesce({c}, 3) = 3", f"{c} = {c}"]
        if kind in ("double", "float"):
            ways += [f"isnan({c})", f"{c} > 5", f"{c} = double('NaN')", f"{c} = 0", f"{c} >= 1e400D"]
        if kind == "string":
            ways += [f"{c} LIKE 'a%'", f"{c} > 'a'", f"{c} IN ('a', 'comma, \"quote\"', '☃')", f"length({c}) < 3", f"{c} <> ''"]
        if kind == "date":
            ways += [f"{c} >= DATE'2020-01-01'", f"month({c}) = 1", f"{c} < TIMESTAMP'2020-01-01 05:00:00'"]
        if kind == "timestamp":
            ways += [f"{c} >= TIMESTAMP'2020-11-01 01:30:00'", f"hour({c}) < 2", f"CAST({c} AS DATE) = DATE'2020-01-01'"]
        if kind == "boolean":
            ways += [c, f"NOT {c}"]
        if kind.startswith("array<"):
            ways += [f"size({c}) > 1"]
            ways += [f"exists({c}, x -> x IS NULL)", f"array_contains({c}, {c}[0])" if r.random() < 0.1 else f"size({c}) = 0"]
        if kind.startswith("struct<a"):
            ways += [f"{c}.a > 1", f"{c}.b IS NULL"]
        if kind.startswith("map<"):
            ways += [f"map_contains_key({c}, 'p')", f"size({c}) > 0"]
        text = r.choice(ways)
        if r.random() < 0.3:
            return f"({text} {r.choice(('AND', 'OR', 'AND NOT', 'OR NOT'))} {self._condition(node)})"
        return text

    def _expression(self, node: Node) -> str:
        r = self.r
        name = r.choice([*node.columns])
        c, kind = quoted(name), node.columns[name]
        ways = [f"{c} IS NULL", "1", "'x'", f"CASE WHEN {self._condition(node)} THEN 1 ELSE 0 END", f"nvl2({c}, 'there', 'not')"]
        ways += [c, "NULL"] * (r.random() < 0.3)
        if is_number(kind):
            ways += [f"CAST({c} AS DOUBLE) / 3", f"coalesce({c}, 0)", f"CAST({c} AS STRING)", f"try_cast({c} AS INT)"]
        if kind == "string":
            ways += [f"upper({c})", f"concat({c}, ', ', {c})", f"coalesce({c}, 'none')", f"split({c}, ' ')", f"try_cast({c} AS DOUBLE)"]
        if kind == "date":
            ways += [f"date_add({c}, 1)", f"CAST({c} AS TIMESTAMP)", f"date_format({c}, 'yyyy-MM EEE')"]
        if kind in ("timestamp", "timestamp_ntz"):
            ways += [f"date_trunc('HOUR', {c})", f"CAST({c} AS STRING)", f"CAST({c} AS DATE)", f"{c} + INTERVAL 1 DAY"]
            ways += [f"{c} - TIMESTAMP'2020-01-01'"]
        if kind.startswith("decimal"):
            ways += [f"{c} * 2", f"{c} / 3", f"round({c}, 1)", f"try_multiply({c}, {c})", f"CAST({c} AS DECIMAL(20,3))"]
        if kind == "string":
            ways += [f"regexp_replace({c}, '[a-z]', '.')", f"reverse({c})", f"length({c})", f"sha2({c}, 256)", f"lpad({c}, 5, '_')"]
            ways += [f"try_parse_json({c})", f"to_json(named_struct('s', {c}))", f"CAST({c} AS BINARY)"]
        if kind == "date":
            ways += [f"last_day({c})", f"datediff({c}, DATE'2020-01-01')", f"trunc({c}, 'YEAR')", f"extract(YEAROFWEEK FROM {c})"]
        if kind == "timestamp":
            ways += [f"from_utc_timestamp({c}, 'Asia/Tokyo')", f"date_format({c}, 'yyyy-MM-dd HH:mm:ss.SSSSSS XXX')", f"unix_micros({c})"]
            ways += [f"CAST({c} AS TIMESTAMP_NTZ)", f"CAST({c} AS BIGINT)", f"timestampdiff(MINUTE, {c}, TIMESTAMP'2020-11-01 02:00:00')"]
        if kind == "timestamp_ntz":
            ways += [f"CAST({c} AS TIMESTAMP)", f"convert_timezone('America/New_York', 'UTC', {c})"]
        if kind.startswith("array<"):
            ways += [f"size({c})", f"get({c}, 0)", f"to_json(struct({c}))", f"array_sort({c})", f"slice({c}, 1, 2)", f"{c} || {c}"]
            ways += [f"transform({c}, (x, i) -> named_struct('i', i, 'x', x))", f"filter({c}, x -> x IS NOT NULL)", f"array_distinct({c})"]
        if kind.startswith("struct<a"):
            ways += [f"{c}.a", f"struct({c}.b AS b, 1 AS one)"]
        if kind.startswith("map<"):
            ways += [f"map_keys({c})", f"try_element_at({c}, 'p')", f"map_entries({c})", f"transform_values({c}, (k, v) -> k || '!')"]
        return r.choice(ways)

    def _aggregates(self, node: Node) -> str:
        return ", ".join(f"{self._aggregate(node)} AS {self._name('g')}" for _ in range(self.r.randint(1, 3)))

    def _aggregate(self, node: Node) -> str:
        name = self.r.choice([*node.columns])
        c, kind = quoted(name), node.columns[name]
        ways = ["count(*)", f"count({c})", f"count_if({c} IS NULL)"]
        if can_be_key(kind):
            ways += [f"count(DISTINCT {c})"]
        if kind.startswith(("smallint", "int", "decimal(10")):
            ways += [f"sum({c})", f"max({c})", f"min({c})", f"avg({c})"]
            ways += [f"sum(DISTINCT {c})", f"sum({c}) FILTER (WHERE {c} > 1)", f"percentile({c}, 0.5)", f"try_avg({c})"]
        if kind.startswith("decimal(30"):
            ways += [f"sum({c})", f"avg({c})", f"max({c})"]
        if kind in ("double", "float"):
            ways += [f"max({c}) + 0", f"min({c}) + 0"]
        if kind in ("int", "bigint", "smallint"):
            ways += [f"bit_xor({c})", f"bit_or({c})"]
        if kind == "boolean":
            ways += [f"bool_and({c})", f"count_if({c})"]
        if kind == "string":
            ways += [f"listagg(DISTINCT {c}, '|') WITHIN GROUP (ORDER BY {c})", f"approx_count_distinct({c})"]
        if kind in ("string", "date", "timestamp", "boolean", "bigint"):
            ways += [f"max({c})", f"min({c})", f"sort_array(collect_list({c}))", f"sort_array(collect_set({c}))"]
        return self.r.choice(ways)
