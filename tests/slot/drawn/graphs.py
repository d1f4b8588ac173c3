"""Graphs drawn from a seed over drawn files, whose edges bring together what their queries need together.

Each vertex is drawn by the columns that those before it have, as a plain session tells them. What the graph must leave is what that
session makes of the same vertices as one chain of queries.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.slot.drawn import data
from tests.slot.whole_graphs import PlainChain

PYTHON = """
from pyspark.sql import functions as F

def same(rows):
    return rows

def flagged(rows):
    return rows.withColumn("flag", F.lit(True)).withColumn("nr", F.lit(7))

def spelled(rows):
    name = rows.columns[0]
    return rows.withColumn("spelled", F.udf(lambda x: None if x is None else str(type(x)), "string")(F.col(f"`{name}`")))

def batches(rows):
    return rows.mapInArrow(lambda batches: batches, rows.schema)

def noted(rows):
    rows.createOrReplaceTempView("seen")
    return rows.sparkSession.sql("SELECT *, 1 AS one FROM seen")
"""
FUNCTIONS = ("same", "flagged", "spelled", "batches", "noted")
NUMBERS = ("smallint", "int", "bigint", "float", "double", "decimal")
CONFS = ({}, {}, {"spark.sql.ansi.enabled": "false"}, {"spark.sql.session.timeZone": "America/New_York"},
         {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Kathmandu"})  # fmt: skip


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _hash(names: Iterable[str]) -> str:
    return f"hash({', '.join(map(quoted, names))})"


def _hashed_by(edge: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("`") for part in edge[5:-1].split(","))


@dataclass
class Node:
    """A vertex that has rows. met: the columns by which all rows of a value are in one subtask; None: no such."""

    name: str
    columns: dict[str, str]  # its name -> Spark's simple name of its type
    parallelism: int
    met: tuple[str, ...] | None = None


def _is_number(kind: str) -> bool:
    return kind.startswith(NUMBERS)


def _can_be_key(kind: str) -> bool:
    return "map<" not in kind and kind != "void"


class Drawn:
    """A graph: `document`, the `chain` of its vertices in a plain session, and the `sinks` by name with their formats."""

    def __init__(self, seed: int, spark: Any, folder: Path) -> None:
        self.r, self.folder = random.Random(seed), folder
        self.conf: dict[str, str] = dict(self.r.choice(CONFS))
        (folder / "modules").mkdir(parents=True)
        (folder / "modules" / "drawn_functions.py").write_text(PYTHON)
        self.chain = PlainChain(spark, self.conf, folder / "modules")
        self.vertices: dict[str, Any] = {}
        self.nodes: list[Node] = []
        self.sinks: dict[str, str] = {}
        self._names = 0
        for _ in range(self.r.choice((1, 1, 2, 2, 3))):
            self._source()
        steps = (self._filter, self._project, self._join, self._join, self._group, self._window, self._distinct, self._union, self._python,
                 self._whole, self._explode)  # fmt: skip
        for _ in range(self.r.randint(1, 4)):
            self.r.choice(steps)()
        self._end()

    @property
    def document(self) -> dict[str, Any]:
        return {"name": "drawn", "vertices": self.vertices, "conf": self.conf}

    # What is drawn

    def _source(self) -> None:
        r = self.r
        kind = r.choice(("csv", "json", "parquet", "parquet"))
        allowed = [each for each in data.KINDS if kind == "parquet" or each not in data.NESTED or (kind == "json" and "MAP" not in each)]
        kinds = [r.choice(("INT", "BIGINT", "STRING", "DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP", "SMALLINT")), "BIGINT", "STRING"]
        kinds += [r.choice(allowed) for _ in range(r.randint(0, 3))]
        names = ["k", "v", "s", *(f"x{i}" for i in range(len(kinds) - 3))]
        if r.random() < 0.2:
            names[1], names[2] = "V a.l", "Ünï"
        place = self.folder / "data" / self._name("t")
        options: dict[str, str] = {}
        if kind == "csv":
            options = {"header": "true", "escape": '"'} | ({"multiLine": "true"} if r.random() < 0.3 else {})
        ways = r.choice((1, 1, 2, 3))
        for number in range(ways):
            below = place / f"part={r.choice((1, 2))}" if r.random() < 0.2 and ways > 1 else place
            below = place / f"part={number % 2}" if (place / "part=0").exists() or (number == 0 and r.random() < 0.2) else place
            below.mkdir(parents=True, exist_ok=True)
            rows = data.rows_of(r, kinds, r.choice((0, 1, 5, 30, 30, 60)) if number or kind == "parquet" else r.choice((1, 5, 30, 60)))
            data.write(below / f"f{number}.{kind}", kind, names, kinds, rows)
        source: dict[str, Any] = {"format": kind, "path": str(place), "options": options}
        if kind != "parquet" and r.random() < 0.7:
            source["schema"] = ", ".join(f"{quoted(n)} {k}" for n, k in zip(names, kinds, strict=True))
        elif kind == "csv":
            options["inferSchema"] = "true"
        self._add({"source": source, "parallelism": r.choice((1, 1, 2, 3))}, None)

    def _filter(self) -> None:
        node = self.r.choice(self.nodes)
        self._rowwise(node, f"SELECT {self._some(node)} FROM {node.name} WHERE {self._condition(node)}")

    def _project(self) -> None:
        node = self.r.choice(self.nodes)
        exprs = [f"{self._expression(node)} AS {self._name('c')}" for _ in range(self.r.randint(1, 3))]
        self._rowwise(node, f"SELECT {self._some(node)}, {', '.join(exprs)} FROM {node.name}")

    def _explode(self) -> None:
        node = self.r.choice(self.nodes)
        lists = [name for name, kind in node.columns.items() if kind.startswith("array<")]
        if not lists:
            return self._filter()
        how = self.r.choice(("explode", "explode_outer"))
        new = self._name("c")
        view = f"LATERAL VIEW {how}({quoted(self.r.choice(lists))}) e AS {new}"
        return self._rowwise(node, f"SELECT {self._some(node)}, {new} FROM {node.name} {view}")

    def _python(self) -> None:
        node = self.r.choice(self.nodes)
        function = self.r.choice(FUNCTIONS)
        if {"flag", "nr", "one", "spelled"} & {*node.columns} or (function == "batches" and "void" in node.columns.values()):
            function = "same"
        vertex: dict[str, Any] = {"python": f"drawn_functions:{function}"}
        self._unary(node, vertex, (), met=node.met)
        if self.r.random() < 0.3:
            made = self.chain.frames[self.nodes[-1].name]
            if "void" not in dict(made.dtypes).values():
                vertex["schema"] = ", ".join(
                    f"{quoted(f.name)} {f.dataType.simpleString()}{'' if f.nullable else ' NOT NULL'}" for f in made.schema.fields
                )

    def _group(self) -> None:
        node, r = self.r.choice(self.nodes), self.r
        keys = self._keys(node)
        if not keys:
            return self._filter()
        having = r.choice(("", "", " HAVING count(*) > 1"))
        names = ", ".join(map(quoted, keys))
        text = f"SELECT {names}, {self._aggregates(node)} FROM {node.name} GROUP BY {names}{having}"
        return self._unary(node, {"sql": text}, keys)

    def _window(self) -> None:
        node, r = self.r.choice(self.nodes), self.r
        keys = self._keys(node)
        orders = [name for name, kind in node.columns.items() if _is_number(kind) or kind in ("string", "date", "timestamp")]
        if not keys or not orders:
            return self._filter()
        over = f"(PARTITION BY {', '.join(map(quoted, keys))} ORDER BY {quoted(r.choice(orders))} {r.choice(('', 'DESC', 'NULLS LAST'))})"
        what = r.choice(("rank()", "dense_rank()", "count(*)", f"count({quoted(r.choice(orders))})", "percent_rank()"))
        text = f"SELECT {self._some(node)}, {what} OVER {over} AS {self._name('w')} FROM {node.name}"
        if r.random() < 0.4:
            text = f"SELECT * FROM ({text}) WHERE {quoted(f'w{self._names}')} <= 2"
        return self._unary(node, {"sql": text}, keys)

    def _distinct(self) -> None:
        node = self.r.choice(self.nodes)
        keys = self._keys(node)
        if not keys:
            return self._filter()
        return self._unary(node, {"sql": f"SELECT DISTINCT {', '.join(map(quoted, keys))} FROM {node.name}"}, keys)

    def _whole(self) -> None:
        """What needs all rows: one subtask."""
        node, r = self.r.choice(self.nodes), self.r
        keys = self._keys(node)
        text = f"SELECT {self._aggregates(node)} FROM {node.name}"
        if keys and r.random() < 0.6:
            names = ", ".join(map(quoted, keys))
            text = r.choice((
                f"SELECT {names}, count(*) AS n FROM {node.name} GROUP BY ROLLUP({names})",
                f"SELECT {names} FROM {node.name} ORDER BY {names} LIMIT 5",
                f"SELECT {names} FROM {node.name} EXCEPT SELECT {names} FROM {node.name} WHERE {self._condition(node)}",
                f"SELECT {names}, (SELECT count(*) FROM {node.name} WHERE {self._condition(node)}) AS n FROM {node.name}",
            ))  # fmt: skip
        self._add({"sql": text, "inputs": {node.name: self._edge(node, 1, keys)}}, None)

    def _union(self) -> None:
        r = self.r
        a, b = r.choice(self.nodes), r.choice(self.nodes)
        pairs = [(x, y) for x, kind in a.columns.items() for y, other in b.columns.items() if kind == other]
        r.shuffle(pairs)
        chosen = pairs[: r.randint(1, 3)]
        if not chosen:
            return self._filter()
        names = [self._name("u") for _ in chosen]
        left = ", ".join(f"{quoted(x)} AS {name}" for (x, _), name in zip(chosen, names, strict=True))
        right = ", ".join(f"{quoted(y)} AS {name}" for (_, y), name in zip(chosen, names, strict=True))
        extra = r.choice(("", "", ", 1 AS side"))
        n = r.choice((1, 2, 3))
        inputs = {node.name: self._edge(node, n, ()) for node in (a, b)}
        if None in inputs.values() or len({len(e.split(",")) for e in inputs.values() if e and "(" in e}) > 1:
            n, inputs = 1, {node.name: "broadcast" for node in (a, b)}
        if self._mixed(inputs):
            n, inputs = 1, {node.name: "broadcast" for node in (a, b)}
        other = ", NULL" if extra and r.random() < 0.3 else extra
        text = f"SELECT {left}{extra} FROM {a.name} UNION ALL SELECT {right}{other} FROM {b.name}"
        return self._add({"sql": text, "parallelism": n, "inputs": inputs}, None)

    def _join(self) -> None:
        r = self.r
        a, b = r.choice(self.nodes), r.choice(self.nodes)
        pairs = [(x, y) for x, kind in a.columns.items() for y, other in b.columns.items() if self._comparable(kind, other)]
        if not pairs:
            return self._filter()
        on = r.sample(pairs, min(len(pairs), r.choice((1, 1, 2))))
        equal = r.choice(("=", "=", "=", "<=>"))
        conditions = " AND ".join(f"l.{quoted(x)} {equal} r.{quoted(y)}" for x, y in on)
        how = r.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
        if r.random() < 0.3:
            conditions += f" AND l.{quoted(r.choice([*a.columns]))} IS NOT NULL"
        n = r.choice((1, 2, 2, 3))
        hashed = on[: r.randint(1, len(on))]
        if len({x for x, _ in hashed}) < len(hashed) or len({y for _, y in hashed}) < len(hashed):
            hashed = on[:1]
        met: tuple[str, ...] | None = None
        if a is b:  # both sides by one edge: by keys of one name alone
            same = [x for x, y in on if x == y]
            inputs: dict[str, str | None] = {a.name: _hash(same) if same else None}
        elif "LEFT" in how or how == "JOIN" and r.random() < 0.5:
            inputs = {a.name: self._edge(a, n, ()), b.name: "broadcast"}
        else:
            inputs = {a.name: _hash(x for x, _ in hashed), b.name: _hash(y for _, y in hashed)}
            met = tuple(x for x, _ in hashed) if how != "FULL JOIN" and how != "RIGHT JOIN" else None
        if r.random() < 0.5 and "LEFT" in how and a is not b:
            inputs = {a.name: _hash(x for x, _ in hashed), b.name: _hash(y for _, y in hashed)}
        if None in inputs.values():
            n, inputs = 1, dict.fromkeys(inputs, "broadcast")
        sides = [("l", a)] if "SEMI" in how or "ANTI" in how else [("l", a), ("r", b)]
        picked = [(side, name) for side, node in sides for name in r.sample([*node.columns], r.randint(1, len(node.columns)))]
        aliases = {(side, name): self._name("j") for side, name in picked}
        columns = ", ".join(f"{side}.{quoted(name)} AS {alias}" for (side, name), alias in aliases.items())
        where = r.choice(("", "", f" WHERE l.{quoted(r.choice([*a.columns]))} IS NOT NULL"))
        text = f"SELECT {columns} FROM {a.name} l {how} {b.name} r ON {conditions}{where}"
        after = tuple(aliases[("l", x)] for x in met) if met and all(("l", x) in aliases for x in met) else None
        return self._add({"sql": text, "parallelism": n, "inputs": inputs}, after)

    def _end(self) -> None:
        """Sinks for what nobody reads, and sometimes for more."""
        r = self.r
        read = {each for vertex in self.vertices.values() for each in vertex.get("inputs", {})}
        for node in list(self.nodes):
            if node.name in read and r.random() > 0.15:
                continue
            kinds = " ".join(node.columns.values())
            formats = ["json"] + ["parquet", "parquet", "orc"] * ("void" not in kinds)
            formats += ["csv"] * (not any(word in kinds for word in ("<", "void", "binary")))
            kind, n = r.choice(formats), r.choice((node.parallelism, 1))
            name = self._name("sink")
            options = {"ignoreNullFields": "false"} if kind == "json" else {}
            self.vertices[name] = {
                "sink": {"format": kind, "path": str(self.folder / "out" / name), "options": options}, "parallelism": n,
                "inputs": {node.name: "forward" if n == node.parallelism else self._edge(node, n, ())},
            }  # fmt: skip
            self.sinks[name] = kind
            self.chain.add(name, self.vertices[name])

    # Parts

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

    def _unary(self, node: Node, vertex: dict[str, Any], keys: tuple[str, ...], met: tuple[str, ...] | None = None) -> None:
        n = self.r.choice((1, 2, 3, node.parallelism))
        edge = self._edge(node, n, keys)
        if edge is None:
            n, edge = 1, "broadcast"
        if edge.startswith("hash"):
            met = _hashed_by(edge)
        vertex.update(parallelism=n, inputs={node.name: edge})
        self._add(vertex, met)

    def _edge(self, node: Node, n: int, keys: tuple[str, ...]) -> str | None:
        """One that brings each row once; with `keys` equal ones of these together. None: there is none such."""
        r = self.r
        among = [key for key in keys or node.columns if _can_be_key(node.columns[key])]
        some = r.sample(among, r.randint(1, min(2, len(among)))) if among else []
        ways = [_hash(some)] if some else []
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
        kinds = [[self._node(name).columns[key] for key in _hashed_by(edge)] for name, edge in hashed]
        return len({tuple(each) for each in kinds}) > 1

    def _node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def _keys(self, node: Node) -> tuple[str, ...]:
        among = [name for name, kind in node.columns.items() if _can_be_key(kind)]
        return tuple(self.r.sample(among, min(len(among), self.r.choice((1, 1, 2)))))

    def _comparable(self, left: str, right: str) -> bool:
        if not (_can_be_key(left) and _can_be_key(right)):
            return False
        loose = "ansi" in "".join(self.conf) and {left, right} <= {"string", "int", "bigint", "double", "decimal(10,2)"}
        return left == right or (_is_number(left) and _is_number(right)) or {left, right} == {"date", "timestamp"} or loose

    def _some(self, node: Node) -> str:
        names = [*node.columns]
        return "*" if self.r.random() < 0.3 else ", ".join(map(quoted, self.r.sample(names, self.r.randint(1, len(names)))))

    def _condition(self, node: Node) -> str:
        r = self.r
        name = r.choice([*node.columns])
        c, kind = quoted(name), node.columns[name]
        ways = [f"{c} IS NOT NULL", f"{c} IS NULL"]
        if _is_number(kind):
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
        if kind.startswith("struct<a"):
            ways += [f"{c}.a > 1", f"{c}.b IS NULL"]
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
        if _is_number(kind):
            ways += [f"CAST({c} AS DOUBLE) / 3", f"coalesce({c}, 0)", f"CAST({c} AS STRING)", f"try_cast({c} AS INT)"]
        if kind == "string":
            ways += [f"upper({c})", f"concat({c}, ', ', {c})", f"coalesce({c}, 'none')", f"split({c}, ' ')", f"try_cast({c} AS DOUBLE)"]
        if kind == "date":
            ways += [f"date_add({c}, 1)", f"CAST({c} AS TIMESTAMP)", f"date_format({c}, 'yyyy-MM EEE')"]
        if kind in ("timestamp", "timestamp_ntz"):
            ways += [f"date_trunc('HOUR', {c})", f"CAST({c} AS STRING)", f"CAST({c} AS DATE)", f"{c} + INTERVAL 1 DAY"]
            ways += [f"{c} - TIMESTAMP'2020-01-01'"]
        if kind.startswith("array<"):
            ways += [f"size({c})", f"get({c}, 0)", f"to_json(struct({c}))"]
        if kind.startswith("struct<a"):
            ways += [f"{c}.a", f"struct({c}.b AS b, 1 AS one)"]
        if kind.startswith("map<"):
            ways += [f"map_keys({c})", f"try_element_at({c}, 'p')"]
        return r.choice(ways)

    def _aggregates(self, node: Node) -> str:
        return ", ".join(f"{self._aggregate(node)} AS {self._name('g')}" for _ in range(self.r.randint(1, 3)))

    def _aggregate(self, node: Node) -> str:
        name = self.r.choice([*node.columns])
        c, kind = quoted(name), node.columns[name]
        ways = ["count(*)", f"count({c})", f"count_if({c} IS NULL)"]
        if _can_be_key(kind):
            ways += [f"count(DISTINCT {c})"]
        if kind.startswith(("smallint", "int", "decimal(10")):
            ways += [f"sum({c})", f"max({c})", f"min({c})", f"avg({c})"]
        if kind in ("double", "float"):
            ways += [f"max({c}) + 0", f"min({c}) + 0"]
        if kind in ("string", "date", "timestamp", "boolean", "bigint"):
            ways += [f"max({c})", f"min({c})", f"sort_array(collect_list({c}))", f"sort_array(collect_set({c}))"]
        return self.r.choice(ways)
