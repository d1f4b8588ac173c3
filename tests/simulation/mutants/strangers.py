"""Mutants about what others do to graphs in etcd. They are tried on clusters where somebody does."""

from __future__ import annotations

from typing import Any

from millrace.core.messages.graphs import JobGraphAdded, JobGraphChanged
from services.dispatcher import graphs
from services.dispatcher.core import changed_graphs
from services.dispatcher.core.machine import HANDLERS as DISPATCHER
from tests.simulation.mutants.registry import around, around_handler, mutant


@mutant(24, "dispatcher/graphs.py:Listening", "what others put into etcd stays there, and nobody runs it")
def nobody_notices_graphs_in_etcd() -> None:
    graphs.Listening.look = lambda self, now_ms: None


@mutant(24, "dispatcher/core/changed_graphs.py:on_job_graph_added", "a copied graph runs by its original's acceptance")
def a_copied_graph_keeps_its_acceptance() -> None:
    def added(original: Any, state: Any, body: Any, envelope: Any) -> Any:
        if body.graph is None:
            return original(state, body, envelope)
        return changed_graphs.waiting.look_up(state, changed_graphs.answers.nobodys_request(body.job), envelope)

    around_handler(DISPATCHER, JobGraphAdded, added)


@mutant(24, "dispatcher/core/changed_graphs.py:on_job_graph_changed", "what others put over a job's key stays: a new life would run it")
def what_others_write_over_stays() -> None:
    around_handler(DISPATCHER, JobGraphChanged, lambda original, state, body, envelope: iter(()))


@mutant(24, "dispatcher/graphs.py:Listening._look_at", "a live job whose key is merely gone, as after a restore, is canceled")
def what_is_gone_counts_as_deleted() -> None:
    def tell(original: Any, self: Any, body: Any, *given: Any) -> Any:
        gone = isinstance(body, JobGraphChanged) and not body.revision
        return original(self, graphs.JobGraphRemoved(job=body.job, acceptance=body.acceptance) if gone else body, *given)

    around(graphs.Listening, "_tell", tell)
