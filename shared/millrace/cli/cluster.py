"""Commands about the cluster: taskmanagers, slots, deregister."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millrace.core.states import SlotState

from .connection import StackOption, connected
from .options import JsonOption


def taskmanagers(as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """List the TaskManagers."""
    with connected(stack) as millrace:
        found = millrace.task_managers()
    from .tables import print_json, table, when

    if as_json:
        print_json([each.model_dump() for each in found])
        return
    rows = []
    for each in found:
        free = sum(slot.state == SlotState.FREE for slot in each.slots)
        rows.append((each.task_manager, each.host, len(each.slots), free, when(each.since_ms), when(each.last_beat_ms)))
    table(("TaskManager", "host", "slots", "free", "since", "last heard"), rows)
    if not rows:
        print("no TaskManager is registered: jobs wait until one is", file=sys.stderr)


def slots(as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """List the slots: what runs where."""
    with connected(stack) as millrace:
        found = millrace.task_managers()
    from .tables import print_json, table

    rows = [
        (each.task_manager, slot.slot, slot.state, slot.job, slot.memory_mb, slot.broken) for each in found for slot in each.slots
    ]
    heads = ("task_manager", "slot", "state", "job", "memory_mb", "broken")
    if as_json:
        print_json([dict(zip(heads, row, strict=True)) for row in rows])
        return
    table(("TaskManager", "slot", "state", "job", "MB"), rows)


def deregister(
    undo: Annotated[bool, typer.Option("--undo", help="TaskManagers are started again, when slots are short.")] = False,
    stack: StackOption = "default",
) -> None:
    """Stop all TaskManagers that a provider has started, and start none: the last thing before a cluster is shut down.

    Jobs stay. What ran on those TaskManagers waits, and runs again after --undo. TaskManagers that were started by hand stay, too.
    """
    with connected(stack) as millrace:
        count = millrace.deregister(undo)
    if undo:
        print("TaskManagers are started again when slots are short")
    else:
        print(f"{count} TaskManager{'' if count == 1 else 's'} of the provider: stopped, and none is started until --undo")
