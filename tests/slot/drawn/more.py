"""Further kinds of vertices that are drawn: set operations, subqueries, grouping sets, ordered windows, joins of three, pandas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.slot.drawn.parts import FLOATING, ORDERED, Node, Parts, can_be_key, hash_of, is_number, quoted

PANDAS = """
import pandas as pd

def lengths(rows):
    texts = [name for name, kind in rows.dtypes if kind == "string"]
    size = F.pandas_udf(lambda each: each.str.len(), "bigint")
    return rows.select("*", *(size(F.col(f"`{name}`")).alias(f"size{at}") for at, name in enumerate(texts[:2])))

def whole_batches(rows):
    return rows.mapInPandas(lambda parts: (part.assign(pandas=1) for part in parts), rows.withColumn("pandas", F.lit(1)).schema)

def counted(rows):
    key = f"`{rows.columns[0]}`"
    some = rows.select(F.col(key).alias("key"))
    return some.groupBy("key").applyInPandas(lambda part: pd.DataFrame({"members": [len(part)]}), "members bigint")

def spread(rows):
    from pyspark.sql import Window
    key = F.col(f"`{rows.columns[0]}`")
    return rows.withColumn("beside", total(F.lit(1)).over(Window.partitionBy(key)))

@F.pandas_udf("bigint")
def total(each: pd.Series) -> int:
    return int(each.sum())
"""
FRAMES = ("", "", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")


class More(Parts):
    """Each method adds one vertex, or what `_filter` adds where there is nothing that it can be drawn of."""

    def more(self) -> tuple[Callable[[], None], ...]:
        return (self._set_operation, self._set_operation, self._grouping_sets, self._ordered_window, self._subquery, self._subquery,
                self._join_of_three, self._beside, self._top, self._pandas)  # fmt: skip

    def _set_operation(self) -> None:
        """Rows that are equal as a whole are hashed by one of their columns, on both sides."""
        r = self.r
        a, b = r.choice(self.nodes), r.choice(self.nodes)
        pairs = [(x, y) for x, kind in a.columns.items() for y, other in b.columns.items() if kind == other and can_be_key(kind)]
        if not pairs:
            return self._filter()
        chosen = r.sample(pairs, min(len(pairs), r.choice((1, 2, 3))))
        names = [self._name("u") for _ in chosen]
        sides = [", ".join(f"{quoted(pair[side])} AS {name}" for pair, name in zip(chosen, names, strict=True)) for side in (0, 1)]
        n, first = r.choice((1, 2, 2, 3)), chosen[0]
        inputs = {a.name: hash_of([first[0]]), b.name: hash_of([first[1]])}
        if a is b and first[0] != first[1]:
            n, inputs = 1, {a.name: "broadcast"}
        how = r.choice(("UNION", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"))
        text = f"SELECT {sides[0]} FROM {a.name} {how} SELECT {sides[1]} FROM {b.name}"
        return self._add({"sql": text, "parallelism": n, "inputs": inputs}, (names[0],))

    def _grouping_sets(self) -> None:
        node, r = self.r.choice(self.nodes), self.r
        keys = [name for name, kind in node.columns.items() if can_be_key(kind)]
        if len(keys) < 2:
            return self._filter()
        a, b = map(quoted, r.sample(keys, 2))
        more = f"{self._aggregates(node)}, grouping_id() AS {self._name('g')}"
        if r.random() < 0.6:  # in each set: all rows of a value of it are where its groups are
            text = f"SELECT {a}, {b}, {more} FROM {node.name} GROUP BY GROUPING SETS (({a}, {b}), ({a}))"
            return self._unary(node, {"sql": text}, (a[1:-1].replace("``", "`"),))
        how = r.choice((f"CUBE({a}, {b})", f"ROLLUP({a}, {b})", f"GROUPING SETS (({a}), ({b}), ())"))
        text = f"SELECT {a}, {b}, {more} FROM {node.name} GROUP BY {how}"
        return self._add({"sql": text, "inputs": {node.name: self._edge(node, 1, ())}}, None)

    def _exact(self, node: Node) -> list[str]:
        """Columns by which rows are ordered so that those in equal places are equal: zeros have two signs."""
        exact = [name for name, kind in node.columns.items() if kind in ORDERED or (is_number(kind) and kind not in FLOATING)]
        return self.r.sample(exact, len(exact))

    def _ordered_window(self) -> None:
        node, r = self.r.choice(self.nodes), self.r
        keys, exact = self._keys(node), self._exact(node)
        if not keys or not exact:
            return self._filter()
        c = quoted(exact[0])
        over = ", ".join(f"{quoted(name)} {r.choice(('', 'DESC', 'NULLS LAST', 'DESC NULLS FIRST'))}" for name in exact)
        frame = r.choice(FRAMES)
        within = f"PARTITION BY {', '.join(map(quoted, keys))} ORDER BY {over}"
        what = r.choice(("row_number()", "ntile(3)", "cume_dist()", f"lag({c})", f"lead({c}, 2)"))
        if frame or r.random() < 0.4:
            within += frame
            what = r.choice((f"first_value({c})", f"last_value({c})", f"count({c})", f"max({c})", f"collect_list({c})"))
        text = f"SELECT {', '.join(map(quoted, exact))}, {what} OVER ({within}) AS {self._name('w')} FROM {node.name}"
        return self._unary(node, {"sql": text}, keys)

    def _subquery(self) -> None:
        r = self.r
        a, b = r.choice(self.nodes), r.choice(self.nodes)
        pairs = [(x, y) for x, kind in a.columns.items() for y, other in b.columns.items() if kind == other and can_be_key(kind)]
        if not pairs:
            return self._filter()
        x, y = r.choice(pairs)
        p, q = f"l.{quoted(x)}", f"r.{quoted(y)}"
        some, over = ", ".join(f"l.{quoted(name)}" for name in a.columns), f"FROM {b.name} r"
        word = r.choice(("", "NOT "))
        text = r.choice((
            f"SELECT {some} FROM {a.name} l WHERE {word}EXISTS (SELECT 1 {over} WHERE {q} = {p})",
            f"SELECT {some} FROM {a.name} l WHERE {p} {word}IN (SELECT {q} {over})",
            f"SELECT {some}, (SELECT count(*) {over} WHERE {q} = {p}) AS {self._name('n')} FROM {a.name} l",
            f"WITH t AS (SELECT {q} AS y, count(*) AS n {over} GROUP BY 1) SELECT {some}, n FROM {a.name} l LEFT JOIN t ON t.y = {p}",
            f"SELECT {some}, e.n FROM {a.name} l, LATERAL (SELECT count(*) AS n {over} WHERE {q} <=> {p}) e",
        ))  # fmt: skip
        n = r.choice((1, 2, 3))
        if a is b:
            return self._add({"sql": text, "inputs": {a.name: self._edge(a, 1, ())}}, None)
        near = self._edge(a, n, ())
        inputs = {a.name: near, b.name: "broadcast"}
        if near is None:
            n, inputs = 1, dict.fromkeys(inputs, "broadcast")
        elif " IN (" not in text and r.random() < 0.5:  # of NULLs in all of b NOT IN must know
            inputs = {a.name: hash_of([x]), b.name: hash_of([y])}
        return self._add({"sql": text, "parallelism": n, "inputs": inputs}, None)

    def _join_of_three(self) -> None:
        r = self.r
        if len(self.nodes) < 3:
            return self._filter()
        a, b, c = r.sample(self.nodes, 3)
        found = [
            (x, y, z) for x, kind in a.columns.items() for y, other in b.columns.items() for z, third in c.columns.items()
            if kind == other == third and can_be_key(kind)
        ]  # fmt: skip
        if not found:
            return self._filter()
        x, y, z = r.choice(found)
        how, then = r.choice(("JOIN", "LEFT JOIN", "FULL JOIN")), r.choice(("JOIN", "LEFT JOIN", "FULL JOIN", "LEFT ANTI JOIN"))
        key = f"coalesce(a.{quoted(x)}, b.{quoted(y)})"
        sides = [("a", a), ("b", b)] + [("c", c)] * ("ANTI" not in then)
        columns = ", ".join(f"{side}.{quoted(r.choice([*node.columns]))} AS {self._name('j')}" for side, node in sides)
        tables = f"{a.name} a {how} {b.name} b ON a.{quoted(x)} = b.{quoted(y)} {then} {c.name} c ON c.{quoted(z)} = {key}"
        inputs = {a.name: hash_of([x]), b.name: hash_of([y]), c.name: hash_of([z])}
        if "FULL" not in how + then:
            inputs[c.name] = r.choice((inputs[c.name], "broadcast"))
        return self._add({"sql": f"SELECT {columns} FROM {tables}", "parallelism": r.choice((1, 2, 3)), "inputs": inputs}, None)

    def _beside(self) -> None:
        """Each row beside those of a broadcast input that a comparison brings, or beside all."""
        r = self.r
        a, b = r.choice(self.nodes), r.choice(self.nodes)
        pairs = [(x, y) for x, kind in a.columns.items() for y, other in b.columns.items() if kind == other and kind in ORDERED + ("int",)]
        n = r.choice((1, 2, 3))
        near = self._edge(a, n, ())
        if not pairs or a is b or near is None:
            return self._filter()
        x, y = r.choice(pairs)
        on = r.choice((f"l.{quoted(x)} < r.{quoted(y)}", f"l.{quoted(x)} <=> r.{quoted(y)} OR r.{quoted(y)} IS NULL"))
        how = r.choice(("JOIN", "LEFT JOIN", "LEFT ANTI JOIN", "LEFT SEMI JOIN"))
        right = f", r.{quoted(y)} AS {self._name('j')}" if "SEMI" not in how and "ANTI" not in how else ""
        text = f"SELECT l.{quoted(x)} AS {self._name('j')}{right} FROM {a.name} l {how} {b.name} r ON {on}"
        return self._add({"sql": text, "parallelism": n, "inputs": {a.name: near, b.name: "broadcast"}}, None)

    def _top(self) -> None:
        node, r = self.r.choice(self.nodes), self.r
        exact = self._exact(node)
        if not exact:
            return self._filter()
        over = ", ".join(f"{quoted(name)} {r.choice(('', 'DESC', 'DESC NULLS LAST'))}" for name in exact)
        text = f"SELECT {', '.join(map(quoted, exact))} FROM {node.name} ORDER BY {over} LIMIT {r.choice((1, 7))}"
        return self._add({"sql": text + r.choice(("", " OFFSET 2")), "inputs": {node.name: self._edge(node, 1, ())}}, None)

    def _pandas(self) -> None:
        node, r = self.r.choice(self.nodes), self.r
        function = r.choice(("lengths", "whole_batches", "counted", "spread"))
        first = next(iter(node.columns))
        plain = all(kind in (*ORDERED, "bigint", "double") for kind in node.columns.values())
        taken = {"size0", "size1", "pandas", "members", "beside"} & {*node.columns}
        if taken or (function == "whole_batches" and not plain):
            function = "lengths" if not taken else "counted"
        if function in ("counted", "spread") and node.columns[first] not in (*ORDERED, "int", "bigint"):
            return self._filter()
        vertex: dict[str, Any] = {"python": f"drawn_functions:{function}"}
        return self._unary(node, vertex, (first,) if function in ("counted", "spread") else ())
