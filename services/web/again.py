"""Answers that are given again, and made anew when what they tell of has changed, by the bytes of their requests.

Most reads are repeats: a page, a script that waits for a job, a monitor. Of such a request nothing is looked at but its bytes and the tag
of what the asker has. It is answered as the one before was, with as of when the tables are now.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace.io.http.server import RAW
from millrace.runtime.metrics import WEB_REQUESTS

from .access.roles import route_of
from .changes import Level, Subject
from .middleware import Middleware
from .view import View

MARK = "millrace.again"
REQUEST_MOST = 4096
ANSWER_MOST = 1 << 20
ANSWERS_MOST = 2000
ANSWERS_BYTES_MOST = 32 << 20
TAG = re.compile(rb"\r\nif-none-match:[ \t]*([^\r]*)", re.IGNORECASE)
OWN = (b"x-request-id", b"content-length", b"content-type", b"etag")
"""Headers that each answer has anew."""
Question = Callable[[View], Mapping[str, Any]]


@dataclass(frozen=True)
class ViewAnswer:
    """What the view answered: the same until `subject` has changed behind `number` of a change."""

    subject: Subject
    number: int
    rest: bytes
    """The body behind as of when it is."""
    etag: bytes

    def body(self, as_of: bytes) -> bytes:
        return b'{"as_of":%b,%b' % (as_of, self.rest)

    def is_known(self, given: bytes) -> bool:
        """Whether who has what is given has this. RFC 9110: compared without the sign of a weak one."""
        strong = self.etag.removeprefix(b"W/")
        return any(each.strip().removeprefix(b"W/") in (strong, b"*") for each in given.split(b","))


def answer_of(view: View, question: Question, subject: Subject) -> tuple[ViewAnswer, bytes]:
    """The view's answer, and as of when it is, as JSON."""
    (found, number), as_of = view.ask(lambda view: (question(view), view.changes.number))
    body = json.dumps(found, separators=(",", ":")).encode()
    etag = b'W/"%b"' % hashlib.sha1(body, usedforsecurity=False).hexdigest().encode()
    return ViewAnswer(subject, number, body[1:], etag), json.dumps(as_of).encode()


@dataclass(frozen=True)
class _Answer:
    found: ViewAnswer
    question: Question
    headers: bytes
    """But those that each answer has anew."""
    route: str
    """It is counted under that."""


@dataclass
class _Mark:
    """What a handler says of its answer."""

    made: tuple[ViewAnswer, Question] | None = None


def keep(scope: Scope, answer: ViewAnswer, question: Question) -> None:
    """The same request is answered by the same question to the view, as long as there is its subject."""
    mark = scope.get(MARK)
    if mark is not None:
        mark.made = (answer, question)


@dataclass
class Answers:
    """The newest of them. For one event loop."""

    view: View
    _kept: dict[bytes, _Answer] = field(default_factory=dict)
    _bytes: int = 0

    def again(self, raw: bytes) -> bytes | None:
        """The whole answer to a request, as it goes out; None: it is to be made as any other is."""
        began_s = time.perf_counter()
        key, tag = _parted(raw)
        kept = self._kept.get(key)
        if kept is None:
            return None
        as_of = self.view.unchanged(kept.found.subject, kept.found.number)
        if as_of is None:
            try:
                made, as_of = answer_of(self.view, _still_there(kept), kept.found.subject)
            except Exception:  # whatever it is, who makes answers as others are made says it
                return None
            self.put(key, kept := replace(kept, found=made))
        own = b"etag: %b\r\n%bx-request-id: %016x\r\n" % (kept.found.etag, kept.headers, random.getrandbits(64))
        if tag is not None and kept.found.is_known(tag) and not self.view.behind_s():
            answer, status = b"HTTP/1.1 304 Not Modified\r\n%b\r\n" % own, "3xx"
        else:
            body = kept.found.body(as_of)
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            answer, status = b"%b%b\r\n%b" % (head, own, body), "2xx"
        WEB_REQUESTS.observe(time.perf_counter() - began_s, kept.route, "GET", status)
        return answer

    def put(self, key: bytes, answer: _Answer) -> None:
        self._drop(key)
        if len(answer.found.rest) <= ANSWER_MOST:
            self._kept[key] = answer
            self._bytes += _size(key, answer)
        while len(self._kept) > ANSWERS_MOST or self._bytes > ANSWERS_BYTES_MOST:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._bytes -= _size(key, old)


def _still_there(kept: _Answer) -> Question:
    """Its question, where its job is still among those that are kept: of another one perhaps the cluster knows."""
    subject, question = kept.found.subject, kept.question

    def asked(view: View) -> Mapping[str, Any]:
        if not isinstance(subject, Level) and view.jobs.row(subject) is None:
            raise LookupError(subject)
        return question(view)

    return asked


def _parted(raw: bytes) -> tuple[bytes, bytes | None]:
    """A request without the tag of what the asker has, and that."""
    found = TAG.search(raw)
    return (raw, None) if found is None else (raw[: found.start()] + raw[found.end() :], found[1])


def _size(key: bytes, answer: _Answer) -> int:
    return len(key) + len(answer.headers) + len(answer.found.rest) + 1000


class KeepAnswers(Middleware):
    """The outermost: keeps answers as they go out, with all headers. What is answered from there no other middleware sees."""

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        super().__init__(app)
        self._answers = answers

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get(RAW)
        if raw is None or len(raw) > REQUEST_MOST or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        mark = _Mark()

        async def send_kept(message: Message) -> None:
            if message["type"] == "http.response.start" and mark.made is not None and message["status"] in (200, 304):
                answer, question = mark.made
                route = route_of("GET", scope["path"])
                lines = [b"%b: %b\r\n" % (name, value) for name, value in message["headers"] if name.lower() not in OWN]
                self._answers.put(_parted(raw)[0], _Answer(answer, question, b"".join(lines), route))
            await send(message)

        await self._app({**scope, MARK: mark}, receive, send_kept)
