"""The machine of each scope: the one place that knows all four."""

from __future__ import annotations

from millrace import __version__
from millrace.core.fold import Fold
from millrace.core.machine import Machine
from millrace.core.topics import DISPATCHER, JOB_MASTER, RESOURCE_MANAGER, TASK_MANAGER, Topology
from services.dispatcher.core.machine import Dispatcher
from services.job_master.core.machine import JobMaster
from services.resource_manager.core.machine import ResourceManager
from services.task_manager.core.machine import TaskManager

from .core.recorded import BadLog


def fold_of(scope: str, topology: Topology) -> Fold:
    """Raises BadLog for what is no scope."""
    return Fold(_machine(scope, topology), topology)


def build_of(scope: str, topology: Topology) -> str:
    """The name of the build that folds a scope here."""
    return __version__


def _machine(scope: str, topology: Topology) -> Machine:
    kind, _, name = scope.partition("/")
    if scope == DISPATCHER:
        return Dispatcher(topology)
    if scope == RESOURCE_MANAGER:
        return ResourceManager(topology.shards)
    if kind == JOB_MASTER and name.isdigit():
        return JobMaster(int(name))
    if kind == TASK_MANAGER and name:
        return TaskManager(name, topology.shards)
    raise BadLog(f"{scope!r} is no scope: a scope is dispatcher, resource-manager, job-master/<shard> or task-manager/<id>")
