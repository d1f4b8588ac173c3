"""The blocklist: hosts on which no slot is granted. What clients ask for, and what the Dispatcher and the JobMasters have to do with it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Body, Part, Reply, Request, unless_set

HOST_PATTERN = r"^[A-Za-z0-9:][A-Za-z0-9_.:-]{0,254}$"
BLOCKED_MOST = 100
"""Hosts that are blocked at a time."""
UNANSWERED_MOST = 100
"""Changes that want no answer, and wait: for a ResourceManager, or for etcd."""
FOR_MOST_MS = 366 * 24 * 3600 * 1000
Host = Annotated[str, Field(pattern=HOST_PATTERN)]
"""As its TaskManagers name it when they register."""
ForMs = Annotated[int, Field(ge=1, le=FOR_MOST_MS)]
Reason = Annotated[str, Field(max_length=200)]
By = Annotated[str, Field(max_length=100)]

# client -> Dispatcher


class BlockHost(Request):
    """No slot of this host is granted any more, and what runs there goes on; with `evacuate` it is moved elsewhere, which counts as no
    failure. For a host that is blocked already, this replaces what was said before."""

    type: Literal["BlockHost"] = "BlockHost"
    version: Literal[1] = 1
    host: Host
    for_ms: ForMs | None = None
    """For so long; null: until UnblockHost."""
    reason: Reason = ""
    by: By = ""
    """Who asks for it, as people are shown it. Nobody checks that."""
    evacuate: bool = False


class UnblockHost(Request):
    """Slots of this host are granted again."""

    type: Literal["UnblockHost"] = "UnblockHost"
    version: Literal[1] = 1
    host: Host


class ListBlockedHosts(Request):
    """The hosts that are blocked."""

    type: Literal["ListBlockedHosts"] = "ListBlockedHosts"
    version: Literal[1] = 1


# ResourceManager -> client


class BlockedHost(Part):
    """A host that is blocked. Times are by the clock of the cluster's Kafka; the limit itself counts by machine time, which lags behind
    while the cluster is away."""

    host: str
    since_ms: int
    until_ms: int | None = None
    """null: until somebody unblocks it."""
    by: str = ""
    reason: str = ""
    evacuate: bool = False


class BlockedHostInfo(BlockedHost):
    """With what is registered there."""

    task_managers: int
    slots: int
    busy: int
    """Slots of these that jobs hold."""


class HostBlocked(Reply):
    """Answers BlockHost: it is in force, and stands in etcd."""

    type: Literal["HostBlocked"] = "HostBlocked"
    version: Literal[1] = 1
    blocked: BlockedHostInfo


class HostUnblocked(Reply):
    """Answers UnblockHost: it is done, and stands in etcd. A repeat is harmless."""

    type: Literal["HostUnblocked"] = "HostUnblocked"
    version: Literal[1] = 1
    host: str
    was_blocked: bool = True


class BlockedHostsListed(Reply):
    """Answers ListBlockedHosts."""

    type: Literal["BlockedHostsListed"] = "BlockedHostsListed"
    version: Literal[1] = 1
    hosts: list[BlockedHostInfo]
    """By name."""


# Dispatcher -> ResourceManager


class AskBlocklist(Body):
    """Do what this client asks of the blocklist, and answer it on client.replies."""

    type: Literal["AskBlocklist"] = "AskBlocklist"
    version: Literal[1] = 1
    what: Literal["block", "unblock", "list"]
    host: str = ""
    for_ms: int | None = None
    reason: str = ""
    by: str = ""
    evacuate: Annotated[bool, Field(exclude_if=unless_set)] = False
    reply_to: str
    correlation: str
    number: int = 0
    """Of the question: QuestionAnswered names it."""


# ResourceManager -> JobMaster


class BlockedTaskManagers(Part):
    """The TaskManagers of a blocked host."""

    host: str
    reason: str = ""
    evacuate: Annotated[bool, Field(exclude_if=unless_set)] = False
    task_managers: list[str]


class TaskManagersBlocked(Body):
    """The TaskManagers of blocked hosts, all of them: it replaces the last one. A slot there is given back once its attempt is over. With
    `evacuate` attempts there are canceled, and run elsewhere; that is no failure. Sent to each new life of a shard that needs it."""

    type: Literal["TaskManagersBlocked"] = "TaskManagersBlocked"
    version: Literal[1] = 1
    hosts: list[BlockedTaskManagers]


# ResourceManager -> etcd


class StoreBlock(Body):
    """Writes a blocked host into etcd, or takes it out."""

    type: Literal["StoreBlock"] = "StoreBlock"
    version: Literal[1] = 1
    number: int
    host: str
    blocked: BlockedHost | None
    """null: it is blocked no more."""


class BlockStored(Body):
    """It stands in etcd."""

    type: Literal["BlockStored"] = "BlockStored"
    version: Literal[1] = 1
    number: int


class ReadBlocklist(Body):
    """Reads the blocked hosts: what a new life of the ResourceManager comes back with."""

    type: Literal["ReadBlocklist"] = "ReadBlocklist"
    version: Literal[1] = 1


class BlocklistRead(Body):
    """The hosts that stand in etcd, those too whose time is over."""

    type: Literal["BlocklistRead"] = "BlocklistRead"
    version: Literal[1] = 1
    hosts: list[BlockedHost]
