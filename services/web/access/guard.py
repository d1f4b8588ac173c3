"""What every request passes before anything looks at it: who it is from, whether that role may, and how much is asked for."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..flink.paths import DASHBOARD
from ..middleware import REQUEST_ID, Middleware, is_own
from ..problems import Refusal, answer, failed
from .cookies import COOKIES_MOST, cookie_of
from .rates import Rates, network
from .roles import STREAMS, Needs, changes, needed
from .settings import Access
from .who import ANYBODY, COOKIE, NOBODY, Who, current

if TYPE_CHECKING:
    from .login import Login

CREDENTIALS_MOST = 16 << 10
ONWARD_MOST = 2000
START = "/page/"
LOOK_S = 1.0
WITH_LOGIN = {"requests": 200.0, "commands": 20.0, "streams": 100}
"""The limits of one client, if nothing is set. Without a login all clients are one machine, which limits itself."""

log = structlog.get_logger("web")


def login_of(settings: Access) -> Login | None:
    """None: everybody may do everything. Raises BadTokens."""
    if not settings.has_login:
        return None
    from .login import Login

    return Login(settings)


class Guard(Middleware):
    """For one event loop."""

    def __init__(self, app: ASGIApp, login: Login | None = None, settings: Access | None = None) -> None:
        """`login` None: everybody may do everything."""
        super().__init__(app)
        settings = settings or Access.usual()
        usual: Mapping[str, float] = WITH_LOGIN if login is not None else {}
        self._login = login
        self._requests = Rates(settings.requests_per_s or usual.get("requests"))
        self._commands = Rates(settings.commands_per_s or usual.get("commands"))
        self._streams_most = settings.streams or usual.get("streams", math.inf)
        self._streams: Counter[str] = Counter()

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        address = scope["client"][0] if scope.get("client") else ""
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        needs = needed(method, scope["path"]) if self._login is not None else None

        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        refused: Refusal | None = None
        try:
            who = await self._who(headers, needs == "nobody")
        except Refusal as refusal:
            who, refused = NOBODY, refusal
        client = who.name or network(address)
        try:
            self._charge(client, changes(method, scope["path"]))
            if refused is not None:
                raise refused
            if self._login is not None:
                self._check(who, needs, scope, headers)
        except Refusal as refusal:
            await self._refuse(refusal, scope, headers)(scope, receive, send_noted)
            return
        who = replace(who, address=address, request=scope[REQUEST_ID])
        token = current.set(who)
        try:
            if scope["path"].startswith(STREAMS):
                await self._follow(who, client, scope, receive, send_noted)
            else:
                await self._app(scope, receive, send_noted)
        except Exception as error:
            answer = failed(scope["path"], error)
            if not begun:
                await answer(scope, receive, send_noted)
        finally:
            current.reset(token)

    async def _who(self, headers: Headers, is_open: bool) -> Who:
        """Raises Refusal."""
        if len(headers.get("cookie", "")) > COOKIES_MOST:
            raise Refusal(431, f"the cookies are longer than {COOKIES_MOST} characters: delete those of this service in the browser")
        login = self._login
        if login is None or is_open:
            return ANYBODY if login is None else NOBODY
        from .oidc import NotTaken, ProviderAway

        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        cookie = cookie_of(headers, COOKIE)
        try:
            if len(bearer) > CREDENTIALS_MOST:
                raise NotTaken(f"it is longer than {CREDENTIALS_MOST} characters")
            if scheme.lower() == "bearer":
                return await login.bearer(bearer.strip())
            if cookie:
                return login.session(cookie)
        except NotTaken as why:
            log.info("a login is not taken", reason=str(why))
            raise _login_first(f"the token is not taken: {why}", 'Bearer error="invalid_token"') from None
        except ProviderAway as away:
            raise Refusal(503, str(away), "login-away", headers={"Retry-After": "10"}) from None
        raise _login_first("this service wants to know who you are: send Authorization: Bearer TOKEN, or log in at /page/login", "Bearer")

    def _charge(self, client: str, is_command: bool) -> None:
        """Raises Refusal."""
        for rates, what in ((self._requests, "requests"), *(((self._commands, "commands"),) if is_command else ())):
            if wait_s := rates.wait_s(client):
                detail = f"too many {what} of {client or 'one client'} in a short time; try again"
                raise Refusal(429, detail, headers={"Retry-After": str(math.ceil(wait_s))})

    def _check(self, who: Who, needs: Needs | None, scope: Scope, headers: Headers) -> None:
        """Raises Refusal."""
        if needs is None:
            raise Refusal(404, f"there is no {scope['path'][:200]}, or not for {scope['method']}")
        if needs == "nobody":
            return
        if not who.may(needs):
            log.warning("refused: the role is too low", name=who.name, role=who.role, needs=needs, path=scope["path"][:200])
            raise Refusal(403, f"{who.name} is {who.role} here, and this needs {needs}: an admin can give that role", "role")
        if who.session and changes(scope["method"], scope["path"]) and not _is_meant(scope, headers):
            raise Refusal(403, "with a browser's session only this service's own pages change something", "cross-origin")

    def _refuse(self, refusal: Refusal, scope: Scope, headers: Headers) -> Response:
        """A person who goes to a page is shown one: to log in, or that the role is too low."""
        is_page = scope["path"].startswith(("/page", "/flink/")) or scope["path"] == "/"
        if self._login is None or not is_page or "text/html" not in headers.get("accept", ""):
            return answer(refusal)
        if refusal.kind == "role":
            return RedirectResponse("/page/refused", 303)
        if refusal.status_code == 401:
            query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
            onward = local(f"{scope['path']}{query}") if scope["method"] == "GET" else START
            return RedirectResponse(f"/page/login?onward={quote(onward, safe='')}", 303)
        return answer(refusal)

    async def _follow(self, who: Who, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A stream lasts as long as its login: what it sends is the moment to look, and it sends something every 15 s."""
        if self._streams[client] >= self._streams_most:
            refusal = Refusal(429, f"{self._streams_most} streams of {client} are open already", headers={"Retry-After": "1"})
            await answer(refusal)(scope, receive, send)
            return
        looked_s = time.monotonic()

        async def send_while_it_holds(message: Message) -> None:
            nonlocal looked_s
            if time.monotonic() - looked_s > LOOK_S:
                looked_s = time.monotonic()
                if not who.holds():
                    await send({"type": "http.response.body", "body": b"", "more_body": False})  # else the server logs an error
                    raise ClientDisconnect
            await send(message)

        self._streams[client] += 1
        try:
            await self._app(scope, receive, send_while_it_holds)
        finally:
            self._streams[client] -= 1
            if not self._streams[client]:
                del self._streams[client]


def _login_first(detail: str, challenge: str) -> Refusal:
    return Refusal(401, detail, headers={"WWW-Authenticate": challenge})


def local(onward: str) -> str:
    """Where a login leads: a screen of the page, or the dashboard's first, whatever was asked for. A link could lead from here to
    anywhere, and what Flink's dashboard asks for by GET may cancel a job."""
    path = unquote(onward.partition("?")[0])
    is_screen = path == f"{DASHBOARD}/" or (path.startswith(START) and "/." not in path and "\\" not in path)
    return onward if is_screen and onward.isprintable() and len(onward) <= ONWARD_MOST else START


def _is_meant(scope: Scope, headers: Headers) -> bool:
    """Whether a browser says that one of our pages sent this: a GET could be a picture in anybody's page, or a link in a mail. A GET that
    changes something is a script's: where a login form leads, or a link of ours, comes from our page, too."""
    if scope["method"] == "GET" and headers.get("sec-fetch-dest", "empty") != "empty":
        return False
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site == "same-origin"
    return origin is not None and is_own(origin, scope)


