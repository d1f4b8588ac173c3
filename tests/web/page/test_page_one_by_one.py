"""What one form does to many: when nobody answers one of them, the others are not sent."""

from __future__ import annotations

import sys

import pytest
from starlette.testclient import TestClient

from millrace.cli.fates import Fate, Found
from millrace.client import Refused, Unavailable
from millrace.client.dead_letters import Letter
from services.web.page.actions import NOT_REACHED, NOT_SENT, actions

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


def test_one_request_looks_at_letters_for_a_bounded_time_and_says_which_it_has_not_reached(
    web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred letters were two hundred reads of Kafka in one request, however slow it was."""
    module, looked, given = sys.modules[actions.__module__], [], []

    def fate_of(letters: object, letter: Letter) -> Found:
        looked.append(letter.number)
        return Found(Fate.SEND, "", None)

    monkeypatch.setattr(module, "fate_of", fate_of)
    monkeypatch.setattr(module, "_sent", lambda letter, client: given.append(letter.number))
    monkeypatch.setattr(module, "FATES_S", -1.0)
    form = {"token": token(web), "letter": ["400", "401", "402"]}
    asked = said(web.post("/page/redrive", data=form).text)
    assert len(looked) == 1 and "Send 1 letter again?" in asked and "2 older letters were not looked at yet" in asked
    done = said(web.post("/page/redrive", data=form | {"sure": "yes"}).text)
    assert "1 of 3 letters sent again" in done and done.count(NOT_REACHED) == 2 and given == [402]
    monkeypatch.setattr(module, "FATES_S", 60.0)
    monkeypatch.setattr(module, "SENDING_S", -1.0)
    none = said(web.post("/page/redrive", data=form | {"sure": "yes"}).text)
    assert "0 of 3 letters sent again" in none and none.count(NOT_REACHED) == 3 and given == [402]
