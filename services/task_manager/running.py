"""The life of a TaskManager's process: it waits for Kafka and etcd, reads and folds on two threads, and leaves in order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import structlog

from millrace.core.messages.slots import StopAsked
from millrace.core.topics import RESOURCE_MANAGER
from millrace.io.interfaces import OffsetGone, Unavailable

from . import incarnation
from .inbox import Inbox
from .inputs import AGAIN, FAILED, STOPPED, Ending
from .shell import Shell

FLUSH_MS = 1_000
CLOSE_S = 1.5

log = structlog.get_logger("task-manager")


def run(shell: Shell, stopping: threading.Event, failure: Callable[[], str | None]) -> int:
    """Lives until it is over; returns the exit code. `failure`: why `stopping` was set, None if somebody asked for it."""
    _await_begin(shell, stopping)
    if shell.inbox is not None:
        threading.Thread(target=_read_on, args=(shell, shell.inbox), name="inbox", daemon=True).start()
        asked = False
        while shell.over is None:
            if stopping.is_set() and not asked:
                asked = True
                reason = failure()
                if reason is not None:
                    shell.over = Ending(reason, FAILED)
                    break
                shell.inputs.post(StopAsked())
            shell.turn(max(0, shell.due_ms - shell.clock()))
    return _finish(shell)


def _await_begin(shell: Shell, stopping: threading.Event) -> None:
    logged_ms = 0
    while not stopping.is_set():
        try:
            shell.begin()
            return
        except Unavailable as missing:
            if shell.clock() - logged_ms > 5_000:
                logged_ms = shell.clock()
                log.warning("waiting", reason=str(missing))
            shell.turned_ms = shell.clock()
            stopping.wait(0.2)


def _read_on(shell: Shell, inbox: Inbox) -> None:
    try:
        while shell.over is None:
            inbox.read(200)
        inbox.reader.close()
    except (OffsetGone, Unavailable) as gone:
        shell.inputs.end(f"its inbox cannot be read on: {gone}", AGAIN)
    except Exception as failure:
        log.exception("the reader ends")
        shell.inputs.end(f"{type(failure).__name__}: {failure}", FAILED)


def _finish(shell: Shell) -> int:
    """The last words, then the slots with all that runs in them: in this order only where nobody else has the tasks yet."""
    over = shell.over or Ending("it was stopped", STOPPED)
    (log.info if over.code == STOPPED else log.error)("ends", reason=over.reason, code=over.code)
    if over.code == STOPPED:
        shell.bus.flush(FLUSH_MS)
    if shell.slots is not None:
        shell.slots.close(CLOSE_S)
    if shell.incarnation and over.code == STOPPED:
        incarnation.give_back(shell.store, shell.name, shell.incarnation)
    shell.journal.close()
    return over.code


def health(shell: Shell) -> dict[str, Any]:
    """For /health. Any thread."""
    folded = shell.folded
    peer = folded.peers.get(RESOURCE_MANAGER) if folded is not None else None
    slots = {} if folded is None else {str(n): slot.state.value for n, slot in folded.state.slots.items()}
    turned = shell.clock() - shell.turned_ms
    return {
        "status": "ok" if turned < 3_000 else "stuck: the loop does not turn",
        "ready": peer is not None and peer.life > 0 and any(each != "STARTING" for each in slots.values()),
        "task_manager": shell.name,
        "incarnation": shell.incarnation,
        "registered": peer is not None and peer.life > 0,
        "slots": slots,
        "outbox": len(folded.outbox) if folded is not None else 0,
        "turned_ms_ago": turned,
    }
