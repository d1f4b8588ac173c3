"""Server-sent events: jobs, one job, the cluster.

An event has the whole of what changed, not the change: who misses some has all with the last. Its id is as of when it is, so that who
connects again with it, to this process or a later one, is given what has changed since.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse

from ..asked import asked
from ..changes import GATHER_S, Level, Subject, Waker
from ..commands import Commands
from ..core.cluster import TOPIC as CLUSTER_EVENTS
from ..core.jobs import TOPIC as JOB_EVENTS
from ..core.jobs import summary
from ..problems import Refusal, responses
from ..view import View
from .asking import JobPath, check_ready, wrong_parameter
from .cluster import counts_of, slots_of

HEARTBEAT_S = 15.0
BATCH = 100
"""Jobs in one event."""
TEXTS_MOST = 100
EVENT_ID = re.compile(r"((?:\d{1,6}:\d{1,18}(?:,\d{1,6}:\d{1,18})*)?)/((?:\d{1,6}:\d{1,18})?)")
TYPE = "text/event-stream"
CLUSTER_EVERY_S = 0.25
Seen = dict[str, dict[int, int]]
Event = Callable[[View], tuple[str, str]]
"""Its name and its data, made when it is sent: a reader that is slow keeps no rows."""
News = Callable[[View, "Seen | None", "Iterable[str] | None"], "tuple[list[Event], bool]"]
"""What is to be sent to one who has seen that (None: nothing), and whether it is the last. The third is what has changed since the last
time, of what is followed; None: that is not known, and found by the offsets."""
LastEventId = Annotated[
    str | None,
    Header(max_length=4000, description="The id of the last event that came: only what has changed since is sent."),
]


def streams(view: View, commands: Commands) -> APIRouter:
    """What is followed."""
    router = APIRouter(tags=["streams"])
    waker, cluster_now, jobs_now = Waker(view.changes), _ClusterNow(), _JobsNow()
    described: dict[str, Any] = {
        "response_class": StreamingResponse,
        "responses": {200: {"description": "Events", "content": {TYPE: {"schema": {"type": "string"}}}}, **responses(400, 429, 503)},
    }

    def stream(news: News, last_event_id: str | None, follows: Subject, every_s: float = GATHER_S) -> Response:
        check_ready(view)
        seen = None if last_event_id is None else _seen(last_event_id)
        events = _events(view, waker, news, seen, follows, every_s)
        return StreamingResponse(events, media_type=TYPE, headers={"X-Accel-Buffering": "no"})

    @router.get("/streams/jobs", **described)
    async def jobs(last_event_id: LastEventId = None) -> Response:
        """Events `jobs`: {"jobs": [...]} with each job, as in the list, that is new or has changed. First all that there are, or all that
        have changed since `Last-Event-ID`. Within them `synced`, once, when these are sent."""
        return stream(jobs_now.news, last_event_id, Level.LINE)

    @router.get("/streams/jobs/{job}", **{**described, "responses": {
        204: {"description": "It has ended, and `Last-Event-ID` is of its end."}, **described["responses"], **responses(404, 504),
    }})  # fmt: skip
    async def job(job: JobPath, last_event_id: LastEventId = None) -> Response:
        """Events `job`: {"job": {...}}, as it is shown alone, whenever it has changed; ends with its end. One that was accepted just now is
        waited for; one that ended so long ago that it is not listed is not followed."""
        check_ready(view)
        row = view.ask(lambda view: view.jobs.row(job))[0]
        if row is None and (await asked(job, commands)).summary.ended_ms is not None:
            row = view.ask(lambda view: view.jobs.row(job))[0]
            if row is None:
                raise Refusal(404, f"there is no job {job!r} among those that are shown")
        if row is None:
            return stream(_following(job, True), last_event_id, job)
        if last_event_id is not None and row["ended_ms"] is not None:
            seen = _seen(last_event_id)[JOB_EVENTS]
            if not view.ask(lambda view: view.jobs.is_newer(job, seen, whole=True))[0]:
                return Response(status_code=204)  # a browser that is answered so asks no more
        return stream(_following(job), last_event_id, job)

    @router.get("/streams/cluster", **described)
    async def cluster(last_event_id: LastEventId = None) -> Response:
        """Events `cluster`: {"overview", "task_managers", "slots", "leaders"}, at first and whenever one of them has changed."""
        return stream(cluster_now.news(), last_event_id, Level.ATTEMPT, CLUSTER_EVERY_S)

    return router


async def _events(
    view: View, waker: Waker, news: News, seen: Seen | None, follows: Subject, every_s: float
) -> AsyncIterator[str]:  # fmt: skip
    number = -1
    yield "retry: 1000\n\n"
    while True:

        def ask(view: View, number: int = number, seen: Seen | None = seen) -> tuple[list[Event], bool, int]:
            changed = view.changes.since(number, follows) if number >= 0 else None
            return *news(view, seen, changed), view.changes.number

        (events, last, now), as_of = view.ask(ask)
        seen = {topic: {int(n): offset for n, offset in places.items()} for topic, places in as_of["offsets"].items()}
        behind = ""
        for each in events:
            if behind:
                yield behind
            name, data = view.ask(each)[0]
            behind = f"event: {name}\ndata: {data}\n\n"
        if events or number < 0:  # one id, behind all: who misses some of them is given all of them again
            yield f"{behind}id: {_id(seen)}\nevent: synced\ndata: {_json({'time_ms': as_of['time_ms']})}\n\n"
        if last:
            return
        number = now
        await waker.wait(follows, number, HEARTBEAT_S, every_s)
        if view.changes.last(follows) <= number:
            yield ": nothing new\n\n"


class _JobsNow:
    """The lines of jobs that have changed, as all their followers are sent them: made once for all who are sent the same at one moment."""

    def __init__(self) -> None:
        self._number, self._texts = -1, dict[tuple[str, ...], str]()

    def news(self, view: View, seen: Seen | None, changed: Iterable[str] | None) -> tuple[list[Event], bool]:
        if changed is not None:
            found = [job for job in changed if job]
        else:
            found = [
                row["job"] for row in view.jobs.rows() if seen is None or view.jobs.is_newer(row["job"], seen.get(JOB_EVENTS, {}))
            ]
        return [self._some(tuple(found[n : n + BATCH])) for n in range(0, len(found), BATCH)], False

    def _some(self, jobs: tuple[str, ...]) -> Event:
        def event(view: View) -> tuple[str, str]:
            number = view.changes.last(Level.LINE)
            if number != self._number:
                self._number, self._texts = number, {}
            text = self._texts.get(jobs)
            if text is None:
                rows = [row for job in jobs if (row := view.jobs.row(job)) is not None]
                text = _json({"jobs": [summary(row) for row in rows]})
                if len(self._texts) < TEXTS_MOST:
                    self._texts[jobs] = text
            return "jobs", text

        return event


def _following(job: str, comes: bool = False) -> News:
    """For one follower. `comes`: nothing has been told of it yet."""

    def news(view: View, seen: Seen | None, changed: Iterable[str] | None) -> tuple[list[Event], bool]:
        nonlocal comes
        row = view.jobs.row(job)
        if row is None:
            return [], not comes  # else it ended long ago, and is forgotten
        comes = False
        new = seen is None or (view.jobs.is_newer(job, seen.get(JOB_EVENTS, {}), whole=True) if changed is None else job in changed)
        described = view.jobs.described(job)
        return [lambda _: ("job", _json({"job": described}))] if new else [], row["ended_ms"] is not None

    return news


class _ClusterNow:
    """The cluster as all its followers are sent it: made once for all of them."""

    def __init__(self) -> None:
        self._number, self._text = -1, ""

    def text(self, view: View) -> str:
        if self._number != (number := view.changes.last(Level.ATTEMPT)):
            self._number, slots = number, slots_of(view)
            self._text = _json({
                "overview": counts_of(view, slots), "task_managers": view.cluster.task_managers(), "slots": slots,
                "leaders": view.cluster.leaders(),
            })  # fmt: skip
        return self._text

    def news(self) -> News:
        """For one follower, who is sent it only when it is other than before: most events of jobs change nothing of it."""
        sent = ""

        def news(view: View, _: Seen | None, changed: Iterable[str] | None) -> tuple[list[Event], bool]:
            nonlocal sent
            text = sent if changed is not None and not changed else self.text(view)
            if text == sent:
                return [], False
            sent = text
            return [lambda _: ("cluster", text)], False

        return news


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"))


def _id(seen: Mapping[str, Mapping[int, int]]) -> str:
    return "/".join(",".join(f"{n}:{offset}" for n, offset in _places(seen, topic)) for topic in (JOB_EVENTS, CLUSTER_EVENTS))


def _places(seen: Mapping[str, Mapping[int, int]], topic: str) -> Iterator[tuple[int, int]]:
    yield from sorted(seen.get(topic, {}).items())


def _seen(id: str) -> Seen:
    """What an event's id tells. Raises Refusal for one that is none."""
    found = EVENT_ID.fullmatch(id)
    if found is None:
        raise wrong_parameter("Last-Event-ID", "it is no id of an event of this service")
    parts = [[each.split(":") for each in part.split(",") if each] for part in found.groups()]
    return {topic: {int(n): int(offset) for n, offset in part} for topic, part in zip((JOB_EVENTS, CLUSTER_EVENTS), parts, strict=True)}
