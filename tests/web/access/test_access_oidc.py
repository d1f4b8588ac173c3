"""Logins by an OIDC provider that is a real one, but small: its keys sign, and they are asked for over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from starlette.testclient import TestClient

from services.web.access import oidc
from services.web.access.login import Login
from services.web.access.settings import Access
from services.web.access.who import COOKIE
from tests.web.access.provider import CLIENT, SECRET, Provider
from tests.web.page.seed import Cluster

PAGE = {"Accept": "text/html,*/*"}


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    made.start()
    yield made
    made.stop()


def web_of(provider: Provider, **more: Any) -> TestClient:
    roles = {"viewers": ["everybody"], "operators": ["engineers"], "admins": ["platform"]}
    told = {"issuer": provider.issuer, "client_id": CLIENT, **roles, **more}
    access = Access.model_validate({"public_url": "https://127.0.0.1", "oidc": told})
    app = Cluster(1, 1).app(login=Login(access), access=access)
    return TestClient(app, base_url="https://127.0.0.1", follow_redirects=False)


def asks(web: TestClient, token: str) -> Any:
    return web.get("/api/v1/overview", headers={"Authorization": f"Bearer {token}"})


def logs_in(web: TestClient, **wrong: str) -> Any:
    """As a browser does: to the provider and back; the last answer. `wrong`: other parameters than the provider gave."""
    there = web.get("/page/login/oidc?onward=/page/jobs", headers=PAGE)
    assert there.status_code == 303
    back = httpx.get(there.headers["location"], trust_env=False).headers["location"]
    path = urlsplit(back)
    assert path.path == "/page/login/back"
    asked = {name: values[0] for name, values in parse_qs(path.query).items()}
    return web.get("/page/login/back", params={**asked, **wrong}, headers={**PAGE, "Sec-Fetch-Site": "cross-site"})


def test_a_jwt_of_the_provider_is_a_login(provider: Provider) -> None:
    web = web_of(provider)
    assert asks(web, provider.jwt()).status_code == 200
    assert asks(web, provider.jwt(kid=None)).status_code == 200, "the one key needs no name"
    assert asks(web, provider.jwt(aud=["other", CLIENT])).status_code == 200
    cancel = web.post("/api/v1/jobs/x/cancel", headers={"Authorization": f"Bearer {provider.jwt(groups=['everybody'])}"})
    assert cancel.json()["detail"] == "u1 is viewer here, and this needs operator: an admin can give that role"
    assert provider.asked == {"discovery": 1, "keys": 1}, "the keys are kept"


@pytest.mark.parametrize(("claims", "why"), [
    ({"exp": 1}, "expired"), ({"iss": "https://evil.example"}, "issuer"), ({"aud": "other"}, "Audience"), ({"aud": None}, "aud"),
    ({"exp": None}, "exp"), ({"iat": None}, "iat"), ({"sub": None}, "sub"), ({"iat": 1 << 40}, "not yet valid"),
    ({"nbf": 1 << 40}, "not yet valid"), ({"groups": ["strangers"]}, "has no role here"), ({"groups": None}, "has no role here"),
    ({"groups": {"engineers": 1}}, "has no role here"), ({"groups": [["engineers"]]}, "has no role here"),
    ({"sub": "a\x1b[2J"}, "is no name"),
    ({"sub": "x" * 201}, "is no name"),
])  # fmt: skip
def test_what_does_not_hold_is_not_taken(provider: Provider, claims: dict[str, Any], why: str) -> None:
    answer = asks(web_of(provider), provider.jwt(**claims))
    assert answer.status_code == 401 and why in answer.json()["detail"]


def test_a_key_without_an_alg_checks_what_it_can(provider: Provider) -> None:
    provider.keys["curve"] = ec.generate_private_key(ec.SECP256R1())
    web = web_of(provider)
    assert [asks(web, provider.jwt(alg=alg)).status_code for alg in ("RS256", "RS512", "PS256")] == [200] * 3
    assert asks(web, provider.jwt(kid="curve", alg="ES256")).status_code == 200
    assert asks(web, provider.jwt(kid="first", key=provider.keys["curve"], alg="ES256")).status_code == 401


def test_a_token_that_another_one_signed_is_not_taken(provider: Provider) -> None:
    web = web_of(provider)
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = jwt.PyJWK.from_dict({**jwt.algorithms.RSAAlgorithm.to_jwk(provider.keys["first"].public_key(), as_dict=True)})
    head, body, sign = provider.jwt().split(".")
    for token in (
        provider.jwt(key=stranger), provider.jwt(kid="second", key=stranger), f"{head}.{body}.", f"{head}.{body[:-2]}.{sign}",
        provider.jwt(key="k" * 40, alg="HS256"), provider.jwt(key="secret" * 8, alg="HS256", kid="oct"),
        jwt.encode({"sub": "u1"}, None, "none"),  # type: ignore[arg-type]  # that is what none takes
        provider.jwt(key=ec.generate_private_key(ec.SECP256R1()), alg="ES256"), str(public), "a.b.c", "é",
    ):  # fmt: skip
        assert asks_raw(web, token).status_code == 401, token


def asks_raw(web: TestClient, token: str) -> Any:
    return web.get("/api/v1/overview", headers={b"Authorization": b"Bearer " + token.encode()})  # type: ignore[dict-item]  # as bytes


def test_the_clock_of_the_provider_may_be_a_minute_off(provider: Provider) -> None:
    import time

    web, now = web_of(provider), int(time.time())
    assert asks(web, provider.jwt(iat=now + 30, nbf=now + 30)).status_code == 200
    assert asks(web, provider.jwt(exp=now - 120)).status_code == 401


def test_a_new_key_is_asked_for_and_not_for_each_stranger(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    web = web_of(provider)
    assert asks(web, provider.jwt()).status_code == 200
    provider.keys["second"] = ec.generate_private_key(ec.SECP256R1())
    fresh = provider.jwt(kid="second", alg="ES256")
    for _ in range(5):
        assert asks(web, fresh).status_code == 401
    assert provider.asked["keys"] == 1, "it was asked a moment ago"
    monkeypatch.setattr(oidc, "AGAIN_S", -1.0)
    assert asks(web, fresh).status_code == 200 and provider.asked["keys"] == 2


def test_while_the_provider_is_away_its_keys_are_used_for_some_time(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "AGAIN_S", -1.0)
    web, token = web_of(provider), provider.jwt()
    provider.stop()
    answer = asks(web, token)
    assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (503, "urn:millrace:login-away", "10")
    assert web.get("/page/login/oidc", headers=PAGE).status_code == 503
    provider.start()
    assert asks(web, token).status_code == 200
    provider.stop()
    monkeypatch.setattr(oidc, "FRESH_S", -1.0)
    assert asks(web, token).status_code == 200
    monkeypatch.setattr(oidc, "KEPT_S", -1.0)
    assert asks(web, token).status_code == 503


def test_a_provider_that_hangs_holds_up_nobody_whose_key_is_kept(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"issuer": provider.issuer, "client_id": CLIENT, "viewers": ["v"]}
    settings = Access.model_validate({"public_url": "https://127.0.0.1", "oidc": told}).oidc
    assert settings is not None

    async def asked_while_it_hangs() -> None:
        ours = oidc.Provider(settings)
        assert (await ours.bearer(provider.jwt())).name == "u1"
        monkeypatch.setattr(oidc, "FRESH_S", -1.0)
        monkeypatch.setattr(oidc, "AGAIN_S", -1.0)
        provider.hangs = True
        for _ in range(3):
            assert (await ours.bearer(provider.jwt())).name == "u1"
            while provider.asked["discovery"] < 2:  # one request for the keys is under way, and no more
                await asyncio.sleep(0.01)
        assert provider.asked == {"discovery": 2, "keys": 1}
        provider.hangs = False
        while provider.asked["keys"] < 2:
            await asyncio.sleep(0.01)

    asyncio.run(asked_while_it_hangs())


@pytest.mark.parametrize(("wrong", "why"), [
    ({"issuer": "https://evil.example"}, "calls itself"), ({"jwks_uri": "http://evil.example/keys"}, "no https URL"),
    ({"token_endpoint": "file:///etc/passwd"}, "no https URL"), ({"jwks_uri": None}, "lacks jwks_uri"), ({"x": "y" * 300_000}, "more than"),
])  # fmt: skip
def test_a_provider_that_says_what_cannot_be_is_not_believed(
    provider: Provider, wrong: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.wrong = wrong
    assert asks(web_of(provider), provider.jwt()).status_code == 503
    assert why in capsys.readouterr().out


def test_a_browser_logs_in_at_the_provider(provider: Provider) -> None:
    web = web_of(provider)
    assert "Log in with your organisation" in web.get("/page/login").text
    answer = logs_in(web)
    assert (answer.status_code, answer.headers["location"]) == (303, "/page/jobs")
    assert "u1 · operator" in web.get("/page/", headers=PAGE).text
    assert "__Host-millrace-login" not in web.cookies, "it is used up"


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"]])
def test_a_client_with_a_secret_gives_it_as_the_provider_wants(provider: Provider, methods: list[str]) -> None:
    provider.secret, provider.methods = SECRET, methods
    assert logs_in(web_of(provider, client_secret=SECRET)).status_code == 303
    refused = logs_in(web_of(provider, client_secret="wrong"))
    assert refused.status_code == 401 and "invalid_client" in refused.text and "wrong" not in refused.text


def test_a_login_that_somebody_else_began_is_not_ended_here(provider: Provider) -> None:
    web = web_of(provider)
    assert logs_in(web, state="other").status_code == 401
    assert logs_in(web, code="other").status_code == 401
    web.get("/page/login/oidc", headers=PAGE)
    refused = web.get("/page/login/back", params={"error": "access_denied", "state": "x"}, headers=PAGE)
    assert refused.status_code == 401
    web.cookies.clear()
    assert web.get("/page/login/back", params={"code": "c", "state": "s"}, headers=PAGE).status_code == 401
    assert COOKIE not in web.cookies


@pytest.mark.parametrize(("claims", "why"), [
    ({"nonce": "other"}, "another login"), ({"nonce": None}, "another login"), ({"aud": [CLIENT, "b"]}, "another client"),
    ({"aud": [CLIENT, "b"], "azp": "b"}, "another client"), ({"exp": 1}, "expired"), ({"groups": []}, "As yet u1 has no role here"),
])  # fmt: skip
def test_an_id_token_that_is_not_for_this_login_is_none(provider: Provider, claims: dict[str, Any], why: str) -> None:
    provider.id_claims = claims
    web = web_of(provider)
    answer = logs_in(web)
    assert answer.status_code == 401 and why in answer.text and COOKIE not in web.cookies


def test_names_and_roles_are_where_the_settings_say(provider: Provider) -> None:
    web = web_of(provider, name_claim="email", role_claim="realm_access.roles", audience="api")
    person = {"email": "ada@example.org", "realm_access": {"roles": ["everybody", "platform"]}, "aud": "api"}
    assert asks(web, provider.jwt(**person)).status_code == 200
    answer = web.post("/api/v1/deadletters/9/redrive", headers={"Authorization": f"Bearer {provider.jwt(**person)}"})
    assert answer.status_code == 404, "an admin may: there is no such letter"
    assert asks(web, provider.jwt(**{**person, "aud": CLIENT})).status_code == 401
    assert asks(web, provider.jwt(aud="api")).status_code == 401


def test_without_tokens_a_text_that_looks_like_one_is_none(provider: Provider) -> None:
    assert asks(web_of(provider), f"mlr_{'a' * 43}").status_code == 401


def test_the_settings_of_a_provider_are_in_no_page(provider: Provider, tmp_path: Path) -> None:
    web = web_of(provider, client_secret="0123456789-secret")
    logs_in(web)
    for path in ("/page/", "/page/more", "/jobmanager/config", "/metrics"):
        assert "0123456789-secret" not in web.get(path).text
