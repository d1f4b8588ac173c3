"""The records of an inbox.

An inbox is the journal of its machine: whatever decides is first a record here [R1].
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from . import base, client, effects, graphs, links, slots
from .base import Body, OneOf, Part, empty
from .requests import REQUESTS

Key = tuple[int, int]
"""(offset of the record that was folded, index among its outputs): orders what one life of a scope sends."""


class Hello(Body):
    """Sent first on a chain, and again at every tenth tick, so that a lost last message is seen too [R9].

    `speaks`: the highest protocol its sender reads; a sender uses a newer message only after that was announced [R26].
    """

    type: Literal["Hello"] = "Hello"
    version: Literal[1] = 1
    speaks: int = 1


class Forked(Body):
    """Your log was cut: you sent me more than you know, up to `mark`. Raise your generation [R8]."""

    type: Literal["Forked"] = "Forked"
    version: Literal[1] = 1
    life: int
    mark: Annotated[Key, Field(strict=False)]


MESSAGE_BODIES: tuple[type[Body], ...] = (Hello, Forked, *links.BODIES)


class Elected(Part):
    """A leader's first record, after winning in etcd. A lower epoch than the last is void; nothing counts before the first of a
    generation [R22]. `settings` are those that decide, as the new leader was configured [R1]."""

    record: Literal["Elected"] = "Elected"
    generation: int
    epoch: int
    build: str
    who: str
    settings: dict[str, Any] = empty(dict)


class Tick(Part):
    """The leader's beat. Only number n + 1 of the current epoch is taken [R3]. `published_through`: all outputs up to this number
    are in Kafka [R14]. `digest`: of all outputs up to the last taken tick; a replica that differs ends itself. `next_ms`: the next
    tick comes at the latest after so long, unless the leader is gone; it is longer while there is nothing to do and nobody to
    take over. `revision`: etcd's, as the leader saw it last: an etcd with a lower one was restored from a backup [R24]."""

    record: Literal["Tick"] = "Tick"
    epoch: int
    n: int
    published_through: int
    digest: str
    next_ms: int = 100
    revision: int = 0


class Outcome(Part):
    """A fact about the outside world: what effect `effect` led to, whoever posts it [R17]."""

    record: Literal["Outcome"] = "Outcome"
    effect: str
    result: Annotated[Body, OneOf(effects.OUTCOMES)]


class Excerpt(Part):
    """What a dead letter has of a stranger's record: its size, its hash, its first bytes."""

    size_bytes: int
    sha256: str
    head_base64: str


class Refusal(Excerpt):
    """Why a stranger's record cannot be used; it is parked in dead-letters."""

    reason: str


class Client(Part):
    """A stranger's request, copied in by the leader's client port as a chain: `prev` is the offset before in the log `log` [R2].

    The port is the edge: it decodes strictly and checks once; its findings are part of the record, so that a fold needs neither
    files nor parsers. Exactly one of `request` and `refusal` is given.
    """

    record: Literal["Client"] = "Client"
    log: str
    prev: int
    offset: int
    partition: int = 0
    stamp_ms: int = 0
    """The broker's stamp of it there, by which its place is recognised; 0: unknown."""
    prev_stamp_ms: int = 0
    """That of what stands at `prev`."""
    request: Annotated[base.Request, OneOf(REQUESTS)] | None = None
    refusal: Refusal | None = None
    excerpt: Excerpt | None = None
    """Of a SubmitJob that wants no answer: it is parked if the machine refuses it."""
    problems: list[client.Problem] = empty(list)
    """What is wrong with a submitted graph."""
    warnings: list[client.Problem] = empty(list)
    graph: dict[str, Any] | None = None
    """The valid graph of a SubmitJob, parameters put in (the request then carries none, to be short)."""
    digest: str | None = None
    """SHA-256 of the graph and parameters as they were submitted."""
    decided: bool = False
    """A Dispatcher whose log is lost has decided on it before: what it refused is not to be carried out now."""
    lack: str = ""
    """Why a submission that is new cannot be taken now, though nothing is wrong in it: a disk is nearly full."""


class Message(Part):
    """Another scope's message: a link of a chain between two lives."""

    record: Literal["Message"] = "Message"
    to: str
    to_life: int
    """The receiver's life of which the sender last took a message; 0: of none yet."""
    sender: str
    life: int
    key: Annotated[Key, Field(strict=False)]
    prev: Annotated[Key, Field(strict=False)] | None
    """The key of the sender's previous message to this receiver; null: the chain starts here."""
    body: Annotated[Body, OneOf(MESSAGE_BODIES)]


def message_json(to: str, to_life: int, sender: str, life: int, key: Key, prev: Key | None, body: Body) -> str:
    """What `encode` gives of such a Message, in a quarter of the time: half of a fold's time goes into its words."""
    before = "null" if prev is None else f"[{prev[0]},{prev[1]}]"
    return (
        f'{{"record":"Message","to":{_quoted(to)},"to_life":{to_life},"sender":{_quoted(sender)},"life":{life},'
        f'"key":[{key[0]},{key[1]}],"prev":{before},"body":{encode(body).decode()}}}'
    )


@functools.lru_cache(4096)
def _quoted(scope: str) -> str:
    return json.dumps(scope, ensure_ascii=False)


class Probe(Part):
    """A standby's question to the log: do ticks still come? Folded as nothing. Also appended now and then, so that a leader knows
    that somebody watches its ticks."""

    record: Literal["Probe"] = "Probe"
    who: str
    n: int


class Fact(Part):
    """A local event, in the order taken. Of a TaskManager, or what the Dispatcher's leader has noticed in etcd."""

    record: Literal["Fact"] = "Fact"
    body: Annotated[Body, OneOf((*slots.LOCAL_FACTS, *graphs.NOTICED))]


Record = Annotated[Elected | Tick | Outcome | Client | Message | Probe | Fact, Field(discriminator="record")]
_validate: Callable[[bytes], Record] = TypeAdapter(Record).validator.validate_json  # the adapter's own adds a sixth to its time


class UnknownRecord(ValueError):
    """A type, version or field that this build does not know: another build wrote it, and this replica stops [R26]."""


def decode(value: bytes) -> Elected | Tick | Outcome | Client | Message | Probe | Fact:
    """The record of an inbox. Raises UnknownRecord for what another build may have meant, ValidationError for what is no JSON."""
    try:
        return _validate(value)
    except ValidationError as failure:
        if failure.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
            raise
        raise UnknownRecord(str(failure)) from None


def encode(record: Part | Body) -> bytes:
    return record.__pydantic_serializer__.to_json(record)
