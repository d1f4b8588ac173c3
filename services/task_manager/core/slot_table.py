"""The slots: what happens to each, by command, by its own events, by time. Every change of a slot is made here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from millrace.core.bounded import batches
from millrace.core.clocks import NowMs, after
from millrace.core.faults import fault, infrastructure
from millrace.core.fold import TICK_MS
from millrace.core.machine import Do, Output, Say
from millrace.core.messages.attempts import AttemptReport, Fault
from millrace.core.messages.effects import KillAttempt, LaunchAttempt
from millrace.core.messages.profiles import parts_of
from millrace.core.messages.records import encode
from millrace.core.messages.slots import (
    WARM_MOST,
    AttemptEnded,
    DeployTask,
    FailSlot,
    OfferedAttempt,
    OfferSlots,
    ReportedSlot,
    SlotAllocation,
    SlotFreed,
    SlotOffer,
    SlotReport,
    SlotUnused,
    TaskStateChanged,
)
from millrace.core.states import ENDED_ATTEMPT, AttemptState, SlotState, check_attempt, check_slot
from millrace.core.topics import RESOURCE_MANAGER, Scope, shard_scope

from .state import Attempt, Slot, State

OFFER_BYTES_MAX = 500_000
BROKEN_MAX = 300  # characters of why a slot is broken: a report may tell of a thousand slots


# commands


def allocate(state: State, job: str, shard: int, given: Sequence[SlotAllocation], now_ms: NowMs) -> Iterator[Output]:
    """Gives slots to a job and offers them to its JobMaster, all in one message. One that cannot be given goes back as what it is."""
    offers: list[SlotOffer] = []
    for each in given:
        slot = state.slots.get(each.slot)
        if slot is None or slot.state is SlotState.BROKEN or state.stop_due_ms is not None:
            # While this process stops, its slots are as good as broken: one that looked free would be given away again at once.
            yield _freed(each.slot, each.allocation, SlotState.BROKEN)
        elif slot.allocation is not None:
            yield _freed(each.slot, each.allocation, SlotState.STARTING)
            yield Say(RESOURCE_MANAGER, SlotReport(states=[reported(each.slot, slot)]))
        else:
            _move(state, slot, SlotState.ALLOCATED)
            slot.allocation, slot.job, slot.shard = each.allocation, job, shard
            slot.due_ms = after(now_ms, state.allocation_timeout_ms)
            offers.append(_offer(each.slot, slot))
    if offers:
        yield Say(shard_scope(shard), OfferSlots(offers=offers))


def deploy(state: State, sender: Scope, task: DeployTask, now_ms: NowMs) -> Iterator[Output]:
    """Runs an attempt in the slot of its allocation, at once or when it can be launched; one that cannot run fails."""
    number, slot = _of_allocation(state, task.allocation)
    if slot is None or slot.state is SlotState.RELEASING:
        error = infrastructure("its slot is no longer the job's")
    elif slot.state is SlotState.ACTIVE:
        assert slot.attempt is not None
        if slot.attempt.id == task.attempt:
            return
        error = infrastructure(f"its slot is busy with {slot.attempt.id}")
    elif state.stop_due_ms is not None:
        return  # the ResourceManager tells the shard that this TaskManager is gone
    else:
        _move(state, slot, SlotState.ACTIVE)
        slot.due_ms = None
        slot.attempt = Attempt(
            task.attempt,
            task.acceptance,
            task.folder or f"{task.acceptance}/{task.attempt}",
            spec=task.spec,
            run_timeout_ms=task.run_timeout_ms,
            due_ms=None if task.start_timeout_ms is None else after(now_ms, task.start_timeout_ms),
        )
        yield from _launch_if_ready(state, number, slot)
        return
    yield Say(sender, TaskStateChanged(
        allocation=task.allocation, attempt=task.attempt, state="FAILED", error=error
    ))  # fmt: skip


def cancel(state: State, sender: Scope, attempt: str, reason: str, within_ms: int) -> Iterator[Output]:
    """Kills an attempt, after it was asked to end where it is given time; it ends CANCELED unless it has ended before. One that is not
    known is over."""
    for number, slot in state.slots.items():
        if slot.attempt is not None and slot.attempt.id == attempt:
            yield from _kill(state, number, slot, AttemptState.CANCELED, fault("killed", reason), within_ms)
            return
    yield Say(sender, TaskStateChanged(allocation="", attempt=attempt, state="CANCELED"))


def free(state: State, allocation: str, why: str) -> Iterator[Output]:
    """Gives a slot back: what runs in it is killed, and nobody is told how that ends. An unknown allocation is freed already."""
    number, slot = _of_allocation(state, allocation)
    if slot is None or slot.state is SlotState.RELEASING:
        return
    attempt = slot.attempt
    slot.due_ms = None
    if slot.ready:
        slot.attempt = None
        yield from _release(state, number, slot, SlotState.FREE)
        return
    _move(state, slot, SlotState.RELEASING)
    if attempt is not None and attempt.state in (AttemptState.LAUNCHED, AttemptState.RUNNING):
        attempt.due_ms = None
        if attempt.kill is None or attempt.asked:
            attempt.kill, attempt.asked = AttemptState.CANCELED, False
            yield Do(f"kill/{number}", KillAttempt(slot=number, attempt=attempt.id, why=why))
    else:
        slot.attempt = None


def free_unused(state: State, allocation: str) -> Iterator[Output]:  # [R31]
    """Its JobMaster is away for longer than anybody waits: the slot is given back, if nothing lives in it. What an attempt has reported is
    in that one's log. Whoever is back learns that the slot is gone."""
    _, slot = _of_allocation(state, allocation)
    if slot is not None and slot.state is SlotState.ALLOCATED:
        assert slot.job is not None
        reason = "its JobMaster was silent for too long"
        yield Say(shard_scope(slot.shard), FailSlot(allocation=allocation, job=slot.job, reason=reason))
        yield from free(state, allocation, reason)


def give_up_waiting(state: State, shard: int) -> None:  # [R28]
    """A new life of a shard is heard. It may not have the deployments of its earlier life, because they were lost with the end of its log,
    and the job may have ended elsewhere since. So those that are not launched yet fail; the offer to the new life reports them."""
    for slot in state.slots.values():
        attempt = slot.attempt
        if slot.shard == shard and attempt is not None and attempt.state is AttemptState.WAITING:
            _free_from_attempt(state, slot, attempt, AttemptState.FAILED)
            attempt.error = infrastructure("its JobMaster was born anew before it was launched")


def launch_waiting(state: State) -> Iterator[Output]:
    """What waited until the inbox was read."""
    for number, slot in state.slots.items():
        yield from _launch_if_ready(state, number, slot)


# the slot's own events


def ready(state: State, number: int) -> Iterator[Output]:
    """The JVM takes an attempt. While one is launched it means that this one goes next."""
    slot = state.slots[number]
    attempt = slot.attempt
    if attempt is not None and attempt.state in (AttemptState.LAUNCHED, AttemptState.RUNNING):
        return
    slot.ready = True
    if slot.state in (SlotState.STARTING, SlotState.BROKEN):
        _move(state, slot, SlotState.FREE)
        yield Say(RESOURCE_MANAGER, SlotReport(states=[reported(number, slot)]))
    elif slot.state is SlotState.RELEASING:
        yield from _release(state, number, slot, SlotState.FREE)
    elif slot.state is SlotState.ACTIVE:
        yield from _launch_if_ready(state, number, slot)


def replacing(state: State, number: int) -> Iterator[Output]:
    """The JVM is being replaced. An attempt in it ends by an event of its own."""
    slot = state.slots[number]
    slot.ready, slot.warm = False, 0
    if slot.state is SlotState.FREE:
        _move(state, slot, SlotState.STARTING)
        yield Say(RESOURCE_MANAGER, SlotReport(states=[reported(number, slot)]))


def broken(state: State, number: int, reason: str) -> Iterator[Output]:
    """The slot cannot be started: its allocation is gone."""
    slot = state.slots[number]
    slot.ready, slot.warm, slot.broken = False, 0, reason[:BROKEN_MAX]
    if slot.allocation is None:
        if slot.state is not SlotState.BROKEN:
            _move(state, slot, SlotState.BROKEN)
            yield Say(RESOURCE_MANAGER, SlotReport(states=[reported(number, slot)]))
        return
    notifies = slot.state is not SlotState.RELEASING
    if slot.attempt is not None and slot.attempt.state not in ENDED_ATTEMPT:
        yield from _end(state, slot, AttemptState.FAILED, None, infrastructure(f"the slot broke: {reason}"))
    if notifies:
        assert slot.job is not None and slot.allocation is not None
        yield Say(shard_scope(slot.shard), FailSlot(allocation=slot.allocation, job=slot.job, reason=reason))
    slot.attempt = None
    yield from _release(state, number, slot, SlotState.BROKEN)


def running(state: State, number: int, attempt_id: str, now_ms: NowMs) -> Iterator[Output]:
    slot = state.slots[number]
    attempt = slot.attempt
    if attempt is None or attempt.id != attempt_id or attempt.state is not AttemptState.LAUNCHED:
        return
    _step(attempt, AttemptState.RUNNING)
    if attempt.kill is None:
        # Machine time stands at the last tick: a tick more, so that no attempt is killed before its time.
        attempt.due_ms = None if attempt.run_timeout_ms is None else after(now_ms, TICK_MS + attempt.run_timeout_ms)
        yield _task_state_changed(slot, attempt)


def ended(state: State, fact: AttemptEnded) -> Iterator[Output]:
    """Nothing of the attempt lives any more. What it ended by itself counts before what it was to be killed for."""
    slot = state.slots[fact.slot]
    attempt = slot.attempt
    if attempt is None or attempt.id != fact.attempt or attempt.state not in (
        AttemptState.LAUNCHED, AttemptState.RUNNING
    ):  # fmt: skip
        return
    slot.warm = min(slot.warm + 1, WARM_MOST) if fact.status == "finished" else 0
    if fact.status == "finished":
        yield from _end(state, slot, AttemptState.FINISHED, fact.report, None)
    elif attempt.kill is not None:
        yield from _end(state, slot, attempt.kill, None, attempt.error or fact.error)
    else:
        error = fact.error or infrastructure("the attempt ended without a reason")
        yield from _end(state, slot, AttemptState.FAILED, None, error)


# time, and the end


def overdue(state: State, now_ms: NowMs) -> Iterator[Output]:  # [R31]
    """What is due: allocations that nobody uses, attempts that take too long to start or to run."""
    for number, slot in state.slots.items():
        if slot.due_ms is not None and slot.due_ms <= now_ms:
            assert slot.allocation is not None and slot.job is not None
            reason = f"no task was deployed on it for {state.allocation_timeout_ms} ms"
            yield Say(shard_scope(slot.shard), FailSlot(allocation=slot.allocation, job=slot.job, reason=reason))
            yield Say(RESOURCE_MANAGER, SlotUnused(slot=number, allocation=slot.allocation))
            yield from free(state, slot.allocation, reason)
        attempt = slot.attempt
        if attempt is not None and attempt.due_ms is not None and attempt.due_ms <= now_ms:
            if attempt.state is not AttemptState.RUNNING:
                message = "the attempt did not start within its time-out (timeouts.start_ms)"
            else:
                message = f"the attempt ran longer than {attempt.run_timeout_ms} ms (timeouts.run_ms)"
            yield from _kill(state, number, slot, AttemptState.FAILED, fault("timeout", message, retryable=True))


def kill_all(state: State, why: str) -> Iterator[Output]:
    """Ends every attempt; none is told of, but one that finishes before it is killed."""
    for number, slot in state.slots.items():
        if slot.attempt is not None and slot.attempt.state not in ENDED_ATTEMPT:
            yield from _kill(state, number, slot, AttemptState.FAILED, infrastructure(why))


def living(state: State) -> bool:
    """Whether an attempt runs, or may run."""
    return any(slot.attempt is not None and slot.attempt.state not in ENDED_ATTEMPT for slot in state.slots.values())


def any_allocated(state: State) -> bool:
    """Whether somebody holds a slot."""
    return any(slot.allocation is not None for slot in state.slots.values())


# what is reported of slots


def reported(number: int, slot: Slot) -> ReportedSlot:
    """As the ResourceManager counts it. A slot that was given back is its job's while an attempt lives in it. A JobMaster that lost its log
    gives back what it does not know, and wants a slot for the same subtask. It must not get one before that attempt has ended."""
    lives = slot.state is SlotState.RELEASING and slot.attempt is not None
    state = SlotState.ACTIVE if lives else slot.state
    why = slot.broken if state is SlotState.BROKEN else None
    return ReportedSlot(
        slot=number,
        state=state.value,  # type: ignore[arg-type]  # the name of a SlotState
        allocation=slot.allocation,
        job=slot.job,
        broken=why,
    )


def offers(state: State, shard: int) -> Iterator[OfferSlots]:
    """All that a new life of a shard must know: its slots here, what runs in them and how it ended; as few messages as fit."""
    for batch in batches(_held_for(state, shard), OFFER_BYTES_MAX):
        yield OfferSlots(offers=[offer for offer, _ in batch], attempts=[report for _, report in batch if report is not None])


def _held_for(state: State, shard: int) -> Iterator[tuple[tuple[SlotOffer, OfferedAttempt | None], int]]:
    """The slots that a shard holds, each with its attempt, and the bytes of both in a message."""
    for number, slot in state.slots.items():
        if slot.shard == shard and slot.state in (SlotState.ALLOCATED, SlotState.ACTIVE):
            report = _attempt_report(slot)
            yield (_offer(number, slot), report), 200 + (len(encode(report)) if report is not None else 0)


def _offer(number: int, slot: Slot) -> SlotOffer:
    assert slot.allocation is not None and slot.job is not None
    return SlotOffer(slot=number, allocation=slot.allocation, job=slot.job, **parts_of(slot.profile), takes_runs=True)


def _attempt_report(slot: Slot) -> OfferedAttempt | None:
    attempt = slot.attempt
    if attempt is None or slot.allocation is None:
        return None
    deploying = attempt.state in (AttemptState.WAITING, AttemptState.LAUNCHED)
    return OfferedAttempt(
        allocation=slot.allocation,
        attempt=attempt.id,
        state="DEPLOYING" if deploying else attempt.state.value,  # type: ignore[arg-type]  # the name of an AttemptState
        report=attempt.report,
        error=attempt.error if attempt.state in ENDED_ATTEMPT else None,
    )


# changes of one slot


def _of_allocation(state: State, allocation: str) -> tuple[int, Slot | None]:
    return next(((n, slot) for n, slot in state.slots.items() if slot.allocation == allocation), (-1, None))


def _launch_if_ready(state: State, number: int, slot: Slot) -> Iterator[Output]:
    attempt = slot.attempt
    if slot.ready and not state.behind and attempt is not None and attempt.state is AttemptState.WAITING:
        slot.ready = False
        _step(attempt, AttemptState.LAUNCHED)
        spec, attempt.spec = attempt.spec, None
        assert spec is not None, "an attempt that waits has one"
        yield Do(f"slot/{number}", LaunchAttempt(
            slot=number, attempt=attempt.id, acceptance=attempt.acceptance, folder=attempt.folder, spec=spec
        ))  # fmt: skip


def _kill(state: State, number: int, slot: Slot, ends: AttemptState, error: Fault, within_ms: int = 0) -> Iterator[Output]:
    """`within_ms`: it is asked first, and has so long. A kill without that ends one that was asked at once; what it ends as, stays."""
    attempt = slot.attempt
    if attempt is None or attempt.state in ENDED_ATTEMPT or slot.state is SlotState.RELEASING:
        return
    if attempt.kill is not None:
        if attempt.asked and not within_ms:
            attempt.asked = False
            yield Do(f"kill/{number}", KillAttempt(slot=number, attempt=attempt.id, why=error.message))
        return
    if attempt.state is AttemptState.WAITING:
        yield from _end(state, slot, ends, None, error)
        return
    attempt.kill, attempt.error, attempt.due_ms, attempt.asked = ends, error, None, within_ms > 0
    yield Do(f"kill/{number}", KillAttempt(slot=number, attempt=attempt.id, why=error.message, within_ms=within_ms))


def _end(
    state: State, slot: Slot, now: AttemptState, report: AttemptReport | None, error: Fault | None
) -> Iterator[Output]:
    attempt = slot.attempt
    assert attempt is not None
    if slot.state is SlotState.RELEASING:
        slot.attempt, state.changed = None, True  # nobody but the ResourceManager wants to know
        return
    _free_from_attempt(state, slot, attempt, now)
    attempt.report, attempt.error = report, error
    if state.stop_due_ms is None or now is AttemptState.FINISHED:
        yield _task_state_changed(slot, attempt)


def _free_from_attempt(state: State, slot: Slot, attempt: Attempt, now: AttemptState) -> None:
    _step(attempt, now)
    attempt.due_ms, attempt.spec = None, None
    _move(state, slot, SlotState.ALLOCATED)


def _task_state_changed(slot: Slot, attempt: Attempt) -> Say:
    assert slot.allocation is not None
    over = attempt.state in ENDED_ATTEMPT
    return Say(shard_scope(slot.shard), TaskStateChanged(
        allocation=slot.allocation, attempt=attempt.id,
        state=attempt.state.value,  # type: ignore[arg-type]  # RUNNING, or one of ENDED_ATTEMPT
        report=attempt.report if over else None, error=attempt.error if over else None,
    ))  # fmt: skip


def _release(state: State, number: int, slot: Slot, now: SlotState) -> Iterator[Output]:
    allocation = slot.allocation
    assert allocation is not None
    _move(state, slot, now)
    slot.allocation, slot.job, slot.shard, slot.due_ms = None, None, -1, None
    yield _freed(number, allocation, now, slot.warm)


def _freed(number: int, allocation: str, now: SlotState, warm: int = 0) -> Say:
    state: Any = now.value  # FREE, STARTING or BROKEN
    return Say(RESOURCE_MANAGER, SlotFreed(slot=number, allocation=allocation, state=state, warm=warm))


def _move(state: State, slot: Slot, now: SlotState) -> None:
    check_slot(slot.state, now)
    slot.state = now
    state.changed = True


def _step(attempt: Attempt, now: AttemptState) -> None:
    check_attempt(attempt.state, now)
    attempt.state = now
