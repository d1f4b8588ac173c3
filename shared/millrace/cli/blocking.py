"""Commands about blocked hosts: block, unblock, blocked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from .connection import StackOption, connected
from .options import JsonOption
from .times import length_ms

if TYPE_CHECKING:
    from millrace.core.messages.blocklist import BlockedHost

HostArgument = Annotated[str, typer.Argument(metavar="HOST", help="As `millrace taskmanagers` lists it.", show_default=False)]


def block(
    host: HostArgument,
    length: Annotated[str | None, typer.Option("--for", metavar="TIME", help="For so long: 30m, 2h, 3d. Without: until unblock.")] = None,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for those whose jobs wait.")] = "",
    evacuate: Annotated[bool, typer.Option("--evacuate", help="Move what runs there, too: it begins again on other hosts.")] = False,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Give no job a slot of a host, as before its machine is serviced.

    What runs there goes on to its end. With --evacuate it is canceled, and begins again elsewhere at once: that is no failure, and uses up
    nothing of the job's restarts. TaskManagers of the host stay registered. A provider starts none there, and others elsewhere.

    The host is blocked as soon as this returns, also for leaders to come. Again for the same host, the last one counts.

    millrace block worker-7 --for 2h --reason "its disk is changed" --evacuate
    """
    with connected(stack) as millrace:
        done = millrace.block(host, None if length is None else length_ms(length), reason, evacuate=evacuate)
    if as_json:
        from .tables import print_json

        print_json(done.model_dump())
        return
    there = f"{_plural(done.slots, 'slot')} of {_plural(done.task_managers, 'TaskManager')}, {done.busy} in use"
    print(f"{host} is {until(done)}: {there if done.task_managers else 'no TaskManager is registered from there'}")
    if done.busy:
        print("what runs there is moved" if evacuate else "what runs there goes on to its end", file=sys.stderr)


def unblock(host: HostArgument, stack: StackOption = "default") -> None:
    """Give jobs slots of a host again."""
    with connected(stack) as millrace:
        was = millrace.unblock(host)
    print(f"{host} is not blocked any more" if was else f"{host} was not blocked (`millrace blocked` lists those that are)")


def blocked(as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """List the hosts that are blocked: until when, by whom and why, and what is there."""
    with connected(stack) as millrace:
        found = millrace.blocked_hosts()
    from .tables import print_json, table, when

    if as_json:
        print_json([each.model_dump() for each in found])
        return
    rows = [
        (each.host, when(each.until_ms) or "unblocked", each.by, each.reason, each.task_managers, each.slots, each.busy,
         "yes" if each.evacuate else "")
        for each in found
    ]  # fmt: skip
    table(("host", "until", "by", "why", "TaskManagers", "slots", "in use", "evacuated"), rows)
    if not rows:
        print("no host is blocked", file=sys.stderr)


def until(blocked: BlockedHost | None) -> str:
    """`blocked until ...`, for a column; empty for what is not blocked."""
    if blocked is None:
        return ""
    from .tables import when

    return f"blocked until {when(blocked.until_ms)}" if blocked.until_ms is not None else "blocked"


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
