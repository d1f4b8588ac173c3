"""Where the cluster is: the environment, or the local stack's own file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .exits import Exit

if TYPE_CHECKING:
    from millrace.client import Millrace

StackOption = Annotated[
    str,
    typer.Option(
        "--stack",
        envvar="MILLRACE_STACK",
        help="Name of the local stack to use. Not looked at when MILLRACE_KAFKA_BOOTSTRAP names a cluster.",
    ),
]
ANSWER_S = 7.0  # with Python's start, connecting, and one more look, what is wrong is said within ten seconds


class NoConnection(Exception):
    """It is not known where the cluster is, or its file cannot be read."""

    exit_code = Exit.UNAVAILABLE


@contextmanager
def connected(stack: str) -> Iterator[Millrace]:
    """A client of the cluster. Raises NoConnection, Unavailable."""
    bootstrap, token = find(stack)
    from millrace.client import Millrace

    with Millrace(bootstrap, token=token, timeout_s=ANSWER_S) as millrace:
        yield millrace


def is_named() -> bool:
    """Whether the environment names a cluster, which may be on other machines, so that no local stack is meant."""
    return bool(os.environ.get("MILLRACE_KAFKA_BOOTSTRAP"))


def find(stack: str) -> tuple[str, str]:
    """(Kafka's host:port, the blob server's token or "")."""
    bootstrap = os.environ.get("MILLRACE_KAFKA_BOOTSTRAP", "")
    if bootstrap:
        return bootstrap, _token(os.environ.get("MILLRACE_TOKEN_FILE"))
    facts = stack_facts(stack)
    if not facts.get("kafka_bootstrap"):
        if stacks_folder() is None:
            raise NoConnection("it is not known where the cluster is: name its Kafka in MILLRACE_KAFKA_BOOTSTRAP, as host:port")
        name = "" if stack == "default" else f" --stack {stack}"
        raise NoConnection(
            f"there is no stack {stack!r}: start one with millrace up{name}, or name a cluster's Kafka in "
            "MILLRACE_KAFKA_BOOTSTRAP"
        )
    return str(facts["kafka_bootstrap"]), _token(facts.get("token_file"))


@dataclass(frozen=True)
class Places:
    """Where a cluster keeps what it knows. `storage` "": not known, so snapshots cannot be read."""

    kafka: str
    etcd: str
    storage: str
    cluster: str


def places(stack: str) -> Places:
    """As the services are told it. Raises NoConnection."""
    kafka = os.environ.get("MILLRACE_KAFKA_BOOTSTRAP", "")
    if not kafka:
        facts = stack_facts(stack)
        return Places(find(stack)[0], str(facts.get("etcd_endpoint")), str(facts.get("storage", "")), "default")
    etcd = os.environ.get("MILLRACE_ETCD_ENDPOINT", "")
    if not etcd:
        raise NoConnection("where etcd is must be known too: name it in MILLRACE_ETCD_ENDPOINT (and storage in MILLRACE_STORAGE_URL)")
    cluster = os.environ.get("MILLRACE_CLUSTER", "default")
    return Places(kafka, etcd, os.environ.get("MILLRACE_STORAGE_URL", ""), cluster)


def _token(file: str | None) -> str:
    """MILLRACE_TOKEN, else the content of a file; without either, commands that need no blobs work all the same."""
    token = os.environ.get("MILLRACE_TOKEN", "").strip()
    if token or not file:
        return token
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise NoConnection(f"the token's file {file} cannot be read: {error.strerror}") from None


def stack_facts(stack: str) -> dict[str, Any]:
    """The stack's `stack.json`; {} without one."""
    folder = stacks_folder()
    if folder is None or "/" in stack or stack.startswith("."):
        return {}
    file = folder / stack / "stack.json"
    try:
        return dict(json.loads(file.read_text()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise NoConnection(f"{file} cannot be read: {error}") from None


def stacks_folder() -> Path | None:
    """Where local stacks are: below MILLRACE_HOME, else below the checkout; None outside of one."""
    home = os.environ.get("MILLRACE_HOME")
    if home:
        return Path(home).absolute() / "stacks"
    checkout = Path(__file__).resolve().parents[3]
    return checkout / ".millrace" / "stacks" if (checkout / "deploy").is_dir() else None
