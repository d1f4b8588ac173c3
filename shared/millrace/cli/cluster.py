"""Commands about the cluster: taskmanagers, slots, deregister, shutdown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.core.states import ENDED_JOB, SlotState

from .blocking import until
from .connection import StackOption, connected
from .options import JsonOption

if TYPE_CHECKING:
    from millrace.core.messages.client import TaskManagerInfo


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
        times = when(each.since_ms), when(each.last_beat_ms)
        rows.append((each.task_manager, each.host, len(each.slots), free, _profiles(each), *times, until(each.blocked)))
    table(("TaskManager", "host", "slots", "free", "each slot has", "since", "last heard", ""), rows)
    if not rows:
        print("no TaskManager is registered: jobs wait until one is", file=sys.stderr)


def _profiles(task_manager: TaskManagerInfo) -> str:
    """What its slots have."""
    return "; ".join(dict.fromkeys(slot.profile.text for slot in task_manager.slots))


def slots(as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """List the slots: what runs where."""
    with connected(stack) as millrace:
        found = millrace.task_managers()
    from .tables import print_json, table

    rows = [
        (each.task_manager, slot.slot, slot.state, slot.job, slot.memory_mb, slot.broken, slot.cores, slot.extras)
        for each in found
        for slot in each.slots
    ]
    heads = ("task_manager", "slot", "state", "job", "memory_mb", "broken", "cores", "extras")
    if as_json:
        print_json([dict(zip(heads, row, strict=True)) for row in rows])
        return
    shown = [(*row[:4], slot.profile.text) for row, slot in zip(rows, (slot for each in found for slot in each.slots), strict=True)]
    table(("TaskManager", "slot", "state", "job", "has"), shown)


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


def shutdown(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Without the question.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when all is done that can be.")] = True,
    stack: StackOption = "default",
) -> None:
    """Shut the cluster down in order, and keep its jobs.

    From then on no job is accepted. Jobs that run are SUSPENDED: their attempts end, what has FINISHED is kept. TaskManagers that a
    provider has started are stopped, then the services end. Jobs go on when the cluster is started again. A repeat changes nothing.

    Exit codes: 0 done, 1 refused, 3 the cluster does not answer, or a part of it did not end what it runs.
    """
    from .exits import Exit

    with connected(stack) as millrace:
        if yes:
            millrace.check_dispatcher()  # else one without a Dispatcher is waited for as long as for the end of one
        else:
            counts = millrace.overview().jobs
            live = sum(count for status, count in counts.items() if status not in ENDED_JOB)
            typer.confirm(f"{live} job{'' if live == 1 else 's'} will be suspended and kept. Shut the cluster down?", abort=True, err=True)
        seen = millrace.shut_down(wait=wait)
    kept = "1 job is kept" if seen.live == 1 else f"{seen.live} jobs are kept"
    if seen.step != "ENDING":
        print(f"the cluster is being shut down: {kept}")
        return
    print(f"the cluster is shut down: {kept}, {seen.suspended} of them suspended")
    if seen.workers:
        left = "TaskManager of the provider is" if seen.workers == 1 else "TaskManagers of the provider are"
        print(f"{seen.workers} {left} not stopped yet", file=sys.stderr)
    if seen.silent:
        print(f"no answer of {', '.join(seen.silent)}: attempts of its jobs may still run", file=sys.stderr)
    if seen.workers or seen.silent:
        raise typer.Exit(Exit.UNAVAILABLE)
