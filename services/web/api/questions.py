"""What the view does not hold, and the cluster is asked: what attempts do now, results, files, events, dead letters, schemas."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response

from millrace.client.dead_letters import Gone, Letter
from millrace.core.jobgraph.model import JobGraph
from millrace.core.messages.client import JobReported
from millrace.edge.schema import Explained

from .. import models
from ..commands import Commands
from ..kept import Kept
from ..problems import Refusal, responses
from ..spark_logs import logs_in
from .asking import WAIT, JobPath, WaitS
from .logs import Number, OnlyNumber, OnlyTask, Task

ANSWERED = responses(400, 404, 409, 429, 503, 504)
LETTERS_MOST = 1000
EVENTS_MOST = 10_000


async def what_it_does(commands: Commands, job: str, wait_s: float, task: str = "", subtask: int | None = None) -> JobReported:
    """What the running attempts of a job do at this moment. Raises MillraceError."""
    return await commands.call(lambda client: client.report_now(job, task, subtask), wait_s)


def questions(commands: Commands, kept: Kept, spark_history: str) -> APIRouter:
    """Each is asked by Kafka, like any client's question."""
    router = APIRouter(tags=["questions"], responses=ANSWERED)

    @router.get("/jobs/{job}/report")
    async def report(job: JobPath, task: OnlyTask = "", subtask: OnlyNumber = None, wait_s: WaitS = WAIT) -> models.Report:
        """What the running attempts of a job do at this moment: each is asked."""
        found = await what_it_does(commands, job, wait_s, task, subtask)
        return models.Report.model_validate(found.model_dump(exclude={"type", "version", "correlation"}))

    @router.get("/jobs/{job}/result")
    async def result(job: JobPath, wait_s: WaitS = WAIT) -> models.ResultTable:
        """The first rows of a FINISHED job. 409: it has none, or not yet."""
        found = await kept.first(lambda client: client.result(job), wait_s, job)
        return models.ResultTable(columns=found.columns, types=found.types, rows=found.rows, truncated=found.truncated)

    _files(router, kept, spark_history)

    @router.get("/jobs/{job}/events")
    async def events(job: JobPath, wait_s: WaitS = WAIT) -> models.Events:
        """What has happened to a job, as far back as it is kept, in order: of very many the last ones."""

        def read(client: Any) -> models.Events:
            since_ms = client.status(job).accepted_ms
            history = client.events(job, history=True, go_on=False, since_ms=since_ms)
            found: deque[dict[str, Any]] = deque(history, EVENTS_MOST + 1)
            return models.Events(events=list(found)[-EVENTS_MOST:], truncated=len(found) > EVENTS_MOST)

        return await commands.call(read, wait_s)

    @router.get("/schema", responses={})
    async def schema() -> dict[str, Any]:
        """The JSON Schema of a graph, for an editor."""
        return await asyncio.to_thread(lambda: JobGraph.model_json_schema(schema_generator=Explained))

    return router


def _files(router: APIRouter, kept: Kept, spark_history: str) -> None:
    @router.get("/jobs/{job}/files")
    async def files(job: JobPath, wait_s: WaitS = WAIT) -> models.KeptFiles:
        """What its scripts and functions wrote by relative paths, and what of it was not kept."""
        found = await kept.first(lambda client: client.files(job), wait_s, job)
        return models.KeptFiles(
            files=[
                models.KeptFileRow(**{name: getattr(each, name) for name in ("task", "subtask", "attempt", "name", "bytes")})
                for each in found.kept
            ],
            left_out=[models.LeftOut(name=name, why=why) for name, why in found.left_out],
            left_out_in_all=found.left_out_in_all,
        )

    @router.get(
        "/jobs/{job}/files/{task}/{subtask}",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
                   206: {"description": "Partial Content"}, **responses(416)},
    )  # fmt: skip
    async def file(
        request: Request, job: JobPath, task: Task, subtask: Number, name: Annotated[str, Query(min_length=1, max_length=4096)]
    ) -> Response:
        """One of these files, by its `name` in that list."""
        for each in (await kept.first(lambda client: client.files(job), WAIT, job)).kept:
            if (each.task, each.subtask, each.name) == (task, subtask, name):
                return await kept.answer(each.path, name, request.headers.get("range", ""), "application/octet-stream")
        raise Refusal(404, f"job {job} has no such file")

    @router.get("/jobs/{job}/spark-logs")
    async def spark_logs(job: JobPath, wait_s: WaitS = WAIT) -> models.SparkLogs:
        """The event logs of its attempts' Spark applications among these files; of a job with `spark.eventLog.enabled: true`."""
        found = await kept.first(lambda client: logs_in(client.files(job).kept), wait_s, job)
        return models.SparkLogs(logs=[
            models.SparkLogRow(
                task=each.task, subtask=each.subtask, attempt=each.attempt, application=each.application,
                history_url=each.shown_at(spark_history),
                files=[
                    f"/api/v1/jobs/{job}/files/{quote(each.task, safe='')}/{each.subtask}?name={quote(file.name)}"
                    for file in each.files
                ],
            ) for each in found
        ])  # fmt: skip


def letters(commands: Commands) -> APIRouter:
    """Dead letters: to read, and to send again."""
    router = APIRouter(tags=["dead letters"], responses=ANSWERED)

    @router.get("/deadletters")
    async def listed(
        limit: Annotated[int, Query(ge=1, le=LETTERS_MOST)] = 100,
        cursor: Annotated[str, Query(pattern="^([0-9]{1,18})?$", description="`next` of the page before.")] = "",
        before: Annotated[int | None, Query(ge=0, le=1 << 62, description="Only letters below this number.")] = None,
        wait_s: WaitS = WAIT,
    ) -> models.Letters:
        """Requests that the cluster could not use, the newest first."""
        bounds = [each for each in (before, int(cursor) if cursor else None) if each is not None]
        page = await commands.call(lambda client: client.dead_letters().page(min(bounds, default=None), limit), wait_s)
        following = str(page.letters[-1].number) if page.more else None
        return models.Letters(total=page.total, letters=[_letter(each) for each in page.letters], next=following)

    @router.post("/deadletters/{number}/redrive", responses=responses(403))
    async def redrive(number: Annotated[int, Path(ge=0, le=1 << 62)], wait_s: WaitS = WAIT) -> models.LetterRow:
        """Sends the record again as it was."""

        def send(client: Any, by: str) -> Letter:
            letters = client.dead_letters()
            letter: Letter | None = letters.one(number)
            if letter is None:
                raise Refusal(404, f"there is no letter {number}")
            try:
                letters.redrive(letter, letters.original(letter), by)
            except Gone as gone:
                raise Refusal(409, str(gone), "gone") from None
            return letter

        return _letter(await commands.redrive(number, send, wait_s))

    return router


def _letter(letter: Letter) -> models.LetterRow:
    again = letter.redriven
    return models.LetterRow(
        number=letter.number, at_ms=letter.at_ms, reason=letter.reason, type=letter.type, job=letter.job, size_bytes=letter.size_bytes,
        repeats=letter.repeats, redriven_ms=again.at_ms if again else None, redriven_by=again.by if again else None,
    )  # fmt: skip


