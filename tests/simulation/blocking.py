"""Blocked hosts [R37]: what must hold of each grant and each deployment, computed anew from what was asked; and trials in which clients
block hosts and unblock them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from millrace.core.clocks import NowMs
from millrace.core.machine import Born, Envelope, Output, PassedOver, PeerBorn, Publish, Say
from millrace.core.messages.blocklist import (
    AskBlocklist,
    BlockHost,
    BlocklistRead,
    HostBlocked,
    ListBlockedHosts,
    TaskManagersBlocked,
    UnblockHost,
)
from millrace.core.messages.client import RequestRefused
from millrace.core.messages.records import Client
from millrace.core.messages.slots import DeployTasks, RegisterTaskManager
from millrace.core.topics import DISPATCHER, RESOURCE_MANAGER, TASK_MANAGER
from services.resource_manager.core.state import Blocklist
from tests.simulation import workload
from tests.simulation.cluster import Cluster
from tests.simulation.placing import grants_in
from tests.simulation.world import PREFIX

REQUESTS = (BlockHost, UnblockHost, ListBlockedHosts)
LIMITS_MS = (300, 1_000, 4_000)
BLOCKED: dict[str, Any] = {
    "task_managers": 3, "slots": 2, "blocks": 0.4, "graphs": (workload.roots, workload.wide, workload.single),
}  # fmt: skip
"""The shape of a trial whose hosts are blocked, and of which some are evacuated."""


class Blocking:
    """Looks at what a ResourceManager grants, and at what a JobMaster deploys."""

    def __init__(self) -> None:
        self._hosts: dict[str, NowMs | None] = {}  # that are blocked -> when their time is over
        self._host_of: dict[str, str] = {}  # TaskManager's scope -> its host
        self._known = True  # what is blocked
        self._kept: dict[str, AskBlocklist] = {}  # host -> what was asked until it is known, by those who want no answer
        self._task_managers: dict[str, bool] = {}  # of blocked hosts, as a JobMaster was sent them -> whether they are evacuated

    def watched(self, scope: str, state: Any, told: Envelope, outputs: Iterable[Output]) -> Iterator[Output]:
        """What a handler yields, once all of it is known."""
        said = list(outputs)
        if scope == RESOURCE_MANAGER:
            self._take(state.blocklist, told, said)
            for to, _ in grants_in(said):
                assert self._known, "[R37]: a slot is granted, and nobody has read which hosts are blocked"
                host = self._host_of[to]
                assert host not in self._hosts, f"[R37]: a slot of {host} is granted, which is blocked"
        elif scope == DISPATCHER:
            _look_at_request(state, told.body, said)
        elif not scope.startswith(TASK_MANAGER):
            self._look_at_deployments(state, told, said)
        yield from said

    def _take(self, state: Blocklist, told: Envelope, said: list[Output]) -> None:
        body = told.body
        if isinstance(body, RegisterTaskManager):
            self._host_of[told.sender] = body.host
        elif isinstance(body, Born):
            self._known, self._kept = told.generation == 1, {}
        elif isinstance(body, BlocklistRead):
            left = {each.host: None if each.until_ms is None else NowMs(told.now_ms + each.until_ms - told.at_ms) for each in body.hosts}
            self._hosts = left
            self._know(state, told.now_ms)
        elif isinstance(body, PassedOver) and isinstance(body.body, BlocklistRead):
            self._know(state, told.now_ms)
        elif isinstance(body, AskBlocklist) and not self._known and not body.reply_to:
            self._kept[body.host] = body
        elif isinstance(body, AskBlocklist) and not any(map(_refuses, said)):
            self._change(body, told.now_ms)
        self._hosts = {host: due_ms for host, due_ms in self._hosts.items() if due_ms is None or due_ms > told.now_ms}

    def _know(self, state: Blocklist, now_ms: NowMs) -> None:
        self._known = True
        for body in self._kept.values():
            self._change(body, now_ms)
            done = (body.host in state.hosts) == (body.what == "block")
            assert done, f"[R37]: a change that wants no answer came while etcd was read, and is not done: {body}"
        self._kept = {}

    def _change(self, body: AskBlocklist, now_ms: NowMs) -> None:
        if body.what == "block":
            self._hosts[body.host] = None if body.for_ms is None else NowMs(now_ms + body.for_ms)
        elif body.what == "unblock":
            self._hosts.pop(body.host, None)

    def _look_at_deployments(self, state: Any, told: Envelope, said: list[Output]) -> None:
        body = told.body
        if isinstance(body, TaskManagersBlocked):
            self._task_managers = {f"{TASK_MANAGER}/{name}": each.evacuate for each in body.hosts for name in each.task_managers}
        elif isinstance(body, PeerBorn) and body.peer == RESOURCE_MANAGER:
            self._task_managers = {}
        for each in said:
            if isinstance(each, Say) and isinstance(each.body, DeployTasks) and each.to in self._task_managers:
                jobs = [state.jobs[state.allocations[task.allocation]] for task in each.body.tasks]
                gangs = all(job.is_gang for job in jobs)
                assert gangs and not self._task_managers[each.to], f"[R37]: {each.to} is given an attempt, and its host is blocked"


def _look_at_request(state: Any, body: Any, said: list[Output]) -> None:
    request = body.request if isinstance(body, Client) and not body.decided else None
    if isinstance(request, (BlockHost, UnblockHost)) and not request.reply_to:
        changes = [each.body for each in said if isinstance(each, Say)] or [*state.unsent.values()]
        asked = [each for each in changes if isinstance(each, AskBlocklist) and each.host == request.host]
        assert asked, f"[R37]: a {request.type} that wants no answer is neither sent nor kept"


def assert_blocklist(cluster: Cluster, known: Blocklist) -> None:
    """Nobody waits for etcd, which has what is blocked, and had what a client was answered that is."""
    assert not (known.reading or known.answers), f"[R37]: the ResourceManager waits for etcd: {known}"
    keys = f"{PREFIX}blocklist/"
    stored = {entry.key.rpartition("/")[2] for entry in cluster.world.etcd.entries(keys)}
    assert stored == set(known.hosts), f"[R37]: {list(known.hosts)} are blocked, and etcd has {stored}"
    written = {key for _, key, value in cluster.world.etcd.history if value is not None}
    for each in [reply for replies in cluster.client.replies().values() for reply in replies if isinstance(reply, HostBlocked)]:
        host = each.blocked.host
        assert f"{keys}{host}" in written, f"[R37]: a client is answered that {host} is blocked, and etcd never had it"


def _refuses(said: Output) -> bool:
    return isinstance(said, Publish) and isinstance(said.body, RequestRefused)


class Blocker:
    """A client that blocks hosts and unblocks them. When `over` it unblocks all."""

    def __init__(self, seed: int, cluster: Cluster, hosts: int) -> None:
        self._chance, self._cluster, self._client = random.Random(f"blocks {seed}"), cluster, cluster.client
        self._hosts = [f"host-{number}" for number in range(1, hosts + 1)]
        self._asked: list[str] = []  # correlations

    def act(self, over: bool) -> None:
        """A request may be refused while a scope is silent: it comes again."""
        if over:
            if not self.rests and self._chance.random() < 0.2:
                self._asked += [self._client.ask(UnblockHost, host=host) for host in self._hosts]
            return
        kind, host = self._chance.choice((BlockHost, BlockHost, UnblockHost, ListBlockedHosts)), self._chance.choice(self._hosts)
        folded = self._cluster.leader(RESOURCE_MANAGER)
        reading = folded is not None and folded.state.blocklist.reading
        silently = kind is not ListBlockedHosts and self._chance.random() < (0.8 if reading else 0.2)
        fields: dict[str, Any] = {} if kind is ListBlockedHosts else {"host": host}
        if kind is BlockHost:
            fields["for_ms"] = self._chance.choice((*LIMITS_MS, None))
            fields |= {"evacuate": self._chance.random() < 0.5, "reason": "it is serviced"}
        if silently:
            self._client.tell(kind, **fields)
        else:
            self._asked.append(self._client.ask(kind, **fields))

    @property
    def asked(self) -> int:
        return len(self._asked)

    @property
    def rests(self) -> bool:
        """Whether no host is blocked, and nothing that was asked is on its way."""
        folded = self._cluster.leader(RESOURCE_MANAGER)
        quiet = folded is not None and not folded.state.blocklist.hosts and not folded.state.blocklist.reading
        dispatcher = self._cluster.leader(DISPATCHER)
        if dispatcher is None or dispatcher.state.unsent:
            return False
        return quiet and set(self._asked) <= set(self._client.replies())
