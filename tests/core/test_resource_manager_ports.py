"""The ResourceManager's effects on its provider [R33]: what is an outcome, and of whom."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from millrace.core.messages.base import Body
from millrace.core.messages.effects import ListWorkers, StartWorker, StopWorker, WorkersListed, WorkerStarted
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

    def start(self, worker: str, epoch: int) -> None:
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
