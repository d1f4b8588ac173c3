"""Rules of the design, each taken out or bent: the simulator must see it. A mutant replaces a function or a method for the process that
it is applied in; the product has no switches for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millrace.core.machine import Handler


@dataclass(frozen=True)
class Mutant:
    """`rule`: its number in the design; `place`: what is replaced; `why`: what then goes wrong."""

    name: str
    rule: int
    place: str
    why: str
    apply: Callable[[], None]


MUTANTS: dict[str, Mutant] = {}


def mutant(rule: int, place: str, why: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Registers a function that does the replacement; its name is the mutant's."""

    def register(apply: Callable[[], None]) -> Callable[[], None]:
        name = apply.__name__.replace("_", " ")
        assert name not in MUTANTS, f"two mutants are called {name}"
        MUTANTS[name] = Mutant(name, rule, place, why, apply)
        return apply

    return register


def around(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replaces `owner.name` by `wrapper(original, *arguments)`."""
    original = getattr(owner, name)

    def replacement(*arguments: Any, **named: Any) -> Any:
        return wrapper(original, *arguments, **named)

    setattr(owner, name, replacement)


def around_handler(handlers: dict[type, Handler], message: type, wrapper: Callable[..., Any]) -> None:
    """Replaces the handler of a message in a machine's table by `wrapper(original, state, body, envelope)`."""
    original = handlers[message]
    handlers[message] = lambda state, body, envelope: wrapper(original, state, body, envelope)
