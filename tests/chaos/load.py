"""Short jobs, submitted by several threads at once: some fail before they finish, some are canceled, some are sent twice."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from millrace.client import Millrace, MillraceError
from millrace.client.errors import NotFound, OutcomeUnknown, Refused, Rejected, Unavailable
from tests.task_manager.timed import query

CALM = (4, 0.1, 0.9)
DENSE = (16, 0.0, 0.3)
"""Threads, and how long each pauses between two jobs, at least and at most in seconds."""
RESTART = {"attempts": 5, "delay_ms": 50}


@dataclass
class Load:
    """Runs in a `with`; what it was told is read afterwards. The same seed asks for the same jobs, thread by thread."""

    bootstrap: str
    seed: int
    rate: tuple[int, float, float] = CALM
    answers: dict[str, str] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    cancels: dict[str, bool] = field(default_factory=dict)
    accepted: list[tuple[float, float]] = field(default_factory=list)
    """(sent, answered) in monotonic seconds, of each first answer."""
    errors: list[str] = field(default_factory=list)
    """What must not happen to a client."""

    def __post_init__(self) -> None:
        self._ending = threading.Event()
        self._connected = threading.Barrier(self.rate[0] + 1)
        self._threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(self.rate[0])]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self._connected.wait(60)  # who has never found a Kafka may say so, and is no client yet
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, number: int) -> None:
        draw = random.Random(f"{self.seed} {number}")
        try:
            with Millrace(self.bootstrap, timeout_s=60) as client:
                self._connected.wait(60)
                count = 0
                while not self._ending.is_set():
                    count += 1
                    self._one(client, f"chaos-{number}-{count}", draw)
                    self._ending.wait(draw.uniform(*self.rate[1:]))
        except Exception as failure:
            self.errors.append(f"a client ended: {type(failure).__name__}: {failure}")

    def _one(self, client: Millrace, job: str, draw: random.Random) -> None:
        seconds, failures = draw.choice((0.02, 0.1, 0.3, 1.5)), draw.choice((0, 0, 0, 0, 1, 2))
        vertices: dict[str, object] = {"one": {"sql": query(seconds, failures)}}
        if draw.random() < 0.3:
            vertices["two"] = {"sql": query(0.05), "inputs": {"one": "broadcast"}}
        graph = {"name": "chaos", "vertices": vertices, "restart": RESTART}
        cancel, twice = draw.random() < 0.1, draw.random() < 0.1
        self.failures[job] = failures
        sent_s = time.monotonic()
        self.answers[job] = self._submit(client, graph, job)
        if self.answers[job] == "accepted":
            self.accepted.append((sent_s, time.monotonic()))
        if twice and self.answers[job] == "accepted" and self._submit(client, graph, job) == "refused":
            self.errors.append(f"{job} was accepted, and refused when it was sent again")
        if cancel:
            self._cancel(client, job)

    def _submit(self, client: Millrace, graph: dict[str, object], job: str) -> str:
        try:
            client.begin_submit(graph, job, watch=False).result()
            return "accepted"
        except OutcomeUnknown:
            return "unknown"
        except (Unavailable, Rejected):
            return "refused"

    def _cancel(self, client: Millrace, job: str) -> None:
        self.cancels[job] = True
        try:
            client.cancel(job)
        except NotFound as failure:
            if self.answers[job] == "accepted":
                self.errors.append(f"{job} was accepted, and then: {failure}")
        except Refused:
            pass  # it has ended already
        except MillraceError:
            pass  # nobody answered in time
