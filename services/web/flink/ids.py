"""Flink's ids: 32 hexadecimal digits, each made of a name that stays. So they are the same after a restart, and in every process."""

from __future__ import annotations

import hashlib
import re

from millrace.core.messages.base import JOB_ID_PATTERN

from ..core.jobs import Jobs
from .errors import Refusal

HEX = re.compile(r"[0-9a-f]{32}", re.ASCII)
_OWN = re.compile(JOB_ID_PATTERN, re.ASCII)


def flink_id(kind: str, name: str) -> str:
    """The id of something of this kind."""
    return hashlib.blake2b(f"{kind}\0{name}".encode(), digest_size=16).hexdigest()


def job_id(job: str) -> str:
    """Flink's id of a job, which is its application's, too."""
    return flink_id("job", job)


def vertex_id(task: str) -> str:
    """Flink's id of a task. It is the same in each job that has a task of this name."""
    return flink_id("vertex", task)


class JobIds:
    """Which job an id means: Flink's or its own. To be asked while the tables are not changed."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}
        self._known: set[str] = set()

    def own(self, jobs: Jobs, text: str) -> str:
        """The job's own id. One that nobody shows here is answered as it came, if it can be one: the Dispatcher may know it.

        Flink's id goes first: a job that somebody calls like another one's Flink id does not stand in for that one. Raises Refusal."""
        if text not in self._own and HEX.fullmatch(text):
            self._look(jobs)
        job = self._own.get(text, text)
        if _OWN.fullmatch(job) is None:
            raise Refusal(400, f'Cannot resolve path parameter (jobid) from value "{text[:200]}".')
        return job

    def _look(self, jobs: Jobs) -> None:
        """Takes in the jobs that came, and those that are gone no longer count."""
        rows = jobs.rows()
        if len(self._known) > 2 * len(rows) + 1000:
            self._own, self._known = {}, set()
        for row in rows:
            if row["job"] not in self._known:
                self._known.add(row["job"])
                self._own[job_id(row["job"])] = row["job"]
