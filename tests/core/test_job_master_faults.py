"""What follows a failed attempt is what the table says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from millrace.core.clocks import NowMs
from millrace.core.faults import (
    ANALYSIS,
    CLASSES,
    FAIL,
    FAULTS,
    INFRASTRUCTURE,
    LOST,
    MEMORY,
    MOVE,
    RESTART,
    STORAGE,
    USER,
    class_of,
    fault,
    infrastructure,
)
from millrace.core.jobgraph.model import Restart
from millrace.core.machine import Ticked
from millrace.core.messages.attempts import Fault, FaultKind
from services.job_master.core import failover
from services.job_master.core.restarts import Decision
from services.job_master.core.state import Job, Subtask
from services.task_manager.slot.attempt import main, recurring
from services.task_manager.slot.common import jvm
from services.task_manager.slot.common.config import Dirs
from services.task_manager.slot.common.faults import not_ready
from tests.core.of_job_master import ONE, Shard, kinds


@pytest.mark.parametrize(("kind", "retryable"), FAULTS)
def test_what_follows_is_what_the_table_says(kind: FaultKind, retryable: bool) -> None:
    def after_ms(restart: Restart, subtask: Subtask) -> int | None:
        error = fault(kind, "no", retryable=retryable)
        return failover.decide(restart, Job("j", "1.1", "1", {}, 0), subtask, error, 20, NowMs(5000)).delay_ms

    after = [after_ms(restart, Subtask()) for restart in (Restart(), Restart(strategy="none"))]
    assert after == {MOVE: [0, 0], RESTART: [1000, None], FAIL: [None, None]}[FAULTS[kind, retryable].then]
    often = after_ms(Restart(), Subtask(moves=20, broken=20))
    assert often == (1000 if FAULTS[kind, retryable].then is RESTART else None), "who is moved too often is not moved again"


FAILED = {
    LOST: fault("lost", "gone", retryable=True),
    INFRASTRUCTURE: infrastructure("the slot broke"),
    STORAGE: fault("infrastructure", "[Errno 28] No space left on device", retryable=True, condition="NOT_WRITABLE"),
    MEMORY: fault("jvm", "no heap", retryable=True, condition="OUT_OF_MEMORY"),
    USER: fault("user", "boom", retryable=True),
    ANALYSIS: fault("analysis", "no such column"),
}


@pytest.mark.parametrize("kind", FAILED)
def test_each_class_of_fault_has_a_budget_of_its_own(kind: str) -> None:
    assert list(FAILED) == list(CLASSES) and class_of(FAILED[kind]) == kind
    job, subtask = Job("j", "1.1", "1", {}, 0), Subtask()
    restart = Restart(attempts=1, delay_ms=700, out_of_memory_attempts=1)

    def follows(error: Fault) -> Decision:
        return failover.decide(restart, job, subtask, error, 1, NowMs(5000))

    for _ in range(30):  # its own budget is used
        follows(FAILED[kind])
    waits = (100, "storage: it waits until it can be written")
    left = {
        STORAGE: waits,
        LOST: (0, "lost executor: move 1 of 1"),
        INFRASTRUCTURE: (0, "infrastructure: move 1 of 1"),
        MEMORY: (700, "out of memory: restart 1 of 1"),
        USER: (700, "fixed-delay: restart 1 of 1"),
        ANALYSIS: (None, "analysis: it would fail again"),
    }
    used = {
        STORAGE: waits,
        LOST: (None, "lost executor: 1 of 1 moves used"),
        INFRASTRUCTURE: (None, "infrastructure: 1 of 1 moves used"),
        MEMORY: (None, "out of memory: 1 of 1 restarts used"),
        USER: (None, "fixed-delay: 1 of 1 restarts used"),
        ANALYSIS: (None, "analysis: it would fail again"),
    }
    assert {each: follows(error) for each, error in FAILED.items()} == {**left, kind: used[kind]}


@pytest.mark.parametrize("error", [
    fault("jvm", "no heap", retryable=True, condition="OUT_OF_MEMORY"),
    fault("user", "no memory", retryable=True, condition="MemoryError"),
    fault("killed", "ended by SIGKILL", retryable=True, condition="SIGKILL"),
])  # fmt: skip
def test_out_of_memory_is_told_by_its_condition(error: Fault) -> None:
    assert class_of(error) is MEMORY
    job = Job("j", "1.1", "1", {}, 0)
    none = failover.decide(Restart(strategy="none"), job, Subtask(), error, 20, NowMs(0))
    assert none == (None, "out of memory: 0 of 0 restarts used"), "a script alone is not run again"
    first = failover.decide(Restart(strategy="exponential-delay", initial_backoff_ms=70), job, Subtask(), error, 20, NowMs(0))
    assert first == (70, "out of memory: restart 1 of 3") and job.backoff is None


def test_what_a_build_to_come_calls_otherwise_goes_by_whether_it_may_heal() -> None:
    assert class_of(Fault(kind="quota", retryable=True)) is USER and class_of(Fault(kind="quota")) is ANALYSIS


def test_lost_rows_of_the_exchange_are_not_looked_for_on_twenty_other_slots() -> None:
    shard = Shard()
    shard.start(ONE)
    shard.offer("a1")
    lost = {"kind": "infrastructure", "retryable": False, "condition": "EXCHANGE_LOST", "message": "gone"}
    assert kinds(shard.told("a1", "FAILED", error=lost))[-1] == "dispatcher JobEnded FAILED"
    assert shard.job.cause.message == "gone"


@pytest.mark.parametrize(("number", "kind"), [
    (errno.ENOSPC, STORAGE), (errno.EROFS, STORAGE), (errno.EACCES, STORAGE), (errno.EDQUOT, STORAGE),
    (errno.ENOTCONN, STORAGE),
    (errno.ENOTDIR, INFRASTRUCTURE), (errno.ENAMETOOLONG, ANALYSIS),
])  # fmt: skip
def test_folders_that_cannot_be_made_are_of_storage_if_any_other_slot_could_make_them_no_better(number: int, kind: str) -> None:
    assert class_of(Fault.model_validate(not_ready(OSError(number, os.strerror(number), "/s/logs/a")))) is kind


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_seen_though_it_has_room_for_folders(tmp_path: Path) -> None:
    dirs = Dirs(work=str(tmp_path / "work"), log=str(tmp_path / "log"), blobs="", findings="")
    main._make_folders(dirs)
    assert list((tmp_path / "log").iterdir()) == []
    (tmp_path / "log" / main.ROOM).symlink_to("/dev/full")
    with pytest.raises(OSError) as full:
        main._make_folders(dirs)
    assert not_ready(full.value)["condition"] == "NOT_WRITABLE" and str(tmp_path / "log") in not_ready(full.value)["message"]
    assert list((tmp_path / "log").iterdir()) == []


def test_an_attempt_begins_only_where_the_storage_is(tmp_path: Path) -> None:
    """Below the place of a missing mount it computed in vain, and its logs were seen by nobody later."""
    mark = tmp_path / "storage/owner.json"
    dirs = Dirs(work=str(tmp_path / "work"), log=str(tmp_path / "storage/logs/a"), blobs="", findings="", mark=str(mark))
    refused = main._begin(dirs)
    assert refused is not None and class_of(Fault.model_validate(refused)) is STORAGE
    assert refused["message"] == f"{mark.parent}: is not there: it has no owner.json, which its cluster wrote; mount it, or restore it"
    assert list(tmp_path.iterdir()) == []
    mark.parent.mkdir()
    mark.write_text("{}")
    assert main._begin(dirs) is None and Path(dirs.log).is_dir()


ANYHOW: list[dict[str, Any]] = [{}, {"restart": {"strategy": "none", "scope": "full"}}, {"together": True}]


@pytest.mark.parametrize("asked", ANYHOW, ids=str)
@pytest.mark.parametrize(("condition", "cannot_be"), [("NOT_WRITABLE", "written"), ("NOT_READABLE", "read")])
def test_a_job_waits_for_its_storage_as_long_as_it_takes_and_says_so(condition: str, cannot_be: str, asked: dict[str, Any]) -> None:
    shard = Shard()
    shard.start(ONE | {"restart": {"strategy": "none"}} | asked)
    away = {"kind": "infrastructure", "retryable": True, "condition": condition, "message": "so says the system"}
    for number in range(40):
        shard.offer(f"a{number}")
        said = shard.told(f"a{number}", "FAILED", error=away)
        noted = [output.body for output in said if kinds([output]) == ["dispatcher JobStatusChanged RESTARTING"]]
        assert [each.waiting for each in noted] == [f"storage cannot be {cannot_be}: so says the system"]
        published = [output.body.reason for output in said if kinds([output]) == ["event JobWaiting"]]
        assert published == [each.waiting for each in noted], "it is in the job's story"
        [*_, last] = shard.job.failures
        assert last.error.decided is not None and last.error.decided.why == f"storage: it waits until it can be {cannot_be}"
        shard.now += 10_000 if number else 100  # at once on another slot, whose host may have what this one lacks
        shard(Ticked(), "")
        assert shard.job.status == "RUNNING" and shard.job.waiting is None
    shard.offer("b")
    shard.told("b", "RUNNING")
    assert kinds(shard.told("b", "FINISHED"))[-1] == "dispatcher JobEnded FINISHED"


def test_a_job_says_that_it_waits_for_its_storage_when_its_last_subtask_does() -> None:
    """It was RESTARTING already, so the Dispatcher was not told."""
    shard = Shard()
    shard.start({"name": "two", "vertices": {"a": {"sql": "SELECT 1"}, "b": {"sql": "SELECT 2"}}, "result": "b"})
    full = {"kind": "infrastructure", "retryable": True, "condition": "NOT_WRITABLE", "message": "No space left on device"}
    shard.offer("a1")
    shard.offer("a2")
    shard.now += 100
    first = shard.told("a1", "FAILED", error=full)
    assert kinds(first)[-2:] == ["dispatcher JobStatusChanged RESTARTING", "event JobStateChanged RESTARTING"]
    second = shard.told("a2", "FAILED", error=full)
    assert kinds(second)[-2:] == ["dispatcher JobStatusChanged RESTARTING", "event JobWaiting"]
    assert second[-1].body.reason == shard.job.waiting == "storage cannot be written: No space left on device"


def test_a_job_that_failed_otherwise_meanwhile_waits_for_no_storage() -> None:
    shard = Shard()
    shard.start(ONE)
    shard.offer("a1")
    full = {"kind": "infrastructure", "retryable": True, "condition": "NOT_WRITABLE", "message": "No space left on device"}
    shard.told("a1", "FAILED", error=full)
    assert "No space left on device" in shard.job.waiting
    shard.now += 100
    shard(Ticked(), "")
    shard.offer("a2")
    shard.told("a2", "FAILED", error={"kind": "user", "retryable": True, "message": "boom"})
    assert (shard.job.status, shard.job.waiting) == ("RESTARTING", None)


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
