"""Submits what is due, while this replica leads.

A run goes in three steps, each of which may be the last of this process. Its time is noted in etcd as pending, under the id of its job.
Its SubmitJob is published, as any client's. When etcd has the job, the run is pending no more. Who leads next goes on at any of these, and
what is published twice is one job: the id follows from schedule and time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from millrace.core.messages.client import SubmitJob
from millrace.core.messages.schedules import Scheduled, ScheduleGraph, ScheduleProgress, StoredSchedule
from millrace.core.topics import DISPATCHER
from millrace.io.interfaces import Bus, Compare, Entry, Put, Store, Txn, Unavailable, pages
from millrace.runtime.hosting import Term
from millrace.runtime.metrics import FENCED, SCHEDULE_TIMES
from millrace.runtime.performer import Fence, Refused

from ..core.state import State
from ..stored import Unreadable as NoJob
from ..stored import key_of, stored_of
from . import deciding, times
from .ports import submitted
from .stored import GRAPHS, PROGRESS, SCHEDULES, Unreadable, progress_of, read, value_of

LOOK_S = 0.5
READ_MS = 60_000  # etcd is read again so often, though nothing is known to have changed
CLOCKS_MS = 300_000
AGAIN_MS, AGAIN_MOST_MS = 30_000, 3_600_000
ACCEPT_MS = 600_000  # a submission that somebody publishes late counts no more: by then the run may be forgotten
TOPIC = "client.commands"

log = structlog.get_logger("schedules")


@dataclass
class _Known:
    """A schedule as it was read."""

    stored: StoredSchedule
    revision: int
    progress: ScheduleProgress
    progress_revision: int
    next_ms: int = 0
    """Nothing is to be done before."""
    tried: str = ""
    """The job that was published last by this process, in this term; when first and last, and how long is waited before it is again."""
    first_ms: int = 0
    tried_ms: int = 0
    wait_ms: int = AGAIN_MS


class Schedules:
    """`lead(term)` starts a thread that ends with the term. `fatal(reason)` ends the process. `changed` is set when a schedule was set,
    paused or removed. `wall_ms` is the real clock, Unix time."""

    def __init__(
        self, store: Store, bus: Bus, changed: threading.Event, fatal: Callable[[str], None],
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:  # fmt: skip
        self._store, self._bus, self._changed, self._fatal, self._wall_ms = store, bus, changed, fatal, wall_ms

    def lead(self, term: Term) -> None:
        threading.Thread(target=self._run, args=(term,), name="schedules", daemon=True).start()

    def _run(self, term: Term) -> None:
        firing = Firing(self._store, self._bus, self._changed, Fence(DISPATCHER, term.epoch))
        warned_ms = 0
        try:
            while not term.ended.wait(LOOK_S):
                wall_ms, broker_ms = self._wall_ms(), term.folded.stamp_ms
                if abs(wall_ms - broker_ms) <= CLOCKS_MS:
                    firing.look(min(wall_ms, broker_ms), term.folded.state)
                elif wall_ms - warned_ms > READ_MS:  # else a wrong clock would run what is due next year, and nothing until then
                    warned_ms = wall_ms
                    log.warning("schedules wait: this machine's clock and Kafka's differ", wall_ms=wall_ms, kafka_ms=broker_ms)
        except Refused:
            FENCED.add(DISPATCHER)  # the term is over
        except Exception as failure:  # else nothing would be run any more, and nobody would know
            log.exception("schedules end")
            self._fatal(f"schedules: {type(failure).__name__}: {failure}")


class Firing:  # [R36]
    """One term of it. `look` does all that is to be done at a moment, a step of each schedule. Raises Refused."""

    def __init__(self, store: Store, bus: Bus, changed: threading.Event, fence: Fence) -> None:
        self._store, self._bus, self._changed, self._fence = store, bus, changed, fence
        self._known: dict[str, _Known] = {}
        self._read_ms: int | None = None

    def look(self, wall_ms: int, state: State) -> None:
        """`state`: of the machine, which another thread changes."""
        try:
            if self._changed.is_set() or self._read_ms is None or not 0 <= wall_ms - self._read_ms < READ_MS:
                self._changed.clear()
                self._read_ms = None
                self._read(wall_ms)
                self._read_ms = wall_ms
            if state.closing is None:
                for name, known in list(self._known.items()):
                    if wall_ms >= known.next_ms:
                        self._step(name, known, wall_ms, state)
        except Unavailable as failure:
            log.warning("schedules wait", reason=str(failure))

    def _read(self, wall_ms: int) -> None:
        progress = {entry.key[len(PROGRESS) :]: entry for entry in pages(self._store, PROGRESS)}
        found: dict[str, _Known] = {}
        for entry in pages(self._store, SCHEDULES):
            name = entry.key[len(SCHEDULES) :]
            try:
                stored = read(StoredSchedule, entry)
            except Unreadable as reason:
                log.error("a schedule does not run", reason=str(reason))
                continue
            its = progress.get(name)
            before = self._known.get(name)
            tried = (before.tried, before.first_ms, before.tried_ms, before.wait_ms) if before is not None else ("", 0, 0, AGAIN_MS)
            found[name] = _Known(stored, entry.mod_revision, progress_of(its), its.mod_revision if its is not None else 0, 0, *tried)
        self._known = found

    def _step(self, name: str, known: _Known, wall_ms: int, state: State) -> None:
        try:
            if known.progress.pending is not None:
                self._go_on(name, known, wall_ms, state)
                return
            lives = self._lives(known.progress.last_job, state) if self._is_due(known, wall_ms) else False
            progress = deciding.decided(name, known.stored, known.progress, wall_ms, lives)
            if progress != known.progress:
                self._note(name, known, progress)
            else:
                following = times.after(known.stored.cron, known.stored.time_zone, max(wall_ms, known.stored.since_ms))
                known.next_ms = wall_ms + READ_MS if known.stored.paused else next(following, wall_ms + READ_MS)
        except times.NoTimes as failure:  # another leader may know the zone
            log.error("a schedule does not run", schedule=name, reason=str(failure))
            known.next_ms = wall_ms + READ_MS

    @staticmethod
    def _is_due(known: _Known, wall_ms: int) -> bool:
        after_ms = max(known.progress.through_ms, known.stored.since_ms)
        return next(times.until(known.stored.cron, known.stored.time_zone, wall_ms), 0) > after_ms

    def _go_on(self, name: str, known: _Known, wall_ms: int, state: State) -> None:
        """A run is pending: it waits for the one before, is published, is published again, or is over."""
        run = known.progress.pending
        assert run is not None, "the caller has looked"
        waits = known.progress.last_job in state.live  # nobody has published it then, and etcd is not asked again and again
        if not waits and (run.job in state.live or self._store.get(key_of(run.job)) is not None):
            log.info("a schedule's job is accepted", schedule=name, job=run.job)
            self._note(name, known, deciding.accepted(known.progress))
        elif known.stored.paused:
            if known.tried != run.job or not 0 <= wall_ms - known.tried_ms <= ACCEPT_MS:  # else it may be accepted yet
                self._note(name, known, deciding.given_up(known.progress, deciding.PAUSED))
        elif waits or self._lives(known.progress.last_job, state):
            return
        elif known.tried == run.job and wall_ms > deciding.tried_until_ms(known.stored, run, known.first_ms):
            log.error("a schedule's job was not accepted", schedule=name, job=run.job)
            self._note(name, known, deciding.given_up(known.progress, deciding.REFUSED))
        elif known.tried != run.job or not 0 <= wall_ms - known.tried_ms < known.wait_ms:
            self._publish(name, known, wall_ms)

    def _publish(self, name: str, known: _Known, wall_ms: int) -> None:
        run = known.progress.pending
        assert run is not None, "the caller has looked"
        entry = self._store.get(f"{GRAPHS}{name}")
        try:
            if entry is None:
                raise Unreadable(f"etcd has no graph of schedule {name}: set it again")
            graph = submitted(known.stored, read(ScheduleGraph, entry), run.due_ms)
        except Unreadable as reason:
            log.error("a schedule does not run", schedule=name, reason=str(reason))
            self._note(name, known, deciding.given_up(known.progress, str(reason)))
            return
        first_ms = known.first_ms if known.tried == run.job else wall_ms
        until_ms = min(wall_ms + ACCEPT_MS, deciding.tried_until_ms(known.stored, run, first_ms))  # else it runs after it was given up
        due = Scheduled(schedule=name, due=times.text(run.due_ms, known.stored.time_zone), time_zone=known.stored.time_zone)
        body = SubmitJob(
            job=run.job, graph=graph.graph, parameters=graph.parameters, accept_before_ms=until_ms, scheduled=due
        )
        self._bus.append(TOPIC, 0, body.model_dump_json().encode(), key=name.encode())
        known.wait_ms = min(2 * known.wait_ms, AGAIN_MOST_MS) if known.tried == run.job else AGAIN_MS
        known.tried, known.first_ms, known.tried_ms = run.job, first_ms, wall_ms

    def _note(self, name: str, known: _Known, progress: ScheduleProgress) -> None:
        """Writes what became of its times, if neither it nor the schedule was changed meanwhile: else all is read again."""
        key = f"{PROGRESS}{name}"
        compares = [self._fence.compare(), Compare(f"{SCHEDULES}{name}", known.revision), Compare(key, known.progress_revision)]
        read_ms, self._read_ms = self._read_ms, None  # the answer may be lost
        result = self._store.txn(Txn(compares, [Put(key, value_of(progress))], [self._fence.compare().key, key]))
        if not result.succeeded:
            self._fence.check_read(result.reads)
            return
        SCHEDULE_TIMES.more(sum(each.times for each in progress.left_out if each not in known.progress.left_out))
        written = result.reads[key]
        assert written is not None, "it was put just now"
        known.progress, known.progress_revision, known.next_ms = progress, written.mod_revision, 0
        self._read_ms = read_ms

    def _lives(self, job: str, state: State) -> bool:
        """Whether it has not ended. While the state knows that it goes on, etcd is not asked."""
        return bool(job) and (job in state.live or _is_accepted(self._store.get(key_of(job))))


def _is_accepted(entry: Entry | None) -> bool:
    try:
        stands = stored_of(entry)
    except NoJob:
        return False
    return stands is not None and stands.state == "accepted"
