"""The ResourceManager's effects: a lost TaskManager's key in etcd is deleted; its provider starts, stops and lists TaskManagers; blocked
hosts stand in etcd, `blocklist/<host>`."""

from __future__ import annotations

import structlog
from pydantic import ValidationError

from millrace.core.messages.base import Body
from millrace.core.messages.blocklist import (
    BLOCKED_MOST,
    BlockedHost,
    BlocklistRead,
    BlockStored,
    ReadBlocklist,
    StoreBlock,
)
from millrace.core.messages.effects import FenceTaskManager, TaskManagerFenced
from millrace.core.messages.worker_effects import (
    ListWorkers,
    StartWorker,
    StopWorker,
    WorkersListed,
    WorkerStarted,
    WorkerStopped,
)
from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Compare, Delete, Put, Store, Txn, Unavailable, pages
from millrace.runtime.performer import Fence, PerEffect, Port, Refused

from .providers import NotProvided, Provider

AT_ONCE = 4  # workers that are started at the same time, and as many that are stopped
BLOCKLIST = "blocklist/"
WORDS_MAX = 300  # characters of what a provider says
LISTED_MAX, LISTED_WORDS_MAX = 1_000, 150_000  # workers, and characters of all together: more may not fit into one record
LEFT_OUT_MAX, LEFT_OUT_WORDS_MAX = 64, 150


log = structlog.get_logger("ports")


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
            provider.start(effect.worker, fence.epoch, avoid=effect.avoid)
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
        most = min(WORDS_MAX, LISTED_WORDS_MAX // max(1, len(listed)))
        found = {name: None if ended is None else _cut(ended, most) for name, ended in listed.items()}
        left_out = [_cut(str(each), LEFT_OUT_WORDS_MAX) for each in getattr(provider, "left_out", ())][:LEFT_OUT_MAX]
        hosts = [str(host)[:WORDS_MAX] for host in getattr(provider, "hosts", ())]
        hosts = hosts if len(hosts) <= BLOCKED_MOST else []  # else one is free
        return WorkersListed(number=effect.number, workers=found, hosts=hosts, left_out=left_out)

    return {
        FenceTaskManager: PerEffect(fence_task_manager),
        StartWorker: PerEffect(start_worker, AT_ONCE),
        StopWorker: PerEffect(stop_worker, AT_ONCE),
        ListWorkers: PerEffect(list_workers),
        **blocklist_ports(store),
    }


def blocklist_ports(store: Store) -> dict[type[Body], Port]:  # [R17], [R37]
    def store_block(effect: StoreBlock, fence: Fence) -> BlockStored:
        key, blocked = f"{BLOCKLIST}{effect.host}", effect.blocked
        change = Delete(key) if blocked is None else Put(key, blocked.model_dump_json(exclude_defaults=True).encode())
        if not store.txn(Txn([fence.compare()], [change])).succeeded:
            raise Refused
        return BlockStored(number=effect.number)

    def read_blocklist(effect: ReadBlocklist, fence: Fence) -> BlocklistRead:
        """Nobody writes any more for a leader of before: it is not the leader any more when this one is."""
        fence.check(store)
        found: list[BlockedHost] = []
        for entry in pages(store, BLOCKLIST):
            try:
                blocked = BlockedHost.model_validate_json(entry.value)
            except ValidationError:
                blocked = None
            if blocked is None or entry.key != f"{BLOCKLIST}{blocked.host}" or len(found) >= BLOCKED_MOST:
                log.error("a host may not be blocked any more: what etcd holds of it cannot be used", key=entry.key)
            else:
                found.append(blocked)
        return BlocklistRead(hosts=found)

    return {StoreBlock: PerEffect(store_block), ReadBlocklist: PerEffect(read_blocklist)}


def _words(failure: NotProvided) -> str:
    return _cut(str(failure), WORDS_MAX)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 3]}..."
