"""The ResourceManager's effects: a lost TaskManager's key in etcd is deleted; its provider starts, stops and lists TaskManagers."""

from __future__ import annotations

from millrace.core.messages.base import Body
from millrace.core.messages.effects import (
    FenceTaskManager,
    ListWorkers,
    StartWorker,
    StopWorker,
    TaskManagerFenced,
    WorkersListed,
    WorkerStarted,
    WorkerStopped,
)
from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Compare, Delete, Store, Txn, Unavailable
from millrace.runtime.performer import Fence, PerEffect, Port, Refused

from .providers import NotProvided, Provider

AT_ONCE = 4  # workers that are started at the same time, and as many that are stopped
WORDS_MAX = 300  # characters of what a provider says
LISTED_MAX, LISTED_WORDS_MAX = 1_000, 150  # workers, and characters of each: more may not fit into one record


def ports(store: Store, provider: Provider) -> dict[type[Body], Port]:  # [R28], [R33]
    def fence_task_manager(effect: FenceTaskManager, fence: Fence) -> TaskManagerFenced:
        """A key of a later incarnation, or none, is as good."""
        key = task_manager_key(effect.task_manager)
        txn = Txn([fence.compare(), Compare(key, effect.incarnation)], [Delete(key)], [fence.compare().key])
        result = store.txn(txn)
        leader = result.reads[fence.compare().key]
        if leader is None or leader.mod_revision != fence.epoch:
            raise Refused
        return TaskManagerFenced(task_manager=effect.task_manager)

    def start_worker(effect: StartWorker, fence: Fence) -> WorkerStarted:
        """Whether the provider has done what it did not confirm is not known: the machine has it stopped. A provider refuses what a
        leader asks for that was replaced: so each asks etcd once more before it takes a refusal for an outcome."""
        fence.check(store)
        try:
            provider.start(effect.worker, fence.epoch)
        except NotProvided as failure:
            fence.check(store)
            return WorkerStarted(worker=effect.worker, problem=_words(failure))
        return WorkerStarted(worker=effect.worker)

    def stop_worker(effect: StopWorker, fence: Fence) -> WorkerStopped:
        """Performed until the provider confirms it: while it may run, its place is not given to another one."""
        fence.check(store)
        try:
            provider.stop(effect.worker, fence.epoch)
        except NotProvided as failure:
            fence.check(store)
            raise Unavailable(f"{effect.worker} is not known to be stopped: {failure}") from None
        return WorkerStopped(worker=effect.worker)

    def list_workers(effect: ListWorkers, fence: Fence) -> WorkersListed:
        fence.check(store)
        try:
            listed = provider.workers(fence.epoch)
        except NotProvided as failure:
            fence.check(store)
            return WorkersListed(number=effect.number, problem=_words(failure))
        if len(listed) > LISTED_MAX:
            return WorkersListed(number=effect.number, problem=f"it has {len(listed)} TaskManagers, and {LISTED_MAX} are too many")
        found = {name: None if ended is None else ended[:LISTED_WORDS_MAX] for name, ended in listed.items()}
        return WorkersListed(number=effect.number, workers=found)

    return {
        FenceTaskManager: PerEffect(fence_task_manager),
        StartWorker: PerEffect(start_worker, AT_ONCE),
        StopWorker: PerEffect(stop_worker, AT_ONCE),
        ListWorkers: PerEffect(list_workers),
    }


def _words(failure: NotProvided) -> str:
    return str(failure)[:WORDS_MAX]
