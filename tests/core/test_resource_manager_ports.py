"""The ResourceManager's effects on its provider [R33]: what is an outcome, and of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from millrace.core.messages.base import Body
from millrace.core.messages.blocklist import BlockedHost, BlocklistRead, BlockStored, ReadBlocklist, StoreBlock
from millrace.core.messages.worker_effects import ListWorkers, StartWorker, StopWorker, WorkersListed, WorkerStarted
from millrace.core.topics import RESOURCE_MANAGER
from millrace.io.interfaces import Put, Txn
from millrace.runtime.performer import Fence, Refused
from services.resource_manager.ports import ports
from services.resource_manager.providers import NotProvided
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

W1 = "task-manager-1"


class Refusing:
    """A provider that a later leader has asked. It takes over while it is asked, if `later`."""

    def __init__(self, later: bool) -> None:
        self.store, self._later = MemoryStore(MemoryEtcd(Clock()), "/m/"), later
        self.epoch = self._lead()

    def _lead(self) -> int:
        key = Fence(RESOURCE_MANAGER, 0).compare().key
        self.store.txn(Txn([], [Put(key, b"r")]))
        leader = self.store.txn(Txn([], [], [key])).reads[key]
        assert leader is not None
        return leader.mod_revision

    def _refuse(self) -> NotProvided:
        if self._later:
            self._lead()
        return NotProvided("a later leader has asked already")

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        raise self._refuse()

    def stop(self, worker: str, epoch: int) -> None:
        raise self._refuse()

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        raise self._refuse()

    def perform(self, effect: Body) -> Body | None:
        return ports(self.store, self)[type(effect)]([effect], Fence(RESOURCE_MANAGER, self.epoch))[0]


@pytest.mark.parametrize("effect", [StartWorker(worker=W1), StopWorker(worker=W1), ListWorkers(number=1)])
def test_what_a_provider_refuses_a_leader_that_was_replaced_is_no_outcome(effect: Body) -> None:
    with pytest.raises(Refused):
        Refusing(later=True).perform(effect)


def test_what_it_refuses_a_leader_that_leads_is_told() -> None:
    """An agent of an etcd that was made anew: whoever waits learns why."""
    provider, words = Refusing(later=False), "a later leader has asked already"
    assert provider.perform(StartWorker(worker=W1)) == WorkerStarted(worker=W1, problem=words)
    assert provider.perform(ListWorkers(number=1)) == WorkersListed(number=1, problem=words)
    assert provider.perform(StopWorker(worker=W1)) is None, "it is performed again"


class Starting(Refusing):
    """One that starts what it is asked for."""

    def __init__(self) -> None:
        super().__init__(later=False)
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.hosts: Sequence[str] = ("a", "b")
        self.left_out: Sequence[str] = ()
        self.ended: dict[str, str | None] = {W1: None}

    def start(self, worker: str, epoch: int, avoid: Sequence[str] = ()) -> None:
        self.asked.append((worker, tuple(avoid)))

    def workers(self, epoch: int) -> Mapping[str, str | None]:
        return self.ended


def test_the_last_line_of_a_worker_says_also_what_to_do() -> None:
    """It was cut before that, as if a thousand had ended."""
    provider, line = Starting(), f"it ended with 2: There is no Java at /a{'/b' * 50}/java. Install one, or name it by java_home"
    provider.ended = {W1: line, "w": "x" * 1_000}
    listed = provider.perform(ListWorkers(number=1))
    assert isinstance(listed, WorkersListed) and listed.workers == {W1: line, "w": f"{'x' * 297}..."}
    provider.ended = dict.fromkeys(map(str, range(1_000)), line)
    listed = provider.perform(ListWorkers(number=2))
    assert isinstance(listed, WorkersListed) and {*listed.workers.values()} == {f"{line[:147]}..."}


def test_a_provider_is_told_which_hosts_to_avoid_and_tells_which_it_has_and_what_it_leaves_out() -> None:
    provider = Starting()
    assert provider.perform(StartWorker(worker=W1, avoid=["a"])) == WorkerStarted(worker=W1)
    assert provider.perform(StartWorker(worker=W1)) == WorkerStarted(worker=W1)
    assert provider.asked == [(W1, ("a",)), (W1, ())]
    assert provider.perform(ListWorkers(number=2)) == WorkersListed(number=2, workers={W1: None}, hosts=["a", "b"])
    provider.left_out = ("b does not answer" * 100, "c")
    listed = provider.perform(ListWorkers(number=3))
    assert isinstance(listed, WorkersListed) and [len(each) for each in listed.left_out] == [150, 1]


def test_blocked_hosts_are_kept_in_etcd_and_read_from_there() -> None:
    provider, until = Refusing(later=False), BlockedHost(host="a:1", since_ms=1, until_ms=9, by="ada", reason="disk", evacuate=True)
    assert provider.perform(StoreBlock(number=1, host="a:1", blocked=until)) == BlockStored(number=1)
    assert provider.perform(StoreBlock(number=2, host="b", blocked=BlockedHost(host="b", since_ms=2))) == BlockStored(number=2)
    provider.store.txn(Txn([], [Put("blocklist/c", b"nobody knows"), Put("blocklist/d", b'{"host":"e","since_ms":1}')]))
    assert provider.perform(ReadBlocklist()) == BlocklistRead(hosts=[until, BlockedHost(host="b", since_ms=2)])
    assert provider.perform(StoreBlock(number=3, host="a:1", blocked=None)) == BlockStored(number=3)
    assert provider.perform(StoreBlock(number=4, host="b", blocked=None)) == BlockStored(number=4)
    assert provider.perform(ReadBlocklist()) == BlocklistRead(hosts=[])


@pytest.mark.parametrize("effect", [StoreBlock(number=1, host="a", blocked=None), ReadBlocklist()])
def test_a_leader_that_was_replaced_writes_and_reads_no_blocklist(effect: Body) -> None:
    provider = Refusing(later=False)
    provider._lead()
    with pytest.raises(Refused):
        provider.perform(effect)
