"""The frame of every screen: templates, the browser's rules for them, files of the style, and how old what is shown is."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool

from millrace import __version__

from ..access.cookies import cookie_of
from ..access.who import current
from ..follow import Follows
from ..problems import Refusal
from ..view import View
from . import words
from .icons import icon

PREFIX = "/page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with less, a browser sends its forms from origin "null"
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding, Cookie",
}
TYPES = {"css": "text/css", "js": "text/javascript", "woff2": "font/woff2", "svg": "image/svg+xml", "txt": "text/plain"}
GZIP_FROM = 1000
TURN_MS = 2000
"""Words such as "3 s ago" are made anew so often, if nothing else has changed."""
RENDERED_MOST = 200
RENDERED_BYTES = 32 << 20
THEMES = ("auto", "light", "dark")


class File(NamedTuple):
    """A file of the style, as it is sent."""

    content: bytes
    type: str


class Fresh(NamedTuple):
    """How old what is shown is, in a word and a sentence."""

    state: str
    word: str
    detail: str
    more: str


@cache
def static_files() -> tuple[str, dict[str, File]]:
    """The files by name, and the name of this version of them. They are read once: no request reaches the file system."""
    folder = resources.files(__package__) / "static"
    found = {
        each.name: File(each.read_bytes(), TYPES[each.name.rpartition(".")[2]])
        for each in sorted(folder.iterdir(), key=lambda each: each.name)
        if each.name.rpartition(".")[2] in TYPES
    }
    digest = hashlib.sha256(b"".join(name.encode() + file.content for name, file in found.items()))
    return digest.hexdigest()[:12], found


@cache
def environment() -> Environment:
    """Templates in which whatever comes from elsewhere is escaped."""
    made = Environment(
        loader=PackageLoader("services.web.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        auto_reload=False,  # a template of the next version, put in place below a process that runs, asks for what that does not have
    )  # fmt: skip
    made.globals |= {"icon": icon, "version": __version__, "prefix": PREFIX, "JOBS": words.JOBS, "ATTEMPTS": words.ATTEMPTS,
                     "SLOTS": words.SLOTS, "UNKNOWN": words.UNKNOWN}  # fmt: skip
    # Under their own names some would take the place of Jinja's.
    made.filters |= {"many": words.count, "lasts": words.length, "subtask": words.subtask_name}
    names = (
        "number", "ago", "iso", "exact", "clock", "size", "sentence", "first_line", "own_frame", "label",
        "printable", "as_json", "local_time", "unbroken",
    )  # fmt: skip
    for name in names:
        made.filters[name] = getattr(words, name)
    return made


class Shell:
    """Renders screens. For one event loop."""

    def __init__(self, view: View, follows: Callable[[], Follows], cluster: str, stack: str = "", form_key: bytes = b"") -> None:
        """`stack`: the option that names the stack in commands. `form_key`: signs forms; empty: made anew."""
        self._view, self._follows, self._cluster, self.stack = view, follows, cluster, stack
        self._templates = environment()
        self.version, self.files = static_files()
        self._key = form_key or secrets.token_bytes(32)
        self._rendered: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self.letters: tuple[int, int] | None = None
        """Dead letters that are kept, and those of them that were not sent again; None: nobody has looked yet."""

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def fresh(self) -> Fresh:
        follows = self._follows()
        if not self._view.caught_up:
            detail = follows.trouble or "the tables are being brought back"
            return Fresh("behind", "Starting", detail, "Wait a moment: what is shown is not all yet.")
        if self._view.past:
            detail = f"looked at {words.length(follows.folded_s // 1 * 1000)} ago"
            if follows.trouble:
                return Fresh("behind", "Past", detail, f"{follows.trouble[0].upper()}{follows.trouble[1:]}. What is shown may be old.")
            return Fresh("live", "Past", detail, "The storage is looked at again and again: a job appears here when it has ended.")
        if follows.trouble:
            detail = f"shows what was {words.length(self._view.behind_s() * 1000)} ago"
            return Fresh("behind", "Behind", detail, f"{follows.trouble[0].upper()}{follows.trouble[1:]}. Jobs go on; this page is old.")
        quiet = follows.folded_s > 60
        detail = (
            f"nothing happened for {words.length(follows.folded_s // 60 * 60_000)}"
            if quiet
            else (f"last event {follows.folded_s:.0f}{words.NBSP}s" if follows.folded_s >= 1 else "last event just now"
            ) + (" ago" if follows.folded_s >= 1 else "")
        )
        more = "Everything that was said is shown. Where nothing happens, the last event grows old and all is well."
        return Fresh("live", "Live", detail, more)

    def screen(
        self, request: Request, template: str, active: str, build: Callable[[View, int], Mapping[str, Any]], version: str = ""
    ) -> Response:
        """A screen, or 304 where the asker has it. `build`: what its template is given, from the view and the time; it is not called if
        neither the view nor `version` has changed since it was."""
        wall_ms, fresh = self.wall_ms(), self.fresh()
        _, as_of = self._view.ask(lambda _: None)
        theme = _theme(request)
        rendered_from = (
            self.token(), str(request.url.path), str(request.url.query), theme, as_of["offsets"], fresh[:2], wall_ms // TURN_MS, version,
            self.letters,
        )  # fmt: skip
        tag = hashlib.sha256(repr(rendered_from).encode()).hexdigest()[:24]
        if request.headers.get("if-none-match") == f'"{tag}"':
            return Response(status_code=304, headers={**HEADERS, "ETag": f'"{tag}"'})
        body = self._rendered.get(tag)
        if body is None:
            found, as_of = self._view.ask(lambda view: {**self._frame(view), **build(view, wall_ms)})
            body = self.render(template, active=active, theme=theme, fresh=fresh, as_of=as_of, wall_ms=wall_ms, **found)
            self._keep(tag, body)
        return self.answer(request, body, 200, {"ETag": f'"{tag}"'})

    def page(self, request: Request, template: str, active: str, status: int = 200, **given: Any) -> Response:
        """A screen that is made for this request alone."""
        found, as_of = self._view.ask(self._frame)
        body = self.render(
            template, active=active, theme=_theme(request), fresh=self.fresh(), as_of=as_of, wall_ms=self.wall_ms(),
            **{**found, **given},
        )  # fmt: skip
        return self.answer(request, body, status, {"Cache-Control": "no-store"})

    async def done(
        self, request: Request, active: str, headline: str, done: Sequence[tuple[str, str, str]], back: str,
        more: Sequence[tuple[str, Any]] = (),
    ) -> Response:  # fmt: skip
        """What became of what was asked for: of each, what it was, what is said of it, its tone. `more`: the fields of the form that goes
        on with what was not looked at."""

        def page() -> Response:
            return self.page(request, "done.html", active, headline=headline, done=done, back=back, more=more)

        return await run_in_threadpool(page)

    def render(self, template: str, **given: Any) -> bytes:
        return self._templates.get_template(template).render(
            static=f"{PREFIX}/static/{self.version}", cluster=self._cluster, stack=self.stack, token=self.token(), letters=self.letters,
            past=self._view.past, who=current.get(), **given,
        ).encode()  # fmt: skip

    def answer(self, request: Request, body: bytes, status: int, headers: Mapping[str, str]) -> Response:
        sent = {**HEADERS, **headers}
        if len(body) >= GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            body = gzip.compress(body, 4, mtime=0)
            sent["Content-Encoding"] = "gzip"
        return Response(body, status, sent, media_type="text/html; charset=utf-8")

    def bare(self, template: str, status: int, **given: Any) -> Response:
        """A page that shows nothing of the cluster."""
        body = self._templates.get_template(template).render(static=f"{PREFIX}/static/{self.version}", **given).encode()
        return Response(body, status, {**HEADERS, "Cache-Control": "no-store"}, media_type="text/html; charset=utf-8")

    def token(self) -> str:
        """Stands in the forms of whoever is answered now, and is no other person's."""
        who = current.get()
        identity = "\0".join((who.how, who.name, who.role, who.session))
        return hmac.new(self._key, identity.encode(), hashlib.sha256).hexdigest()[:32]

    def check_token(self, given: object) -> None:
        """Raises Refusal for a form that this process did not make for this person: a page of another origin cannot know what is in one."""
        if not isinstance(given, str) or not hmac.compare_digest(given.encode(), self.token().encode()):
            detail = "this form is of another page, or of before the web service was started again: load its page anew, and send it again"
            raise Refusal(403, detail, "foreign-form")

    def static(self, name: str) -> Response:
        """A file of the style. Raises Refusal."""
        file = self.files.get(name)
        if file is None:
            raise Refusal(404, "there is no such file")
        return Response(file.content, 200, {"Cache-Control": "public, max-age=31536000, immutable"}, media_type=file.type)

    def _frame(self, view: View) -> dict[str, Any]:
        live = view.jobs.live()
        statuses = view.jobs.statuses()
        held = {each["job"] for each in view.jobs.in_slots()}
        states = dict(statuses)
        waits = [row["status"] for row in live if words.is_for_slots(row["waiting"]) and row["job"] not in held]
        waiting = len(waits)
        if waiting:
            states["WAITING"] = waiting
            for status in waits:
                states[status] -= 1
        slots = view.cluster.slots(view.jobs.in_slots())
        blocked = {each["task_manager"]: each["host"] for each in view.cluster.task_managers() if each["blocked"]}
        free = [blocked.get(slot["task_manager"]) for slot in slots if slot["state"] == "FREE"]
        hosts = [host for host in free if host is not None]
        return {
            "free_total": len(free) - len(hosts), "free_blocked": len(hosts), "blocked_hosts": sorted(set(hosts)),
            "states": states, "jobs_total": sum(statuses.values()), "waiting_total": waiting, "slots": slots,
            "members": len(view.cluster.task_managers()), "scopes": len(view.cluster.leaders()),
            "broken_total": sum(each["state"] == "BROKEN" for each in slots),
        }  # fmt: skip

    def _keep(self, tag: str, body: bytes) -> None:
        self._rendered[tag] = body
        self._bytes += len(body)
        while len(self._rendered) > RENDERED_MOST or self._bytes > RENDERED_BYTES:
            self._bytes -= len(self._rendered.popitem(last=False)[1])


def _theme(request: Request) -> str:
    given = cookie_of(request.headers, "theme")
    return given if given in THEMES else "auto"
