"""`millrace token`: the file of tokens that the web service takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from millrace.cli.exits import Exit
from millrace.cli.options import JsonOption

app = typer.Typer(
    name="token",
    no_args_is_help=True,
    help="Make, list and revoke the tokens that the web service takes. They stand as hashes in a file that its setting access.tokens "
    "names; a change counts within a second, without a restart.",
)

DAY_S = 86400
FileOption = Annotated[
    Path, typer.Option("--file", envvar="MILLRACE_ACCESS__TOKENS", dir_okay=False, resolve_path=True, help="The file of tokens.")
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: what the audit says, such as ci or ada@example.org.")]


class _Wrong(Exception):
    exit_code = Exit.INVALID


@app.command()
def create(
    name: NameArgument,
    role: Annotated[str, typer.Option(help="viewer looks, operator also submits and cancels, admin may all.")],
    file: FileOption,
    days: Annotated[int | None, typer.Option(min=1, max=3650, help="It is over after so many; without, when it is revoked.")] = None,
) -> None:
    """Make a token, and print it.

    It is printed once and kept nowhere: put it into a file that only its user can read.

    millrace token create ci --role operator --days 90 --file tokens.json > ci.token
    """
    from services.web.access import tokens
    from services.web.access.who import ROLES

    known = next((each for each in ROLES if each == role), None)
    if known is None:
        raise typer.BadParameter(f"{role!r} is no role; there are {', '.join(ROLES)}", param_hint="--role")
    try:
        token = tokens.create(file, name, known, None if days is None else days * DAY_S, _wall_ms())
    except tokens.BadTokens as bad:
        raise _Wrong(str(bad)) from None
    typer.echo(token)
    typer.echo(f"token {name}, {role}: its hash is in {file}; this is the only time that it is shown", err=True)


@app.command("list")
def list_tokens(file: FileOption, as_json: JsonOption = False) -> None:
    """List the tokens: names and roles, never themselves."""
    from millrace.cli.tables import print_json, table, when
    from services.web.access import tokens

    try:
        found = tokens.read(file)
    except tokens.BadTokens as bad:
        raise _Wrong(str(bad)) from None
    if as_json:
        print_json([each.model_dump(exclude={"sha256"}) for each in found])
        return
    rows = []
    for each in found:
        ends = "never" if each.expires_ms is None else when(each.expires_ms)
        rows.append((each.name, each.role, when(each.created_ms), f"{ends}, over" if each.is_over(_wall_ms()) else ends))
    table(("name", "role", "created", "ends"), rows)


@app.command()
def revoke(name: NameArgument, file: FileOption) -> None:
    """Take a token out of the file: from then on it is none."""
    from services.web.access import tokens

    try:
        tokens.revoke(file, name)
    except tokens.BadTokens as bad:
        raise _Wrong(str(bad)) from None
    typer.echo(f"token {name} is revoked", err=True)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
