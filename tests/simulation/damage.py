"""What may happen to what is stored: inboxes that are cut, replaced or played again, snapshots that are torn, requests that go by age."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from millrace.core.topics import JOB_MASTER, TOPICS
from millrace.io.interfaces import Put, Txn
from millrace.runtime.snapshots import Pointer
from tests.simulation.cluster import Cluster, Process
from tests.simulation.control import ControlProcess
from tests.simulation.world import PREFIX

DOWN_MS = (0, 50, 300, 1_000, 7_000)
INBOXES = tuple(topic.name for topic in TOPICS if topic.name.endswith(".commands"))


class Damage:
    """The part of `Faults` that does this; the rest of that is declared here, as far as it is used."""

    cluster: Cluster
    chance: random.Random
    aim: str
    _down: dict[str, None]
    note: Callable[[str], None]
    _later: Callable[..., None]
    _start: Callable[[str, Any], None]
    _knows_what_is_gone: Callable[[str], bool]

    def _repeat(self) -> bool:
        """A record arrives a second time, late."""
        return self._again(1)

    def _replay(self) -> bool:
        """A whole piece of a topic is played again."""
        return self._again(self.chance.choice((10, 100, 1_000)))

    def _again(self, count: int) -> bool:
        world = self.cluster.world
        topic = self.chance.choice([each for each in TOPICS if each.name in INBOXES and each.name.startswith(self.aim)])
        partition = self.chance.randrange(topic.count(world.topology))
        log = world.broker.log(topic.name, partition)
        if not log.records:
            return False
        first = self.chance.randrange(max(log.first, log.end - 200 * count), log.end)
        last = min(first + count, log.end)
        self.note(f"{topic.name}[{partition}] {first} to {last - 1} is repeated")
        for offset in range(first, last):
            world.broker.repeat(topic.name, partition, offset)
        if topic.name == "client.commands":
            world.book.asked_again = True
        return True

    def _cut(self) -> bool:
        """An inbox loses its last records: an unclean election, a power cut. The scope must begin a new generation."""
        world = self.cluster.world
        scopes = world.topology.scopes()
        scope = self.chance.choice([scope for scope in scopes if scope.startswith(self.aim)] or scopes)
        topic, partition = world.topology.inbox(scope)
        end = max(world.broker.log(topic, partition).end - self.chance.randint(1, 40), 0)
        if not any(self._has_folded(process, scope, end) for process in self.cluster.processes.values()):
            return False
        seen = False
        for each in self.cluster.processes.values():
            if self._has_folded(each, scope, end) and not (each.bus.cut_off or each.bus.deaf or each.bus.mute or each.store.cut_off):
                world.book.damaged[scope] = each.folded(scope).generation  # with that it must not go on
                seen = True
        world.book.unseen += not seen and scope.startswith(JOB_MASTER)
        self._truncate(scope, end)
        return True

    def _has_folded(self, process: Process, scope: str, offset: int) -> bool:
        gone = process.name in self._down or process.name in self.cluster.paused
        if not isinstance(process, ControlProcess) or not process.alive or gone:
            return False
        folded = process.folded(scope)
        return folded is not None and folded.next_offset > offset

    def _truncate(self, scope: str, end: int) -> None:
        world = self.cluster.world
        self.note(f"{scope} loses its records from {end} on")
        world.broker.truncate(*world.topology.inbox(scope), end)
        world.book.cut(scope, end)

    def _all_cut(self) -> bool:
        """All inboxes lose their last records together."""
        done, aim = [], self.aim
        for scope in self.cluster.world.topology.scopes():
            self.aim = scope
            done.append(self._cut())
        self.aim = aim
        return any(done)

    def _cut_unseen(self) -> bool:
        """An inbox loses its last records while nobody lives who has folded it: it is found when a peer speaks."""
        world = self.cluster.world
        scope = self.chance.choice([scope for scope in world.topology.scopes() if scope.startswith(self.aim)])
        hosts = [
            name
            for name, each in self.cluster.processes.items()
            if isinstance(each, ControlProcess) and any(one.scope == scope for one in each.loops)
        ]
        living = [name for name in hosts if self.cluster.processes[name].alive]
        if any(name in self.cluster.paused or name in self._down or self._knows_what_is_gone(name) for name in living):
            return False
        for name in living:
            process = self.cluster.processes[name]
            self.note(f"kill {name}")
            self.cluster.kill(name)
            self._down[name] = None
            self._later(DOWN_MS, f"start {name}", lambda name=name, process=process: self._start(name, process))
        world.book.unseen += scope.startswith(JOB_MASTER)
        self._truncate(scope, max(world.broker.log(*world.topology.inbox(scope)).end - self.chance.randint(1, 10), 0))
        return True

    def _replace(self) -> bool:
        """A service's topic is deleted and made again: all its scopes must begin new generations."""
        world = self.cluster.world
        topic, _ = world.topology.inbox(self.chance.choice(world.topology.scopes()))
        if world.broker.paused:
            return False
        self.note(f"{topic} is made anew")
        world.broker.replace(topic)
        for scope in world.topology.scopes():
            if world.topology.inbox(scope)[0] == topic:
                world.book.cut(scope, 0)
                world.book.damaged.pop(scope, None)
        return True

    def _flipped(self) -> bool:
        """A bit of an inbox is another one on the broker's disk: who reads it from now on cannot."""
        return self._spoil("is flipped", lambda log, offset: log.flipped.add(offset))

    def _missing(self) -> bool:
        """A record of an inbox is not there any more, and those behind it are."""
        return self._spoil("is missing", lambda log, offset: log.gone.add(offset))

    def _spoil(self, what: str, spoil: Callable[[Any, int], None]) -> bool:
        world = self.cluster.world
        scopes = world.topology.scopes()
        scope = self.chance.choice([scope for scope in scopes if scope.startswith(self.aim)] or scopes)
        log = world.broker.log(*world.topology.inbox(scope))
        if not log.records:
            return False
        offset = self.chance.randrange(max(log.first, log.end - 40), log.end)
        self.note(f"record {offset} of {scope} {what}")
        spoil(log, offset)
        world.book.spoiled[scope] = None
        return True

    def _bomb(self) -> bool:
        """A stranger writes a request that ends the process that reads it."""
        return self._request("ends who reads it", lambda log, offset: log.bombs.add(offset))

    def _scratch(self) -> bool:
        """A stranger's request cannot be read."""
        return self._request("cannot be read", lambda log, offset: log.flipped.add(offset))

    def _request(self, what: str, spoil: Callable[[Any, int], None]) -> bool:
        world = self.cluster.world
        if world.broker.paused:
            return False
        log = world.broker.log("client.commands", 0)
        if log.end - 1 in log.flipped | log.bombs:
            return False  # the two would have one letter
        self.note(f"request {log.end} {what}")
        spoil(log, log.end)
        self.cluster.client.send(f"{{a request that {what}, {self.cluster.client.junk}".encode())
        return True

    def _stranger(self) -> bool:
        """Somebody writes a leader key by hand, without a lease."""
        world = self.cluster.world
        if world.etcd.paused:
            return False
        scopes = world.topology.scopes()
        scope = self.chance.choice([scope for scope in scopes if scope.startswith(self.aim)] or scopes)
        self.note(f"the leader key of {scope} is a stranger's")
        world.etcd.txn(Txn([], [Put(f"{PREFIX}leaders/{scope}", b"by hand")]))
        return True

    def _torn(self) -> bool:
        """A bit of a scope's newest snapshot is another one in storage."""
        scopes = self.cluster.world.topology.scopes()
        scope = self.chance.choice([scope for scope in scopes if scope.startswith(self.aim)] or scopes)
        entry = self.cluster.world.etcd.entry(f"{PREFIX}snapshots/{scope}")
        if entry is None:
            return False
        path = Pointer.parse(entry.value).path(scope)
        self.note(f"{path} is torn")
        self.cluster.world.storage.tear(path)
        return True

    def _oblivion(self) -> bool:
        """Requests that were answered go by age: a reborn Dispatcher cannot read them again."""
        broker, end = self.cluster.world.broker, self.cluster.client.answered_below()
        if broker.paused or end <= broker.log("client.commands", 0).first:
            return False
        self.note(f"requests below {end} are deleted")
        self.cluster.client.delete_below(end)
        return True
