"""With a login: who is let through, what each role may, what a browser's session may, and how much is taken of one client."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from services.web.access import guard, tokens
from services.web.access.rates import Rates
from services.web.access.roles import TABLE
from services.web.access.who import COOKIE
from services.web.settings import WebSettings
from tests.web.access.logins import access_of, login_of, tokens_of
from tests.web.page.seed import FAILED, RUNNING, Cluster
from tests.web.test_web_streams import Follower

NOW = 1_700_000_000_000
GRAPH = {"name": "one", "vertices": {"one": {"sql": "SELECT 1 AS a"}}}
PAGE = {"Accept": "text/html,*/*"}


class Scene:
    """A web service with a login over a cluster in memory, and a token for each role."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.cluster = Cluster(NOW, 3)
        self.tokens = tokens_of(folder)
        self.file = folder / "tokens.json"
        self.login = login_of(folder, **more)
        self.app = self.cluster.app(login=self.login, access=access_of(folder, **more))

    def client(self, role: str = "", **headers: str) -> TestClient:
        given = {"Authorization": f"Bearer {self.tokens[role]}"} if role else {}
        return TestClient(self.app, base_url="https://127.0.0.1", follow_redirects=False, headers={**given, **headers})

    def browser(self, role: str) -> TestClient:
        """One that has logged in."""
        web = self.client(**PAGE, **{"Sec-Fetch-Site": "same-origin"})
        answer = web.post("/page/login", data={"secret": self.tokens[role], "onward": "/page/jobs"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/page/jobs")
        return web


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def form_token(html: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', html)
    assert found is not None
    return found.group(1)


def test_without_a_login_nothing_is_told_but_that(scene: Scene) -> None:
    web = scene.client()
    for path in ("/api/v1/overview", "/api/v1/openapi.json", "/metrics", "/page/", "/jobs/overview", "/v1/config", "/nothing", "/flink/"):
        answer = web.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        assert RUNNING not in answer.text
    assert web.get("/api/v1/overview").headers["content-type"] == "application/problem+json"
    assert list(web.get("/v1/jobs/overview").json()) == ["errors"], "Flink's clients go by the body"
    assert web.get("/healthz").status_code == 200


@pytest.mark.parametrize("header", [
    "Bearer", "Bearer ", "Bearer mlr_", f"Bearer mlr_{'a' * 43}", "Basic dXNlcjpwYXNz", f"Bearer {'x' * 20_000}", "Bearer a.b.c",
])  # fmt: skip
def test_what_is_no_token_is_refused_and_not_repeated(scene: Scene, header: str) -> None:
    answer = scene.client(Authorization=header).get("/api/v1/overview")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    secret = header.partition(" ")[2]
    assert len(secret) < 5 or secret not in answer.text


def test_each_role_may_what_the_table_says(scene: Scene) -> None:
    for role, submits, redrives in (("viewer", 403, 403), ("operator", 201, 403), ("admin", 201, 404)):
        web = scene.client(role)
        assert web.get("/api/v1/overview").status_code == 200
        assert web.post("/api/v1/jobs", json=GRAPH).status_code == submits
        assert web.post("/api/v1/deadletters/3/redrive").status_code == redrives
    answer = scene.client("viewer").post(f"/api/v1/jobs/{RUNNING}/cancel")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:millrace:role")
    assert answer.json()["detail"] == "viewer-1 is viewer here, and this needs operator: an admin can give that role"
    for answer in (scene.client("viewer").patch("/jobs/x"), scene.client("viewer").get("/v1/jobs/x/yarn-cancel")):
        assert answer.status_code == 403 and list(answer.json()) == ["errors"]
    assert scene.client("admin").get("/api/v1/nothing").status_code == 404
    assert [kind for kind, _ in scene.cluster.sent] == ["submit", "submit"]


def test_a_route_without_a_row_is_refused_to_everybody(scene: Scene) -> None:
    async def forgotten() -> str:
        return "secret"

    scene.app.add_api_route("/forgotten", forgotten)
    answer = scene.client("admin").get("/forgotten")
    assert answer.status_code == 404 and "secret" not in answer.text


def test_a_revoked_token_is_none_and_so_is_its_browser(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_S", -1.0)
    web, browser = scene.client("operator"), scene.browser("operator")
    assert web.get("/api/v1/overview").status_code == browser.get("/page/").status_code == 200
    tokens.revoke(scene.file, "operator-1")
    assert web.get("/api/v1/overview").status_code == 401
    assert browser.get("/page/").headers["location"] == "/page/login?onward=%2Fpage%2F"


def test_a_stream_ends_with_its_login(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_S", -1.0)
    monkeypatch.setattr(guard, "LOOK_S", -1.0)
    monkeypatch.setattr("services.web.api.streams.HEARTBEAT_S", 0.05)

    async def follow() -> None:
        follower = Follower(scene.app, "/api/v1/streams/jobs")
        follower._scope["headers"].append((b"authorization", f"Bearer {scene.tokens['viewer']}".encode()))
        async with follower:
            assert follower.status == 200
            tokens.revoke(scene.file, "viewer-1")
            await asyncio.wait_for(follower._task, 30)
            sent = [follower._queue.get_nowait() for _ in range(follower._queue.qsize())]
            assert [each["more_body"] for each in sent[-2:]] == [True, False], "whole, or the server would log an error"

    asyncio.run(follow())


def test_a_browser_logs_in_by_a_token_and_has_a_cookie_that_no_script_reads(scene: Scene) -> None:
    web = scene.client(**PAGE)
    assert web.get("/page/jobs?q=a b").headers["location"] == "/page/login?onward=%2Fpage%2Fjobs%3Fq%3Da%2520b"
    form = web.get("/page/login?onward=/page/jobs").text
    assert 'type="password"' in form and RUNNING not in form and "Log in with your organisation" not in form
    wrong = web.post("/page/login", data={"secret": f"mlr_{'a' * 43}"})
    assert wrong.status_code == 401 and "it was revoked" in wrong.text and "aaaa" not in wrong.text
    answer = web.post("/page/login", data={"secret": f" {scene.tokens['operator']}\n", "onward": "/page/jobs"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=") and all(part in cookie for part in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"))
    assert scene.tokens["operator"] not in cookie
    page = web.get("/page/").text
    assert "operator-1 · operator" in page and "/page/submit" in page
    assert web.post("/page/logout", data={"token": form_token(page)}, headers={"Sec-Fetch-Site": "same-origin"}).status_code == 303
    assert web.get("/page/").status_code == 303


@pytest.mark.parametrize("onward", [
    "//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)", "/a\nb", "", "/page/a\nb", "/page/" + "x" * 2000,
    *(f"{before}/jobs/{RUNNING}/yarn-cancel" for before in ("", "/v1", "/flink", "/page/..", "/page/%2e%2e", "/page/a/.%2E/../..")),
    f"/page/..\\jobs/{RUNNING}/yarn-cancel",
])  # fmt: skip
def test_a_login_leads_nowhere_else(scene: Scene, onward: str) -> None:
    web = scene.client(**PAGE)
    answer = web.post("/page/login", data={"secret": scene.tokens["viewer"], "onward": onward})
    assert answer.headers["location"] == "/page/"
    form = web.get("/page/login", params={"onward": onward})
    assert form.status_code == 200 and 'name="onward" value="/page/"' in form.text


def test_a_login_leads_to_a_screen(scene: Scene) -> None:
    web = scene.client(**PAGE)
    for onward in ("/flink/", "/page/jobs?q=a..b&at=/../", f"/page/jobs/{RUNNING}"):
        answer = web.post("/page/login", data={"secret": scene.tokens["viewer"], "onward": onward})
        assert answer.headers["location"] == onward
    web.cookies.clear()
    for asked in (f"/flink/jobs/{RUNNING}/yarn-cancel", f"/page/jobs?q={'x' * 3000}"):
        assert web.get(asked).headers["location"] == "/page/login?onward=%2Fpage%2F"


def test_a_browser_that_is_led_to_it_cancels_nothing(scene: Scene) -> None:
    """It says that our page leads there, and that it wants a document. The dashboard's script wants none."""
    web, path = scene.browser("operator"), f"/flink/jobs/{RUNNING}/yarn-cancel"
    for wants in ("document", "iframe", "image"):
        answer = web.get(path, headers={"Sec-Fetch-Dest": wants, "Accept": "text/html"})
        assert answer.status_code == 403 and scene.cluster.sent == []
    assert web.get(path, headers={"Sec-Fetch-Dest": "empty", "Accept": "*/*"}).status_code == 202
    assert scene.cluster.sent == [("cancel", RUNNING)]


def test_long_cookies_are_refused_before_they_are_looked_at(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for web in (scene.client("viewer"), TestClient(Cluster(NOW, 1).app(), base_url="http://127.0.0.1")):
        for path in ("/page/", "/api/v1/overview", "/page/login/back?state=x&code=y"):
            answer = web.get(path, headers={"Cookie": "theme=\"" + "\\" * (16 << 10)})
            assert answer.status_code == 431 and "delete those of this service" in answer.json()["detail"], path
        among = f'a="\\"; theme=dark; b={"x" * 8000}; {COOKIE}x=1; ='
        assert '<html lang="en" data-theme="dark">' in web.get("/page/", headers={"Cookie": among}).text
        assert '<html lang="en">' in web.get("/page/", headers={"Cookie": 'theme="dark"'}).text


def test_a_session_that_somebody_else_has_signed_or_that_is_over_is_none(scene: Scene, tmp_path: Path) -> None:
    web = scene.client()
    (tmp_path / "other").mkdir()
    other = Scene(tmp_path / "other")
    other.login._key = "x" * 32
    for cookie in ("", "a.b.c", other.login.by_token(other.tokens["admin"]), scene.login._signed("login", 60, token="0" * 64, session="a")):
        web.cookies.set(COOKIE, cookie)
        assert web.get("/api/v1/overview").status_code == 401
    mine = scene.login.by_token(scene.tokens["admin"])
    scene.login._now_s = lambda: 1e11
    web.cookies.set(COOKIE, mine)
    assert "the login is over" in web.get("/api/v1/overview").text


def test_another_page_cannot_use_a_browsers_session(scene: Scene) -> None:
    """Its forms are refused by where they come from, and by what must be in them; a link in a mail by where it comes from alone."""
    web = scene.browser("operator")
    del web.headers["Sec-Fetch-Site"]
    token = form_token(web.get("/page/submit").text)
    form = {"job": RUNNING, "sure": "yes", "token": token}
    sites = ({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site", "none"))
    for headers in ({}, *sites, {"Origin": "https://evil.example"}, {"Origin": "null"}):
        assert web.post("/page/cancel", data=form, headers=headers).status_code == 403, headers
        assert web.post(f"/api/v1/jobs/{RUNNING}/cancel", headers=headers).status_code == 403, headers
    for site in ("cross-site", "same-site", "none"):
        assert web.get(f"/jobs/{RUNNING}/yarn-cancel", headers={"Sec-Fetch-Site": site, "Accept": "*/*"}).status_code == 403
    own = {"Sec-Fetch-Site": "same-origin"}
    assert web.post("/page/cancel", data={**form, "token": "x"}, headers=own).status_code == 403
    others = form_token(scene.browser("admin").get("/page/submit").text)
    assert web.post("/page/cancel", data={**form, "token": others}, headers=own).status_code == 403, "a form of another person's"
    assert scene.cluster.sent == []
    assert web.post("/page/cancel", data=form, headers=own).status_code == 303
    assert scene.cluster.sent == [("cancel", RUNNING)]


@pytest.mark.parametrize("origin", ["http://[", "http://127.0.0.1", "null", "", "127.0.0.1", "ftp://127.0.0.1", "https://127.0.0.1:1", "https://"])
def test_an_origin_that_is_not_this_service_is_another(scene: Scene, origin: str) -> None:
    web = scene.browser("operator")
    del web.headers["Sec-Fetch-Site"]
    for method, path in (("POST", f"/api/v1/jobs/{RUNNING}/cancel"), ("GET", f"/jobs/{RUNNING}/yarn-cancel")):
        assert web.request(method, path, headers={"Origin": origin, "Accept": "*/*"}).status_code == 403
    assert scene.client("operator").post("/api/v1/jobs", json=GRAPH, headers={"Origin": origin}).status_code == 403
    assert scene.cluster.sent == []
    assert web.post(f"/api/v1/jobs/{RUNNING}/cancel", headers={"Origin": "https://127.0.0.1"}).status_code == 200


def test_an_origin_of_tls_is_ours_where_something_before_us_speaks_it() -> None:
    web = TestClient(Cluster(NOW, 1).app(), base_url="http://127.0.0.1")
    for origin, status in (("https://127.0.0.1", 201), ("http://127.0.0.1", 201), ("https://evil.example", 403), ("http://[", 403)):
        assert web.post("/api/v1/jobs", json=GRAPH, headers={"Origin": origin}).status_code == status


def test_several_processes_with_one_key_take_each_others_forms(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, other = Scene(tmp_path / "a", session_key="k" * 32), Scene(tmp_path / "b", session_key="o" * 32)
    second = TestClient(one.cluster.app(login=login_of(tmp_path / "a", session_key="k" * 32)), base_url="https://127.0.0.1")
    assert one.login.form_key != other.login.form_key and one.login._key.encode() not in one.login.form_key
    web = one.browser("operator")
    token = form_token(web.get("/page/submit").text)
    second.cookies.update(web.cookies)
    form = {"job": RUNNING, "sure": "yes", "token": token}
    answer = second.post("/page/cancel", data=form, headers={**PAGE, "Sec-Fetch-Site": "same-origin"}, follow_redirects=False)
    assert answer.status_code == 303 and one.cluster.sent == [("cancel", RUNNING)]


def test_a_session_of_a_provider_ends_with_it(scene: Scene) -> None:
    web = scene.client()
    web.cookies.set(COOKIE, scene.login._signed("session", 60, name="ada", role="admin", session="a"))
    answer = web.get("/api/v1/overview")
    assert answer.status_code == 401 and "log in anew" in answer.text


def test_a_viewers_pages_have_no_actions_and_say_why(scene: Scene) -> None:
    web = scene.browser("viewer")
    for path in ("/page/", "/page/jobs", f"/page/jobs/{RUNNING}", f"/page/jobs/{FAILED}"):
        html = web.get(path).text
        assert "/cancel\"" not in html.replace('action="/page/cancel"', "") and "/again\"" not in html and "/page/submit" not in html, path
        assert 'id="bulk"' not in html and "checkbox" not in html, "what is selected could be used for nothing"
    assert "checkbox" in scene.browser("operator").get("/page/jobs").text
    letters = {role: scene.browser(role).get("/page/letters").text.count('name="letter"') for role in ("operator", "admin")}
    assert letters["operator"] == 0 < letters["admin"], "an admin alone sends them again"
    assert web.get("/page/submit").headers["location"] == "/page/refused"
    refused = web.get("/page/refused")
    assert refused.status_code == 403 and "viewer-1 is viewer here" in refused.text
    assert scene.browser("operator").get(f"/page/jobs/{RUNNING}").text.count("/cancel\"") == 1, "what one is shown is not kept for another"


def test_no_token_and_no_hash_is_in_a_page_or_an_answer(scene: Scene) -> None:
    web = scene.browser("admin")
    hidden = [*scene.tokens.values(), *map(tokens.sha256_of, scene.tokens.values()), scene.login._key]
    paths = ("/page/", "/page/more", "/page/submit", f"/page/jobs/{RUNNING}?tab=configuration", "/metrics", "/jobmanager/config",
             "/jobmanager/environment", "/api/v1/overview")  # fmt: skip
    for path in paths:
        text = web.get(path).text
        assert not [each for each in hidden if each in text], path


def test_a_client_that_asks_too_much_waits_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that stands: half a second of a busy machine would let one more through."""
    monkeypatch.setattr(guard, "Rates", partial(Rates, now_s=lambda: 0.0))
    scene = Scene(tmp_path, requests_per_s=2, commands_per_s=0.4)
    operator, admin = scene.client("operator"), scene.client("admin")
    assert [operator.post("/api/v1/jobs", json=GRAPH).status_code for _ in range(3)] == [201, 201, 429]
    answer = operator.post("/api/v1/jobs", json=GRAPH)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "3")
    assert "too many commands of operator-1" in answer.json()["detail"]
    assert operator.get("/api/v1/overview").status_code == 200, "it may look still"
    statuses = [operator.get("/api/v1/overview").status_code for _ in range(10)]
    assert statuses[-1] == 429 and operator.get("/jobs/overview").json() == {
        "errors": ["too many requests of operator-1 in a short time; try again"]
    }
    assert admin.get("/api/v1/overview").status_code == 200
    nobody = scene.client()
    assert [nobody.get("/api/v1/overview").status_code for _ in range(11)] == [401] * 10 + [429], "by its address"


def test_a_client_has_so_many_streams_and_not_more(tmp_path: Path) -> None:
    scene = Scene(tmp_path, streams=2)

    def follower(role: str) -> Follower:
        made = Follower(scene.app, "/api/v1/streams/jobs")
        made._scope["headers"].append((b"authorization", f"Bearer {scene.tokens[role]}".encode()))
        return made

    async def follow() -> None:
        async with follower("viewer") as one, follower("viewer") as two, follower("viewer") as three, follower("admin") as other:
            assert [each.status for each in (one, two, three, other)] == [200, 200, 429, 200]
        async with follower("viewer") as again:
            assert again.status == 200

    asyncio.run(follow())


def test_pages_of_a_listed_origin_may_use_a_token_and_no_cookie(tmp_path: Path) -> None:
    scene = Scene(tmp_path, origins=["https://board.example"])
    listed, other = {"Origin": "https://board.example"}, {"Origin": "https://evil.example"}
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    web = scene.client()
    allowed = web.options("/api/v1/jobs", headers={**listed, **asks})
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://board.example")
    assert "access-control-allow-credentials" not in allowed.headers
    rows = [row.split()[1:] for row in TABLE.splitlines() if row and " /api/" in row]
    refused = [
        (method, path) for method, path in rows
        if web.options(path, headers={**listed, **asks, "Access-Control-Request-Method": method}).status_code != 200
    ]  # fmt: skip
    assert refused == []
    assert "access-control-allow-origin" not in web.options("/api/v1/jobs", headers={**other, **asks}).headers
    operator = scene.client("operator")
    assert operator.post("/api/v1/jobs", json=GRAPH, headers=listed).status_code == 201
    assert operator.post("/api/v1/jobs", json=GRAPH, headers=other).status_code == 403
    browser = scene.browser("operator")
    del browser.headers["Sec-Fetch-Site"]
    assert browser.post(f"/api/v1/jobs/{RUNNING}/cancel", headers={**listed, "Sec-Fetch-Site": "same-site"}).status_code == 403


def test_every_answer_has_an_id_and_says_over_tls_that_it_stays_so(scene: Scene) -> None:
    web = scene.client("viewer")
    ids = {web.get(path).headers["x-request-id"] for path in ("/api/v1/overview", "/nothing", "/jobs", "/page/")}
    assert len(ids) == 4
    for path in ("/api/v1/jobs", "/jobs/overview"):  # what is refused before anybody asks who it is
        assert "x-request-id" in web.get(path, headers={"Host": "other.example"}).headers
        assert "x-request-id" in web.post(path, headers={"Origin": "https://evil.example"}).headers
    assert web.get("/page/").headers["strict-transport-security"] == "max-age=31536000"
    assert "strict-transport-security" not in TestClient(scene.app, base_url="http://127.0.0.1").get("/healthz").headers


@pytest.mark.parametrize("path", ["/api/v1/overview", "/page/", "/jobs/overview", "/flink/overview"])
def test_what_fails_inside_has_the_id_and_the_headers_of_any_answer(
    scene: Scene, path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(scene.cluster.view, "ask", broken)
    answer = scene.client("viewer").get(path)
    assert answer.status_code == 500 and "mistake of ours" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff" and "strict-transport-security" in answer.headers
    told = [line for line in capsys.readouterr().out.splitlines() if "a request failed" in line]
    assert len(told) == 1 and answer.headers["x-request-id"] in told[0]


def test_off_loopback_it_starts_with_tls_and_a_login(tmp_path: Path) -> None:
    tokens_of(tmp_path)
    pem = tmp_path / "x.pem"
    pem.write_text("")
    tls = {"certificate": pem, "key": pem}
    there = {"host": "0.0.0.0", "allowed_hosts": ["millrace.example"]}
    for access, lacks in (({}, "TLS .* and a login"), (tls, "a login"), ({"tokens": tmp_path / "tokens.json"}, "TLS")):
        with pytest.raises(ValidationError, match=f"it needs {lacks}"):
            WebSettings(**there, access=access)
    assert WebSettings(**there, access={**tls, "tokens": tmp_path / "tokens.json"}).host == "0.0.0.0"
    with pytest.raises(ValidationError, match="must have the names it is reached by"):
        WebSettings(host="0.0.0.0", access={**tls, "tokens": tmp_path / "tokens.json"})


@pytest.mark.parametrize(("given", "message"), [
    ({"certificate": __file__}, "given together"),
    ({"tokens": "/nowhere/tokens.json"}, "does not point to a file"),
    ({"session_key": "short"}, "32 characters"),
    ({"origins": ["https://a.example/"]}, "is no origin"),
    ({"public_url": "https://a.example/path"}, "pattern"),
    ({"public_url": "http://a.example"}, "must be an https URL"),
    ({"oidc": {"issuer": "http://a.example", "client_id": "m", "admins": ["a"]}}, "must be an https URL"),
    ({"oidc": {"issuer": "https://a.example", "admins": ["a"]}}, "client_id is needed"),
    ({"oidc": {"issuer": "https://a.example", "client_id": "m"}}, "nobody could do anything"),
    ({"oidc": {"issuer": "https://a.example", "client_id": "m", "admins": ["a"], "scopes": "email"}}, "must have openid"),
    ({"oidc": {"issuer": "https://a.example", "client_id": "m", "admins": ["a"]}}, "public_url is needed"),
    ({"login": True}, "Extra inputs"),
])  # fmt: skip
def test_a_setting_that_is_wrong_is_said(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        WebSettings(access=given)
    assert "short" not in str([each["msg"] for each in refused.value.errors()])


def test_the_secrets_among_the_settings_are_masked() -> None:
    settings = WebSettings(access={"session_key": "k" * 32, "oidc": {"client_secret": "s3cr3t"}})
    assert "s3cr3t" not in str(settings.describe()) and "k" * 32 not in str(settings.describe())
    assert set(settings.secret_values()) == {"k" * 32, "s3cr3t"}
