"""The ResourceManager's one effect: a lost TaskManager's key in etcd is deleted."""

from __future__ import annotations

from millrace.core.messages.base import Body
from millrace.core.messages.effects import FenceTaskManager, TaskManagerFenced
from millrace.core.topics import task_manager_key
from millrace.io.interfaces import Compare, Delete, Store, Txn
from millrace.runtime.performer import Fence, PerEffect, Port, Refused


def ports(store: Store) -> dict[type[Body], Port]:  # [R28]
    def fence_task_manager(effect: FenceTaskManager, fence: Fence) -> TaskManagerFenced:
        """A key of a later incarnation, or none, is as good."""
        key = task_manager_key(effect.task_manager)
        txn = Txn([fence.compare(), Compare(key, effect.incarnation)], [Delete(key)], [fence.compare().key])
        result = store.txn(txn)
        leader = result.reads[fence.compare().key]
        if leader is None or leader.mod_revision != fence.epoch:
            raise Refused
        return TaskManagerFenced(task_manager=effect.task_manager)

    return {FenceTaskManager: PerEffect(fence_task_manager)}
