"""What a scope says when its inbox is folded again, held against what stands in the inboxes and topics it spoke to."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from millrace.core.fold import Diverged, OutboxRecord
from millrace.core.messages.records import Tick

from .folding import Folding, Step
from .recorded import Log, Recorded, log_name, parse, title
from .redaction import STRANGERS, masked
from .trees import differences

REPLIES = "client.replies"
SHOWN_MOST = 8  # fields, or effects, of one difference
LONGEST = 100


@dataclass(frozen=True, slots=True)
class Output:
    """An output: a digest of its value, the offset of the record that led to it, and the log that it was sent to."""

    digest: bytes
    offset: int
    log: str


@dataclass(frozen=True)
class Difference:
    """Folding the record at `offset` of the scope's inbox leads to something else than it did. `seq`: the number of the output that
    differs, None where only a tick's digest tells; `stands`: that output as it was sent then, None where it does not stand there."""

    offset: int
    why: tuple[str, ...]
    seq: int | None = None
    stands: Recorded | None = None


@dataclass
class Checked:
    """One scope, folded again from `first` on."""

    scope: str
    generation: int
    first: int
    sent_before: int  # sequence number: outputs up to this one were in Kafka before
    said: int = -1  # the highest sequence number of an output
    end: int = 0
    ticks: int = 0
    effects: int = 0
    digest: str = ""
    state: str = ""  # hash of the state at the end, once it is asked for
    published_through: int = 0
    outputs: dict[int, Output] = field(default_factory=dict)  # sequence number -> output
    found: set[int] = field(default_factory=set)  # of those, the ones that stand where they were said to
    later: int = 0  # records said by what lies behind the end of the fold
    earlier: int = 0  # records said by what lies before its beginning
    uncovered: int = 0  # outputs whose log does not reach back to them, or is not here
    difference: Difference | None = None

    @property
    def records(self) -> int:
        return self.end - self.first

    def differs(self, difference: Difference) -> None:
        """Keeps the first one; at one offset the one that names an output."""
        known = self.difference
        if known is None or (difference.offset, difference.seq is None) < (known.offset, known.seq is None):
            self.difference = difference


class Check:
    """First `fold` each scope, then `compare` all records of all logs, then `close`."""

    def __init__(self, redacted: bool = False) -> None:
        self.redacted = redacted
        self.scopes: dict[str, Checked] = {}
        self.unfolded = 0  # records said by scopes, or by lives of them, that were not folded here

    def fold(self, folding: Folding, records: Iterable[Recorded]) -> Iterator[Step]:
        """Folds to the end, or to the first tick that names another digest. Raises BadLog, Broken."""
        folded = folding.folded
        checked = Checked(folding.scope.name, folded.generation, folded.next_offset, folded.published_through)
        self.scopes[checked.scope] = checked
        for record in folded.outbox.values():
            self._note(checked, record, folded.next_offset - 1)
        ticks = [folded.next_offset - 1, folded.next_offset - 1]  # offsets of the last two: a tick tells what was said up to the one before
        effects: list[tuple[int, str]] = []
        try:
            for step in folding.steps(records):
                offset = step.recorded.offset
                for record in step.result.said:
                    self._note(checked, record, offset)
                for effect in step.result.done:
                    checked.effects += 1
                    effects.append((offset, folded.effects[effect].effect))
                if step.result.taken and isinstance(step.record, Tick):
                    checked.ticks, ticks = checked.ticks + 1, [ticks[1], offset]
                    effects = [(at, effect) for at, effect in effects if at > ticks[0]]
                yield step
        except Diverged as failure:
            where = f"the first record that is folded otherwise is at offset {ticks[0] + 1} to {ticks[1]}"
            shown = [f"now offset {at} leads to {effect}" for at, effect in effects if at <= ticks[1]]
            why = (str(failure), where, *(_short(line, 3 * LONGEST) for line in shown[:SHOWN_MOST]))
            checked.differs(Difference(folded.next_offset - 1, why))
        checked.end, checked.digest, checked.published_through = folded.next_offset, folded.digest, folded.published_through

    def _note(self, checked: Checked, record: OutboxRecord, offset: int) -> None:
        log = self._log(record.topic, record.partition)
        checked.said = max(checked.said, record.seq)
        checked.outputs[record.seq] = Output(self._digest(record.value.encode()), offset, log)

    def _log(self, topic: str, partition: int) -> str:
        """Which partition an answer goes to is made of its client's name."""
        return topic if self.redacted and topic == REPLIES else log_name(topic, partition)

    def _digest(self, value: bytes) -> bytes:
        return hashlib.blake2b(masked(value) if self.redacted else value, digest_size=12).digest()

    def compare(self, recorded: Recorded) -> None:
        """A record of any log: is it what its speaker says now?"""
        sender = sender_of(recorded)
        if sender is None:
            return
        name, life, seq = sender
        checked = self.scopes.get(name)
        if checked is None or life != checked.generation:
            self.unfolded += 1
        elif seq not in checked.outputs:
            checked.earlier += seq <= checked.sent_before
            checked.later += seq > max(checked.said, checked.sent_before)
        else:
            output = checked.outputs[seq]
            checked.found.add(seq)
            if output.digest != self._digest(recorded.value) or output.log != self._log(recorded.topic, recorded.partition):
                checked.differs(Difference(output.offset, ("it says something else than then",), seq, recorded))

    def close(self, logs: Iterable[Log]) -> None:
        """Outputs that are known to be in Kafka and do not stand in a log that is here from its beginning are missing."""
        whole = {
            self._log(log.topic, log.partition)
            for log in logs
            if log.first == 0 and not (self.redacted and log.topic in STRANGERS)  # nobody can tell there who said what
        }
        for checked in self.scopes.values():
            for seq, output in checked.outputs.items():
                if seq in checked.found or seq > checked.published_through:
                    continue
                if output.log not in whole:
                    checked.uncovered += 1
                else:
                    checked.differs(Difference(output.offset, (f"what it says does not stand in {output.log}",), seq))

    @property
    def first(self) -> tuple[Checked, Difference] | None:
        """The scope and the difference to look at first: one that names an output, else one that only a tick tells."""
        found = [(each, each.difference) for each in self.scopes.values() if each.difference is not None]
        return min(found, key=lambda pair: pair[1].seq is None, default=None)


def sender_of(recorded: Recorded) -> tuple[str, int, int] | None:
    """(scope, its life, sequence number) of an output, from its id `<scope>/<life>/<number>`; None: not said by a scope."""
    scope_life, _, seq = recorded.id.rpartition("/")
    scope, _, life = scope_life.rpartition("/")
    return (scope, int(life), int(seq)) if scope and life.isdecimal() and seq.isdecimal() else None


def explain(difference: Difference, cause: Recorded | None, now: OutboxRecord | None) -> Iterator[str]:
    """A difference in lines: the record that is folded otherwise, what was said then, what is said now, and where they differ."""
    if cause is not None:
        kind, detail, sender, _ = title(cause)
        whose = f" from {sender}" if sender else ""
        yield f"folded record: {cause.place}, {kind}{whose} {detail}".rstrip()
    yield from difference.why
    stands = difference.stands
    if stands is not None:
        yield f"then: {stands.place}, {_words(stands)}"
    if now is not None:
        recorded = Recorded(now.topic, now.partition, -1, 0, now.key, now.value.encode())
        yield f"now:  {log_name(now.topic, now.partition)}, {_words(recorded)}"
    if stands is not None and now is not None:
        yield from _fields(parse(stands.value), parse(now.value.encode()))


def _words(recorded: Recorded) -> str:
    kind, detail, _, job = title(recorded)
    return " ".join(filter(None, (kind, f"job {job}" if job else "", detail)))


def _fields(then: Any, now: Any) -> Iterator[str]:
    for path, before, after in list(differences(then, now))[:SHOWN_MOST]:
        yield f"{'.'.join(path) or 'the record'}: was {_short(repr(before))}, is {_short(repr(after))}"


def _short(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
