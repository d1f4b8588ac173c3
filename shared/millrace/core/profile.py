"""Resource profiles: what a slot has, and what a subtask asks of one. Pure values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field, GetCoreSchemaHandler
from pydantic_core import core_schema

EXTRA_NAME = r"^[A-Za-z][A-Za-z0-9_.-]{0,62}$"
EXTRAS_MOST = 16
"""Names in one profile."""
COUNT_MOST = 1_000_000
"""Of an extra, and of cores."""
MEMORY_MOST_MB = 16_777_216
RESERVED = ("memory_mb", "memory", "cores", "cpu")
"""What an extra is not called: parts of their own."""


class Profile(NamedTuple):
    """Parts of a slot. `extras`: name -> how many, sorted by name, none is 0. 0 memory or cores: any will do, or it is not known."""

    memory_mb: int = 0
    cores: int = 0
    extras: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, memory_mb: int | None = None, cores: int | None = None, extras: Mapping[str, int] | None = None) -> Profile:
        return cls(memory_mb or 0, cores or 0, tuple(sorted(extras.items())) if extras else ())

    def satisfies(self, wanted: Profile) -> bool:
        """Whether a slot of this profile has at least each part that is wanted."""
        if self.memory_mb < wanted.memory_mb or self.cores < wanted.cores:
            return False
        return not wanted.extras or not any(number > dict(self.extras).get(name, 0) for name, number in wanted.extras)

    @property
    def size(self) -> tuple[int, int, int, int, tuple[tuple[str, int], ...]]:
        """Orders profiles from the tightest on: extras are rarest, so a slot with some goes last to who wants none."""
        return len(self.extras), sum(number for _, number in self.extras), self.memory_mb, self.cores, self.extras

    def parts(self) -> Iterator[tuple[str, int]]:
        """(name, how many) of each part that is more than 0."""
        for name, number in (("memory_mb", self.memory_mb), ("cores", self.cores), *self.extras):
            if number:
                yield name, number

    @property
    def text(self) -> str:
        """For people: "4096 MB, 2 cores, gpu 1"; "" where it has no parts."""
        return ", ".join(part_text(name, number) for name, number in self.parts())

    @property
    def key(self) -> str:
        """As a key in snapshots: of memory alone just its number, as in those of builds before."""
        return ",".join([str(self.memory_mb), *(f"{name}={number}" for name, number in self.parts() if name != "memory_mb")])

    @classmethod
    def read(cls, value: object) -> Profile:
        """What `key` wrote. Raises ValueError."""
        if isinstance(value, Profile):
            return value
        memory_mb, *rest = str(value).split(",")
        parts = {name: int(number) for name, _, number in (each.partition("=") for each in rest)}
        return cls.of(int(memory_mb), parts.pop("cores", 0), parts)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls.read, serialization=core_schema.plain_serializer_function_ser_schema(lambda profile: profile.key)
        )


ANY = Profile()
by_size = attrgetter("size")
"""The key that sorts profiles, the tightest first."""


def part_text(name: str, number: int) -> str:
    """A part, for people."""
    if name == "memory_mb":
        return f"{number} MB"
    if name == "cores":
        return f"{number} core{'s' * (number != 1)}"
    return f"{name} {number}"


def largest(profiles: Iterable[Profile]) -> Profile:
    """The maximum of each part."""
    memory_mb, cores, extras = 0, 0, dict[str, int]()
    for each in profiles:
        memory_mb, cores = max(memory_mb, each.memory_mb), max(cores, each.cores)
        for name, number in each.extras:
            extras[name] = max(number, extras.get(name, 0))
    return Profile.of(memory_mb, cores, extras)


def unmet(wants: Mapping[Profile, int], holds: Mapping[Profile, int]) -> dict[Profile, int]:
    """What is wanted and not held: profile -> slots, the largest first.

    A slot first serves who wants exactly its profile: that is how a JobMaster declares a slot that is in use. Of the others the largest
    want takes the tightest slot that satisfies it."""
    left, free = dict(wants), dict(holds)
    for profile in wants:
        _use(left, free, profile, profile)
    for wanted in sorted(wants, key=by_size, reverse=True):
        for profile in sorted(free, key=by_size):
            if profile.satisfies(wanted):
                _use(left, free, wanted, profile)
    return {wanted: left[wanted] for wanted in sorted(left, key=by_size, reverse=True) if left[wanted]}


def _use(left: dict[Profile, int], free: dict[Profile, int], wanted: Profile, profile: Profile) -> None:
    used = min(left[wanted], free.get(profile, 0))
    left[wanted] -= used
    if used:
        free[profile] -= used


def checked_extras(extras: dict[str, int]) -> dict[str, int]:
    """The same; raises ValueError for too many names, and for the name of another part."""
    if len(extras) > EXTRAS_MOST:
        raise ValueError(f"{len(extras)} names are more than the {EXTRAS_MOST} allowed")
    if reserved := [name for name in extras if name in RESERVED]:
        raise ValueError(f"{reserved[0]} is no extra: it is a part of its own")
    return extras


ExtraCounts = Annotated[
    dict[Annotated[str, Field(pattern=EXTRA_NAME)], Annotated[int, Field(ge=1, le=COUNT_MOST)]], AfterValidator(checked_extras)
]
"""Of a graph or of settings: name -> how many."""
