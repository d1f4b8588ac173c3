"""What an earlier process has shown is in the topics: until that is read again, no surface says anything else of it."""

from __future__ import annotations

from starlette.testclient import TestClient

from millrace.client import Unavailable
from millrace.io.storage.store import Storage
from services.web.app import application
from services.web.commands import Commands
from services.web.flink.ids import job_id
from services.web.follow import Follows
from services.web.page import page
from services.web.processes import Processes
from services.web.view import View
from tests.web.page.test_page import said
from tests.web.test_web_streams import fresh
from tests.web.test_web_tables import Story, accepted


def raised() -> None:
    raise Unavailable("Kafka is away")


def web_over(view: View) -> TestClient:
    commands = Commands(raised)  # type: ignore[arg-type]  # it connects to nothing
    storage = Storage("memory://restarted")
    processes = Processes(commands, storage)
    screens = page(view, lambda: Follows("", 0), commands, processes, lambda key: None)
    app = application(view, lambda: Follows("", 0), commands, page=screens, processes=processes, storage=storage)
    return TestClient(app, base_url="http://127.0.0.1")


def test_no_surface_contradicts_what_was_said_before_a_restart() -> None:
    """Behind a kill the tables are those of the last commit: a job that was told FINISHED would be RUNNING again, or not be there."""
    view, story = fresh(), Story()
    accepted(story, "a")
    story.say("JobStateChanged", "a", job="a", status="RUNNING", cause=None)
    story.say("JobFinished", "a", job="a", archive=None, result=None, spent=None)
    accepted(story, "b")
    view.to_reach = {("job.events", 0): 4}
    web = web_over(view)
    for n, fact in enumerate([None, *story.facts]):
        if fact is not None:
            view.fold(fact)
        is_whole = n == 4
        for job in ("a", "b"):
            assert web.get(f"/api/v1/jobs/{job}").status_code == (200 if is_whole else 503), n
            flink = web.get(f"/v1/jobs/{job_id(job)}")
            assert flink.status_code == (200 if is_whole else 503), (n, flink.text)
            shown = web.get(f"/page/jobs/{job}")
            assert shown.status_code in ((200,) if is_whole else (200, 503)), (n, "it may not be said that there is none")
            assert ("Starting" in said(shown.text)) is not is_whole
            assert ("Everything that was said is shown" in said(shown.text)) is is_whole
        overview = web.get("/v1/jobs/overview")
        assert (overview.status_code, overview.headers.get("retry-after")) == ((200, None) if is_whole else (503, "1"))
    assert web.get(f"/v1/jobs/{job_id('a')}").json()["state"] == "FINISHED"
