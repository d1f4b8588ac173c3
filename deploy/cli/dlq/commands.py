"""`millrace dlq`: the dead letters: list, show, redrive, purge."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.connection import StackOption, connected
from millrace.cli.exits import Exit
from millrace.cli.fates import REPEATS_MOST, Fate, still_wrong
from millrace.cli.options import JsonOption
from millrace.cli.times import past_ms

from . import inboxes
from .inboxes import PassedOver
from .plan import Filter, decide, numbered

if TYPE_CHECKING:
    from millrace.client import Millrace
    from millrace.client.dead_letters import DeadLetters, Letter, Original

BACK_S = 10.0  # for letters that come back in any case: etcd may be slow, and a command should end

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
    wanted = _filter(reason, topic, job, since, until)
    with connected(stack) as millrace:
        letters = _chosen(millrace.dead_letters(), [], wanted)
    passed = [each for each in inboxes.known(stack) if wanted.keeps(each)]
    found: list[Letter | PassedOver] = [each for each in letters if not waiting or each.redriven is None]
    found = sorted([*found, *passed], key=lambda each: each.at_ms)[::-1]  # of one moment the later letter first
    from .shown import print_list

    print_list(found[:most], as_json)
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
        _show_passed_over(inboxes.placed(inboxes.known(stack, must=True), number), raw, as_json)
        return
    with connected(stack) as millrace:
        letters = millrace.dead_letters()
        every = letters.read()
        letter = numbered(every, [number])[0]
        original: Original | None = None
        try:
            original = letters.original(letter)
            whole, wrong = f"there, in {original.place}", still_wrong(letter, original.value)
        except Gone as gone:
            whole, wrong = str(gone), None
    if raw:
        _write_raw(original.value if original else None, whole)
        return
    from millrace.cli.tables import print_json

    from .shown import plain, print_letter, story

    headers = {name: value.decode(errors="replace") for name, value in original.headers} if original else {}
    shown = {**plain(letter), "whole": whole, "still_wrong": wrong, "headers": headers, "story": list(story(every, letter))}
    if as_json:
        print_json(shown)
    else:
        print_letter(letter, shown)


def _show_passed_over(found: PassedOver, raw: bool, as_json: bool) -> None:
    from .shown import print_passed_over

    if raw:
        _write_raw(found.recorded.value if found.recorded else None, f"{found.place} is deleted: its log begins behind it")
    else:
        print_passed_over(found, as_json)


def _write_raw(value: bytes | None, missing: str) -> None:
    """The bytes of a record on stdout; `missing`: why there are none."""
    if value is None:
        print(f"millrace: {missing}", file=sys.stderr)
        raise typer.Exit(Exit.FAILED)
    sys.stdout.buffer.write(value)
    sys.stdout.flush()


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
    ] = REPEATS_MOST,
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
    from millrace.client import OutcomeUnknown, Unavailable

    from .shown import print_done, print_plan

    if not (numbers or reason or topic or job or since or until or every):
        raise typer.BadParameter("say which: letters, filters, or --all")
    with connected(stack) as millrace:
        letters = millrace.dead_letters()
        found = _found(letters, stack, numbers or [], _filter(reason, topic, job, since, until))
        decisions = [decide(letters, each, most_repeats, force) for each in found]
        going = [
            (each.letter, each.original)
            for each in decisions
            if each.fate is Fate.SEND and each.original and not isinstance(each.letter, PassedOver)
        ]
        if not yes:
            print_plan(decisions, as_json)
            if going and not as_json:
                print(f"nothing was sent; --yes sends {len(going)}", file=sys.stderr)
            return
        _check(millrace)
        end = letters.end()
        try:
            failed = _send(letters, going, per_second)
            millrace.check_dispatcher()
        except (KeyboardInterrupt, Unavailable, OutcomeUnknown):
            sent_now = sum(each.redriven is not None for each, _ in going)
            print(f"interrupted: sent {sent_now} of {len(going)}; the same command goes on with the rest", file=sys.stderr)
            raise
        still_wrong = {each.letter.name for each in decisions if each.why}
        sent = {each.redriven.offset: each.name in still_wrong for each, _ in going if each.redriven is not None}
        back = _parked_again(letters, end, sent)
    print_done(decisions, len(sent), back, failed, as_json)
    if failed:
        raise typer.Exit(Exit.FAILED)


def _parked_again(letters: DeadLetters, end: int, sent: dict[int, bool]) -> list[Letter]:
    """The letters, from `end` on, of records that were sent to these offsets. Those that come back in any case (True) are waited for a
    while: the Dispatcher asks etcd before it parks a conflict, and answers what comes behind it meanwhile."""
    awaited = {offset for offset, is_wrong in sent.items() if is_wrong}
    deadline = time.monotonic() + BACK_S
    while True:
        back = [each for each in letters.read(first=end) if each.letter.offset in sent]
        if time.monotonic() > deadline or awaited <= {each.letter.offset for each in back}:
            return back
        time.sleep(BACK_S / 100)


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


def _filter(reason: str | None, topic: str | None, job: str | None, since: str | None, until: str | None) -> Filter:
    since_ms, until_ms = (None if each is None else past_ms(each) for each in (since, until))
    return Filter(reason, topic, job, since_ms, until_ms)


def _found(letters: DeadLetters, stack: str, names: list[str], wanted: Filter) -> list[Letter | PassedOver]:
    """What numbers and places name, else what all filters leave; letters first."""
    places = [each for each in names if "@" in each]
    numbers = [each for each in names if "@" not in each]
    passed = inboxes.known(stack, must=bool(places), quiet=True) if places or not names else []
    passed = [inboxes.placed(passed, each) for each in places] if names else [each for each in passed if wanted.keeps(each)]
    return [*(_chosen(letters, numbers, wanted) if numbers or not names else []), *passed]


def _chosen(letters: DeadLetters, numbers: list[str], wanted: Filter) -> list[Letter]:
    """The letters with these numbers (none: all) that the filters leave, oldest first."""
    from millrace.client.dead_letters import STEP

    named = [int(each) for each in numbers if each.isdecimal()]
    found = letters.read(first=max(0, min(named) - STEP)) if named else letters.read(wanted.since_ms)
    return [each for each in (numbered(found, numbers) if numbers else found) if wanted.keeps(each)]


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
