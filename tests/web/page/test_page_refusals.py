"""What is refused on the page: a person has a page that says what to do, a program the problem as JSON."""

from __future__ import annotations

from starlette.testclient import TestClient

from .seed import RUNNING
from .test_page import said

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_form_of_before_a_restart_is_answered_with_a_page(web: TestClient) -> None:
    given = {"token": "of before", "job": RUNNING}
    answer = web.post("/page/cancel", data=given, headers=BROWSER)
    assert answer.status_code == 403 and answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "Nothing was done This form is of another page" in said(answer.text)
    assert "load its page anew, and send it again." in said(answer.text)
    assert web.post("/page/cancel", data=given).json()["type"] == "urn:millrace:foreign-form"


def test_an_address_that_cannot_be_is_answered_with_a_page(web: TestClient) -> None:
    for path, told in (("/page/jobs?quarry=a", "Quarry: no parameter of /page/jobs; there are: q, sort"), ("/page/jobs/-x", "job: String"),
                       ("/page/jobs?sort=size", "sort: Input should be"), ("/page/unblock?host=a%20b", "host: String")):  # fmt: skip
        answer = web.get(path, headers=BROWSER)
        assert answer.status_code == 400 and "This cannot be shown" in said(answer.text), path
        assert told.lower() in said(answer.text).lower(), path
        assert web.get(path).json()["status"] == 400
