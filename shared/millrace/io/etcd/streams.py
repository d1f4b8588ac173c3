"""What etcd answers on streams: watches, and the renewals of leases.

By gRPC's asyncio part, on one thread of the process. Its blocking part looks at each stream ten times a second, and opened a stream
for each renewal: that was a third of what a service at rest costs.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TooLate
from contextlib import suppress
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc

log = logging.getLogger("millrace.etcd")

Options = list[tuple[str, Any]]

WAITED_S = 0.002  # an answer that was there already comes sooner
LATE_S = 0.5  # for the streams' thread to say that a call's time is over; else it is held up


class StreamOver(grpc.RpcError):  # type: ignore[misc]  # grpc has no types
    """A stream ended, or did not answer in time, without a status of its own."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


_starting = threading.Lock()


def _loop() -> asyncio.AbstractEventLoop:
    """One for the process, whoever asks first: two of gRPC's in a process take each other's events."""
    with _starting:
        return _started()


@lru_cache(maxsize=1)
def _started() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="etcd-streams", daemon=True).start()
    return loop


class Streams:
    """The streams of one store, on a connection of their own that is made when first needed. Every call ends within `timeout_s`, or
    LATE_S later while the streams' thread is held up, and raises grpc.RpcError; none may be made on that thread, where watches tell."""

    def __init__(self, endpoint: str, options: Options, timeout_s: float) -> None:
        self._endpoint, self._options, self._timeout_s = endpoint, options, timeout_s
        self._channel: Any = None
        self._renewals: Any = None
        self._renewing = asyncio.Lock()
        self._watches: set[_Watch] = set()
        self._closed = False

    def renew(self, request: rpc_pb2.LeaseKeepAliveRequest) -> Any:
        """etcd's answer to a renewal."""
        return self._run(self._renew(request))

    def watch(
        self, wanted: rpc_pb2.WatchCreateRequest, on_event: Callable[[Any], None], on_lost: Callable[[bool], None], pause_s: float = 0
    ) -> Callable[[], None]:
        """Returns what ends the watch, when etcd has confirmed it. `on_lost` is called at most once, also by `close`, and never after the
        returned function was called. It is given whether what was to be told is compacted. `pause_s`: how long it reads nothing after
        each time that it had to wait for something."""
        watch = _Watch(self._watches, wanted, on_event, on_lost, pause_s)
        try:
            self._run(watch.open(self._connected))
        except grpc.RpcError:
            watch.end(notify=False)  # nobody has it, though etcd may still confirm it
            raise
        return lambda: watch.end(notify=False)

    def close(self) -> None:
        self._closed = True
        for watch in list(self._watches):
            watch.end(notify=True)
        if self._channel is not None:
            channel, self._channel = self._channel, None
            with suppress(TooLate):  # the thread is held up: the end of a process is none that failed
                asyncio.run_coroutine_threadsafe(channel.close(), _loop()).result(self._timeout_s)

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        asked = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, self._timeout_s), _loop())
        try:
            return asked.result(self._timeout_s + LATE_S)
        except (asyncio.TimeoutError, TooLate):
            raise StreamOver(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {self._timeout_s} s") from None
        except (CancelledError, asyncio.InvalidStateError):  # the stream ended at this moment
            raise StreamOver(grpc.StatusCode.CANCELLED, "the stream was ended") from None

    def _connected(self) -> Any:
        """The channel; on the streams' thread alone."""
        if self._closed:
            raise StreamOver(grpc.StatusCode.CANCELLED, "the store was closed")
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._endpoint, options=self._options)
        return self._channel

    async def _renew(self, request: rpc_pb2.LeaseKeepAliveRequest) -> Any:
        async with self._renewing:
            if self._renewals is None or self._renewals.done():
                self._renewals = rpc_pb2_grpc.LeaseStub(self._connected()).LeaseKeepAlive()
            stream, self._renewals = self._renewals, None  # it is kept if it answers: what a late answer belongs to is not known
            try:
                await stream.write(request)
                answer = await stream.read()
            except BaseException:
                stream.cancel()
                raise
            if answer is grpc.aio.EOF:
                raise StreamOver(grpc.StatusCode.UNAVAILABLE, "etcd ended the stream of renewals")
            self._renewals = stream
            return answer


class _Watch:
    """One watch: a stream of its own."""

    def __init__(
        self, among: set[_Watch], wanted: rpc_pb2.WatchCreateRequest, on_event: Callable[[Any], None],
        on_lost: Callable[[bool], None], pause_s: float,
    ) -> None:  # fmt: skip
        self._among, self._wanted, self._on_event, self._on_lost, self._pause_s = among, wanted, on_event, on_lost, pause_s
        self._compacted = False
        self._over = threading.Event()
        self._noting = threading.Lock()
        self._stream: Any = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self, connected: Callable[[], Any]) -> None:
        """Asks etcd, waits for its confirmation, then reads on in the background."""
        member = (("hasleader", "true"),)  # one that is cut off from the others ends the stream
        self._stream = rpc_pb2_grpc.WatchStub(connected()).Watch(metadata=member)
        try:
            await self._stream.write(rpc_pb2.WatchRequest(create_request=self._wanted))
            answer = await self._stream.read()
            if answer is grpc.aio.EOF or answer.canceled:
                reason = "" if answer is grpc.aio.EOF else f": {answer.cancel_reason}"
                raise StreamOver(grpc.StatusCode.UNAVAILABLE, f"etcd refused a watch{reason}")
            with self._noting:
                if self._over.is_set():
                    raise StreamOver(grpc.StatusCode.CANCELLED, "who asked for the watch has given it up")
                self._among.add(self)
        except BaseException:
            self._stream.cancel()
            raise
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            clock = asyncio.get_running_loop().time
            asked_s = clock()
            while (answer := await self._stream.read()) is not grpc.aio.EOF:
                waited_s = clock() - asked_s
                if answer.canceled:
                    self._compacted = answer.compact_revision > 0  # etcd says so after it has confirmed the watch
                    return
                for event in answer.events:
                    if self._over.is_set():
                        return
                    self._on_event(event)
                if self._pause_s and waited_s > WAITED_S:
                    await asyncio.sleep(self._pause_s)
                asked_s = clock()
        except grpc.RpcError as failure:
            if not self._over.is_set():
                log.info("the watch of %s ended: %s", self._wanted.key.decode(errors="replace"), failure.details())
        finally:
            self.end(notify=True)

    def end(self, *, notify: bool) -> None:
        """Any thread."""
        with self._noting:
            if self._over.is_set():
                return
            self._over.set()
            self._among.discard(self)
        if self._stream is not None:
            _loop().call_soon_threadsafe(self._stream.cancel)
        if notify:
            self._on_lost(self._compacted)
