"""Resource profiles as messages have them: `memory_mb`, and beside it what is left out where there is none of it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ..profile import Profile
from .base import Part, empty

Cores = Annotated[int, Field(exclude_if=lambda cores: cores == 0)]
"""0: not known of a slot; any number of one that is wanted."""
Extras = Annotated[dict[str, int], Field(exclude_if=lambda extras: not extras)]
"""Name -> how many."""


class WithProfile(Part):
    """A part of a message that has the fields of a profile."""

    @property
    def profile(self) -> Profile:
        fields: Any = self
        return Profile.of(fields.memory_mb, fields.cores, fields.extras)


class WantedSlots(WithProfile):
    """So many slots that have at least this."""

    slots: int
    memory_mb: int = 0
    cores: Cores = 0
    extras: Extras = empty(dict)


def parts_of(profile: Profile) -> dict[str, Any]:
    """The fields of a profile."""
    return {"memory_mb": profile.memory_mb, "cores": profile.cores, "extras": dict(profile.extras)}
