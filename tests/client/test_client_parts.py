"""Parts of the client, without a cluster: what would need one that dies, or is asked, in the right instant."""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from pydantic import ValidationError

from millrace.client import (
    Busy,
    Conflict,
    Invalid,
    Millrace,
    OutcomeUnknown,
    Refused,
    Rejected,
    TooLate,
    Unavailable,
    dead_letters,
)
from millrace.client import events as client_events
from millrace.client.blobs import BlobError, Piece
from millrace.client.events import Buffer, Said, _open, follow_buffer, follow_log
from millrace.client.link import Link, PendingReply, wall_ms
from millrace.client.logs import LogReader
from millrace.core.messages.client import (
    BlobServerDescribed,
    JobAcceptedReply,
    JobRejected,
    JobsListed,
    JobStatusAnswered,
    JobSummary,
    Problem,
    RequestRefused,
)
from millrace.core.messages.events import DeadLetter

GRAPH = {"name": "n", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}


class Feed:
    """Those that are subscribed."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []

    def subscribe(self, job: str) -> Buffer:
        self.buffers.append(Buffer())
        return self.buffers[-1]

    def forget(self, job: str, buffer: Buffer) -> None:
        self.buffers.remove(buffer)


def client(ask: Any) -> Any:
    """A client whose requests `ask` answers."""
    made: Any = object.__new__(Millrace)
    made._timeout_s, made._feed, made._blobs, made._token = 10.0, Feed(), None, "t"
    made._link, made.feed = SimpleNamespace(ask=ask), lambda: made._feed
    return made


def answering(status: str) -> Any:
    reply = JobAcceptedReply(correlation="1", job="j", status=status, warnings=[], events_partition=0)
    return client(lambda request, headers=(): SimpleNamespace(result=lambda timeout_s: reply))


@pytest.mark.parametrize(("status", "kept"), [("INITIALIZING", 1), ("RUNNING", 0), ("CANCELED", 0)])
def test_events_that_nobody_will_take_are_not_kept(status: str, kept: int) -> None:
    millrace = answering(status)
    millrace.submit(GRAPH, job="j")
    assert len(millrace._feed.buffers) == kept


@pytest.mark.parametrize(
    ("kind", "error"), [("invalid", Invalid), ("conflict", Conflict), ("late", TooLate), ("busy", Busy), ("internal", Rejected)]
)
def test_a_refusal_is_the_error_of_its_kind(kind: Any, error: type[Rejected]) -> None:
    """A fault of Millrace is not `Busy`: who sent that again when told to would end process after process."""
    reply = JobRejected(correlation="1", job="j", kind=kind, reason="why", problems=[])
    millrace = client(lambda request, headers=(): SimpleNamespace(result=lambda timeout_s: reply))
    millrace._timeout_s, millrace._closed = 0.2, threading.Event()
    with pytest.raises(Rejected) as refused:
        millrace.submit(GRAPH, job="j")
    assert type(refused.value) is error


@pytest.mark.parametrize(("reason", "messages", "said"), [
    ("must be at most 128", ["must be at most 128"], "v: must be at most 128"),
    ("v: must be at most 128", ["must be at most 128"], "v: must be at most 128"),
    ("2 things are wrong", ["one", "two"], "2 things are wrong\nv: one\nv: two"),
    ("it is wrong", ["why"], "it is wrong\nv: why"),
    ("it is wrong", [], "it is wrong"),
])  # fmt: skip
def test_what_is_wrong_is_said_once(reason: str, messages: list[str], said: str) -> None:
    assert str(Rejected(reason, [Problem(place=["v"], message=each) for each in messages])) == said


@pytest.mark.parametrize(
    ("lives", "told", "why"),
    [
        (True, True, "the Dispatcher lives, and has not stored it in time; are etcd and storage there?"),
        (True, False, "the Dispatcher lives, and has not stored it in time; are etcd and storage there?"),
        (False, False, "no answer to DescribeBlobServer"),
    ],
)
def test_who_is_not_answered_hears_whether_the_dispatcher_lives(lives: bool, told: bool, why: str) -> None:
    """Without etcd it lives and can store nothing. All that is over when the time-out is, but for that last question."""
    asked: list[tuple[Any, float]] = []

    def ask(request: Any, headers: object = ()) -> Any:
        def result(timeout_s: float) -> Any:
            asked.append((request, timeout_s))
            if lives and request.type == "DescribeBlobServer":
                return BlobServerDescribed(correlation="2", url="http://b", max_bytes=1)
            if told:
                return RequestRefused(correlation="1", kind="busy", reason="its time is up", silent="etcd")
            raise OutcomeUnknown("no answer to DescribeBlobServer")

        return SimpleNamespace(result=result)

    millrace = client(ask)
    before_ms = wall_ms()
    with pytest.raises(OutcomeUnknown) as unknown:
        millrace.submit(GRAPH, job="j")
    assert str(unknown.value) == f"it is not known whether job j was accepted ({why}); ask: millrace show j"
    (submitted, waited_s), (_, then_s) = asked
    assert 9.0 < waited_s <= 10.0 and then_s <= 1.0
    assert submitted.accept_before_ms - before_ms <= 9_000, "that it is too late can be heard in time"
    assert millrace._feed.buffers == []


def test_what_cannot_be_sent_is_not_watched() -> None:
    def full(request: Any, headers: object = ()) -> Any:
        raise Unavailable("the request cannot be sent")

    millrace = client(full)
    with pytest.raises(Unavailable):
        millrace.submit(GRAPH, job="j")
    assert millrace._feed.buffers == []


def test_logs_are_read_on_where_the_blob_server_moved_to() -> None:
    whole, asked = b"0123456789", []

    class Blobs:
        def __init__(self, dies_after: int) -> None:
            self.left = dies_after

        def get_range(self, path: str, start: int, length: int) -> Piece:
            self.left -= 1
            if self.left < 0:
                raise BlobError("the blob server cannot be reached")
            asked.append(start)
            return Piece(whole[start : start + 4], len(whole))

    millrace: Any = object.__new__(Millrace)
    millrace._blobs, servers = None, [Blobs(2), Blobs(9)]

    def known() -> Any:
        millrace._blobs = millrace._blobs or servers.pop(0)
        return millrace._blobs

    millrace._blob_client = known
    reader = LogReader(lambda: ("RUNNING", None), millrace._call_blobs, every_attempt=True)
    assert b"".join(reader._rest("logs/a")) == whole
    assert asked == [0, 4, 8, 10]


def feed_over(*values: bytes) -> Any:
    """A feed that reads these records of job j, and ends then."""
    made: Any = object.__new__(client_events.Feed)
    left = list(values)

    def poll(_: float) -> Any:
        if not left:
            made._closed.set()
            return None
        value = left.pop(0)
        return SimpleNamespace(error=lambda: None, key=lambda: b"j", value=lambda: value)

    made._buffers, made._changing, made._closed = {}, threading.Lock(), threading.Event()
    made._reader = SimpleNamespace(poll=poll, close=lambda: None)
    return made


def test_what_is_no_event_ends_no_feed() -> None:
    feed = feed_over(b"[]", b"7", b"{}", b"{", b"[" * 100_000, b'{"type": "JobFinished"}')
    buffer = feed.subscribe("j")
    feed._read()
    assert [buffer.get(), buffer.get(), buffer.ended] == [{"type": "JobFinished"}, None, True]


def test_a_record_nested_too_deeply_is_neither_a_letter_nor_a_reply() -> None:
    deep, key = b"[" * 100_000, b"client-1"
    assert dead_letters._body(DeadLetter, deep) is None
    link: Any = object.__new__(Link)
    pending, left = PendingReply(link, "ListJobs", "1"), [deep, b'{"type": "JobsListed", "correlation": "1"}']
    link._key, link._pending, link._closed = key, {"1": pending}, threading.Event()

    def poll(_: float) -> Any:
        if not left:
            link._closed.set()
            return None
        value = left.pop(0)
        return SimpleNamespace(error=lambda: None, key=lambda: key, value=lambda: value)

    link._reader, link._producer = SimpleNamespace(poll=poll, close=lambda: None), SimpleNamespace(poll=lambda _: 0)
    link._read()
    assert pending._reply == {"type": "JobsListed", "correlation": "1"}


@pytest.mark.parametrize(("failing", "error", "message", "sent"), [
    (1, Refused("it is too large"), "^it is too large$", False),
    (1, Unavailable("Kafka took nothing"), "^letter 7 may have been sent again: Kafka took nothing$", False),
    (2, Unavailable("Kafka took nothing"), "^letter 7 was sent again, but that may not be written down: Kafka took nothing$", True),
    (2, Refused("it is too large"), "^letter 7 was sent again, but that may not be written down: it is too large$", True),
])  # fmt: skip
def test_a_letter_that_may_have_been_sent_again_is_not_said_to_be_refused(
    failing: int, error: Exception, message: str, sent: bool
) -> None:
    calls = itertools.count(1)

    def publish(*_: Any, **__: Any) -> int:
        if next(calls) == failing:
            raise error
        return 12

    letters = object.__new__(dead_letters.DeadLetters)
    letters._link = cast(Link, SimpleNamespace(publish=publish))
    told = DeadLetter(topic="client.commands", partition=0, offset=3, reason="busy", size_bytes=1, sha256="", head_base64="eA==", at_ms=1)
    letter = dead_letters.Letter(7, told)
    with pytest.raises(type(error) if failing == 1 and isinstance(error, Refused) else OutcomeUnknown, match=message):
        letters.redrive(letter, dead_letters.Original(b"x", None, (), "there"))
    assert (letter.redriven is not None) == sent


def test_who_subscribes_beside_another_misses_nothing_when_that_one_goes() -> None:
    class Watched(dict):
        def pop(self, *_: Any) -> Any:
            raise AssertionError("the reader finds nobody here now")

    feed = feed_over()
    first, second = feed.subscribe("j"), feed.subscribe("j")
    feed._buffers = Watched(feed._buffers)
    feed.forget("j", first)
    assert feed._buffers == {b"j": (second,)}


def test_events_said_while_a_reader_is_opened_are_not_passed_over() -> None:
    """Where nothing is as young as asked for, Kafka says: from the end; and the library looks for the end when it reads."""
    assigned: list[TopicPartition] = []

    def since(where: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(each.topic, each.partition, (7, OFFSET_END)[each.partition]) for each in where]

    reader = SimpleNamespace(offsets_for_times=since, assign=assigned.extend)
    link: Any = SimpleNamespace(reader=lambda _: reader, marks=lambda reader, where: [(3, 12), (3, 12)])
    _open(link, [TopicPartition("job.events", n) for n in (0, 1)], 1_000_000, True)
    assert [each.offset for each in assigned] == [7, 12]


def test_the_past_of_a_log_that_gives_no_more_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka dies between the question where its log ends and the reading."""
    monkeypatch.setattr(client_events, "SILENT_S", 0.02)
    said = SimpleNamespace(error=lambda: None, offset=lambda: 3, partition=lambda: 0, key=lambda: b"j", value=lambda: b'{"type": "x"}')
    said.timestamp = lambda: (2, 5)
    left, polls = [said], itertools.count()

    def poll(_: float) -> Any:
        assert next(polls) < 100, "it waits for ever: each sleeps a millisecond at least, so 20 are enough"
        time.sleep(0.001)
        return left.pop() if left else None

    reader = SimpleNamespace(poll=poll, assign=lambda where: None, close=lambda: None)
    link: Any = SimpleNamespace(bootstrap="k:1", event_partitions=1, reader=lambda _: reader, marks=lambda reader, where: [(3, 12)])
    events = follow_log(link, None, None, threading.Event(), True, False)
    assert next(events) == {"type": "x"}
    with pytest.raises(Unavailable, match=r"^Kafka at k:1 gives no more of job.events, which has more: ask again$"):
        next(events)


def test_the_past_of_all_jobs_comes_by_the_brokers_time() -> None:
    """It is not held in memory to be sorted: each partition is read as far as it is needed. What strangers say of times counts nothing."""
    logs = [[10, 40, 50], [20, 25, 45]]
    wrong = [1 << 60, "y", None]
    values = [[json.dumps({"type": "x", "at_ms": at, "n": n}).encode() for at, n in zip(wrong, log, strict=True)] for log in logs]
    polled = [0, 0]

    def reader(partitions: int) -> Any:
        assert partitions == 1
        here: list[int] = []

        def poll(_: float) -> Any:
            [number] = here
            offset, polled[number] = polled[number], polled[number] + 1
            said = {
                "error": None, "offset": offset, "partition": number, "key": b"j", "value": values[number][offset],
                "timestamp": (2, logs[number][offset]),
            }  # fmt: skip
            return SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})

        return SimpleNamespace(poll=poll, assign=lambda where: here.append(where[0].partition), close=lambda: polled.append(-1))

    link: Any = SimpleNamespace(
        bootstrap="k:1", event_partitions=2, reader=reader, marks=lambda _, where: [(0, len(logs[each.partition])) for each in where]
    )
    stop = threading.Event()
    events = follow_log(link, None, None, stop, True, False)
    assert next(events)["n"] == 10
    assert polled == [1, 1], "one of each is held"
    assert [event["n"] for event in itertools.islice(events, 4)] == [20, 25, 40, 45]
    stop.set()
    assert list(events) == []
    assert polled == [3, 3, -1, -1], "both are closed"


def test_who_follows_a_job_for_long_holds_the_latest_of_its_progress_alone() -> None:
    said = Said()
    progress = [b'{"type": "AttemptsProgressing", "n": %d}' % n for n in range(1000)]
    for value in progress:
        assert said.is_new(json.loads(value), value)
    assert [said.is_new(json.loads(value), value) for value in (progress[-1], progress[0])] == [False, True]
    fact = b'{"type": "JobStateChanged"}'
    assert said.is_new(json.loads(fact), fact)
    assert all(said.is_new(json.loads(value), value) for value in progress[1:500])
    assert not said.is_new(json.loads(fact), fact), "a fact is known for ever"
    assert len(said._progress) == 100


@pytest.mark.parametrize("kept", [[], [b'{"type": "JobAccepted"}']])
def test_who_follows_a_job_whose_end_is_not_kept_any_more_is_not_left_waiting(kept: list[bytes]) -> None:
    """Its id is known for longer than its events are kept: no end comes then."""
    standing = JobSummary(job="j", name="n", status="FINISHED", accepted_ms=wall_ms() - 70_000, ended_ms=wall_ms() - 61_000)
    millrace = client(lambda request: SimpleNamespace(result=lambda _: JobStatusAnswered(correlation="1", summary=standing)))
    left, polls = [
        SimpleNamespace(error=lambda: None, offset=lambda: 11, partition=lambda: 0, key=lambda: b"j", value=lambda value=value: value,
                        timestamp=lambda: (2, 5))
        for value in kept
    ], itertools.count()

    def poll(_: float) -> Any:
        assert next(polls) < 10, "it waits for what never comes"
        return left.pop() if left else None

    since = [TopicPartition("job.events", 0, 12 - len(kept) if kept else OFFSET_END)]
    reader = SimpleNamespace(poll=poll, assign=lambda where: None, close=lambda: None, offsets_for_times=lambda where, timeout: since)
    millrace._link.event_partitions, millrace._link.reader, millrace._closed = 1, lambda _: reader, threading.Event()
    millrace._link.marks = lambda reader, where: [(3, 12)]
    assert [event["type"] for event in millrace.follow("j")] == ["JobAccepted"] * len(kept)


def test_an_answer_of_a_later_build_may_say_more() -> None:
    """Also inside of what it holds; what it must say, and of what kind, stays."""
    pending = PendingReply(cast(Link, SimpleNamespace(forget=lambda correlation: None)), "ListJobs", "1")
    summary = {"job": "j", "name": "n", "status": "RUNNING", "accepted_ms": 1, "colour": "blue"}
    said = {"type": "JobsListed", "version": 1, "correlation": "1", "jobs": [summary], "total": 1, "further": {"a": 1}}
    pending.settle(said)
    listed = pending.result(1)
    assert isinstance(listed, JobsListed)
    assert (listed.jobs[0].job, listed.total) == ("j", 1)
    pending.settle({**said, "total": "1"})
    with pytest.raises(ValidationError):
        pending.result(1)


def test_the_end_of_a_feed_is_seen_behind_as_many_events_as_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_events, "BUFFERED_MOST", 2)
    buffer = Buffer()
    for n in range(2):
        buffer.put(b'{"type": "JobWaiting", "count": %d}' % n)
    buffer.close()
    assert [each and each["count"] for each in (buffer.get(), buffer.get(), buffer.get())] == [0, 1, None]


def test_who_took_all_events_in_the_instant_of_a_loss_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_events, "BUFFERED_MOST", 1)
    buffer, taken = Buffer(), list[Any]()
    kept = buffer._queue
    thread = threading.Thread(target=lambda: taken.extend(follow_buffer(buffer)), daemon=True)

    def count_and_lose_the_turn() -> int:
        counted = kept.qsize()
        thread.start()
        while kept.qsize():
            time.sleep(0.001)
        return counted

    buffer.put(b'{"type": "JobWaiting"}')
    buffer._queue = cast(Any, SimpleNamespace(get=kept.get, put=kept.put, qsize=count_and_lose_the_turn))
    buffer.put(b'{"type": "JobCancelling"}')
    thread.join(60)
    assert (thread.is_alive(), taken, buffer.lost) == (False, [{"type": "JobWaiting"}], True)


def test_ctrl_c_while_an_event_is_taken_leaves_nothing_locked() -> None:
    """At every step of `get`: behind it, an end of the feed comes through."""
    for step in itertools.count(1):
        buffer, steps = Buffer(), itertools.count(1)
        buffer.put(b'{"type": "JobWaiting"}')

        def trace(*_: object, steps: Iterator[int] = steps, step: int = step) -> Any:
            if next(steps) == step:
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        try:
            sys.settrace(trace)
            buffer.get()
            interrupted = False
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(before)
        closing = threading.Thread(target=buffer.close, daemon=True)
        closing.start()
        closing.join(60)
        assert not closing.is_alive(), step
        if not interrupted:
            assert step > 3
            return
