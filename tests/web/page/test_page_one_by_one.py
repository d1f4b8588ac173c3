"""What one form does to many: when nobody answers one of them, the others are not sent."""

from __future__ import annotations

import re
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

    def sent(letter: object, client: object, by: str) -> None:
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
    monkeypatch.setattr(module, "_sent", lambda letter, client, by: given.append(letter.number))
    monkeypatch.setattr(module, "FATES_S", -1.0)
    form = {"token": token(web), "letter": ["400", "401", "402"]}
    asked = said(web.post("/page/redrive", data=form).text)
    assert len(looked) == 1 and "Send 1 letter again?" in asked and "2 older letters were not looked at yet" in asked
    assert "Look at the next letters" in asked
    done = said(web.post("/page/redrive", data=form | {"sure": "yes"}).text)
    assert "1 of 3 letters sent again" in done and done.count(NOT_REACHED) == 2 and given == [402]
    monkeypatch.setattr(module, "FATES_S", 60.0)
    monkeypatch.setattr(module, "SENDING_S", -1.0)
    none = said(web.post("/page/redrive", data=form | {"sure": "yes"}).text)
    assert "0 of 3 letters sent again" in none and none.count(NOT_REACHED) == 3 and given == [402]


def test_letters_that_are_still_wrong_do_not_hide_those_behind_them(
    web: TestClient, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay at the front: each request began with them again, and never came to the older ones."""
    module, looked, given = sys.modules[actions.__module__], [], []

    def fate_of(letters: object, letter: Letter) -> Found:
        looked.append(letter.number)
        return Found(Fate.SEND if letter.number == 400 else Fate.WRONG, "still wrong", None)

    monkeypatch.setattr(module, "fate_of", fate_of)
    monkeypatch.setattr(module, "_sent", lambda letter, client, by: given.append(letter.number))
    monkeypatch.setattr(module, "FATES_S", -1.0)

    def asked(**fields: object) -> tuple[str, dict[str, list[str]]]:
        html = web.post("/page/redrive", data={"token": token(web), **fields}).text
        last: dict[str, list[str]] = {}
        form = html.split("Look at the next")[0].split("<form")[-1]
        for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form):
            last.setdefault(name, []).append(value)
        return said(html), last if "Look at the next" in html else {}

    open_ones = [letter.number for letter in cluster.dead_letters().page(None, 100).letters if letter.redriven is None]
    text, following = asked(all="yes")
    while following:
        assert "None of them would be accepted now" in text and following["all"] == ["yes"]
        text, following = asked(**{name: values[0] for name, values in following.items() if name != "token"})
    assert looked == open_ones and looked[-1] == 400 and "Send 1 letter again?" in text
    text, following = asked(letter=["402", "400"])
    assert following["letter"] == ["400"]
    text, following = asked(letter=["400"], sure="yes", then="below 399")
    assert given == [400] and "1 of 1 letter sent again" in text and following["below"] == ["399"]
    assert asked(letter=["400"], sure="yes", then="below <b>")[1] == {}
