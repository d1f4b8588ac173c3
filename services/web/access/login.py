"""Finds out who asks: by a token, by a JWT of the OIDC provider, or by the cookie of a browser that has logged in with one of them."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any

import jwt

from .oidc import NotTaken, Provider
from .settings import Access
from .tokens import PREFIX, TokenFile, sha256_of
from .who import ROLES, Who

LOGIN_S = 600.0
"""For so long a browser may be at the provider."""
BACK = "/page/login/back"
SESSION, STATE = "session", "login"
NO_ROLE = "as yet {} has no role here: an admin must give one"
"""A name is shown as it is: it does not begin the sentence, whose first letter the page makes a large one."""


class Login:
    """For one event loop."""

    def __init__(self, settings: Access, now_s: Callable[[], float] = time.time) -> None:
        """Raises BadTokens."""
        self._now_s = now_s
        self._key = settings.session_key.get_secret_value() or secrets.token_urlsafe(32)
        self.form_key = hmac.digest(self._key.encode(), b"forms", "sha256")
        """Signs forms: several processes with one session key take each other's."""
        self._session_s = settings.session_minutes * 60.0
        self.tokens = TokenFile(settings.tokens) if settings.tokens is not None else None
        self.provider = Provider(settings.oidc) if settings.oidc.issuer else None
        self._back = settings.public_url + BACK

    async def bearer(self, text: str) -> Who:
        """Whose token this is. Raises NotTaken, ProviderAway."""
        if text.startswith(PREFIX) and self.tokens is not None:
            return self._of_token(text)
        if self.provider is None:
            raise NotTaken("it is no token of this service")
        found = await self.provider.bearer(text)
        if found.role is None:
            raise NotTaken(NO_ROLE.format(found.name))
        return Who(found.name, found.role, "oidc", holds=lambda: self._now_s() < found.until_s)

    def _of_token(self, text: str) -> Who:
        """Raises NotTaken."""
        found = self.tokens.find(text) if self.tokens is not None else None
        if found is None:
            raise NotTaken("it is no token of this service, it was revoked, or its time is over")
        return self._by_hash(found.sha256)

    def _by_hash(self, sha256: str, session: str = "", until_s: float = float("inf")) -> Who:
        """Raises NotTaken."""
        found = self.tokens.by_hash(sha256) if self.tokens is not None else None
        if found is None:
            raise NotTaken("the token was revoked, or its time is over")

        def holds() -> bool:
            now = self.tokens.by_hash(sha256) if self.tokens is not None else None
            return now is not None and now.role == found.role and self._now_s() < until_s

        return Who(found.name, found.role, "token", session, holds)

    # sessions of browsers

    def by_token(self, text: str) -> str:
        """The cookie of a browser that has given a token. Raises NotTaken."""
        self._of_token(text)
        return self._signed(SESSION, self._session_s, token=sha256_of(text), session=secrets.token_hex(8))

    def session(self, cookie: str) -> Who:
        """Who has this cookie. Raises NotTaken."""
        claims = self._claims(SESSION, cookie)
        session, until_s = str(claims["session"]), float(claims["exp"])
        if "token" in claims:
            return self._by_hash(str(claims["token"]), session, until_s)
        role = claims["role"]
        if self.provider is None:
            raise NotTaken("it is of a provider that is not asked any more: log in anew")
        if role not in ROLES:
            raise NotTaken("it is of another release of this service")
        return Who(str(claims["name"]), role, "oidc", session, lambda: self._now_s() < until_s)

    async def begin(self, onward: str) -> tuple[str, str]:
        """Where a browser goes to log in, and the cookie by which it is known when it comes back. Raises ProviderAway."""
        assert self.provider is not None
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        cookie = self._signed(STATE, LOGIN_S, state=state, nonce=nonce, verifier=verifier, onward=onward)
        return await self.provider.login_url(self._back, state, nonce, verifier), cookie

    async def end(self, asked: Mapping[str, str], cookie: str) -> tuple[str, str]:
        """The cookie of a browser that comes back from the provider, and where it was going. Raises NotTaken, ProviderAway."""
        assert self.provider is not None
        claims = self._claims(STATE, cookie)
        if not hmac.compare_digest(asked.get("state", "").encode(), str(claims["state"]).encode()):
            raise NotTaken("this is the end of another login: log in anew")
        if "code" not in asked:
            raise NotTaken(f"the provider refuses the login: {asked.get('error', 'without a reason')[:200]}")
        found = await self.provider.exchange(asked["code"], self._back, str(claims["nonce"]), str(claims["verifier"]))
        if found.role is None:
            raise NotTaken(NO_ROLE.format(found.name))
        session = secrets.token_hex(8)
        return self._signed(SESSION, self._session_s, name=found.name, role=found.role, session=session), str(claims["onward"])

    def _signed(self, audience: str, lasts_s: float, **claims: str) -> str:
        return jwt.encode({"aud": audience, "exp": self._now_s() + lasts_s, **claims}, self._key, "HS256")

    def _claims(self, audience: str, cookie: str) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                cookie, self._key, ["HS256"], audience=audience, options={"require": ["exp", "aud"], "verify_exp": False}
            )
        except jwt.PyJWTError:
            raise NotTaken("the login is of another time or service: log in anew") from None
        if self._now_s() >= claims["exp"]:
            raise NotTaken("the login is over: log in anew")
        return claims
