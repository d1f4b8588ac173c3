"""What one form does to many: when nobody answers one of them, the others are not sent."""

from __future__ import annotations

import sys

import pytest
from starlette.testclient import TestClient

from millrace.cli.fates import Fate, Found
from millrace.client import Refused, Unavailable
from services.web.page.actions import NOT_SENT, actions

from .seed import RUNNING, SCRIPT, WAITING, Cluster
from .test_page import said, token

JOBS = [RUNNING, SCRIPT, WAITING]


@pytest.mark.parametrize(("fails", "asked"), [
    (Unavailable("no answer", "dispatcher"), 1), (Refused("it has ended"), 3),
])  # fmt: skip
def test_jobs_are_canceled_one_by_one_until_nobody_answers(
    web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fails: Exception, asked: int
) -> None:
    """Each of a thousand waited ten seconds for the same Dispatcher."""
    given: list[str] = []

    def cancel(job: str) -> str:
        given.append(job)
        raise fails

    monkeypatch.setattr(cluster, "cancel", cancel)
    answer = web.post("/page/cancel", data={"token": token(web), "job": JOBS, "sure": "yes"})
    assert (answer.status_code, given) == (200, JOBS[:asked])
    told = said(answer.text)
    assert "0 of 3 jobs canceled" in told and told.count(NOT_SENT) == 3 - asked
    assert all(job in told for job in JOBS)


def test_letters_are_sent_one_by_one_until_nobody_answers(web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def sent(letter: object, client: object) -> None:
        given.append(1)
        raise Unavailable("no answer", "dispatcher")

    monkeypatch.setattr(sys.modules[actions.__module__], "_sent", sent)
    monkeypatch.setattr(sys.modules[actions.__module__], "fate_of", lambda letters, letter: Found(Fate.SEND, "", None))
    answer = web.post("/page/redrive", data={"token": token(web), "all": "yes", "sure": "yes"})
    assert answer.status_code == 200, answer.text
    told = said(answer.text)
    assert len(given) == 1 and told.count(NOT_SENT) > 0
