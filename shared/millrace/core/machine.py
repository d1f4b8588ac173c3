"""The contract of a machine: a deterministic function from (state, envelope) to outputs, over state that it owns.

A machine reads no clock, no file, no environment, draws no number and iterates no set: all that can change an outcome arrives in
an envelope [R1]. It raises only on a broken assertion about its own state [R5]; a refusal is an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from pydantic import AliasChoices, Field

from .clocks import AtMs, NowMs
from .messages.base import Body
from .topics import Scope

T = TypeVar("T")


@dataclass(frozen=True)
class Born:
    """The first record of a generation was folded: state is blank. What lies outside (etcd) is to be asked."""


@dataclass(frozen=True)
class Configured:  # [R1]
    """A new leader's settings, from its Elected record on."""

    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Ticked:
    """A tick was taken: machine time has gone on; timers are looked at."""


@dataclass(frozen=True)
class PeerBorn:
    """A peer is heard in a new life: it knows nothing of us, and is owed all that it needs [R10]."""

    peer: Scope
    life: int


class Envelope(NamedTuple):
    """What a handler is given. `id` names this record for ever: new names are made of it, never drawn."""

    sender: Scope
    """The scope that sent it; "" for what comes from the core, an outcome or a local fact."""
    life: int
    """The sender's life."""
    now_ms: NowMs
    """Machine time: for timers. It neither jumps nor runs ahead, and so lags behind the clock after every pause [R4]."""
    id: str
    """`<generation>.<offset>` of the record."""
    body: Any
    """A message, an outcome, a Client record, a local fact, or one of Born, Configured, Ticked, PeerBorn, PassedOver."""
    stamp_ms: int = 0
    """The broker's stamp of the record; 0: there is none."""

    @property
    def generation(self) -> int:
        """The life of the scope that folds it."""
        return int(self.id.partition(".")[0])

    @property
    def at_ms(self) -> AtMs:
        """When it happened, as people read it: the broker's clock. It may jump, so nobody is ever lost or late by it."""
        return AtMs(self.stamp_ms or self.now_ms)


class Say(NamedTuple):
    """A message to another scope, as the next link of the chain to it. To a peer not yet heard nothing is sent: it will be declared
    to when it is [R10]. `after`: a topic, or the type of a message. What this scope sent before of that
    kind must be in Kafka before this is sent: what its receiver does next must not overtake it, and partitions have no common order."""

    to: str
    body: Body
    after: str = ""


class Publish(NamedTuple):
    """A fact or an answer on a public topic. `after`: as of Say. A record that could not be sent is sent again by the next leader, behind
    those that could, even of its own partition."""

    topic: str
    key: str
    body: Body
    trace: str = ""
    """The place in a trace of who reads it (`trace_context.in_one`); empty: that of its key (`runtime/envelope.py`)."""
    after: str = ""


class Do(NamedTuple):
    """An effect. Effects with one `key` (an etcd key, a slot) go one after the other [R17]. `after_said`: it is performed once all that
    was sent before it is in Kafka, because it takes away what a new generation would send it again from [R16]."""

    key: str
    effect: Body
    after_said: bool = False


class Forget(NamedTuple):
    """A dynamic peer has ended in this life: its chain is dropped, and what that life may still send."""

    peer: Scope
    life: int


@dataclass(frozen=True, slots=True)
class PassedOver:
    """In place of the body of a record that ended two processes [R26]: whatever it asked for is not done. Who it was about is notified."""

    body: Any
    error: str


Output = Say | Publish | Do | Forget
Handler = Callable[[Any, Any, Envelope], Iterator[Output]]
"""`on_<message>(state, body, envelope)`, with `body` of the class under which the handler stands in its machine's table."""


class Machine(Protocol):
    """One service's decisions. `peers`: the scopes that are greeted at birth. One whose state had another shape in an earlier version has
    `of_earlier(field, value)` as well, which gives a field of that, as JSON, in today's; a name alone is `formerly` another."""

    scope: str
    peers: tuple[str, ...]

    @property
    def state_type(self) -> type: ...

    def blank(self) -> Any:
        """The state of a new generation."""
        ...

    def handle(self, state: Any, envelope: Envelope) -> Iterator[Output]:
        """Changes the state and yields what is sent and done, in order."""
        ...

    def is_idle(self, state: Any) -> bool:
        """Whether no timer runs and nothing is awaited: ticks may come slowly until something is sent to it."""
        ...


def beside() -> Any:
    """A field of a state that follows from the machine or from the other fields. The machine sets it before each record, no snapshot
    holds it, and two states that differ in it alone are equal."""
    return field(default=None, init=False, repr=False, compare=False, metadata={"beside": True})


def formerly(*names: str) -> Any:
    """Beside the type of a field of a state: today's name, then those that it has in snapshots of earlier versions."""
    return Field(validation_alias=AliasChoices(*names))


def stored_fields(state_type: Any) -> tuple[str, ...]:
    """The fields of a state that a snapshot holds: all but those that are `beside` it."""
    return tuple(each.name for each in fields(state_type) if not each.metadata.get("beside"))


def settings_of(kind: type[T], configured: Configured) -> T:
    """The settings that decide, as a dataclass; what the leader was not told has its default, what this machine does not know is left."""
    given = configured.settings
    make: Callable[..., T] = kind
    return make(**{each.name: given[each.name] for each in fields(cast(Any, kind)) if each.name in given})


class UnknownMessage(AssertionError):
    """A message that this machine has no handler for: the sender is of another build; the replica stops [R26]."""


def dispatch(handlers: Mapping[type, Handler], state: Any, envelope: Envelope) -> Iterator[Output]:  # [R5]
    """Runs the handler of the body's class; a machine's `handle` is this over its table."""
    handler = handlers.get(type(envelope.body))
    if handler is None:
        raise UnknownMessage(f"no handler for {type(envelope.body).__name__} from {envelope.sender or 'the core'}")
    return handler(state, envelope.body, envelope)
