"""Where the boxes of a graph stand: layers from producers to readers, drawn from left to right. Pure; the same graph, the same picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDE, GAP_X, GAP_Y = 186, 124, 24
HIGH, VERTEX_HIGH = 88, 22
SWEEPS = 4


@dataclass(frozen=True)
class Box:
    """A box by its upper left corner."""

    x: float
    y: float
    high: float
    wide: float = WIDE


@dataclass(frozen=True)
class Curve:
    """An edge as a path of SVG, with its arrow, and the middle of it, for its label."""

    path: str
    arrow: str
    x: float
    y: float


@dataclass(frozen=True)
class Picture:
    """The boxes by name, and a curve for each edge."""

    wide: float
    high: float
    boxes: dict[str, Box]
    curves: dict[tuple[str, str], Curve]


def drawn(upstream: Mapping[str, Sequence[str]], vertices: Mapping[str, int], gap_x: float = GAP_X) -> Picture:
    """`upstream`: each box, producers first, with those that it reads. `vertices`: how many steps are named in it."""
    layer: dict[str, int] = {}
    for name, read in upstream.items():
        layer[name] = max((layer[each] + 1 for each in read if each in layer), default=0)
    columns: list[list[str]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for name in upstream:
        columns[layer[name]].append(name)
    _order(columns, upstream)
    high = {name: HIGH + (VERTEX_HIGH * n if n > 1 else 0) for name, n in vertices.items()}
    whole = max((sum(high[each] + GAP_Y for each in column) - GAP_Y for column in columns), default=0)
    boxes: dict[str, Box] = {}
    for n, column in enumerate(columns):
        y = (whole - sum(high[each] + GAP_Y for each in column) + GAP_Y) / 2
        for name in column:
            boxes[name] = Box(n * (WIDE + gap_x), y, high[name])
            y += high[name] + GAP_Y
    wide = max(0.0, len(columns) * (WIDE + gap_x) - gap_x)
    return Picture(wide, whole, boxes, _curves(upstream, boxes))


def _order(columns: list[list[str]], upstream: Mapping[str, Sequence[str]]) -> None:
    """Puts boxes beside what they are joined to, there and back, so that few edges cross."""
    readers: dict[str, list[str]] = {name: [] for name in upstream}
    for name, read in upstream.items():
        for each in read:
            readers[each].append(name)
    for sweep in range(SWEEPS):
        joined = readers if sweep % 2 else upstream
        place = {name: (i + 0.5) / len(column) for column in columns for i, name in enumerate(column)}
        for column in reversed(columns) if sweep % 2 else columns:
            near = {name: [place[each] for each in joined[name]] for name in column}
            column.sort(key=lambda name: sum(near[name]) / len(near[name]) if near[name] else place[name])
            place |= {name: (i + 0.5) / len(column) for i, name in enumerate(column)}


def _curves(upstream: Mapping[str, Sequence[str]], boxes: Mapping[str, Box]) -> dict[tuple[str, str], Curve]:
    """Edges that end at one box end below each other, in the order of where they come from."""
    out = {name: [to for to, read in upstream.items() if name in read] for name in upstream}
    found = {}
    for name, read in upstream.items():
        into = sorted(read, key=lambda each: (boxes[each].y, boxes[each].x))
        for i, each in enumerate(into):
            leaving = sorted(out[each], key=lambda to: (boxes[to].y, boxes[to].x))
            x1, y1 = boxes[each].x + WIDE, _port(boxes[each], leaving.index(name), len(leaving))
            x2, y2 = boxes[name].x - 6, _port(boxes[name], i, len(into))
            middle = (x1 + x2) / 2
            path = f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
            arrow = f"M{x2 - 1:g} {y2 - 4:g}L{x2 + 5:g} {y2:g}L{x2 - 1:g} {y2 + 4:g}Z"
            found[each, name] = Curve(path, arrow, middle, (y1 + y2) / 2)
    return found


def _port(box: Box, number: int, of: int) -> float:
    step = min(22.0, (box.high - 24) / max(of, 1))
    return box.y + box.high / 2 + (number - (of - 1) / 2) * step
