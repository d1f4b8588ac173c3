"""`millrace dlq`: the dead letters: list, show, redrive, purge."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.connection import StackOption, connected
from millrace.cli.exits import Exit
from millrace.cli.jobs import JsonOption
from millrace.cli.times import past_ms

from . import dlq_inboxes
from .dlq_inboxes import PassedOver

if TYPE_CHECKING:
    from millrace.client import Millrace
    from millrace.client.dead_letters import DeadLetters, Letter, Original

REASON_MOST = 100  # in a list
SEND, AGAIN, OFTEN, GONE = "send", "sent already", "sent too often", "gone"
WRONG, ELSEWHERE, FOLDED = "still wrong", "not a client's", "of an inbox"
"""What redrive does with a letter: sends it, or leaves it for this reason."""

dlq = typer.Typer(
    name="dlq",
    no_args_is_help=True,
    help="List, show, send again and delete dead letters: records of client.commands that were no valid request, and submissions "
    "without reply_to that were refused (the reason begins with busy, conflict, late or internal).\n\n"
    "A letter's number is its offset on the topic dead-letters, which keeps it for 30 days. Records of inboxes that ended processes and "
    "are passed over are listed and shown, too, by their place, such as job-master/0@57; they are never sent again.",
    rich_markup_mode="rich",
)

ReasonOption = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Only with this text in the reason.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only records that were on this topic.")]
JobOption = Annotated[str | None, typer.Option("--job", metavar="ID", help="Only records about this job.")]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Only parked since: 30m, 2h, 3d ago, 14:30, or 2026-01-31T12:00.")
]
UntilOption = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only parked before that time.")]
NumberArgument = Annotated[str, typer.Argument(metavar="LETTER", help="Its number or place, as list prints it.", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without this it is only told what would be done.")]


@dlq.command("list")
def list_letters(
    reason: ReasonOption = None,
    topic: TopicOption = None,
    job: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    waiting: Annotated[bool, typer.Option("--open", help="Only those that were not sent again.")] = False,
    most: Annotated[int, typer.Option("-n", "--most", min=1, help="How many.")] = 50,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """List the dead letters, newest first.

    millrace dlq list --since 2h --reason "not JSON"

    millrace dlq list --job nightly-7 --json
    """
    keep = _filter(reason, topic, job, since, until)
    with connected(stack) as millrace:
        letters = _chosen(millrace.dead_letters(), None, keep, since)
    passed = [each for each in dlq_inboxes.known(stack) if keep(each)]
    found: list[Letter | PassedOver] = [each for each in letters if not waiting or each.redriven is None]
    found = sorted([*found, *passed], key=_at_ms)[::-1]  # of one moment the later letter first
    from millrace.cli.tables import print_json, table

    if as_json:
        print_json([each.plain() if isinstance(each, PassedOver) else _plain(each) for each in found[:most]])
    else:
        table(("letter", "parked", "was at", "type", "job", "bytes", "reason", "sent again"), map(_row, found[:most]))
    if len(found) > most:
        print(f"{most} of {len(found)}; more with -n", file=sys.stderr)


@dlq.command()
def show(
    number: NumberArgument,
    raw: Annotated[bool, typer.Option("--raw", help="Write the record's bytes to stdout, and nothing else.")] = False,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Show a dead letter, or a record that is passed over: why, from where, what it says, and what became of it.

    millrace dlq show 12

    millrace dlq show job-master/0@57

    millrace dlq show 12 --raw > record.json     # the whole record: mend it, millrace validate record.json, publish it
    """
    from millrace.client.dead_letters import Gone

    if "@" in number:
        dlq_inboxes.show(dlq_inboxes.placed(dlq_inboxes.known(stack, must=True), number), raw, as_json)
        return
    with connected(stack) as millrace:
        letters = millrace.dead_letters()
        every = letters.read()
        letter = _numbered(every, [number])[0]
        original: Original | None = None
        try:
            original = letters.original(letter)
            whole, wrong = f"there, in {original.place}", still_wrong(letter, original.value)
        except Gone as gone:
            whole, wrong = str(gone), None
    if raw:
        if original is None:
            print(f"millrace: {whole}", file=sys.stderr)
            raise typer.Exit(Exit.FAILED)
        sys.stdout.buffer.write(original.value)
        sys.stdout.flush()
        return
    headers = {name: value.decode(errors="replace") for name, value in original.headers} if original else {}
    shown = {**_plain(letter), "whole": whole, "still_wrong": wrong, "headers": headers, "story": list(_story(every, letter))}
    from millrace.cli.tables import print_json

    if as_json:
        print_json(shown)
        return
    _print_letter(letter, shown)


@dlq.command()
def redrive(
    numbers: Annotated[
        list[str] | None,
        typer.Argument(metavar="LETTER...", help="These; else what the filters leave.", show_default=False),
    ] = None,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    job: JobOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: Annotated[bool, typer.Option("--all", help="All, where neither letters nor filters are given.")] = False,
    yes: YesOption = False,
    force: Annotated[bool, typer.Option("--force", help="Send also what is still no valid request by this version's rules.")] = False,
    most_repeats: Annotated[
        int, typer.Option("--most-repeats", min=1, help="Leave a record that was sent again so often.")
    ] = 3,
    per_second: Annotated[float, typer.Option("--per-second", min=0.1, help="Send no faster.")] = 50.0,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Send dead letters' records to client.commands again, unchanged. Without --yes: tell what would be sent, by reason.

    For records whose trouble is over: there is room for the job now, a newer Dispatcher knows their type, or the upload that was missing
    is there. The ids in them stay what they were, so a job that was accepted meanwhile is the same job, and not a second one. Each sending
    is written down on dead-letters: after an interruption the same command goes on where it stood. Records of inboxes are never sent again.

    Exit codes: 0 done, 1 some could not be sent, 3 the cluster does not answer (nothing was sent, or it is said how much).

    millrace dlq redrive --reason "was not uploaded" --since 1d

    millrace dlq redrive --reason busy: --yes

    millrace dlq redrive 12 13 --yes
    """
    from millrace.client import Unavailable

    if not (numbers or reason or topic or job or since or until or every):
        raise typer.BadParameter("say which: letters, filters, or --all")
    with connected(stack) as millrace:
        letters = millrace.dead_letters()
        found = _found(letters, stack, numbers or [], _filter(reason, topic, job, since, until), since)
        fates = [_fate(letters, each, most_repeats, force) for each in found]
        going = [
            (letter, original)
            for letter, (fate, _, original) in zip(found, fates, strict=True)
            if fate == SEND and original and not isinstance(letter, PassedOver)
        ]
        if not yes:
            _print_plan(found, fates, as_json)
            if going and not as_json:
                print(f"nothing was sent; --yes sends {len(going)}", file=sys.stderr)
            return
        _check(millrace)
        end = letters.end()
        try:
            failed = _send(letters, going, per_second)
            millrace.check_dispatcher()
        except (KeyboardInterrupt, Unavailable):
            sent_now = sum(each.redriven is not None for each, _ in going)
            print(f"interrupted: sent {sent_now} of {len(going)}; the same command goes on with the rest", file=sys.stderr)
            raise
        sent = {each.redriven.offset for each, _ in going if each.redriven is not None}
        back = [each for each in letters.read() if each.number >= end and each.letter.offset in sent]
    _print_done(found, fates, len(sent), back, failed, as_json)
    if failed:
        raise typer.Exit(Exit.FAILED)


def _check(millrace: Millrace) -> None:
    """A stopped cluster takes nothing: what is sent to it would be sent a second time by whoever wonders."""
    from millrace.client import Unavailable

    try:
        millrace.check_dispatcher()
    except Unavailable as failure:
        raise Unavailable(f"nothing was sent: the cluster is stopped, or has no Dispatcher ({failure})") from None


@dlq.command()
def purge(
    below: Annotated[
        int | None, typer.Option("--below", metavar="LETTER", min=0, help="All letters with a lower number.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="TIME", help="All parked before: 7d ago, or 2026-01-31T12:00.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    yes: YesOption = False,
    stack: StackOption = "default",
) -> None:
    """Delete the oldest dead letters for good. Kafka deletes from the oldest on, up to a number: none is left out.

    millrace dlq purge --before 7d

    millrace dlq purge --below 120 --yes
    """
    if (below is not None) + (before is not None) + every != 1:
        raise typer.BadParameter("say up to where: one of --below, --before, --all")
    with connected(stack) as millrace:
        letters = millrace.dead_letters()
        now = letters.end()  # what is parked from here on stays: nobody has seen it
        known = [each for each in letters.read() if each.number < now]
        if before is not None:
            until_ms = past_ms(before)
            below = min((each.number for each in known if each.letter.at_ms >= until_ms), default=now)
        end = now if below is None else below
        letters.must_reach(end)
        gone = [each for each in known if each.number < end]
        if yes:
            letters.purge(end)
    waiting = sum(each.redriven is None for each in gone)
    what = f"{len(gone)} letter{'s' * (len(gone) != 1)} below {end}, {waiting} of them not sent again"
    print(f"deleted {what}" if yes else f"would delete {what}; --yes does it")


# ---- which letters, and what can be done


def _filter(
    reason: str | None, topic: str | None, job: str | None, since: str | None, until: str | None
) -> Callable[[Letter | PassedOver], bool]:
    since_ms, until_ms = (None if each is None else past_ms(each) for each in (since, until))

    def keep(each: Letter | PassedOver) -> bool:
        told = each if isinstance(each, PassedOver) else each.letter
        return (
            (reason is None or reason.lower() in told.reason.lower())
            and (topic is None or told.topic == topic)
            and (job is None or each.job == job)
            and (since_ms is None or told.at_ms >= since_ms)
            and (until_ms is None or told.at_ms < until_ms)
        )

    return keep


def _found(
    letters: DeadLetters, stack: str, numbers: list[str], keep: Callable[[Letter | PassedOver], bool], since: str | None
) -> list[Letter | PassedOver]:
    """What numbers and places name, else what all filters leave; letters first."""
    places = [each for each in numbers if "@" in each]
    plain = [each for each in numbers if "@" not in each]
    passed = dlq_inboxes.known(stack, must=bool(places), quiet=True) if places or not numbers else []
    passed = [dlq_inboxes.placed(passed, each) for each in places] if numbers else [each for each in passed if keep(each)]
    return [*(_chosen(letters, plain, keep, since) if plain or not numbers else []), *passed]


def _chosen(
    letters: DeadLetters, numbers: list[str] | None, keep: Callable[[Letter], bool], since: str | None
) -> list[Letter]:
    """The letters that all filters leave, oldest first."""
    found = letters.read(None if since is None else past_ms(since))
    return [each for each in (_numbered(found, numbers) if numbers else found) if keep(each)]


def _at_ms(each: Letter | PassedOver) -> int:
    return each.at_ms if isinstance(each, PassedOver) else each.letter.at_ms


def _numbered(letters: Iterable[Letter], texts: list[str]) -> list[Letter]:
    from millrace.client import NotFound

    wrong = [text for text in texts if not text.isdigit()]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is no letter: give a number or a place, such as job-master/0@57, as list prints it")
    numbers = [int(text) for text in texts]
    by_number = {each.number: each for each in letters}
    missing = [number for number in numbers if number not in by_number]
    if missing:
        raise NotFound(f"there is no letter {missing[0]} (any more): millrace dlq list tells those that are kept")
    return [by_number[number] for number in dict.fromkeys(numbers)]


def _fate(
    letters: DeadLetters, letter: Letter | PassedOver, most_repeats: int, force: bool
) -> tuple[str, str, Original | None]:
    """(what redrive does with a letter, why, its record)."""
    from millrace.client.dead_letters import Gone
    from millrace.client.link import REQUESTS

    if isinstance(letter, PassedOver):
        return FOLDED, letter.refusal, None
    if letter.letter.topic != REQUESTS:
        return ELSEWHERE, f"it was on {letter.letter.topic}", None
    if letter.redriven is not None:
        return AGAIN, f"to offset {letter.redriven.offset}", None
    try:
        original = letters.original(letter)
    except Gone as gone:
        return GONE, str(gone), None
    repeats = max(letter.repeats, original.repeats)
    if repeats >= most_repeats:
        return OFTEN, f"{repeats} times", None
    wrong = None if force else still_wrong(letter, original.value)
    return (SEND, "", original) if wrong is None else (WRONG, wrong, None)


def still_wrong(letter: Letter, value: bytes) -> str | None:
    """Why a record would be parked again, or refused with nobody to hear it; None: by letter and record nothing is wrong."""
    from millrace.core.jobgraph.model import DEFAULT_LIMITS
    from millrace.core.jobgraph.parse import Refused
    from millrace.core.messages.client import SubmitJob
    from millrace.edge.requests import check_graph, decode

    if letter.is_conflict:
        return "its id is another job's, and stays so: publish it under another id"
    try:
        request = decode(value, DEFAULT_LIMITS)
    except Refused as refused:
        return str(refused)
    if isinstance(request, SubmitJob):
        if request.accept_before_ms is not None and request.accept_before_ms * 1_000_000 < time.time_ns():
            return "its accept_before_ms has passed: it would be rejected as late; publish it with a later one, or with none"
        found = check_graph(request.graph, request.parameters, DEFAULT_LIMITS)
        if found.problems:
            return str(found.problems[0])
    return None


def _send(letters: DeadLetters, going: list[tuple[Letter, Original]], per_second: float) -> list[str]:
    """Sends one after the other, no faster than allowed; what could not be sent, in one line each."""
    from rich.console import Console
    from rich.progress import track

    from millrace.client import Refused

    failed = []
    console = Console(stderr=True)
    started = time.monotonic()
    for n, (letter, original) in enumerate(track(going, "sending", console=console, disable=not console.is_terminal)):
        time.sleep(max(0.0, started + n / per_second - time.monotonic()))
        try:
            letters.redrive(letter, original)
        except Refused as refused:
            failed.append(f"letter {letter.number}: {refused}")
    return failed


# ---- what is printed


def _row(each: Letter | PassedOver) -> tuple[object, ...]:
    from millrace.cli.tables import when

    if isinstance(each, PassedOver):
        size = len(each.recorded.value) if each.recorded else None
        return each.place, when(each.at_ms), f"{each.topic} {each.offset}", each.type, each.job, size, _short(each.reason), "never"
    told = each.letter
    return (
        each.number, when(told.at_ms), f"{told.topic} {told.offset}", each.type, each.job, told.size_bytes, _short(told.reason),
        _fact(each),
    )  # fmt: skip


def _short(reason: str) -> str:
    return reason if len(reason) <= REASON_MOST else f"{reason[: REASON_MOST - 3]}..."


def _fact(each: Letter) -> str:
    """What became of it."""
    from millrace.cli.tables import when

    if each.redriven is None:
        return ""
    times = f", time {each.redriven.repeats}" if each.redriven.repeats > 1 else ""
    return f"{when(each.redriven.at_ms)} to offset {each.redriven.offset}{times}"


def _plain(each: Letter) -> dict[str, Any]:
    told = each.letter.model_dump(exclude={"type", "version", "head_base64"})
    text = each.head.decode(errors="replace")
    return {
        "letter": each.number, **told, "kind": each.kind, "type": each.type, "job": each.job,
        "value": each.value if each.value is not None else text, "truncated": each.letter.size_bytes > len(each.head),
        "repeats": each.repeats, "redriven": each.redriven.model_dump(exclude={"type", "version"}) if each.redriven else None,
    }  # fmt: skip


def _story(every: list[Letter], letter: Letter) -> Iterable[str]:
    """The tries of one record, oldest first: where it was parked, when it was sent again, where it was parked then."""
    from millrace.cli.tables import when

    before = {(e.redriven.topic, e.redriven.partition, e.redriven.offset): e for e in every if e.redriven}
    chain = [letter]
    while (told := chain[0].letter) and (earlier := before.get((told.topic, told.partition, told.offset))):
        if earlier.number >= chain[0].number:  # of a topic that was made anew, whose offsets began again
            break
        chain.insert(0, earlier)
    after = {(e.letter.topic, e.letter.partition, e.letter.offset): e for e in every}
    while (fact := chain[-1].redriven) and (later := after.get((fact.topic, fact.partition, fact.offset))):
        if later.number <= chain[-1].number:
            break
        chain.append(later)
    for each in chain:
        yield f"{when(each.letter.at_ms)}  letter {each.number}: parked from offset {each.letter.offset}: {each.letter.reason}"
        if each.redriven is not None:
            yield f"{when(each.redriven.at_ms)}  sent again by {each.redriven.by}, to offset {each.redriven.offset}"
    if chain[-1].redriven is not None:
        yield "it was not parked again" + (f": millrace show {letter.job} tells of its job" if letter.job else "")


def _print_letter(letter: Letter, shown: dict[str, Any]) -> None:
    import json

    from millrace.cli.tables import printable, when

    told = letter.letter
    print(f"letter    {letter.number}, parked {when(told.at_ms)}")
    print(f"reason    {printable(told.reason)}")
    print(f"was at    {told.topic}[{told.partition}], offset {told.offset}")
    print(f"record    {told.size_bytes} bytes, sha256 {told.sha256}")
    print(f"whole     {shown['whole']}")
    if shown["still_wrong"]:
        print(printable(f"redrive   leaves it: {shown['still_wrong']}"))
    for name, value in shown["headers"].items():
        print(printable(f"header    {name}: {value}"))
    print("story")
    for line in shown["story"]:
        print(printable(f"  {line}"))
    print("what it says" + (f" (the first {len(letter.head)} bytes)" if shown["truncated"] else ""))
    value = shown["value"]
    print(printable(value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)))


def _print_plan(found: list[Letter | PassedOver], fates: list[tuple[str, str, Any]], as_json: bool) -> None:
    """The letters by reason, and what would be done with them."""
    from millrace.cli.tables import print_json, table

    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], str] = {}
    for letter, (fate, why, _) in zip(found, fates, strict=True):
        name = letter.place if isinstance(letter, PassedOver) else f"letter {letter.number}"
        kind = letter.reason.partition(":")[0] if isinstance(letter, PassedOver) else letter.kind
        counts[kind, fate] += 1
        examples.setdefault((kind, fate), name + (f": {why}" if why else ""))
    rows = [(n, kind, fate, examples[kind, fate]) for (kind, fate), n in counts.most_common()]
    if as_json:
        print_json([dict(zip(("letters", "kind", "fate", "example"), row, strict=True)) for row in rows])
        return
    told = [(n, kind, "sent" if fate == SEND else f"left: {fate}", example) for n, kind, fate, example in rows]
    table(("letters", "parked because", "would be", "such as"), told)


def _print_done(
    found: list[Letter | PassedOver],
    fates: list[tuple[str, str, Any]],
    sent: int,
    back: list[Letter],
    failed: list[str],
    as_json: bool,
) -> None:
    from millrace.cli.tables import print_json, printable

    left = Counter(fate for fate, _, _ in fates if fate != SEND)
    if as_json:
        again = [{"letter": each.number, "reason": each.letter.reason} for each in back]
        print_json({"sent": sent, "left": dict(left), "parked_again": again, "failed": failed})
        return
    told = "".join(f", {n} left ({fate})" for fate, n in sorted(left.items()))
    print(f"sent {sent} of {len(found)}{told}")
    for each in back:
        print(printable(f"parked again as letter {each.number}: {each.letter.reason}"), file=sys.stderr)
    for line in failed:
        print(f"not sent: {line}", file=sys.stderr)
