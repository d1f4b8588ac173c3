"""etcd by the grpc stubs of `etcd3` (cslab-etcd3): `EtcdStore`, the real `Store`.

The package's own client hides what a service must know: the deadline of each call, the revision of a read, the moment from which
a watch sees changes. It also hides whether a call whose answer was lost may have been carried out.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any

# Before gRPC is loaded: else its threads begin anew in each copy of the process (`forked`), find their files closed, and end it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc

from millrace.io.interfaces import (
    PAGE,
    Answered,
    Change,
    Delete,
    Entry,
    Put,
    Txn,
    TxnResult,
    Unavailable,
    UnknownOutcome,
)

from .streams import Streams

TXN_MAX_BYTES = 1024 * 1024  # below what etcd takes by its defaults [R19]

_CHANNEL = [
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", -1),  # a page of large graphs
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_500),  # how long one attempt to connect may take
    ("grpc.max_reconnect_backoff_ms", 500),  # a restarted etcd is found again within half a second
    ("grpc.keepalive_time_ms", 10_000),  # etcd refuses pings more often than every 5 s
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.use_local_subchannel_pool", 1),  # two stores in a process share no connection, nor its backoff
]

CHANGES_PAUSE_S = 0.2
"""etcd tells of a change at the moment at which it answers who has made it, who is in a hurry: `Store.changes` reads on so much later."""

_OPERATIONS = {rpc_pb2.RangeRequest: "range", rpc_pb2.TxnRequest: "txn"}  # the others are about leases
_REFUSED = (grpc.StatusCode.INVALID_ARGUMENT,)
# Statuses that etcd gives before it proposes a change, or when it rejects one in the log: nothing was changed.
_NOT_DONE = (
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNIMPLEMENTED,
)
# grpc's own words for a request that never left this process.
_NOT_SENT = ("failed to connect to all addresses", "DNS resolution failed")


def full(prefix: str, key: str) -> bytes:
    """A key as etcd has it."""
    return (prefix + key).encode(errors="surrogateescape")


def request_of(txn: Txn, prefix: str) -> Any:
    """The transaction as etcd is asked for it; its `ByteSize` counts against etcd's limit."""
    reads = [rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=full(prefix, key))) for key in txn.reads]
    return rpc_pb2.TxnRequest(
        compare=[
            rpc_pb2.Compare(
                key=full(prefix, one.key), target=rpc_pb2.Compare.MOD, result=rpc_pb2.Compare.EQUAL, mod_revision=one.mod_revision
            )
            for one in txn.compares
        ],
        success=[*(_operation(one, prefix) for one in txn.then), *reads],
        failure=reads,
    )


def _operation(one: Put | Delete, prefix: str) -> Any:
    if isinstance(one, Put):
        return rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=full(prefix, one.key), value=one.value, lease=one.lease))
    return rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=full(prefix, one.key)))


class EtcdStore:
    """The keys of one cluster below `prefix` in etcd; see `Store` for the meaning of each call.

    `endpoint`: "host:port" (a scheme "http://" is taken off). Every call ends within `timeout_s`. The connection is
    made when first needed, and again by itself.
    """

    def __init__(self, endpoint: str, prefix: str, *, timeout_s: float = 2.0, answered: Answered = lambda *_: None) -> None:
        self._endpoint = endpoint.removeprefix("http://").rstrip("/")
        self._prefix = prefix.rstrip("/") + "/"
        self._timeout_s, self._answered = timeout_s, answered
        self._channel = grpc.insecure_channel(self._endpoint, options=_CHANNEL)
        self._kv = rpc_pb2_grpc.KVStub(self._channel)
        self._lease = rpc_pb2_grpc.LeaseStub(self._channel)
        self._streams = Streams(self._endpoint, _CHANNEL, timeout_s)
        self._revision = 0

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: str) -> Entry | None:
        request = rpc_pb2.RangeRequest(key=self._full(key))
        return self._one(self._call(self._kv.Range, request))

    def list(self, prefix: str) -> tuple[Sequence[Entry], int]:
        while True:
            try:
                return self._list(prefix)
            except _Compacted:
                continue  # between two pages, after a long pause: from the start, at a newer revision

    def page(self, prefix: str, after: str = "", most: int = PAGE) -> Sequence[Entry]:
        start, end = self._range(prefix)
        request = rpc_pb2.RangeRequest(key=self._full(after) + b"\0" if after else start, range_end=end, limit=most)
        return [self._entry(one) for one in self._call(self._kv.Range, request).kvs]

    def count(self, prefix: str) -> int:
        start, end = self._range(prefix)
        request = rpc_pb2.RangeRequest(key=start, range_end=end, count_only=True)
        return int(self._call(self._kv.Range, request).count)

    def txn(self, txn: Txn) -> TxnResult:
        """See `Store.txn`. Raises ValueError for one that etcd can never take (too many operations, too large, one key
        twice) and Unavailable also for a lease that has ended."""
        request = request_of(txn, self._prefix)
        if request.ByteSize() > TXN_MAX_BYTES:
            raise ValueError(f"a transaction of {request.ByteSize()} bytes is above {TXN_MAX_BYTES}")
        answer = self._call(self._kv.Txn, request, changes=bool(txn.then))
        ranges = [one.response_range for one in answer.responses if one.HasField("response_range")]
        entries = dict(zip(txn.reads, map(self._one, ranges), strict=True))
        return TxnResult(answer.succeeded, answer.header.revision, entries)

    def grant(self, ttl_s: int) -> int:
        return int(self._call(self._lease.LeaseGrant, rpc_pb2.LeaseGrantRequest(TTL=ttl_s), changes=True).ID)

    def keep_alive(self, lease: int) -> bool:
        request = rpc_pb2.LeaseKeepAliveRequest(ID=lease)
        answer = self._call(lambda request, timeout: self._streams.renew(request), request, changes=True)
        return bool(answer.TTL > 0)

    def revoke(self, lease: int) -> None:
        """See `Store.revoke`. A lease that has ended already is no error."""
        with contextlib.suppress(_NotFound):
            self._call(self._lease.LeaseRevoke, rpc_pb2.LeaseRevokeRequest(ID=lease), changes=True)

    def watch(
        self, key: str, on_change: Callable[[Entry | None], None], on_lost: Callable[[], None]
    ) -> Callable[[], None]:
        """See `Store.watch`. Returns when etcd has set the watch up: a read made afterwards misses nothing.

        `on_lost` is called at most once, also by `close`, and never after the returned function was called. All watches of a
        process share a thread: who is called back must not wait for anything. Raises Unavailable.
        """

        def on_event(event: Any) -> None:
            on_change(self._entry(event.kv) if event.type == event.PUT else None)

        return self._watch(rpc_pb2.WatchCreateRequest(key=self._full(key)), on_event, lambda compacted: on_lost())

    def changes(
        self, prefix: str, since: int, on_change: Callable[[Change], None], on_lost: Callable[[bool], None]
    ) -> Callable[[], None]:
        """See `Store.changes`, and `watch`."""

        def on_event(event: Any) -> None:
            entry = self._entry(event.kv)
            if event.type == event.PUT:
                on_change(Change(entry.key, entry.mod_revision, entry.value, entry.create_revision))
            else:
                on_change(Change(entry.key, entry.mod_revision, None))

        start, end = self._range(prefix)
        wanted = rpc_pb2.WatchCreateRequest(key=start, range_end=end, start_revision=since + 1 if since else 0)
        return self._watch(wanted, on_event, on_lost, CHANGES_PAUSE_S)

    def _watch(
        self, wanted: Any, on_event: Callable[[Any], None], on_lost: Callable[[bool], None], pause_s: float = 0
    ) -> Callable[[], None]:
        try:
            return self._streams.watch(wanted, on_event, on_lost, pause_s)
        except grpc.RpcError as failure:
            raise Unavailable(f"etcd at {self._endpoint} did not answer for a watch: {failure}") from failure

    def close(self) -> None:
        self._streams.close()
        self._channel.close()

    def _list(self, prefix: str) -> tuple[Sequence[Entry], int]:
        start, end = self._range(prefix)
        entries: MutableSequence[Entry] = []
        revision = 0
        while True:
            request = rpc_pb2.RangeRequest(key=start, range_end=end, limit=PAGE, revision=revision)
            page = self._call(self._kv.Range, request)
            revision = revision or page.header.revision
            entries += map(self._entry, page.kvs)
            if not page.more:
                return entries, revision
            start = page.kvs[-1].key + b"\0"

    def _range(self, prefix: str) -> tuple[bytes, bytes]:
        start = self._full(prefix)
        return start, start[:-1] + bytes([start[-1] + 1])

    def _full(self, key: str) -> bytes:
        return full(self._prefix, key)

    def _entry(self, kv: Any) -> Entry:
        key = kv.key.decode(errors="surrogateescape")[len(self._prefix) :]  # anybody can write any key, and it must be found again
        return Entry(key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)

    def _one(self, answer: Any) -> Entry | None:
        return self._entry(answer.kvs[0]) if answer.kvs else None

    def _call(self, method: Callable[..., Any], request: Any, *, changes: bool = False) -> Any:
        started, answered = time.perf_counter(), False
        try:
            answer = method(request, timeout=self._timeout_s)
            answered = True
        except grpc.RpcError as failure:
            raise self._meaning(failure, changes) from None
        except ValueError as failure:  # grpc's way to say that the channel was closed
            raise Unavailable(f"the store at {self._endpoint} was closed") from failure
        finally:
            operation = _OPERATIONS.get(type(request), "lease")
            self._answered(operation, time.perf_counter() - started, answered)
        if answer is not None:
            self._revision = max(self._revision, answer.header.revision)
        return answer

    def _meaning(self, failure: Any, changes: bool) -> Exception:
        """What a failed call means. Whatever is not known to have changed nothing has an unknown outcome."""
        code, details = failure.code(), failure.details() or ""
        if "user name is empty" in details:  # to etcd the request is wrong, and not who asks
            return Unavailable(f"etcd at {self._endpoint} asks for a user and a password, and services give none: keep it in a network "
                               "of the cluster's own, without authentication")  # fmt: skip
        if code in _REFUSED:
            return ValueError(f"etcd refused the request: {details}")
        if code == grpc.StatusCode.OUT_OF_RANGE and "compacted" in details:
            return _Compacted(f"etcd at {self._endpoint}: {details}")
        if code == grpc.StatusCode.NOT_FOUND:
            return _NotFound(f"etcd at {self._endpoint} refused the request: {details}")
        words = f"etcd at {self._endpoint} did not answer: {details or code.name}"
        if not changes or code in _NOT_DONE or any(sign in details for sign in _NOT_SENT):
            return Unavailable(words)
        return UnknownOutcome(words + " (it may have carried out what was asked)")


class _Compacted(Unavailable):
    """The revision asked for is no longer kept."""


class _NotFound(Unavailable):
    """The lease has ended."""
