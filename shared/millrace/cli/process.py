"""What an operator asks of one process: `describe`, `services`, `settings`, and the logs of a process in place of a job's."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.core.messages.processes import BY_DEFAULT

from .connection import StackOption, connected
from .options import JsonOption

if TYPE_CHECKING:
    from millrace.client import Millrace
    from millrace.client.processes import Service, TaskManager
    from millrace.core.messages.processes import (
        JvmStatus,
        ProcessDescribed,
        ProcessStatus,
        TaskManagerDescribed,
        ThreadDump,
    )

TAIL_BYTES = 64 << 10


def describe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A TaskManager, or a process of a service.", show_default=False)],
    threads: Annotated[
        bool, typer.Option("--threads", help="Where its threads are; of a TaskManager also its slots' JVMs and attempts.")
    ] = False,
    slot: Annotated[int | None, typer.Option(min=0, help="With --threads: of this slot alone, counted from 0.")] = None,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Ask a TaskManager, or a process of a service, how it is at this moment: its memory, its slots with their JVMs, its threads.

    millrace describe task-manager-1 --threads --slot 0

    Exit codes: 0 it answered, 1 there is none of this name, 3 it does not answer.
    """
    if slot is not None and not threads:
        raise typer.BadParameter("it chooses whose threads are shown: give --threads, too", param_hint="--slot")
    with connected(stack) as millrace:
        if threads:
            with _either(millrace, name) as process:
                dumps = process.threads(slot)
            _print_threads(dumps, as_json)
            return
        with _either(millrace, name) as process:
            described = process.describe()
    from .tables import print_json

    if as_json:
        print_json(described.model_dump(exclude={"type", "version", "correlation"}))
    else:
        _print_described(described)


def services(as_json: JsonOption = False, stack: StackOption = "default") -> None:
    """List the processes of the services, leaders and standbys, that answer within a second."""
    with connected(stack) as millrace:
        found = millrace.services()
    from .tables import print_json, table, when

    if as_json:
        print_json([each.model_dump(exclude={"type", "version", "correlation"}) for each in found])
        return
    rows = []
    for each in found:
        status = each.status
        scopes = ", ".join(f"{scope} {role}" for scope, role in sorted(each.scopes.items()))
        rows.append((each.process, status.service, status.host, status.pid, size(status.resident), when(status.started_ms), scopes))
    table(("process", "service", "host", "pid", "memory", "since", "scopes"), rows)
    if not rows:
        print("no process of a service answers", file=sys.stderr)


def settings(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A TaskManager, or a process of a service.", show_default=False)],
    changed: Annotated[bool, typer.Option("--changed", help="Only those that are not as they are by default.")] = False,
    as_json: JsonOption = False,
    stack: StackOption = "default",
) -> None:
    """Print the settings that a TaskManager, or a process of a service, runs with: each value, and from where it is.

    millrace settings dispatcher-0 --changed

    Secrets are stars. docs/reference.md has what each of them means.

    Exit codes: 0 it answered, 1 there is none of this name, 3 it does not answer.
    """
    with connected(stack) as millrace, _either(millrace, name) as process:
        found = process.settings()
    from .tables import print_json, table
    from .words import printable

    shown = [each for each in found if not changed or each.origin != BY_DEFAULT]
    if as_json:
        print_json([each.model_dump() for each in shown])
        return
    rows = [(each.name, printable(json.dumps(each.value, ensure_ascii=False)), printable(each.origin)) for each in shown]
    table(("setting", "value", "from"), rows)
    if not shown:
        print("all are as they are by default", file=sys.stderr)


def print_logs(name: str, log: str | None, everything: bool, stack: str) -> None:
    """The list of a process's logs, or the end of one."""
    with connected(stack) as millrace, _either(millrace, name) as process:
        if log is None:
            found = process.logs()
        else:
            _write(process.read(log, 0 if everything else -TAIL_BYTES))
            return
    from .tables import table, when

    table(("log", "size", "last written"), [(each.log, size(each.bytes), when(each.modified_ms)) for each in found])


@contextmanager
def _either(millrace: Millrace, name: str) -> Iterator[TaskManager | Service]:
    """The TaskManager of this name, else the process of a service. Which one is known once it is asked."""
    from millrace.client import NotFound, Unavailable
    from millrace.client.processes import silent_of

    registered: set[str] = set()
    unknown, service = "", millrace.service(name)
    try:
        registered = {each.task_manager for each in millrace.task_managers()}
    except Unavailable as away:  # the process that is asked about may be the one that is away
        print(f"note: {away}", file=sys.stderr)
        unknown = away.silent or "the Dispatcher"
    if name in registered:
        yield millrace.task_manager(name)
        return
    try:
        yield service
    except Unavailable as silent:
        if silent.silent != silent_of(name):
            raise
        if unknown:
            why = f"no process of a service of this name answers, and {unknown} alone knows whether there is a TaskManager {name}"
            raise Unavailable(why, unknown) from None
        why = f"there is no TaskManager {name}, and no process of a service of this name answers"
        raise NotFound(f"{why}: see millrace taskmanagers, millrace services") from None


def _write(pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _print_described(described: TaskManagerDescribed | ProcessDescribed) -> None:
    from millrace.core.messages.processes import TaskManagerDescribed

    from .tables import table
    from .words import printable

    if not isinstance(described, TaskManagerDescribed):
        scopes = ", ".join(f"{scope} {role}" for scope, role in sorted(described.scopes.items()))
        print(f"process   {described.process}", *_status_lines(described.status), *([f"scopes    {scopes}"] if scopes else []), sep="\n")
        return
    print(f"process   {described.task_manager}, incarnation {described.incarnation}", *_status_lines(described.status), sep="\n")
    print()
    rows: list[tuple[object, ...]] = []
    for slot in described.slots:
        jvm_cells = _jvm_cells(slot.jvm) if slot.jvm is not None else ("", "", "", "")
        rows.append((slot.slot, slot.state, slot.profile.text, slot.job, slot.attempt_state, *jvm_cells))
    table(("slot", "state", "has", "job", "attempt", "heap", "outside of it", "collections", "threads"), rows)
    for slot in described.slots:
        for head, why in (("JVM", slot.no_answer), ("broken", slot.broken)):
            if why:
                print(printable(f"slot {slot.slot}, {head}: {why}"))
    if described.total > len(described.slots):
        print(f"{len(described.slots)} of {described.total} slots", file=sys.stderr)


def _status_lines(status: ProcessStatus) -> Iterator[str]:
    from .tables import when
    from .words import printable

    yield printable(f"service   {status.service} {status.version}, Python {status.python}")
    yield printable(f"runs      on {status.host} as process {status.pid}, since {when(status.started_ms)}")
    uses = f"{size(status.resident)}, {status.cpu_ms / 1000:.1f} s of processor time, {status.threads} threads, {status.files} open files"
    yield f"uses      {uses}"
    yield printable(f"machine   {status.cores} cores, {size(status.memory)}, {size(status.memory_free)} free; {status.system}")


def _jvm_cells(jvm: JvmStatus) -> tuple[str, str, str, str]:
    heap, outside = jvm.heap, jvm.non_heap
    most = heap.max if heap.max is not None else heap.committed
    count = sum(each.count for each in jvm.collectors)
    seconds = sum(each.time_ms for each in jvm.collectors) / 1000
    return f"{size(heap.used)} of {size(most)}", size(outside.used), f"{count} in {seconds:.1f} s", str(jvm.threads)


def _print_threads(dumps: list[ThreadDump], as_json: bool) -> None:
    from .tables import print_json
    from .words import printable

    if as_json:
        print_json([each.model_dump() for each in dumps])
        return
    for each in dumps:
        print(printable(f"=== {each.of}{': ' + each.no_answer if each.no_answer else ''}"))
        for line in (each.text or "").splitlines():
            print(printable(line))
        if each.truncated:
            print(f"=== {each.of}: there is more than fits into an answer; --slot asks for one slot alone")
        print()


def size(number: int) -> str:
    """Bytes: 950 B, 34 MB, 4.1 GB."""
    from .words import short

    text = short(number)
    return f"{text} B" if text[-1].isdigit() else f"{text}B"
