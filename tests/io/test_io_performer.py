"""What effects of one type do to each other: nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import pytest

from millrace.core.messages.base import Body
from millrace.core.messages.effects import PublishSink, SinkPublished
from millrace.core.replica import Perform
from millrace.io.interfaces import Compare, Put, Txn, Unavailable
from millrace.runtime import metrics
from millrace.runtime.performer import BATCH_MOST, Fence, PerEffect, Performer, Port, Refused
from services.job_master import ports as job_master
from tests.io.of_metrics import value_of
from tests.simulation import Clock
from tests.simulation.store import MemoryEtcd, MemoryStore

LIMIT_S = 60.0


class Performed:
    """A performer of one port, and what it tells."""

    def __init__(self, effect: type[Body], port: Port) -> None:
        self.outcomes: SimpleQueue[Body] = SimpleQueue()
        self.epoch = 1
        self._type = effect.model_fields["type"].default
        self._performer = Performer(
            "job-master/0", {effect: port}, lambda _, outcome: self.outcomes.put(outcome), lambda epoch: epoch == self.epoch, pytest.fail
        )

    def perform(self, effect: Body, epoch: int = 1) -> None:
        self._performer.perform(Perform(epoch, "e", "k", effect.model_dump_json()), self._type)

    def close(self) -> None:
        self._performer.stop(0.0)


@pytest.fixture
def ended() -> Iterator[list[Performed]]:
    performed: list[Performed] = []
    yield performed
    for each in performed:
        each.close()


def sink(job: str, path: str = "/out") -> PublishSink:
    return PublishSink(job=job, vertex="out", path=path, mode="append", staged=["/s"], name=job, life="1")


def test_as_many_as_fit_into_a_batch_fail_for_ever_and_another_is_performed(ended: list[Performed]) -> None:
    def perform(effect: PublishSink, fence: Fence) -> SinkPublished:
        if effect.job.startswith("full"):
            raise Unavailable("the disk is full")
        return SinkPublished(job=effect.job, vertex=effect.vertex)

    for port in (PerEffect(perform), PerEffect(perform, 2), lambda effects, fence: PerEffect(perform)(effects, fence)):
        performed = Performed(PublishSink, port)
        ended.append(performed)
        for number in range(BATCH_MOST + 1):
            performed.perform(sink(f"full-{number}"))
        performed.perform(sink("fits"))
        assert performed.outcomes.get(timeout=LIMIT_S).job == "fits"


def test_those_that_hang_hold_up_no_other_and_wait_for_their_path_in_turn(
    ended: list[Performed], monkeypatch: pytest.MonkeyPatch
) -> None:
    heals, under_way, most = threading.Event(), 0, 0

    def publish(effect: PublishSink, hold: Callable[[], None], last: bool) -> SinkPublished:
        nonlocal under_way, most
        if effect.path.endswith("/hangs"):
            under_way += 1
            most = max(most, under_way)
            heals.wait(LIMIT_S)
            under_way -= 1
        return SinkPublished(job=effect.job, vertex=effect.vertex)

    monkeypatch.setattr(job_master, "publish_sink", publish)
    monkeypatch.setattr(job_master.OneByPath, "PATIENCE_S", 0.01)
    performed = Performed(PublishSink, job_master.ports(MemoryStore(MemoryEtcd(Clock()), "/test/"))[PublishSink])
    ended.append(performed)
    hanging = {f"hangs-{number}" for number in range(job_master.AT_ONCE + 1)}
    for job, path in zip(sorted(hanging), itertools.cycle(["/hangs", "file:///hangs"]), strict=False):
        performed.perform(sink(job, path))
    performed.perform(sink("well"))
    assert performed.outcomes.get(timeout=LIMIT_S).job == "well"
    heals.set()
    assert {performed.outcomes.get(timeout=LIMIT_S).job for _ in hanging} == hanging
    assert most == 1


def test_what_a_term_that_is_over_asked_for_is_not_performed(ended: list[Performed]) -> None:
    seen: list[str] = []

    def perform(effect: PublishSink, fence: Fence) -> SinkPublished:
        seen.append(effect.job)
        if effect.job == "first":
            performed.epoch = 2
            raise Unavailable("and the term ends")
        return SinkPublished(job=effect.job, vertex=effect.vertex)

    performed = Performed(PublishSink, PerEffect(perform))
    ended.append(performed)
    performed.perform(sink("first"))
    performed.perform(sink("second"))
    performed.perform(sink("second, of the next"), epoch=2)
    assert performed.outcomes.get(timeout=LIMIT_S).job == "second, of the next"
    assert seen == ["first", "second, of the next"]


def test_a_failure_of_any_kind_is_tried_again(ended: list[Performed]) -> None:
    failures: list[Exception] = [OSError("a disk"), KeyError("a bug"), Unavailable("away")]

    def perform(effect: PublishSink, fence: Fence) -> SinkPublished:
        if failures:
            raise failures.pop()
        return SinkPublished(job=effect.job, vertex=effect.vertex)

    performed = Performed(PublishSink, PerEffect(perform))
    ended.append(performed)
    performed.perform(sink("once"))
    assert performed.outcomes.get(timeout=LIMIT_S).job == "once"
    assert failures == []


def test_effects_are_counted_with_how_long_they_took_and_what_fencing_refused(ended: list[Performed]) -> None:
    def perform(effect: PublishSink, fence: Fence) -> SinkPublished | None:
        if effect.job == "late":
            raise Refused
        tries.append(effect.job)
        return SinkPublished(job=effect.job, vertex=effect.vertex) if len(tries) > 2 else None

    def now() -> list[float]:
        took = value_of(metrics.EFFECT_SECONDS, "PublishSink", suffix="_count")
        return [took, value_of(metrics.EFFECT_RETRIES, "PublishSink"), value_of(metrics.FENCED, "job-master/0")]

    tries: list[str] = []
    performed = Performed(PublishSink, PerEffect(perform))
    ended.append(performed)
    before = now()
    performed.perform(sink("late"))
    performed.perform(sink("again"))
    assert performed.outcomes.get(timeout=LIMIT_S) == SinkPublished(job="again", vertex="out")
    assert [after - was for was, after in zip(before, now(), strict=True)] == [1, 2, 1]


def test_a_batch_of_effects_fits_into_a_transaction_of_etcd() -> None:  # [R19]
    keys = [f"jobs/{number}" for number in range(BATCH_MOST)]
    Txn([Compare("leaders/dispatcher", 1), *(Compare(key, 0) for key in keys)], [Put(key, b"") for key in keys], keys)
    for compares, writes, reads in ((129, 0, 0), (0, 129, 0), (0, 100, 29)):
        with pytest.raises(AssertionError, match="etcd takes 128 operations in a transaction, and this has 129"):
            Txn([Compare("a", 1)] * compares, [Put("a", b"")] * writes, ["a"] * reads)
