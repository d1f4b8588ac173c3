"""The page's screens of schedules: what they say, where nothing answers, and what their forms do."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from millrace.client import OutcomeUnknown, Unavailable
from millrace.core.messages.schedules import ScheduleSummary
from tests.web.scheduled import summary

from .seed import Cluster
from .test_page import said, token

J = "/page/schedules/j"


def test_schedules_are_listed_and_one_is_shown_with_its_runs(web: TestClient) -> None:
    html = web.get("/page/schedules").text
    assert "1 schedule. Each submits its graph at its times, as a job of its own." in said(html)
    assert "j n 0 3 * * * UTC active 2026-01-31 03:00" in said(html) and f'href="{J}"' in html
    text = said(web.get(J).text)
    assert "n, 0 3 * * * in UTC" in text and "Next 2026-01-31 03:00" in text
    assert "Missed times the latest is run" in text and "While a run goes on a time is left out" in text
    assert "by hand by-hand Running" in text
    assert "2026-01-30 03:00 left out: it was missed (3 times up to this one)" in text


@pytest.mark.parametrize(
    ("one", "told"),
    [
        (summary("j", paused=True, next=[]), "paused"),
        (summary("j", problem="the zone Mars/Base is not known"), "cannot run: the zone Mars/Base is not known"),
        (summary("j", due="2026-01-30T03:00:00+00:00", due_job="j-20260130T0300Z"), "due since 2026-01-30 03:00"),
        (summary("j", last="2026-01-30T03:00:00+00:00", last_job="j-1"), "active 2026-01-31 03:00 2026-01-30 03:00"),
        (summary("j", name="<b>x</b>"), "j <b>x</b> 0 3".replace("<", "&lt;").replace(">", "&gt;")),
    ],
)
def test_how_a_schedule_is(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, one: ScheduleSummary, told: str) -> None:
    monkeypatch.setattr(cluster, "schedules", lambda: iter([one]))
    assert told in said(web.get("/page/schedules").text)


def test_what_is_not_there_and_what_does_not_answer(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = web.get("/page/schedules/x")
    assert gone.status_code == 404 and "There is no schedule x" in said(gone.text)
    assert web.get("/page/schedules/..%2Fetc").status_code in (400, 404)
    monkeypatch.setattr(cluster, "schedules", lambda: iter([]))
    assert "No schedules" in said(web.get("/page/schedules").text)

    def silent(*_: object) -> None:
        raise Unavailable("etcd does not answer", "etcd")

    monkeypatch.setattr(cluster, "schedules", silent)
    monkeypatch.setattr(cluster, "schedule", silent)
    assert "They cannot be asked for now: etcd does not answer" in said(web.get("/page/schedules").text)
    assert web.get(J).status_code == 503 and "etcd does not answer" in said(web.get(J).text)


def test_a_schedule_is_run_paused_resumed_and_removed_after_a_question(web: TestClient, cluster: Cluster) -> None:
    for what in ("run", "pause", "resume", "remove"):
        question = said(web.get(f"{J}/{what}").text)
        assert f"millrace schedule {what} j" in question
        assert web.post(f"{J}/{what}", data={"schedule": "j"}).status_code == 403, "without the page's token"
    assert cluster.changed == []
    done = {what: web.post(f"{J}/{what}", data={"token": token(web)}) for what in ("run", "pause", "resume", "remove")}
    assert {what: answer.status_code for what, answer in done.items()} == dict.fromkeys(done, 303)
    assert [each[:2] for each in cluster.changed] == [(what, "j") for what in done]
    assert done["run"].headers["location"] == f"/page/jobs/{cluster.changed[0][2]}"
    assert (done["pause"].headers["location"], done["remove"].headers["location"]) == (J, "/page/schedules")
    failed = web.post("/page/schedules/x/pause", data={"token": token(web)})
    assert "It was not done x there is no schedule x" in said(failed.text)
    assert web.get(f"{J}/explode").status_code == 400 and web.get(f"{J}?other=1").status_code == 400


def test_a_run_of_which_no_answer_came_is_told_by_its_id(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that who looks for it finds it, and does not run it twice."""

    def unknown(schedule: str, job: str, watch: bool) -> None:
        raise OutcomeUnknown(f"no answer about {job}")

    monkeypatch.setattr(cluster, "run_schedule", unknown)
    shown = said(web.post(f"{J}/run", data={"token": token(web)}).text)
    assert re.search(r"It is not known yet whether it was done (j-\w+) no answer about \1", shown), shown
