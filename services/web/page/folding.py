"""A graph of very many tasks, made small enough to be drawn: what tells most stays a box of its own, the rest is put together. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

KEPT_MOST = 20
GROUPS = 12
"""Into so many steps the layers are put together, more where kept boxes stand between."""


class Folded(NamedTuple):
    """The graph that is drawn. A group's name is `~FIRST-LAST`, of its layers; no task is called so."""

    of: dict[str, str]
    """Task -> the box that it is drawn in: its own, or a group's."""
    upstream: dict[str, list[str]]
    """Box -> those that it reads, producers first."""


def folded(upstream: Mapping[str, Sequence[str]], kept: Sequence[str]) -> Folded:
    """`upstream`: each task, producers first, with those that it reads. `kept`: what stays a box, the most telling first.

    A group has all other tasks of some layers that follow each other. No kept task stands within those layers, so that no group is
    before and behind one, and the picture has no cycle."""
    layer: dict[str, int] = {}
    for name, read in upstream.items():
        layer[name] = max((layer[each] + 1 for each in read if each in layer), default=0)
    chosen = set(kept[:KEPT_MOST])
    starts = _starts(max(layer.values(), default=0) + 1, {layer[name] for name in chosen})
    of = {name: name if name in chosen else starts[at] for name, at in layer.items()}
    sizes = Counter(of.values())
    of = {name: box if sizes[box] > 1 else name for name, box in of.items()}
    boxes: dict[str, list[str]] = {}
    for name in sorted(upstream, key=lambda name: layer[name]):
        read = boxes.setdefault(of[name], [])
        read += dict.fromkeys(box for each in upstream[name] if (box := of[each]) != of[name] and box not in read)
    return Folded(of, boxes)


def _starts(layers: int, apart: set[int]) -> list[str]:
    """Of each layer, the group that its tasks are in."""
    found: list[str] = []
    for first, last in _ranges(layers, apart):
        found += [f"~{first}-{last}"] * (last - first + 1)
    return found


def _ranges(layers: int, apart: set[int]) -> Iterator[tuple[int, int]]:
    step = -(-layers // GROUPS)
    first = 0
    for at in range(layers):
        if at in apart or at + 1 in apart or at + 1 == layers or (at + 1) % step == 0:
            yield first, at
            first = at + 1
