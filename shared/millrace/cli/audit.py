"""`millrace audit`: who gave which command over HTTP."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from .connection import StackOption, connected
from .options import JsonOption
from .times import past_ms

ANSWERED_WITHIN_MS = 60_000
"""The service waits no longer for an answer itself."""


def audit(
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only commands since: 30m, 2h, 3d ago, 14:30, or 2026-01-31T12:00.")
    ] = "1d",
    name: Annotated[str | None, typer.Option(help="Only of this login.")] = None,
    target: Annotated[
        str | None, typer.Option("--job", metavar="ID", help="Only about this job, schedule or host, or this number of a dead letter.")
    ] = None,
    most: Annotated[int, typer.Option("-n", min=1, max=100_000, help="The newest so many.")] = 1000,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """List who gave which command over HTTP, and what came of it.

    The web service writes it, to the topic audit.events. Who reaches Kafka gives commands without it, and is not listed. "not known": the
    service ended before it had the cluster's answer; look at the job.

    millrace audit --since 2h --name ada --json
    """
    since_ms = past_ms(since)
    with connected(stack) as millrace:
        found = millrace.audit().read(
            since_ms, most, lambda each: name in (None, each.name) and target in (None, each.target)
        )
    from .tables import print_json, table, when
    from .words import printable

    if as_json:
        print_json([
            {**each.requested.model_dump(exclude={"type", "version"}), "outcome": each.answered and each.answered.outcome,
             "detail": each.answered and each.answered.detail, "answered_ms": each.answered and each.answered.at_ms}
            for each in found
        ])  # fmt: skip
        return
    rows, wall_ms = [], time.time_ns() // 1_000_000
    for each in found:
        asked, answered = each.requested, each.answered
        late = wall_ms - asked.at_ms > ANSWERED_WITHIN_MS
        outcome = answered.outcome if answered is not None else "not known" if late else "under way"
        who = (asked.name, asked.role) if asked.name else ("-", "-")
        cells = (*who, asked.address, asked.verb, asked.target, outcome, answered.detail if answered else "")
        rows.append((when(asked.at_ms), *map(printable, cells)))
    table(("when", "who", "role", "from", "command", "of", "outcome", ""), rows)
    if not rows:
        print(f"no command came over HTTP since {when(since_ms)}", file=sys.stderr)
