"""The control process: it ends what an attempt left running in a JVM and in its Python workers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..common import procs

if TYPE_CHECKING:
    from .reset import Baseline

_PAUSE_S = 0.005
_DAEMONS_MAX = 6
_ENDS_LOOKS = 400


class Workers:
    """The Python processes below a JVM: daemons, which stay, and their workers, which do not.

    Killing a daemon that Spark knows of breaks the next job that wants one. A worker that was not used since the last probe is kept: it
    holds nothing of anyone, and a new one costs 300 ms.
    """

    def __init__(self, jvm_pid: int) -> None:
        self._jvm_pid = jvm_pid
        self._unused: dict[int, int | None] = {}
        self._daemons: list[int] = []
        self._daemons_before: list[int] = []

    def _look(self) -> tuple[list[int], list[int]]:
        """(workers, other processes that the JVM or a worker started)."""
        table = procs.processes()
        children = [p.pid for p in table.values() if p.parent == self._jvm_pid]
        self._daemons = [pid for pid in children if any("pyspark.daemon" in a for a in procs.command_line(pid))]
        workers = [p.pid for p in table.values() if p.parent in self._daemons]
        known = {*self._daemons, *workers}
        return workers, [pid for pid in procs.below(self._jvm_pid, table=table) if pid not in known]

    def kill_used(self) -> bool:
        """Kills the workers that ran anything since ``remember``, and every other child; whether there was one."""
        workers, others = self._look()
        used = [pid for pid in workers if not self._rested(pid)]
        procs.kill(others + used)
        for pid in used:
            self._unused.pop(pid, None)
        return bool(used or others)

    def fresh(self) -> bool:
        """Whether there are workers, and none has run anything since ``remember``."""
        workers, others = self._look()
        return bool(workers) and not others and all(map(self._rested, workers))

    def remember(self) -> None:
        """Notes the workers as they are now, after the last of them went to sleep."""
        before: dict[int, int | None] = {}
        for _ in range(50):
            self._unused = {pid: procs.HERE.switches(pid) for pid in self._look()[0]}
            if not procs.HERE.counts_switches or (self._unused == before and None not in before.values()):
                return
            before = self._unused
            time.sleep(_PAUSE_S)

    def _rested(self, pid: int) -> bool:
        """Whether a worker has done nothing since `remember`. Where they are not counted, none has."""
        switches = procs.HERE.switches(pid)
        return switches is not None and switches == self._unused.get(pid)

    def note_daemons(self) -> None:
        """Notes those that the last look saw, before an attempt."""
        self._daemons_before = self._daemons

    def not_to_be_kept(self, had_variables: bool) -> str | None:
        """Why the daemons must go. Spark starts one for each environment that functions ran with, and it stays: whoever comes next could
        read an attempt's variables there, in /proc/PID/environ. `had_variables`: the attempt had some."""
        self._look()
        if had_variables and set(self._daemons) - set(self._daemons_before):
            return "a Python daemon has the attempt's environment variables"
        if len(self._daemons) > _DAEMONS_MAX:
            return f"{len(self._daemons)} Python daemons"
        return None

    def end(self) -> bool:
        """Ends all of them, once Spark has forgotten the daemons; whether none lives."""
        for _ in range(_ENDS_LOOKS):
            workers, _others = self._look()
            if not self._daemons and not workers:
                return True
            procs.kill([*self._daemons, *workers])
            time.sleep(_PAUSE_S)
        return False


def quiet_down(baseline: Baseline, session: Any, workers: Workers, within_s: float) -> str:
    """Cancels, kills and waits until nothing of the last attempt runs; what still does after ``within_s``, or "".

    Its process must have ended. All jobs are cancelled, again and again, until no job is active, no task thread lives and no thread
    serves a connection of the dead process. A job group would not reach jobs that a plain thread started. A single cancel would not
    reach those that are started meanwhile. And the status tracker reports idle before the last task has returned.
    """
    deadline = time.monotonic() + within_s
    queries = session.sharedState().activeStreamingQueries()
    while True:
        if queries.size():
            baseline.stop_streams(queries)
        baseline.scala_context.cancelAllJobs()
        killed = workers.kill_used()
        living = baseline.living()
        if not living and not killed:
            return ""
        if time.monotonic() > deadline:
            return baseline.living(closely=True) or ("a process that cannot be killed" if killed else "")
        time.sleep(_PAUSE_S)
