"""The machine of each scope: the one place that knows all four. Each is imported when it is needed, for a command waits for that."""

from __future__ import annotations

from millrace.core.fold import Fold
from millrace.core.machine import Machine
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER, Topology

from .core.recorded import BadLog


def fold_of(scope: str, topology: Topology) -> Fold:
    """Raises BadLog for what is no scope."""
    return Fold(_machine(scope, topology), topology)


def _machine(scope: str, topology: Topology) -> Machine:
    kind, _, name = scope.partition("/")
    if scope == DISPATCHER:
        from services.dispatcher.core.machine import Dispatcher

        return Dispatcher(topology)
    if scope == RESOURCE_MANAGER:
        from services.resource_manager.core.machine import ResourceManager

        return ResourceManager(topology.shards)
    if kind == JOB_MASTER and name.isdecimal():
        from services.job_master.core.machine import JobMaster

        return JobMaster(int(name))
    if kind == TASK_MANAGER and name:
        from services.task_manager.core.machine import TaskManager

        return TaskManager(name, topology.shards)
    raise BadLog(f"{scope!r} is no scope: a scope is dispatcher, resource-manager, job-master/<shard> or task-manager/<id>")
