"""Headless Chromium logs in, is held to its role, and is asked again when its login ends while a page is open."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from millrace.io.http.server import HttpServer
from services.web.access import tokens
from tests.web.access.logins import access_of, login_of, tokens_of
from tests.web.page.pictures import CHROMIUM, LIMIT_MS, browser
from tests.web.page.seed import Cluster
from tests.web.page.test_browser import AXE, RUN_AXE

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium (Debian's package of that name)"),
]


def test_a_browser_logs_in_and_may_what_its_role_may(tmp_path: Path) -> None:
    given, cluster = tokens_of(tmp_path), Cluster(time.time_ns() // 1_000_000, 3)
    server = HttpServer(cluster.app(login=login_of(tmp_path), access=access_of(tmp_path)))
    where = f"http://127.0.0.1:{server.start()}/page"
    try:
        with browser() as chromium:
            view = chromium.new_page(viewport={"width": 390, "height": 760})
            view.set_default_timeout(LIMIT_MS)
            said: list[str] = []
            view.on("console", lambda message: said.append(message.text))
            view.goto(f"{where}/jobs")
            view.wait_for_url("**/page/login*")
            view.evaluate(AXE)
            assert view.evaluate(RUN_AXE) == []
            assert view.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert said == []
            view.fill("#secret", "wrong")
            view.click("button")
            view.locator("[role=alert]", has_text="It is no token of this service").wait_for()
            view.fill("#secret", given["viewer"])
            view.click("button")
            view.wait_for_url("**/page/jobs")
            assert view.evaluate("document.cookie.includes('__Host-millrace')") is False
            view.keyboard.press("n")  # the key that opens the form of a submission
            view.wait_for_url("**/page/refused")
            view.goto(f"{where}/more")
            view.click("form.who.big button")
            view.wait_for_url("**/page/login")
            view.fill("#secret", given["operator"])
            view.click("button")
            view.wait_for_url(lambda url: "/page/login" not in url)
            view.goto(f"{where}/submit")
            view.click("#send")
            view.wait_for_url("**/page/jobs/hello*")
            assert [kind for kind, _ in cluster.sent] == ["submit"]
            tokens.revoke(tmp_path / "tokens.json", "operator-1")
            view.wait_for_url("**/page/login?onward=*")
    finally:
        server.stop()
