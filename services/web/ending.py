"""When a process of the web ends."""

from __future__ import annotations

import threading

import structlog

log = structlog.get_logger("web")


class Ending(threading.Event):
    """Set when the process is to end: it was asked to, or a part of it has failed without which it would look well and answer nobody."""

    failed = False

    def fail(self, reason: str, trace: bool = False) -> None:
        """From any thread. `trace`: where it comes from is told, too."""
        log.critical("the process ends", reason=reason, exc_info=trace)
        self.failed = True
        self.set()
