"""A job's events, in order: live, from one reader that all jobs of a client share, or from the past, from a reader of their own."""

from __future__ import annotations

import hashlib
import heapq
import json
import queue
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from operator import itemgetter
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from pydantic import ValidationError

from millrace.core.messages.attempts import Fault, Open, ResultRows
from millrace.core.states import ENDED_BY

from .errors import Unavailable
from .link import EVENTS, TURN_S, Link, partition_of

Event = dict[str, Any]
P = TypeVar("P", bound=Open)
BUFFERED_MOST = 10_000
PROGRESS_KNOWN = 100
SILENT_S = 15.0  # a log that should have more events and gives none
MARGIN_MS = 60_000  # a job's first event may be stamped by another clock than its acceptance


def _event(value: bytes) -> Event:
    """Raises ValueError for what is none."""
    try:
        event = json.loads(value)
    except RecursionError:  # strangers write what they like
        raise ValueError("no event: it is nested too deeply") from None
    if not isinstance(event, dict) or not isinstance(event.get("type"), str):
        raise ValueError("no event: it is no object with a type")
    return event


def fault_in(event: Event, name: str = "cause") -> Fault | None:
    """The fault that an event carries in this field."""
    return _part(Fault, event.get(name))


def rows_in(event: Event) -> ResultRows | None:
    """The rows that the event of a job's end carries: if they are few."""
    return _part(ResultRows, event.get("result"))


def _part(kind: type[P], value: object) -> P | None:
    try:
        return None if value is None else kind.model_validate(value)
    except ValidationError:  # strangers write what they like
        return None


class Said:
    """What was said of one job: a leader that took over says again, word for word, what its predecessor may not have said. Of progress,
    which has no end, only the latest is known."""

    def __init__(self) -> None:
        self._facts: set[bytes] = set()
        self._progress: deque[bytes] = deque(maxlen=PROGRESS_KNOWN)

    def is_new(self, event: Event, value: bytes) -> bool:
        """Whether this event, which is these bytes, was not said before. It is from now on."""
        digest = hashlib.blake2b(value, digest_size=16).digest()
        if digest in self._facts or digest in self._progress:
            return False
        if event["type"] == "AttemptsProgressing":
            self._progress.append(digest)
        else:
            self._facts.add(digest)
        return True


class Buffer:
    """Events of one job, as they come, for one that takes them. What was said twice is given once."""

    def __init__(self) -> None:
        # Not a Queue: a Ctrl-C within its `get` may leave its lock taken, and whoever puts or closes then waits for ever.
        self._queue: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._said = Said()
        self.ended = self.lost = self._closed = False

    def put(self, value: bytes) -> None:
        if self.lost:
            return
        try:
            event = _event(value)
        except ValueError:
            return  # no fact of a Millrace
        if not self._said.is_new(event, value):
            return
        if self._queue.qsize() >= BUFFERED_MOST:
            self.lost = True  # nobody takes them: they are read from Kafka again when asked for
            self._queue.put(None)  # who took all of them since they were counted waits already
            return
        self._queue.put(event)
        self.ended = self.ended or event.get("type") in ENDED_BY

    def close(self) -> None:
        """No more events come: whoever waits for one goes on, and who comes later waits for none."""
        self._closed = True
        self._queue.put(None)

    def get(self) -> Event | None:
        """The next event, waited for; None when no more come."""
        with suppress(queue.Empty):
            return self._queue.get(block=not (self.lost or self.ended or self._closed))
        return None


class Feed:
    """Reads all partitions of job.events from where they end when it starts, for the jobs that are subscribed."""

    def __init__(self, link: Link) -> None:
        self._buffers: dict[bytes, tuple[Buffer, ...]] = {}  # several, where an id is submitted more than once
        self._changing = threading.Lock()
        self._closed = threading.Event()
        self._reader = link.reader_at_end([TopicPartition(EVENTS, n) for n in range(link.event_partitions)])
        self._thread = threading.Thread(target=self._read, name="millrace-events", daemon=True)
        self._thread.start()

    def subscribe(self, job: str) -> Buffer:
        """To be called before the job is submitted: what came before is not seen here."""
        buffer = Buffer()
        with self._changing:
            self._buffers[job.encode()] = (*self._buffers.get(job.encode(), ()), buffer)
        return buffer

    def forget(self, job: str, buffer: Buffer) -> None:
        with self._changing:
            left = tuple(each for each in self._buffers.get(job.encode(), ()) if each is not buffer)
            if left:
                self._buffers[job.encode()] = left  # at once: the others miss nothing that is read meanwhile
            else:
                self._buffers.pop(job.encode(), None)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(5)
        for buffers in list(self._buffers.values()):
            for buffer in buffers:
                buffer.close()

    def _read(self) -> None:
        while not self._closed.is_set():
            message = self._reader.poll(TURN_S)
            if message is None or message.error() is not None:
                continue
            key = message.key() or b""
            for buffer in self._buffers.get(key, ()):
                buffer.put(message.value() or b"")
                if buffer.ended or buffer.lost:
                    self.forget(key.decode(), buffer)
        self._reader.close()


def follow_buffer(buffer: Buffer) -> Iterator[Event]:
    """Ends with the job's end, or when the buffer has lost events (see `lost`)."""
    while True:
        event = buffer.get()
        if event is None:
            return
        yield event
        if event["type"] in ENDED_BY:
            return


def follow_log(
    link: Link, job: str | None, since_ms: int | None, stop: threading.Event, history: bool = True, go_on: bool = True
) -> Iterator[Event]:
    """Events of a job (None: of all jobs) from the log itself: those since `since_ms` (None: all that are kept), then new ones.

    - history False: only what is written from now on.
    - go_on False: only what has been written until now; that of all jobs by its time.

    Ends with the job's end, or when `stop` is set. Raises Unavailable.
    """
    numbers = [partition_of(job, link.event_partitions)] if job is not None else range(link.event_partitions)
    together = [numbers] if go_on else [[number] for number in numbers]
    with ExitStack() as opened:
        logs = [opened.enter_context(closing(_read(link, each, job, since_ms, stop, history, go_on))) for each in together]
        for _, event in logs[0] if len(logs) == 1 else heapq.merge(*logs, key=itemgetter(0)):
            if stop.is_set():
                return
            yield event


def _read(
    link: Link, numbers: Iterable[int], job: str | None, since_ms: int | None, stop: threading.Event, history: bool, go_on: bool
) -> Generator[tuple[int, Event], None, None]:
    """As `follow_log`, of these partitions in the order in which they come. Each has the broker's stamp, which no stranger chooses."""
    reader, where, ends = _open(link, [TopicPartition(EVENTS, number) for number in numbers], since_ms, history)
    left = {each.partition for each in where if each.offset < ends[each.partition]}
    key, said, silent_s = (job or "").encode(), Said(), 0.0
    try:
        while not stop.is_set() and (go_on or left):
            asked_s = time.monotonic()
            message = reader.poll(TURN_S)
            if message is None or message.error() is not None:
                silent_s += time.monotonic() - asked_s
                if silent_s > SILENT_S and not go_on:
                    raise Unavailable(f"Kafka at {link.bootstrap} gives no more of {EVENTS}, which has more: ask again")
                continue
            silent_s = 0.0
            if (message.offset() or 0) + 1 >= ends[message.partition() or 0]:
                left.discard(message.partition())
            value = message.value() or b""
            if job is not None and message.key() != key:
                continue
            with suppress(ValueError):
                event = _event(value)
                if job is not None and not said.is_new(event, value):
                    continue
                yield message.timestamp()[1], event
                if job is not None and event["type"] in ENDED_BY:
                    return
    finally:
        reader.close()


def _open(
    link: Link, where: list[TopicPartition], since_ms: int | None, history: bool
) -> tuple[Consumer, list[TopicPartition], dict[int, int]]:
    """A reader of these partitions, where it starts, and where they end now, by partition."""
    reader = link.reader(len(where))
    marks = {each.partition: found for each, found in zip(where, link.marks(reader, where), strict=True)}
    try:
        if history and since_ms is not None:
            asked = [TopicPartition(each.topic, each.partition, max(0, since_ms - MARGIN_MS)) for each in where]
            where = reader.offsets_for_times(asked, timeout=5.0)
            for each in where:
                if each.offset < 0:  # nothing since then: what comes from now on, and not from when the reader gets round to asking
                    each.offset = marks[each.partition][1]
        else:
            for each in where:
                each.offset = marks[each.partition][0 if history else 1]
    except KafkaException as failure:
        reader.close()
        raise Unavailable(f"Kafka at {link.bootstrap} does not answer: {failure.args[0].str()}") from None
    reader.assign(where)
    return reader, where, {partition: end for partition, (_, end) in marks.items()}
