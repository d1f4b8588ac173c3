"""Server-sent events: what is sent at first, when something changes, and to one who connects again."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from services.web.api import streams
from services.web.app import application
from services.web.commands import Commands
from services.web.core.facts import Fact
from services.web.follow import Follows
from services.web.view import View
from tests.web.test_web_tables import Story, accepted, attempt


class Follower:
    """Reads a stream of the application as a server does, event by event."""

    def __init__(self, app: Any, path: str, last_id: str | None = None) -> None:
        headers = [(b"host", b"127.0.0.1"), *([(b"last-event-id", last_id.encode())] if last_id is not None else [])]
        self._scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "scheme": "http",
            "http_version": "1.1", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "headers": headers,
            "asgi": {"version": "3.0", "spec_version": "2.3"},
        }  # fmt: skip
        self._app, self._queue, self._gone = app, asyncio.Queue[dict](), asyncio.Event()
        self.status, self.headers, self.id, self.reads = 0, {}, "", asyncio.Event()
        self.reads.set()
        self._begun = False

    async def __aenter__(self) -> Follower:
        self._task = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        head = await self._queue.get()
        self.status, self.headers = head["status"], {name.decode(): value.decode() for name, value in head["headers"]}
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        self.reads.set()
        await asyncio.wait_for(self._task, 30)

    async def _receive(self) -> dict:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict) -> None:
        await self.reads.wait()
        self._queue.put_nowait(message)

    async def parts(self) -> AsyncIterator[str]:
        while True:
            message = await asyncio.wait_for(self._queue.get(), 30)
            for part in message["body"].decode().split("\n\n"):
                if part:
                    yield part
            if not message.get("more_body"):
                return

    async def events(self) -> AsyncIterator[tuple[str, Any]]:
        async for part in self.parts():
            fields = dict(line.split(": ", 1) for line in part.split("\n"))
            self.id = fields.get("id", self.id)
            if "event" in fields:
                yield fields["event"], json.loads(fields["data"])

    async def synced(self) -> list[tuple[str, Any]]:
        """All up to the next `synced`, without it."""
        found = []
        async for event in self.events():
            if event[0] == "synced":
                return found
            found.append(event)
        return found


def fresh() -> View:
    view = View({}, {}, 10_000)
    view.load({})
    return view


def app_of(view: View) -> Any:
    return application(view, lambda: Follows("", 0), Commands(lambda: pytest.fail("no command is sent here")))


def tell(view: View, story: Story, say: Callable[[], Any] | None = None) -> None:
    before = len(story.facts)
    if say is not None:
        say()
    for fact in story.facts[before if say is not None else 0 :]:
        view.fold(fact)


def ids(events: list[tuple[str, Any]]) -> list[str]:
    return [job["job"] for name, data in events for job in data["jobs"] if name == "jobs"]


def test_all_jobs_then_those_that_change() -> None:
    view, story = fresh(), Story()
    for n in range(streams.BATCH + 1):
        accepted(story, f"j{n}")
    tell(view, story)

    async def run() -> None:
        async with Follower(app_of(view), "/api/v1/streams/jobs") as follower:
            assert (follower.status, follower.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            first = await follower.synced()
            assert (len(first), len(ids(first))) == (2, streams.BATCH + 1)
            tell(view, story, lambda: story.say("JobStateChanged", "j7", job="j7", status="RUNNING", cause=None))
            [(_, data)] = await follower.synced()
            assert [(job["job"], job["status"]) for job in data["jobs"]] == [("j7", "RUNNING")]

    asyncio.run(run())


def test_who_connects_again_is_given_what_has_changed_since_by_a_later_process_too() -> None:
    view, story = fresh(), Story()
    for job in ("a", "b", "c"):
        accepted(story, job)
    tell(view, story)

    async def run() -> None:
        async with Follower(app_of(view), "/api/v1/streams/jobs") as follower:
            assert ids(await follower.synced()) == ["a", "b", "c"]
            id = follower.id
        tell(view, story, lambda: attempt(story, "b", "RUNNING"))
        later = fresh()  # all is folded anew, and no ring knows what has changed
        tell(later, story)
        for each in (view, later):
            async with Follower(app_of(each), "/api/v1/streams/jobs", id) as follower:
                assert ids(await follower.synced()) == ["b"]
                now = follower.id
            async with Follower(app_of(each), "/api/v1/streams/jobs", now) as follower:
                assert ids(await follower.synced()) == []

    asyncio.run(run())


def test_one_job_to_its_end_and_no_further() -> None:
    view, story = fresh(), Story()
    accepted(story, "j")
    tell(view, story)
    path = "/api/v1/streams/jobs/j"

    async def run() -> None:
        async with Follower(app_of(view), path) as follower:
            [(name, data)] = await follower.synced()
            assert (name, data["job"]["status"]) == ("job", "INITIALIZING")
            tell(view, story, lambda: attempt(story, "j", "RUNNING"))
            [(_, data)] = await follower.synced()
            assert data["job"]["tasks"][0]["subtasks"][0]["state"] == "RUNNING"
            before = follower.id
            tell(view, story, lambda: story.say("JobCanceled", "j", job="j", archive=None))
            events = [event async for event in follower.events()]
            assert [event[0] for event in events] == ["job", "synced"] and events[0][1]["job"]["status"] == "CANCELED"
            end = follower.id
        async with Follower(app_of(view), path, before) as follower:
            assert [event[0] async for event in follower.events()] == ["job", "synced"]
        async with Follower(app_of(view), path, end) as follower:
            assert follower.status == 204, "else a browser would ask again and again"

    asyncio.run(run())


def test_the_cluster_when_something_of_it_changes() -> None:
    view, story, cluster = fresh(), Story(), Story("cluster.events")

    def joined(name: str) -> None:
        cluster.say("TaskManagerJoined", name, task_manager=name, incarnation=1, host="h", slots=1, states=["FREE"])

    async def run() -> None:
        async with Follower(app_of(view), "/api/v1/streams/cluster") as follower:
            [(_, data)] = await follower.synced()
            assert (data["overview"]["task_managers"], data["slots"]) == (0, [])
            tell(view, cluster, lambda: joined("tm"))
            [(_, data)] = await follower.synced()
            assert [slot["state"] for slot in data["slots"]] == ["FREE"]
            tell(view, story, lambda: accepted(story, "j"))
            [(_, data)] = await follower.synced()
            assert data["overview"]["jobs"] == {"INITIALIZING": 1}

    asyncio.run(run())


def test_who_follows_the_cluster_is_sent_it_a_few_times_a_second_however_often_it_changes() -> None:
    view, story, sent = fresh(), Story(), 0

    async def follow(follower: Follower) -> None:
        nonlocal sent
        while any(data["overview"]["jobs"] != {"INITIALIZING": 40} for _, data in await follower.synced()):
            sent += 1

    async def run() -> None:
        async with Follower(app_of(view), "/api/v1/streams/cluster") as follower:
            await follower.synced()
            following, began_s = asyncio.create_task(follow(follower)), time.monotonic()
            for n in range(40):
                tell(view, story, lambda n=n: accepted(story, f"j{n}"))
                await asyncio.sleep(0.015)
            await following
            assert sent <= 1 + (time.monotonic() - began_s) / streams.CLUSTER_EVERY_S

    asyncio.run(run())


def test_what_lies_too_far_back_is_found_by_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    view, story = fresh(), Story()
    for n in range(50):
        accepted(story, f"j{n}")
    tell(view, story)
    view.changes._subjects = type(view.changes._subjects)(maxlen=3)
    view.changes.number = 0

    async def run() -> None:
        async with Follower(app_of(view), "/api/v1/streams/jobs") as follower:
            assert len(ids(await follower.synced())) == 50
            tell(view, story, lambda: [
                story.say("JobStateChanged", f"j{n}", job=f"j{n}", status="RUNNING", cause=None) for n in range(20)
            ])  # fmt: skip
            assert sorted(ids(await follower.synced())) == sorted(f"j{n}" for n in range(20))

    asyncio.run(run())


@pytest.mark.parametrize("id", ["x", "0:1", "0:x/", "0:1/0:1/0:1", "0:-1/", "0:1,/", "0:" + "1" * 19 + "/"])
def test_an_id_that_is_none(id: str) -> None:
    async def run() -> None:
        async with Follower(app_of(fresh()), "/api/v1/streams/jobs", id) as follower:
            assert (follower.status, follower.headers["content-type"]) == (400, "application/problem+json")

    asyncio.run(run())


def test_a_stream_on_which_nothing_happens_is_kept_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.01)

    async def run() -> None:
        async with Follower(app_of(fresh()), "/api/v1/streams/jobs") as follower:
            parts = follower.parts()
            while not (await anext(parts)).startswith(": "):
                pass

    asyncio.run(run())


def test_who_does_not_read_is_dropped_and_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.web.middleware.STEP_MOST_S", 0.05)
    view, story = fresh(), Story()
    app = app_of(view)

    async def run() -> None:
        async with Follower(app, "/api/v1/streams/jobs") as slow, Follower(app, "/api/v1/streams/jobs") as quick:
            await slow.synced()
            await quick.synced()
            slow.reads.clear()
            tell(view, story, lambda: accepted(story, "a"))
            assert ids(await quick.synced()) == ["a"]
            await asyncio.wait_for(asyncio.shield(slow._task), 30)

    asyncio.run(run())


def test_a_thousand_idle_streams_take_little_and_more_than_there_may_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with all of the table behind it: a stream keeps no rows."""
    monkeypatch.setattr("services.web.middleware.STREAMS_MOST", 1000)
    monkeypatch.setattr("services.web.middleware.STEP_MOST_S", 600)  # on a busy machine the last begins long after the first
    view, story = fresh(), Story()
    for n in range(300):
        accepted(story, f"j{n}")
    tell(view, story)
    app = app_of(view)

    async def run() -> None:
        async with Follower(app, "/api/v1/streams/cluster") as one:
            await one.synced()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        followers = [Follower(app, "/api/v1/streams/jobs") for _ in range(1000)]
        for each in followers:
            await each.__aenter__()
            each.reads.clear()  # the first event is made, and not taken
        await asyncio.sleep(0)
        each_bytes = (tracemalloc.get_traced_memory()[0] - before) / 1000
        tracemalloc.stop()
        assert each_bytes < 150_000
        async with Follower(app, "/api/v1/streams/jobs") as another:
            assert (another.status, another.headers["retry-after"]) == (429, "1")
        for each in followers:
            await each.__aexit__()

    asyncio.run(run())


def test_who_follows_all_jobs_is_not_woken_by_progress_and_who_follows_one_not_by_another() -> None:
    view, story = fresh(), Story()
    for job in ("a", "b"):
        accepted(story, job)
        attempt(story, job, "RUNNING")
    tell(view, story)

    def progress(job: str, rows: int) -> None:
        told = [{"task": "a", "subtask": 0, "attempt": 1, "progress": {"rows_read": rows}}]
        story.say("AttemptsProgressing", job, job=job, attempts=told)

    async def run() -> None:
        app = app_of(view)
        async with Follower(app, "/api/v1/streams/jobs") as all_jobs, Follower(app, "/api/v1/streams/jobs/a") as one:
            await all_jobs.synced()
            await one.synced()
            tell(view, story, lambda: progress("b", 1))
            tell(view, story, lambda: progress("a", 2))
            [(name, data)] = await one.synced()
            assert (name, data["job"]["tasks"][0]["subtasks"][0]["attempts"][0]["progress"]) == ("job", {"rows_read": 2})
            tell(view, story, lambda: story.say("JobWaiting", "b", job="b", reason="r", position=1))
            tell(view, story, lambda: progress("a", 3))
            assert ids(await all_jobs.synced()) == ["b"], "the first that it is sent"
            [(_, data)] = await one.synced()
            assert data["job"]["tasks"][0]["subtasks"][0]["attempts"][0]["progress"] == {"rows_read": 3}

    asyncio.run(run())


def test_what_is_sent_to_many_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    view, story, made = fresh(), Story(), []
    accepted(story, "a")
    tell(view, story)
    monkeypatch.setattr(streams, "summary", lambda row: made.append(row["job"]) or {"job": row["job"]})

    async def run() -> None:
        async with AsyncExitStack() as opened:
            app = app_of(view)
            all_jobs = [await opened.enter_async_context(Follower(app, "/api/v1/streams/jobs")) for _ in range(10)]
            for each in all_jobs:
                assert ids(await each.synced()) == ["a"]
            tell(view, story, lambda: story.say("JobStateChanged", "a", job="a", status="RUNNING", cause=None))
            for each in all_jobs:
                assert ids(await each.synced()) == ["a"]
            assert made == ["a", "a"]

    asyncio.run(run())


def test_facts_that_tell_nothing_new_wake_nobody() -> None:
    view, story = fresh(), Story()
    accepted(story, "j")
    tell(view, story)
    number = view.changes.number
    fact = story.facts[0]
    view.fold(Fact(fact.topic, 0, 1, fact.stamp_ms, fact.life, fact.body))
    assert view.changes.number == number
