"""What `millrace dlq` prints: a row or a page for each letter, what a redrive would do, what one has done."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millrace.cli.fates import Fate
from millrace.cli.tables import print_json, table, when
from millrace.cli.words import printable

from .inboxes import PassedOver
from .plan import Decision, groups, tries

if TYPE_CHECKING:
    from millrace.client.dead_letters import Letter

REASON_MOST = 100  # in a list


def print_list(found: Iterable[Letter | PassedOver], as_json: bool) -> None:
    """`dlq list`."""
    if as_json:
        print_json([each.plain() if isinstance(each, PassedOver) else plain(each) for each in found])
    else:
        table(("letter", "parked", "was at", "type", "job", "bytes", "reason", "sent again"), map(_row, found))


def _row(each: Letter | PassedOver) -> tuple[object, ...]:
    again = "never" if isinstance(each, PassedOver) else _sent_again(each)
    reason = each.reason if len(each.reason) <= REASON_MOST else f"{each.reason[: REASON_MOST - 3]}..."
    return each.place, when(each.at_ms), f"{each.topic} {each.offset}", each.type, each.job, each.size_bytes, reason, again


def _sent_again(each: Letter) -> str:
    if each.redriven is None:
        return ""
    times = f", time {each.redriven.repeats}" if each.redriven.repeats > 1 else ""
    return f"{when(each.redriven.at_ms)} to offset {each.redriven.offset}{times}"


def plain(each: Letter) -> dict[str, Any]:
    """As JSON."""
    fields = each.letter.model_dump(exclude={"type", "version", "head_base64"})
    text = each.head.decode(errors="replace")
    return {
        "letter": each.number, **fields, "kind": each.kind, "type": each.type, "job": each.job,
        "value": each.value if each.value is not None else text, "truncated": each.size_bytes > len(each.head),
        "repeats": each.repeats, "redriven": each.redriven.model_dump(exclude={"type", "version"}) if each.redriven else None,
    }  # fmt: skip


def story(every: Iterable[Letter], letter: Letter) -> Iterator[str]:
    """The tries of one record, oldest first: where it was parked, when it was sent again, where it was parked then."""
    chain = tries(every, letter)
    for each in chain:
        yield f"{when(each.at_ms)}  letter {each.number}: parked from offset {each.offset}: {each.reason}"
        if each.redriven is not None:
            yield f"{when(each.redriven.at_ms)}  sent again by {each.redriven.by}, to offset {each.redriven.offset}"
    if chain[-1].redriven is not None:
        yield "it was not parked again" + (f": millrace show {letter.job} tells of its job" if letter.job else "")


def print_letter(letter: Letter, shown: dict[str, Any]) -> None:
    """`dlq show`, of a letter."""
    described = letter.letter
    print(f"letter    {letter.number}, parked {when(described.at_ms)}")
    print(f"reason    {printable(described.reason)}")
    print(f"was at    {described.topic}[{described.partition}], offset {described.offset}")
    print(f"record    {described.size_bytes} bytes, sha256 {described.sha256}")
    print(f"whole     {shown['whole']}")
    if shown["still_wrong"]:
        print(printable(f"redrive   leaves it: {shown['still_wrong']}"))
    for name, value in shown["headers"].items():
        print(printable(f"header    {name}: {value}"))
    _print_story(shown["story"])
    print("what it says" + (f" (the first {len(letter.head)} bytes)" if shown["truncated"] else ""))
    _print_value(shown["value"])


def print_passed_over(found: PassedOver, as_json: bool) -> None:
    """`dlq show`, of a record of an inbox."""
    lines = list(found.story())
    if as_json:
        print_json({**found.plain(), "refusal": found.refusal, "story": lines})
        return
    print(f"record    {found.place}" + (f", written {when(found.at_ms)}" if found.at_ms else ""))
    print(printable(f"reason    {found.reason}"))
    print(f"is at     {found.topic}[{found.partition}], offset {found.offset}, in generation {found.generation}")
    print(f"redrive   never: {found.refusal}")
    _print_story(lines)
    if found.recorded is not None:
        print("what it says")
        _print_value(found.value)


def _print_story(lines: Iterable[str]) -> None:
    print("story")
    for line in lines:
        print(printable(f"  {line}"))


def _print_value(value: object) -> None:
    print(printable(value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)))


def print_plan(decisions: Iterable[Decision], as_json: bool) -> None:
    """The letters by reason, and what would be done with them."""
    found = groups(decisions)
    if as_json:
        print_json([{"letters": each.letters, "kind": each.kind, "fate": each.fate.value, "example": each.example} for each in found])
        return
    rows = [(each.letters, each.kind, _would_be(each.fate), each.example) for each in found]
    table(("letters", "parked because", "would be", "such as"), rows)


def _would_be(fate: Fate) -> str:
    return "sent" if fate is Fate.SEND else f"left: {fate.value}"


def print_done(decisions: list[Decision], sent: int, back: list[Letter], failed: list[str], as_json: bool) -> None:
    """What was sent, what was left, what was parked again at once, and what could not be sent."""
    left = Counter(each.fate.value for each in decisions if each.fate is not Fate.SEND)
    if as_json:
        again = [{"letter": each.number, "reason": each.reason} for each in back]
        print_json({"sent": sent, "left": dict(left), "parked_again": again, "failed": failed})
        return
    print(f"sent {sent} of {len(decisions)}" + "".join(f", {n} left ({fate})" for fate, n in sorted(left.items())))
    for each in back:
        print(printable(f"parked again as letter {each.number}: {each.reason}"), file=sys.stderr)
    for line in failed:
        print(f"not sent: {line}", file=sys.stderr)
