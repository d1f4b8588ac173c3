"""What a cluster's uuid is in names: all that outlives a log carries its beginning [R29]."""

from __future__ import annotations

LETTERS = 8


def short(cluster: str) -> str:
    """As it stands in names. Empty: the cluster has none, as none had before 0.2."""
    return cluster[:LETTERS]


def acceptance_of(cluster: str, record: str) -> str:  # [R29]
    """The name of an acceptance: `<cluster>.<generation>.<offset>`."""
    return f"{short(cluster)}.{record}" if cluster else record


def place_of(acceptance: str) -> tuple[int, int]:
    """(generation, offset) of the record that it was accepted by."""
    generation, offset = acceptance.split(".")[-2:]
    return int(generation), int(offset)
