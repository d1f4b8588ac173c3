"""An OpenID Connect provider: its keys, which check its JWTs, and the code flow with PKCE, by which a browser logs in."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
import jwt
import structlog
from pydantic import BaseModel, ValidationError

from millrace.core.messages.audit import Role
from millrace.io.addresses import is_loopback

from .settings import Oidc
from .who import ROLES

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""With two keys each: one whose secret this service had could be signed by whoever reads its settings."""
SKEW_S = 60.0
"""So far the provider's clock may be from ours."""
ANSWER_S = 5.0
ANSWER_MOST = 256 << 10
KEYS_MOST = 50
FRESH_S = 3600.0
KEPT_S = 24 * 3600.0
"""For so long keys are used while the provider does not answer."""
AGAIN_S = 10.0
"""A JWT with a key that is not known lets the keys be asked for again, no sooner than that after the last time."""
NAME_MOST = 200

log = structlog.get_logger("web")


class NotTaken(Exception):
    """A JWT, or a login, that is not taken; the message says why."""


class ProviderAway(Exception):
    """The provider does not answer, or not as one does."""


class Somebody(NamedTuple):
    """Whom the provider vouches for. `role` None: it says nothing by which this service knows one."""

    name: str
    role: Role | None
    until_s: float


class _Discovery(BaseModel):
    """OpenID Connect Discovery 1.0, as much of it as is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_endpoint_auth_methods_supported: list[str] = ["client_secret_basic"]


class _Known(NamedTuple):
    places: _Discovery
    keys: Mapping[str | None, Any]
    """A PyJWK where the provider says its alg, and what is in it where a token may say it."""
    at_s: float


class Provider:
    """For one event loop."""

    def __init__(self, settings: Oidc, now_s: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._now_s = settings, now_s
        self._audience = settings.audience or settings.client_id
        self._known: _Known | None = None
        self._tried_s = float("-inf")
        self._asking = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def bearer(self, token: str) -> Somebody:
        """Whose bearer token this is. Raises NotTaken, ProviderAway."""
        return self._somebody(await self._claims(token, self._audience))

    async def login_url(self, back: str, state: str, nonce: str, verifier: str) -> str:
        """Where a browser goes to log in. Raises ProviderAway."""
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code", "client_id": self._settings.client_id, "redirect_uri": back, "scope": self._settings.scopes,
            "state": state, "nonce": nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        where = (await self._knows()).places.authorization_endpoint
        return f"{where}{'&' if urlsplit(where).query else '?'}{urlencode(asked)}"

    async def exchange(self, code: str, back: str, nonce: str, verifier: str) -> Somebody:
        """Who has logged in. Raises NotTaken, ProviderAway."""
        settings = self._settings
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": back, "client_id": settings.client_id,
            "code_verifier": verifier,
        }  # fmt: skip
        secret, auth = settings.client_secret.get_secret_value(), None
        places = (await self._knows()).places
        if secret and "client_secret_basic" in places.token_endpoint_auth_methods_supported:
            auth = quote_plus(settings.client_id), quote_plus(secret)
        elif secret:
            form["client_secret"] = secret
        answer = await _fetch("POST", places.token_endpoint, form, auth)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise NotTaken("the provider gave no ID token for the code: log in anew")
        claims = await self._claims(token, settings.client_id)
        if claims.get("nonce") != nonce:
            raise NotTaken("the ID token is of another login: log in anew")
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != settings.client_id:
            raise NotTaken("the ID token was made for another client")
        return self._somebody(claims)

    async def _claims(self, token: str, audience: str) -> dict[str, Any]:
        try:
            head = jwt.get_unverified_header(token)
            if head.get("alg") not in ALGORITHMS:
                raise NotTaken(f"its alg is none of {', '.join(ALGORITHMS)}")
            claims: dict[str, Any] = jwt.decode(
                token, await self._key(head.get("kid")), algorithms=[head["alg"]], audience=audience, issuer=self._settings.issuer,
                leeway=SKEW_S, options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )  # fmt: skip
        except (jwt.PyJWTError, TypeError, ValueError) as error:  # a key of another kind than its alg says
            raise NotTaken(str(error)[:300] or type(error).__name__) from None
        return claims

    async def _key(self, kid: object) -> Any:
        known = await self._knows()
        found = _among(known, kid)
        if found is None and self._now_s() - known.at_s > AGAIN_S:
            found = _among(await self._knows(anew=True), kid)
        if found is None:
            raise NotTaken("it is signed with a key that the provider does not have")
        return found

    async def _knows(self, anew: bool = False) -> _Known:
        """The provider's addresses and keys: asked for at most once in AGAIN_S, whoever asks. While kept ones may be used, nobody waits
        for the provider: one that hangs would hold up each request."""
        known = self._known
        age_s = float("inf") if known is None else self._now_s() - known.at_s
        if known is not None and not anew and age_s < KEPT_S:
            if age_s >= FRESH_S and (self._renewal is None or self._renewal.done()):
                self._renewal = asyncio.create_task(self._renew(known))
            return known
        await self._renew(known)
        if self._known is None or self._now_s() - self._known.at_s > KEPT_S:
            raise ProviderAway("the OIDC provider does not answer: nobody can log in by it now")
        return self._known

    async def _renew(self, known: _Known | None) -> None:
        """Asks the provider, unless somebody else has since `known` was, or in vain a moment ago."""
        async with self._asking:
            if self._known is not known or self._now_s() - self._tried_s <= AGAIN_S:
                return
            try:
                self._known = await self._ask()
            except ProviderAway as away:
                log.error("the OIDC provider cannot be asked", reason=str(away))
            finally:
                self._tried_s = self._now_s()  # of its end: who waited meanwhile does not ask once more

    async def _ask(self) -> _Known:
        issuer = self._settings.issuer
        try:
            places = _Discovery.model_validate(await _fetch("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration"))
        except ValidationError as error:
            wrong = ".".join(map(str, error.errors()[0]["loc"]))
            raise ProviderAway(f"what it says of itself lacks {wrong}") from None
        if places.issuer != issuer:
            raise ProviderAway(f"it calls itself {places.issuer[:200]!r}, and not {issuer!r}: the setting must be the same to the letter")
        for where in (places.authorization_endpoint, places.token_endpoint, places.jwks_uri):
            _check_safe(where)
        raw = (await _fetch("GET", places.jwks_uri)).get("keys")
        keys: dict[str | None, jwt.PyJWK] = {}
        for each in raw[:KEYS_MOST] if isinstance(raw, list) else ():
            try:
                if isinstance(each, dict) and each.get("use", "sig") == "sig" and each.get("kty") != "oct":
                    key = jwt.PyJWK.from_dict(each)
                    keys[each.get("kid")] = key if "alg" in each else key.key
            except (jwt.PyJWTError, TypeError, ValueError) as error:
                log.warning("a key of the OIDC provider cannot be used", reason=repr(error))
        if not keys:
            raise ProviderAway("it has no key that can be used")
        return _Known(places, keys, self._now_s())

    def _somebody(self, claims: Mapping[str, Any]) -> Somebody:
        settings = self._settings
        name = claims.get(settings.name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= NAME_MOST or not name.isprintable():
            raise NotTaken(f"its claim {settings.name_claim} is no name")
        found: Any = claims
        for part in [settings.role_claim] if settings.role_claim in claims else settings.role_claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        values = {each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str)}
        roles = [role for role in ROLES if values.intersection(getattr(settings, f"{role}s"))]
        return Somebody(name, roles[-1] if roles else None, float(claims["exp"]))


def _among(known: _Known, kid: object) -> Any:
    if kid is None:
        return next(iter(known.keys.values())) if len(known.keys) == 1 else None
    return known.keys.get(kid) if isinstance(kid, str) else None


def _check_safe(where: str) -> None:
    parts = urlsplit(where)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise ProviderAway(f"its address {where[:200]!r} is no https URL")


async def _fetch(
    method: str, url: str, form: Mapping[str, str] | None = None, auth: tuple[str, str] | None = None
) -> dict[str, Any]:
    """An object, of bounded size, in bounded time. Raises NotTaken for what the provider refuses, ProviderAway."""
    try:
        status, body = await asyncio.wait_for(_read(method, url, form, auth), 2 * ANSWER_S)
        found = json.loads(body)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, asyncio.TimeoutError) as error:
        raise ProviderAway(f"{url} does not answer: {type(error).__name__}: {error}") from None
    except (ValueError, RecursionError):
        raise ProviderAway(f"{url} does not answer in JSON") from None
    if method == "POST" and 400 <= status < 500:
        why = found.get("error") if isinstance(found, dict) else None
        raise NotTaken(f"the provider refuses the login: {str(why)[:200]}")
    if status != 200 or not isinstance(found, dict):
        raise ProviderAway(f"{url} answers {status}")
    return found


async def _read(method: str, url: str, form: Mapping[str, str] | None, auth: tuple[str, str] | None) -> tuple[int, bytes]:
    body = b""
    plain = {"Accept": "application/json", "Accept-Encoding": "identity"}  # what is packed could be of any size unpacked
    async with httpx.AsyncClient(timeout=ANSWER_S, follow_redirects=False, headers=plain) as http:
        async with http.stream(method, url, data=form, auth=auth) as answer:
            async for part in answer.aiter_raw():
                body += part
                if len(body) > ANSWER_MOST:
                    raise ProviderAway(f"{url} answers with more than {ANSWER_MOST} bytes")
    return answer.status_code, body
