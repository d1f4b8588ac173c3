"""Graphs drawn from a seed over drawn files, whose edges bring together what their queries need together.

Each vertex is drawn by the columns that those before it have, as a plain session tells them. What the graph must leave is what that
session makes of the same vertices as one chain of queries.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.slot.drawn import data
from tests.slot.drawn.more import PANDAS, More
from tests.slot.drawn.parts import hash_of, is_number, quoted

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
MODULE = PYTHON + PANDAS
FUNCTIONS = ("same", "flagged", "spelled", "batches", "noted")
FOLDERS = (
    ("part=0", "part=1", "part=0"), ("day=2020-01-01", "day=2020-02-29", "day=__HIVE_DEFAULT_PARTITION__"), ("p=01", "p=2", "p=x"),
    ("name=a%2Fb", "name=%C3%9C n%3D1", "name=__HIVE_DEFAULT_PARTITION__"), ("y=2020/m=01", "y=2020/m=02", "y=2021/m=01"),
)  # fmt: skip
"""Of the first files of a source: columns by the names of folders."""
CONFS: tuple[dict[str, str], ...] = ({}, {}, {"spark.sql.ansi.enabled": "false"}, {"spark.sql.session.timeZone": "America/New_York"},
         {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Kathmandu"},
         {"spark.sql.shuffle.partitions": "3", "spark.sql.adaptive.enabled": "true"})  # fmt: skip


class Drawn(More):
    """A graph that is drawn to its end."""

    def __init__(self, seed: int, spark: Any, folder: Path) -> None:
        super().__init__(seed, spark, folder, CONFS, MODULE)
        for _ in range(self.r.choice((1, 1, 2, 2, 3))):
            self._source()
        steps = (self._filter, self._project, self._join, self._join, self._group, self._window, self._distinct, self._union, self._python,
                 self._whole, self._explode, *self.more())  # fmt: skip
        for _ in range(self.r.randint(1, 4)):
            self.r.choice(steps)()
        self._end()

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
        ways, folders = r.choice((1, 1, 2, 3)), r.choice(FOLDERS) if r.random() < 0.25 else ()
        for number in range(ways):
            below = place / folders[number] if folders else place
            below.mkdir(parents=True, exist_ok=True)
            rows = data.rows_of(r, kinds, r.choice((0, 1, 5, 30, 30, 60)) if number or kind == "parquet" else r.choice((1, 5, 30, 60)))
            data.write(below / f"f{number}.{kind}", kind, names, kinds, rows)
        source: dict[str, Any] = {"format": kind, "path": str(place), "options": options}
        if kind != "parquet" and r.random() < 0.7:
            source["schema"] = ", ".join(f"{quoted(n)} {k}" for n, k in zip(names, kinds, strict=True))
        elif kind == "csv":
            options["inferSchema"] = "true"
        self._add({"source": source, "parallelism": r.choice((1, 1, 2, 3))}, None)

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
        orders = [name for name, kind in node.columns.items() if is_number(kind) or kind in ("string", "date", "timestamp")]
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
            inputs: dict[str, str | None] = {a.name: hash_of(same) if same else None}
        elif "LEFT" in how or how == "JOIN" and r.random() < 0.5:
            inputs = {a.name: self._edge(a, n, ()), b.name: "broadcast"}
        else:
            inputs = {a.name: hash_of(x for x, _ in hashed), b.name: hash_of(y for _, y in hashed)}
            met = tuple(x for x, _ in hashed) if how != "FULL JOIN" and how != "RIGHT JOIN" else None
        if r.random() < 0.5 and "LEFT" in how and a is not b:
            inputs = {a.name: hash_of(x for x, _ in hashed), b.name: hash_of(y for _, y in hashed)}
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
            formats = ["json"] + ["parquet", "parquet"] * ("void" not in kinds)
            formats += ["orc"] * (not any(word in kinds for word in ("void", "variant")))
            formats += ["csv"] * (not any(word in kinds for word in ("<", "void", "binary", "variant")))
            kind, n = r.choice(formats), r.choice((node.parallelism, 1))
            name = self._name("sink")
            options = {"ignoreNullFields": "false"} if kind == "json" else {}
            self.vertices[name] = {
                "sink": {"format": kind, "path": str(self.folder / "out" / name), "options": options}, "parallelism": n,
                "inputs": {node.name: "forward" if n == node.parallelism else self._edge(node, n, ())},
            }  # fmt: skip
            self.sinks[name] = kind
            self.chain.add(name, self.vertices[name])
