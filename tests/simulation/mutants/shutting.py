"""Mutants of the cluster's end [R34]."""

from __future__ import annotations

from millrace.core.messages.effects import ClusterEnded, EndCluster
from millrace.core.messages.jobs import ResumeJobs
from millrace.io.interfaces import Put, Txn
from millrace.runtime import shut_down
from millrace.runtime.performer import Fence
from services.dispatcher.core import closing
from services.dispatcher.ports import JobStore
from services.job_master.core import births, suspension
from services.job_master.core.machine import HANDLERS as JOB_MASTER
from tests.simulation.mutants.registry import mutant


@mutant(34, "dispatcher/core/closing.py:SUSPEND_MS", "services end while attempts run, of which nobody takes the results")
def nobody_waits_for_what_runs() -> None:
    closing.SUSPEND_MS = 0


@mutant(34, "job_master/core/suspension.py:resume", "jobs that were suspended never go on")
def nobody_resumes_jobs() -> None:
    JOB_MASTER[ResumeJobs] = lambda state, body, envelope: iter(())
    births.suspension.resume = suspension.resume = lambda state, at_ms: iter(())


@mutant(34, "dispatcher/ports.py:JobStore.end_cluster", "a leader that takes over ends a cluster that was started again")
def an_end_is_written_again() -> None:
    def end(self: JobStore, effect: EndCluster, fence: Fence) -> ClusterEnded:
        ended = shut_down.Ended(name=effect.name, shut_down=effect.shut_down)
        self._store.txn(Txn([fence.compare()], [Put(shut_down.KEY, ended.value())]))
        return ClusterEnded(name=effect.name)

    JobStore.end_cluster = end  # type: ignore[method-assign]  # that is what a mutant is
