"""The name of an allocation, `<record>.<number>[/<life>]`, and what it says about who granted it and to whom."""

from __future__ import annotations

import zlib


def allocation_name(record: str, number: int, life: int) -> str:
    """The name of grant `number` of those made at `record` (`<generation>.<offset>`), for a job of a shard that lives `life`.

    It is unique, and says for whom it is: what was granted to an earlier life is not the new life's [R11].
    """
    return f"{record}.{number}" if life == 1 else f"{record}.{number}/{life}"


def life_of(allocation: str) -> int:
    """The shard's life that an allocation was granted to."""
    life = allocation.partition("/")[2]
    return int(life) if life.isdecimal() else 1


def granted_in(allocation: str) -> int:
    """The ResourceManager's life that made an allocation."""
    life = allocation.partition(".")[0]
    return int(life) if life.isdecimal() else 0


def part_of(allocation: str, parts: int) -> int:
    """To which of so many parts of all names an allocation belongs."""
    return zlib.crc32(allocation.encode()) % parts
