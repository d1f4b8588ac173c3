"""What the HTTP side may send: each request is published to Kafka like any client's, by the client library."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from millrace.client import Job, Millrace, MillraceError, OutcomeUnknown, Rejected, Unavailable
from millrace.core.messages.audit import Verb
from millrace.core.messages.blocklist import BlockedHostInfo
from millrace.core.messages.client import ShutDown
from millrace.core.messages.requirements import RequirementsUpdated

from .access.audit import Recorder, is_sent_on
from .access.who import current
from .threads import Overdue, Threads

T = TypeVar("T")

WAITING_MOST = 64
"""Requests that wait for an answer at once. Each has a thread, for the client library waits in one."""
LOADING_MOST = 32
"""Bodies that are read and looked at at once: whoever may only look may have this service check a graph."""
LOAD_S = 30.0
TIMEOUT_S = 10.0
"""For so long an answer is waited for, whether or not somebody still waits at the other end."""
REFUSED_KEPT = 1000
SENT_KEPT = 10_000
WAIT_S = 12.0
WAIT_MOST_S = 30.0


class NoLeader(Unavailable):
    """Kafka answers, and no Dispatcher does."""


class KafkaAway(Unavailable):
    """Kafka does not answer. Nothing was sent."""


class NotAnswered(MillraceError):
    """The request was sent, and there was no answer in the time that its sender waits. It may still be carried out."""


UNKNOWN = (NotAnswered, OutcomeUnknown)
"""What was asked for may have been done, or may be done yet."""


def may_be_done(failure: MillraceError) -> bool:
    """Also of what is sent on to a part that is silent, and is done when that is back."""
    return is_sent_on(failure) or isinstance(failure, UNKNOWN)


class NotLoaded(MillraceError):
    """What this service does itself, before anything is sent, took too long. Nothing was sent, and nothing will be."""


class StorageAway(Unavailable):
    """What an ended job left cannot be read from storage, and the cluster cannot be asked for it."""


class NoCluster(Unavailable):
    """This is a history: what was asked for only a running cluster has. Nothing was sent."""


class Commands:
    """Calls of the client library for one event loop, which none of them blocks.

    Whatever fails is a MillraceError: one of the client library (Refused, NotFound, Invalid, Conflict, Busy, OutcomeUnknown), or one of
    those above; TooMany."""

    def __init__(
        self,
        connect: Callable[[], Millrace],
        trouble: Callable[[], str] = lambda: "",
        most: int = WAITING_MOST,
        recorder: Recorder | None = None,
    ) -> None:
        """`connect`: makes the client; it is called at the first request, and again until it succeeds. `trouble`: why Kafka is known not
        to answer, empty if it does. `most`: how many requests wait at once. `recorder`: writes down who gives a command."""
        self._recorder = recorder
        self._connect, self._trouble = connect, trouble
        self._client: Millrace | None = None
        self._connecting = threading.Lock()
        self._threads, self._loading = Threads(most, "command"), Threads(LOADING_MOST, "loading")
        self._refused: dict[str, MillraceError] = {}
        self._sent: dict[str, float] = {}

    def close(self) -> None:
        """Ends the connection. Who waits for an answer gets none."""
        self._threads.close()
        self._loading.close()
        if self._client is not None:
            self._client.close()

    async def submit(
        self,
        graph: Mapping[str, Any],
        job: str,
        parameters: Mapping[str, str] | None = None,
        uploads: Mapping[str, Path | bytes] | None = None,
        env: Mapping[str, str] | None = None,
        wait_s: float = WAIT_S,
        after: Callable[[], None] = lambda: None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> Job:
        """Submits a graph: a job that is accepted. NotAnswered: it may be accepted later, within TIMEOUT_S. `after` is called when the
        uploads are not read any more, if they were read at all."""

        submitted = self._recorded(
            "submit", job, lambda client: client.submit(graph, job, parameters, uploads, False, env, traceparent, tracestate)
        )  # fmt: skip

        def send(client: Millrace) -> Job:
            try:
                return submitted(client)
            except (Rejected, Unavailable) as failure:
                self._note(job, failure)
                raise
            finally:
                after()

        self._sent.pop(job, None)
        self._sent[job] = time.monotonic()
        while len(self._sent) > SENT_KEPT:
            self._sent.pop(next(iter(self._sent)))
        return await self.call(send, wait_s)

    def expects(self, job: str) -> bool:
        """Whether this process sent it so lately that no fact of it may have come yet."""
        return job not in self._refused and time.monotonic() - self._sent.get(job, -TIMEOUT_S) < TIMEOUT_S

    def refused(self, job: str) -> MillraceError | None:
        """Why the last submission under this id was not accepted, as far as this process remembers."""
        return self._refused.get(job)

    def _note(self, job: str, failure: MillraceError) -> None:
        with self._connecting:
            self._refused.pop(job, None)
            self._refused[job] = failure
            while len(self._refused) > REFUSED_KEPT:
                self._refused.pop(next(iter(self._refused)))

    async def cancel(self, job: str, wait_s: float = WAIT_S) -> str:
        """Asks for a job's end: its status now."""
        return await self.call(self._recorded("cancel", job, lambda client: client.cancel(job)), wait_s)

    async def rescale(
        self, job: str, parallelism: int | None, vertices: Mapping[str, int], wait_s: float = WAIT_S
    ) -> RequirementsUpdated:
        """Gives a job another parallelism: what it has now."""
        return await self.call(self._recorded("rescale", job, lambda client: client.rescale(job, parallelism, vertices)), wait_s)

    async def schedule(
        self, verb: Verb, name: str, command: Callable[[Millrace], T], wait_s: float = WAIT_S,
        after: Callable[[], None] = lambda: None,
    ) -> T:  # fmt: skip
        """Changes a schedule, or runs it. `after` is called when it is over, if it was begun."""
        recorded = self._recorded(verb, name, command)

        def send(client: Millrace) -> T:
            try:
                return recorded(client)
            finally:
                after()

        return await self.call(send, wait_s)

    async def shut_down(self, wait_s: float = WAIT_S) -> ShutDown:
        """Has the cluster end in order: how far that is."""
        return await self.call(self._recorded("shut_down", "cluster", lambda client: client.shut_down()), wait_s)

    async def deregister(self, undo: bool, wait_s: float = WAIT_S) -> int:
        """Has all TaskManagers of a provider stopped, until `undo`: how many there are."""
        verb: Verb = "register" if undo else "deregister"
        return await self.call(self._recorded(verb, "cluster", lambda client: client.deregister(undo)), wait_s)

    async def block(self, host: str, for_ms: int | None, reason: str, evacuate: bool, wait_s: float = WAIT_S) -> BlockedHostInfo:
        """Has no slot of a host granted any more: the host as it is now. Its list says by whose login, where there is one."""
        by = _asker()
        command = self._recorded("block", host, lambda client: client.block(host, for_ms, reason, evacuate=evacuate, by=by))
        return await self.call(command, wait_s)

    async def unblock(self, host: str, wait_s: float = WAIT_S) -> bool:
        """Has slots of a host granted again; whether it was blocked."""
        return await self.call(self._recorded("unblock", host, lambda client: client.unblock(host)), wait_s)

    async def redrive(self, number: int, send: Callable[[Millrace, str], T], wait_s: float = WAIT_S) -> T:
        """Sends the record of a dead letter again, by `send`, which is also given by whose login, where there is one."""
        by = _asker()
        return await self.call(self._recorded("redrive", str(number), lambda client: send(client, by)), wait_s)

    def _recorded(self, verb: Verb, target: str, command: Callable[[Millrace], T]) -> Callable[[Millrace], T]:
        """Who gives it is known here, and not on the thread that sends it."""
        return command if self._recorder is None else self._recorder.recorded(current.get(), verb, target, command)

    async def call(self, request: Callable[[Millrace], T], wait_s: float = WAIT_S) -> T:
        """The answer to any call of the client library, which goes on without its sender when `wait_s` are over."""
        if trouble := self._trouble():
            raise KafkaAway(f"{trouble}: nothing was sent")
        return await self.work(lambda: self._call(request), wait_s)

    async def work(self, what: Callable[[], T], wait_s: float = WAIT_MOST_S) -> T:
        """Something that asks somebody, on one of the threads."""
        try:
            return await self._threads.run(what, wait_s)
        except Overdue:
            raise NotAnswered(f"no answer within {wait_s:g} s; the request was sent, and may still be carried out") from None

    async def load(self, what: Callable[[], T]) -> T:
        """Something that takes long, and sends nothing: it takes no thread of those that do. Raises TooMany, NotLoaded."""
        try:
            return await self._loading.run(what, LOAD_S)
        except Overdue:
            raise NotLoaded(f"it was not read within {LOAD_S:g} s: this service has much to do; nothing was sent, try again") from None

    def _call(self, request: Callable[[Millrace], T]) -> T:
        try:
            return request(self._connected())
        except OutcomeUnknown as unknown:
            raise unknown
        except Unavailable as failure:
            if failure.silent == "dispatcher":
                raise NoLeader(str(failure), failure.silent) from None
            raise

    def _connected(self) -> Millrace:
        with self._connecting:
            if self._client is None:
                try:
                    self._client = self._connect()
                except Unavailable as failure:
                    raise KafkaAway(str(failure)) from None
            return self._client


def _asker() -> str:
    """By whose login something is asked for, where there is one."""
    return (current.get().name or "over HTTP")[:100]
