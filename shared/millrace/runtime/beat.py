"""Keeps the process's lease in etcd, and watches the keys of its scopes there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from millrace.core.clocks import OwnMs
from millrace.io.interfaces import Entry, Store, Unavailable

from .hosting import monotonic_ms
from .loop import ScopeLoop
from .shut_down import KEY as SHUT_DOWN

LEASE_TTL_S = 5
LEASE_RENEW_S = 1.5
RETRY_S = 0.3  # until etcd is asked again
TURNED_MOST_MS = 3_000  # a loop that has not turned for so long must not keep its lease

log = structlog.get_logger("service")


class Beat(threading.Thread):
    """The small thread that keeps the lease and watches the scopes' keys in etcd. It needs neither Kafka nor the loops, so that
    their work never costs the leadership. But it renews only while the loops turn."""

    def __init__(
        self,
        store: Store,
        loops: Callable[[], Sequence[ScopeLoop]],
        clock: Callable[[], OwnMs] = monotonic_ms,
        fatal: Callable[[str], None] = lambda reason: None,
        shut_down: Callable[[Entry | None], None] = lambda entry: None,
    ) -> None:
        """`shut_down` is given what stands in etcd of the cluster's end, now and whenever that changes. Must not wait."""
        super().__init__(name="beat", daemon=True)
        self._store, self._loops, self._clock, self._fatal = store, loops, clock, fatal
        self._shut_down = shut_down
        self._lease: int | None = None
        self._stopping = threading.Event()
        self._lost = threading.Event()
        self._cancels: list[Callable[[], None]] = []

    def lease(self) -> int:
        if self._lease is None:
            raise Unavailable("this process has no lease in etcd yet")
        return self._lease

    def stop(self) -> None:
        self._stopping.set()
        self._lost.set()

    def release(self) -> None:
        """Gives the lease back: what it holds is free at once."""
        if self._lease is not None:
            try:
                self._store.revoke(self._lease)
            except Unavailable as failure:
                log.warning("the lease is left to end by itself", reason=str(failure))

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self.turn():
                    self._lost.wait(LEASE_RENEW_S)
                else:
                    self._stopping.wait(RETRY_S)
        except Exception as failure:  # without it this process would live on and never lead again
            log.exception("the beat ends")
            self._fatal(f"beat: {type(failure).__name__}: {failure}")
        for cancel in self._cancels:
            cancel()

    def turn(self) -> bool:
        """Renews the lease, then watches what is not watched: who learns that a key is free can take it at once. False: etcd does
        not answer, or a loop does not turn, as in a process that has just been woken; again soon."""
        try:
            renewed = self._renew()
            if self._lost.is_set() or not self._cancels:
                self._watch()
        except Unavailable as failure:
            log.warning("etcd does not answer", reason=str(failure))
            return False
        return renewed

    @property
    def lost(self) -> bool:
        """A watch has ended: a turn is due."""
        return self._lost.is_set()

    def _renew(self) -> bool:
        late = [loop.scope for loop in self._loops() if self._clock() - loop.turned_ms > TURNED_MOST_MS]
        if late:
            log.error("the lease is not renewed: a loop does not turn", scopes=late)
            return False
        if self._lease is None or not self._store.keep_alive(self._lease):
            self._lease = self._store.grant(LEASE_TTL_S)
        return True

    def _watch(self) -> None:
        """Watches first, then reads, so that no change is missed; a lost watch is made anew."""
        for cancel in self._cancels:
            cancel()
        self._cancels = []
        self._lost.clear()
        try:
            for loop in self._loops():
                for key, notify in (
                    (loop.generations.leader_key, loop.key.watched),
                    (loop.generations.generation_key, loop.raised),
                ):
                    self._watch_key(key, notify)
            self._watch_key(SHUT_DOWN, self._shut_down)
        except Unavailable:
            self._lost.set()  # some keys are not watched yet
            raise

    def _watch_key(self, key: str, notify: Callable[[Entry | None], None]) -> None:
        """What is read counts only while the watch has told nothing: it may be older than what the watch tells."""
        one_at_a_time, notified = threading.Lock(), threading.Event()

        def changed(entry: Entry | None) -> None:
            with one_at_a_time:
                notified.set()
                notify(entry)

        self._cancels.append(self._store.watch(key, changed, self._lost.set))
        entry = self._store.get(key)
        with one_at_a_time:
            if not notified.is_set():
                notify(entry)
