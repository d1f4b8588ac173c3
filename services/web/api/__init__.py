"""`/api/v1`: the JSON API, by subject."""

from __future__ import annotations

from fastapi import APIRouter, Depends

from ..commands import Commands
from ..kept import Kept
from ..processes import Processes
from ..view import View
from . import cluster, jobs, logs, processes, questions, schedules, streams, submissions
from .asking import known_alone


def api(view: View, commands: Commands, kept: Kept, asked: Processes, spark_history: str = "") -> APIRouter:
    """All of it. `spark_history`: the address of a Spark history server."""
    router = APIRouter(prefix="/api/v1", dependencies=[Depends(known_alone)])
    for part in (
        submissions.submissions(commands),
        schedules.schedules(commands),
        streams.streams(view, commands),
        jobs.jobs(view, commands, kept),
        logs.logs(view, kept),
        questions.questions(commands, kept, spark_history),
        questions.letters(commands),
        cluster.cluster(view, commands),
        processes.processes(view, asked),
    ):
        router.include_router(part)
    return router
