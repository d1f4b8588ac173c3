"""Workers: the TaskManagers that a provider starts and stops. The life of each is `core/states.py:WORKER_TRANSITIONS`.

Their ids are `task-manager-1`, `task-manager-2`, ...: the smallest number that nobody has. A name is given again only after the provider
has said that nothing of its last process runs. So what they leave in etcd and in work folders is bounded by how many run at once [R32].
"""

from __future__ import annotations

from collections.abc import Iterator

from millrace.core.clocks import AtMs, NowMs, after
from millrace.core.machine import Do, Envelope, Output, Publish
from millrace.core.messages.events import WorkerChanged
from millrace.core.messages.jobs import STARTED_ANEW
from millrace.core.messages.worker_effects import ListWorkers, StartWorker, StopWorker, WorkerStarted, WorkerStopped
from millrace.core.states import PENDING_WORKER, WITH_TASK_MANAGER, WorkerState, check_worker

from .state import State, Worker, Workers

PREFIX = "task-manager-"
UNKNOWN = f"no TaskManager of this id was asked for: while a provider starts TaskManagers, ids {PREFIX}NUMBER are those of its own"
FAILURES_MS = 60_000
PAUSE_FIRST_MS, PAUSE_MOST_MS = 1_000, 30_000
LIST_SOON_MS, LIST_MS = 1_000, 60_000  # between two lists: while workers start, and else

Outputs = Iterator[Output]


def is_worker(name: str) -> bool:
    """Whether an id is one that workers are given."""
    number = name.removeprefix(PREFIX)
    return number != name and number.isascii() and number.isdecimal() and number[0] != "0" and len(number) < 7


def number_of(name: str) -> int:
    """Of a worker's id."""
    return int(name.removeprefix(PREFIX))


def pending(state: State) -> list[str]:
    """The workers that are being started."""
    return [name for name, worker in state.workers.known.items() if worker.state in PENDING_WORKER]


def resume_ms(workers: Workers) -> NowMs:
    """Before it none is started. The first failure costs no pause, the second one a second, each further one twice as much."""
    if workers.failures < 2:
        return NowMs(0)
    return after(workers.failed_ms, min(PAUSE_FIRST_MS << min(workers.failures - 2, 10), PAUSE_MOST_MS))


# what is done to a worker


def start(state: State, at_ms: AtMs) -> Outputs:
    """Has one more started."""
    taken = [number_of(name) for name in (*state.workers.known, *state.task_managers, *state.expected) if is_worker(name)]
    name = f"{PREFIX}{next(number for number in range(1, len(taken) + 2) if number not in taken)}"
    state.workers.known[name] = Worker(WorkerState.REQUESTED)
    yield _changed(state, name, WorkerState.REQUESTED.value, None, at_ms)
    yield Do(f"workers/{name}", StartWorker(worker=name, avoid=sorted(state.blocklist.hosts)))


def stop(state: State, name: str, reason: str, at_ms: AtMs, *, failed: bool = False) -> Outputs:  # [R33]
    """Has one stopped, known or not, that is not registered any more. `failed`: it was needed."""
    worker = state.workers.known.setdefault(name, Worker(WorkerState.STARTING))
    if worker.state is not WorkerState.STOPPING:
        _move(worker, WorkerState.STOPPING)
        worker.idle_ms = None
        yield _changed(state, name, WorkerState.STOPPING.value, reason, at_ms, failed)
        yield Do(f"workers/{name}", StopWorker(worker=name))


def adopt(state: State, name: str, now_ms: NowMs, at_ms: AtMs) -> Outputs:
    """One that the provider has, and that nobody knew."""
    registered = name in state.task_managers
    now = WorkerState.REGISTERED if registered else WorkerState.STARTING
    state.workers.known[name] = Worker(now, _registration_due(state, now_ms))
    yield _changed(state, name, now.value, None, at_ms)


def fail(state: State, name: str, problem: str, now_ms: NowMs, at_ms: AtMs) -> Outputs:
    """One did not start: it is stopped, and another one takes its place after a pause."""
    state.workers.problem = f"{name}: {problem}"
    state.workers.list_ms = now_ms  # whether the provider answers at all
    _note_failure(state.workers, now_ms)
    yield from stop(state, name, problem, at_ms, failed=True)


def drain(state: State, name: str, now_ms: NowMs, at_ms: AtMs) -> Outputs:
    worker = state.workers.known[name]
    _move(worker, WorkerState.DRAINING)
    worker.due_ms = after(now_ms, state.limits.worker_idle_ms)
    yield _changed(state, name, WorkerState.DRAINING.value, None, at_ms)


def keep(state: State, name: str) -> None:
    """It is not idle any more, or may not be stopped: it is asked again when it has been idle for as long once more."""
    worker = state.workers.known.get(name)
    if worker is not None:
        worker.idle_ms = None
        if worker.state is WorkerState.DRAINING:
            _move(worker, WorkerState.REGISTERED)


# what becomes of its TaskManager


def refusal(state: State, name: str) -> str | None:  # [R33]
    """Why a TaskManager that registers is turned away; None: it is welcome."""
    if not state.limits.provider or not is_worker(name):
        return None
    worker = state.workers.known.get(name)
    if worker is None:
        return UNKNOWN if state.workers.listed else None
    return "its provider is asked to stop it" if worker.state is WorkerState.STOPPING else None


def registered(state: State, name: str, now_ms: NowMs, at_ms: AtMs) -> Outputs:
    """Its TaskManager has registered, for the first time or again."""
    if not state.limits.provider or not is_worker(name):
        return
    worker = state.workers.known.setdefault(name, Worker(WorkerState.STARTING))
    if worker.state in PENDING_WORKER:
        _move(worker, WorkerState.REGISTERED)
        state.workers.problem, state.workers.short_ms = "", None
        yield _changed(state, name, WorkerState.REGISTERED.value, None, at_ms)


def lost(state: State, name: str, reason: str, *, alive: bool, envelope: Envelope) -> Outputs:
    """Its TaskManager is not registered any more. `alive`: it did not leave by itself, which counts as a failure."""
    worker = state.workers.known.get(name)
    if worker is None or worker.state not in WITH_TASK_MANAGER:
        return
    if reason == STARTED_ANEW:
        _move(worker, WorkerState.STARTING)
        worker.due_ms, worker.idle_ms = _registration_due(state, envelope.now_ms), None
    elif alive:
        _note_failure(state.workers, envelope.now_ms)
        yield from stop(state, name, reason, envelope.at_ms, failed=True)
    else:
        yield from stop(state, name, reason, envelope.at_ms)  # it leaves, and may not have ended yet


# what the provider answers


def on_worker_started(state: State, body: WorkerStarted, envelope: Envelope) -> Outputs:
    worker = state.workers.known.get(body.worker)
    if worker is None or worker.state is not WorkerState.REQUESTED:
        return  # it has registered already, or is not wanted any more
    if body.problem is not None:
        yield from fail(state, body.worker, body.problem, envelope.now_ms, envelope.at_ms)
        return
    _move(worker, WorkerState.STARTING)
    worker.due_ms = _registration_due(state, envelope.now_ms)
    state.workers.list_ms = min(state.workers.list_ms, after(envelope.now_ms, LIST_SOON_MS))
    yield _changed(state, body.worker, WorkerState.STARTING.value, None, envelope.at_ms)


def on_worker_stopped(state: State, body: WorkerStopped, envelope: Envelope) -> Outputs:
    worker = state.workers.known.get(body.worker)
    if worker is not None and worker.state is WorkerState.STOPPING:
        del state.workers.known[body.worker]
        yield _changed(state, body.worker, "STOPPED", None, envelope.at_ms)


def ask_list(state: State) -> Outputs:
    """Asks what the provider has. What was started or stopped since may be in the answer or not."""
    workers = state.workers
    workers.lists += 1
    there = (WorkerState.STARTING, *WITH_TASK_MANAGER)
    workers.expected = {name: None for name, worker in workers.known.items() if worker.state in there}
    yield Do("workers", ListWorkers(number=workers.lists))


# time


def time_out(state: State, now_ms: NowMs, at_ms: AtMs) -> Outputs:
    """Those that have not registered, or not answered, in time. Failures are forgotten a minute after the last one."""
    workers = state.workers
    if workers.failures and now_ms >= after(workers.failed_ms, FAILURES_MS):
        workers.failures, workers.problem = 0, ""
    for name, worker in list(workers.known.items()):
        if now_ms < worker.due_ms:
            continue
        if worker.state is WorkerState.STARTING:
            problem = f"it has not registered within {state.limits.worker_start_ms} ms"
            yield from fail(state, name, problem, now_ms, at_ms)
        elif worker.state is WorkerState.DRAINING:
            keep(state, name)


def _registration_due(state: State, now_ms: NowMs) -> NowMs:
    return after(now_ms, state.limits.worker_start_ms)


def _note_failure(workers: Workers, now_ms: NowMs) -> None:
    """Those that fail together, as on a host that dies, count as few: in a pause nothing was tried that could fail anew."""
    if now_ms < resume_ms(workers):
        return
    workers.failures, workers.failed_ms = workers.failures + 1, now_ms


def _move(worker: Worker, now: WorkerState) -> None:
    check_worker(worker.state, now)
    worker.state = now


def _changed(state: State, name: str, now: str, reason: str | None, at_ms: AtMs, failed: bool = False) -> Publish:
    state.workers.changes += 1
    event = WorkerChanged(
        worker=name,
        state=now,  # type: ignore[arg-type]  # one of WorkerStateShown
        reason=reason,
        failed=failed,
        at_ms=at_ms,
        count=state.workers.changes,
    )
    return Publish("cluster.events", name, event)
