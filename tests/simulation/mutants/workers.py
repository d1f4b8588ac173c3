"""Mutants of the workers that a provider starts and stops [R33]."""

from __future__ import annotations

from typing import Any

from millrace.core.clocks import NowMs
from millrace.core.messages.slots import DrainAnswered
from millrace.core.messages.worker_effects import StopWorker, WorkersListed, WorkerStopped
from millrace.core.states import WorkerState
from millrace.runtime.performer import PerEffect
from services.resource_manager import ports
from services.resource_manager.core import providing, registration, scaling, workers
from services.resource_manager.core.machine import HANDLERS as RESOURCE_MANAGER
from services.resource_manager.core.state import task_manager_of
from services.resource_manager.providers import NotProvided
from tests.simulation import control
from tests.simulation.mutants.registry import around, around_handler, mutant


@mutant(33, "resource_manager/core/scaling.py:room", "while one that hangs is being stopped another one runs, beyond the limit")
def what_is_being_stopped_does_not_count() -> None:
    def unseen(state: Any) -> int:
        return sum(
            name not in state.task_managers and each.state is not WorkerState.STOPPING for name, each in state.workers.known.items()
        )

    scaling.LIMITS = tuple(each._replace(unseen=unseen) for each in scaling.LIMITS)


@mutant(33, "resource_manager/ports.py:ports", "what the provider did not confirm is taken for done: it runs on, and nobody knows of it")
def a_stop_that_was_not_confirmed_is_taken_for_done() -> None:
    def wrapped(original: Any, store: Any, provider: Any) -> Any:
        def stop_worker(effect: StopWorker, fence: Any) -> WorkerStopped:
            fence.check(store)
            try:
                provider.stop(effect.worker, fence.epoch)
            except NotProvided:
                pass
            return WorkerStopped(worker=effect.worker)

        return {**original(store, provider), StopWorker: PerEffect(stop_worker)}

    around(ports, "ports", wrapped)
    control.resource_manager_ports = ports.ports


@mutant(33, "resource_manager/core/workers.py:time_out", "one that never registers is waited for, and its job with it")
def who_never_registers_is_waited_for() -> None:
    workers.time_out = lambda state, now_ms, at_ms: iter(())


@mutant(33, "resource_manager/core/workers.py:resume_ms", "what does not work is tried ten times a second")
def failures_cost_no_pause() -> None:
    workers.resume_ms = lambda known: NowMs(0)


@mutant(33, "resource_manager/core/workers.py:refusal", "one that nobody asked for gets work, and is known to nobody")
def strangers_are_welcome() -> None:
    def registered(original: Any, state: Any, name: str, *given: Any) -> Any:
        if name in state.workers.known:
            yield from original(state, name, *given)

    workers.refusal = lambda state, name: None
    around(workers, "registered", registered)


@mutant(33, "resource_manager/core/providing.py:on_workers_listed", "one that nobody asked for, and that does not register, runs for ever")
def the_list_is_not_looked_at() -> None:
    def listed(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        known = dict.fromkeys(state.workers.known)
        return original(state, body.model_copy(update={"workers": known}), envelope)

    around_handler(RESOURCE_MANAGER, WorkersListed, listed)


@mutant(33, "resource_manager/core/providing.py:look_after", "a new life starts TaskManagers beside those that run")
def nothing_has_to_be_listed_first() -> None:
    def configured(original: Any, state: Any, at_ms: Any) -> Any:
        yield from original(state, at_ms)
        state.workers.listed = bool(state.limits.provider)

    around(providing, "begin_term", configured)


@mutant(33, "resource_manager/core/providing.py:_drain", "those that nobody needs stay")
def the_idle_stay() -> None:
    providing._drain = lambda state, envelope: iter(())


@mutant(33, "resource_manager/core/providing.py:on_drain_answered", "one is stopped that was given a slot since it was asked")
def what_was_granted_since_it_was_asked_does_not_count() -> None:
    def answered(original: Any, state: Any, body: DrainAnswered, envelope: Any) -> Any:
        name = task_manager_of(envelope)
        worker = state.workers.known.get(name)
        if worker is not None and worker.state is WorkerState.REGISTERED and body.refused is None and name in state.task_managers:
            yield from workers.stop(state, name, "it was idle", envelope.at_ms)
            yield from registration.lose(state, envelope, name, "it was idle")
        else:
            yield from original(state, body, envelope)

    around_handler(RESOURCE_MANAGER, DrainAnswered, answered)
