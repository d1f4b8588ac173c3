"""Ends of processes, noted while a stack runs. What Python or a library said last is in a log that the next end replaces."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

from deploy.local.stack import Stack

from .history import End

LOOK_S = 0.2
ASIDE_S = 6.0  # a service that fails again and again is started again after 5
_ENDED = re.compile(r"^(\S+): ended(?: with (-?\d+))?; starting it again$", re.MULTILINE)


class Ends:
    """A thread that reads what the supervisor says, in a `with`."""

    def __init__(self, stack: Stack) -> None:
        self.seen: list[End] = []
        self._logs, self._said = stack.folder / "logs", stack.supervisor_log
        self._read = 0
        self._known: dict[str, int] = {}  # service -> the file that was its log, when it failed last
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Ends:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()
        self._look()

    def note(self, name: str, code: int, log: Path) -> None:
        """One that somebody else has waited for."""
        self.seen.append(End(name, code, _last_words_of(log) if code > 0 else ""))

    def _run(self) -> None:
        while not self._ending.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        said = self._said.read_text()
        whole = said[: said.rfind("\n") + 1]
        for name, code in _ENDED.findall(whole[self._read :]):
            self.seen.append(End(name, int(code or 0), self._words(name) if int(code or 0) > 0 else ""))
        self._read = len(whole)

    def _words(self, name: str) -> str:
        """Of the log that is put aside before the next process begins one: a moment after the end was said."""
        log, until_s = self._logs / f"{name}.log.failed", time.monotonic() + ASIDE_S
        while time.monotonic() < until_s:
            if log.exists() and log.stat().st_ino != self._known.get(name):
                self._known[name] = log.stat().st_ino
                return _last_words_of(log)
            time.sleep(0.02)
        return "nothing"


def _last_words_of(log: Path) -> str:
    return last_words(log.read_text(errors="replace"))[:300] if log.exists() else "nothing"


def last_words(log: str) -> str:
    """Why a service ended by itself, as its log has it; what a client library says of servers that are away is no reason."""
    said = [each for each in map(json.loads, re.findall(r"^{.*", log, re.MULTILINE)) if "logger" not in each]
    for level in ("critical", "error"):
        for each in reversed(said):
            if each["level"] == level:
                exception: list[str] = each.get("exception", "").strip().splitlines()
                return ": ".join(filter(None, (each["event"], each.get("reason"), *exception[-1:])))
    return log.strip().rpartition("\n")[2] or "nothing"
