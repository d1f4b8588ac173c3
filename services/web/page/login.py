"""Logging in and out with a browser: by a token, which is typed once, or at the OIDC provider. What remains is a cookie."""

from __future__ import annotations

from urllib.parse import quote

import structlog
from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from ..access.cookies import cookie_of
from ..access.guard import START, local
from ..access.login import LOGIN_S, Login
from ..access.oidc import NotTaken, ProviderAway
from ..access.who import COOKIE, current
from ..problems import Refusal
from .forms import form_of
from .shell import PREFIX, Shell

LOGGING_IN = "__Host-millrace-login"
log = structlog.get_logger("web")


def logins(shell: Shell, login: Login) -> APIRouter:
    """The screens before all others. They show nothing of the cluster."""
    router = APIRouter(include_in_schema=False)

    def screen(onward: str, failure: str = "", status: int = 200) -> Response:
        return shell.bare(
            "login.html", status, onward=local(onward), oidc=f"{PREFIX}/login/oidc?onward={quote(local(onward), safe='')}",
            has_tokens=login.tokens is not None, has_oidc=login.provider is not None, failure=failure,
        )  # fmt: skip

    @router.get(f"{PREFIX}/login")
    async def form(onward: str = START) -> Response:
        return screen(onward)

    @router.post(f"{PREFIX}/login")
    async def by_token(request: Request) -> Response:
        given = await request.form(max_files=0, max_fields=5, max_part_size=10_000)
        onward = local(str(given.get("onward", "")))
        try:
            cookie = login.by_token(str(given.get("secret", "")).strip())
        except NotTaken as why:
            log.warning("a login is not taken", reason=str(why))
            return screen(onward, str(why), 401)
        return _with(RedirectResponse(onward, 303), COOKIE, cookie)

    @router.get(f"{PREFIX}/login/oidc")
    async def at_the_provider(onward: str = START) -> Response:
        if login.provider is None:
            raise Refusal(404, "no OIDC provider is set")
        try:
            where, cookie = await login.begin(local(onward))
        except ProviderAway as away:
            return screen(onward, str(away), 503)
        return _with(RedirectResponse(where, 303), LOGGING_IN, cookie, int(LOGIN_S))

    @router.get(f"{PREFIX}/login/back")
    async def back(request: Request) -> Response:
        if login.provider is None:
            raise Refusal(404, "no OIDC provider is set")
        try:
            cookie, onward = await login.end(request.query_params, cookie_of(request.headers, LOGGING_IN))
        except (NotTaken, ProviderAway) as why:
            log.warning("a login is not taken", reason=str(why))
            return screen(START, str(why), 503 if isinstance(why, ProviderAway) else 401)
        return _without(_with(RedirectResponse(local(onward), 303), COOKIE, cookie), LOGGING_IN)

    @router.post(f"{PREFIX}/logout")
    async def logout(request: Request) -> Response:
        await form_of(shell, request)
        return _without(RedirectResponse(f"{PREFIX}/login", 303), COOKIE)

    @router.get(f"{PREFIX}/refused")
    async def refused(request: Request) -> Response:
        who = current.get()
        why = f"{who.name} is {who.role} here. An admin can give a role that may do more."
        return shell.page(request, "nothing.html", "more", 403, headline="Your role may not do this", why=why)

    return router


def _with(response: Response, name: str, value: str, most_s: int | None = None) -> Response:
    """Lax: a link in a mail leads to the page that it names. What changes something looks at where it comes from (`access/guard.py`)."""
    response.set_cookie(name, value, most_s, path="/", secure=True, httponly=True, samesite="lax")
    return response


def _without(response: Response, name: str) -> Response:
    response.delete_cookie(name, path="/", secure=True, httponly=True, samesite="lax")
    return response
