"""Hash edges of which one share has far more rows than the others: which these are, and in what words people are shown them."""

from __future__ import annotations

from collections.abc import Sequence

from .messages.execution import HeaviestKey, SkewedEdge

TIMES = 5
ROWS_MORE = 1_000_000
BYTES_MORE = 64 << 20


def skewed_share(rows: Sequence[int], sizes: Sequence[int]) -> int | None:
    """The largest share of at least two, if it is skewed: it has more than TIMES the rows of the others' median, and ROWS_MORE or
    BYTES_MORE above the mean. So few rows are never told of, nor are shares that differ by chance, nor one more key in one of them."""
    share = max(range(len(rows)), key=lambda number: rows[number])
    others = sorted([*rows[:share], *rows[share + 1 :]])
    median = others[(len(others) - 1) // 2]
    more, more_bytes = (its[share] - sum(its) // len(its) for its in (rows, sizes))
    return share if rows[share] > TIMES * median and (more >= ROWS_MORE or more_bytes >= BYTES_MORE) else None


def skew_line(edge: SkewedEdge) -> str:
    """What is uneven: vertices, share, rows, and the keys that they have."""
    part = f"subtask {edge.subtask} of {edge.shares} gets {_percent(edge.rows, edge.rows_in_all)} of the rows"
    empty = f", {edge.shares_empty} of the others none" if edge.shares_empty else ""
    return (
        f"{edge.vertex} -> {', '.join(edge.readers)} by {', '.join(edge.keys)}: {part}{empty}"
        f" ({edge.rows:,} of {edge.rows_in_all:,}){_keys(edge)}"
    )


def skew_advice(edge: SkewedEdge) -> str:
    """What would spread the rows, or bear it that they are not."""
    alone = f"parallelism 1 for {' and '.join(edge.readers)} lets Spark itself split what a join has too much of"
    if _is_one_key(edge) and edge.heaviest[0].key == [None] * len(edge.keys):
        return f"if rows without a key are needed at all, hand them on by an edge of their own; or {alone}"
    if _is_one_key(edge):
        return f"aggregate before this edge, add a column to its keys, or hand the smaller side of a join on by broadcast; or {alone}"
    return f"add a column that has more values to the keys; or use a lower parallelism: a subtask has at least one whole key; or {alone}"


def _is_one_key(edge: SkewedEdge) -> bool:
    return bool(edge.heaviest) and 2 * edge.heaviest[0].rows > edge.rows


def _keys(edge: SkewedEdge) -> str:
    if not edge.heaviest:
        return ""
    found = [f"{_key(edge.keys, each)} has about {_percent(each.rows, edge.rows)} of them" for each in edge.heaviest]
    return f"; {found[0]}" if _is_one_key(edge) else f"; several keys fall together: {', '.join(found)}"


def _key(columns: Sequence[str], heavy: HeaviestKey) -> str:
    values = ["NULL" if value is None else value for value in heavy.key]
    return f"{columns[0]} = {values[0]}" if len(values) == 1 else f"({', '.join(columns)}) = ({', '.join(values)})"


def _percent(part: int, whole: int) -> str:
    return f"{100 * min(part, whole) / max(1, whole):.0f} %"
