"""What follows a failed attempt is what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.core.faults import FAIL, FAULTS, MOVE, RESTART, fault
from millrace.core.jobgraph.model import Restart
from millrace.core.messages.attempts import FaultKind
from services.job_master.core import failover
from services.job_master.core.state import Job, Subtask
from services.task_manager.slot.attempt import recurring
from services.task_manager.slot.common import jvm
from tests.core.of_job_master import ONE, Shard, kinds


@pytest.mark.parametrize(("kind", "retryable"), FAULTS)
def test_what_follows_is_what_the_table_says(kind: FaultKind, retryable: bool) -> None:
    def after_ms(restart: Restart, subtask: Subtask) -> int | None:
        error = fault(kind, "no", retryable=retryable)
        return failover.decide(restart, Job("j", "1.1", "1", {}, 0), subtask, error, 20, 5000).delay_ms

    after = [after_ms(restart, Subtask()) for restart in (Restart(), Restart(strategy="none"))]
    assert after == {MOVE: [0, 0], RESTART: [1000, None], FAIL: [None, None]}[FAULTS[kind, retryable].then]
    often = after_ms(Restart(), Subtask(moves=20))
    assert often == (1000 if FAULTS[kind, retryable].then is RESTART else None), "who is moved too often is not moved again"


def test_lost_rows_of_the_exchange_are_not_looked_for_on_twenty_other_slots() -> None:
    shard = Shard()
    shard.start(ONE)
    shard.offer("a1")
    lost = {"kind": "infrastructure", "retryable": False, "condition": "EXCHANGE_LOST", "message": "gone"}
    assert kinds(shard.told("a1", "FAILED", error=lost))[-1] == "dispatcher JobEnded FAILED"
    assert shard.job.cause.message == "gone"


class Flaky(ValueError):
    retryable = True


class CutOff(ValueError, OSError):
    """As of a reply that ended in its middle."""


WRONG = [KeyError("x"), ZeroDivisionError(), TypeError(), AttributeError(), UnicodeDecodeError("u", b"", 0, 1, "")]
HEALS = [OSError(), ConnectionError(), TimeoutError(), RuntimeError(), Exception(), MemoryError(), Flaky(), CutOff()]
STATES = [("22018", True), ("22012", True), ("P0001", True), ("KD001", False), ("08000", False), (None, False)]


@pytest.mark.parametrize("raised", WRONG)
def test_an_error_that_says_that_code_or_data_are_wrong_would_come_again(raised: Exception) -> None:
    assert recurring.exception(raised) and recurring.named(type(raised).__name__)


@pytest.mark.parametrize("raised", HEALS)
def test_an_error_that_may_heal_is_tried_again(raised: BaseException) -> None:
    assert not recurring.exception(raised)


def test_who_raises_an_error_says_best_whether_it_heals() -> None:
    error = RuntimeError("no such customer")
    error.retryable = False
    assert recurring.exception(error)
    assert not recurring.named("no.such.Error") and not recurring.named("print")


@pytest.mark.parametrize(("state", "again"), STATES)
def test_an_error_of_spark_goes_by_the_class_of_its_sqlstate(state: str | None, again: bool) -> None:
    class Thrown:
        def getSqlState(self) -> str | None:
            return state

    assert recurring.sqlstate(Thrown()) is again and not recurring.sqlstate(object())


@pytest.mark.parametrize(
    ("status", "outside"), [(9, True), (15, True), (143 << 8, True), (11, False), (6, False), (52 << 8, False), (1 << 8, False), (0, False)]
)
def test_a_jvm_that_somebody_ended_is_no_doing_of_the_job(status: int, outside: bool, tmp_path: Path) -> None:
    assert jvm.ended_from_outside(status, str(tmp_path)) is outside
    Path(jvm.out_of_memory_mark(str(tmp_path))).touch()
    assert not jvm.ended_from_outside(status, str(tmp_path)), "it had run out of memory: who ended it then does not matter"
