"""The state of a scope as a tree: parts of it, and what differs between two."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from enum import Enum
from typing import Any

from pydantic import TypeAdapter

from millrace.core.fold import ScopeState
from millrace.core.machine import Machine, stored_fields
from millrace.core.messages.base import digest

from .recorded import BadLog

Path = tuple[str, ...]


class _Missing:
    def __repr__(self) -> str:
        return "(absent)"


MISSING = _Missing()


@functools.cache
def _adapter(what: type) -> TypeAdapter[Any]:
    return TypeAdapter(what)


def tree(machine: Machine, folded: ScopeState) -> dict[str, Any]:
    """All that a scope knows, as JSON values: what the core keeps, then the machine's `state`."""
    core = _adapter(ScopeState).dump_python(folded, mode="json", exclude={"state"})
    stored = {*stored_fields(machine.state_type)}
    core["state"] = _adapter(machine.state_type).dump_python(folded.state, mode="json", include=stored)
    return dict(core)


def planted(machine: Machine, made: dict[str, Any]) -> ScopeState:
    """The folded state of a tree. Raises ValidationError."""
    folded: ScopeState = _adapter(ScopeState).validate_python({name: value for name, value in made.items() if name != "state"})
    folded.state = _adapter(machine.state_type).validate_python(made["state"])
    return folded


def state_hash(machine: Machine, folded: ScopeState) -> str:
    """Equal states, equal hashes."""
    return digest(tree(machine, folded))


def part(whole: Any, path: str) -> Any:
    """The part at a path of names joined by dots, such as `state.jobs.hello.tasks`; numbers are places in lists. Names may have dots
    of their own. Raises BadLog with the names there are."""
    return part_at(whole, split(whole, path))


def split(whole: Any, path: str) -> Path:
    """The names that such a path is made of. Raises BadLog."""
    found: list[str] = []
    here, rest = whole, path
    while rest:
        names = [str(n) for n in range(len(here))] if isinstance(here, list) else list(here) if isinstance(here, dict) else []
        name = max((each for each in names if rest == each or rest.startswith(f"{each}.")), key=len, default=None)
        if name is None:
            listed = ", ".join(names[:20]) + ", ..." * (len(names) > 20) if names else "nothing"
            raise BadLog(f"there is no {rest!r} here; there is: {listed}")
        found.append(name)
        here, rest = part_at(here, (name,)), rest[len(name) + 1 :]
    return tuple(found)


def part_at(whole: Any, path: Path) -> Any:
    """MISSING where there is nothing."""
    here = whole
    for name in path:
        if isinstance(here, list):
            here = here[int(name)] if int(name) < len(here) else MISSING
        else:
            here = here.get(name, MISSING) if isinstance(here, dict) else MISSING
    return here


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """(path, value before, value after) of what differs; what is whole or gone is told once, at its top."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(each for each in after if each not in before)]:
            yield from differences(before.get(name, MISSING), after.get(name, MISSING), (*path, name))
    elif _rows(before) and _rows(after) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from differences(one, other, (*path, str(number)))
    elif before is MISSING or after is MISSING or before != after or type(before) is not type(after):
        yield path, before, after


def _rows(value: Any) -> bool:
    """A list whose places stay what they are, such as the subtasks of a task."""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def value_at(folded: ScopeState, path: Path) -> Any:
    """What stands at a path in the living state, as text that is equal where the value is; MISSING where there is nothing."""
    here: Any = folded
    for name in path:
        if dataclasses.is_dataclass(here):
            here = getattr(here, name, MISSING)
        elif isinstance(here, dict):
            here = here.get(name, here.get(int(name), MISSING) if name.lstrip("-").isdecimal() else MISSING)
        elif isinstance(here, list):
            here = here[int(name)] if name.isdecimal() and int(name) < len(here) else MISSING
        else:
            return MISSING
        if here is MISSING:
            return MISSING
    return here.value if isinstance(here, Enum) else repr(here)
